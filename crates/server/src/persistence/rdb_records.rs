//! Encodes a snapshot's entries in the form of RDB files.

use engine::Engine;
use engine::snapshot::Encode;
use keyspace::access::{self, Policy};
use keyspace::snapshot::record::{Form, Head, Token, Tokens};
use rdb::file::{Access, RecordHead};
use rdb::{Compression, Encoder, Kind};
use structs::list::Chunk;
use structs::listpack::{Element, Listpack};
use structs::stream::Part;

/// A string that arrives in parts is joined up to this many bytes, so that it can be compressed.
/// Longer strings are written as they are.
const JOIN_UP_TO: u64 = 8 << 20;

/// The RDB version of Redis 7.2, which introduced packed sets, and streams with the time of a
/// consumer's last success.
const REDIS_7_2: u16 = 11;

/// One thread's encoder.
pub struct RdbRecords {
    to: Encoder,
    records: Records,
}

/// Converts tokens to records.
struct Records {
    /// The meaning of access bits, if the file contains them.
    access: Option<Policy>,
    now_ms: i64,
    /// Whether the next string is a chunk of a list, and whether the chunk is packed.
    chunk: Option<bool>,
    /// The string that arrives in parts, and its length.
    parts: Option<(Vec<u8>, usize)>,
    /// Whether the reader is older than Redis 7.2. Then packed sets are written element by element,
    /// and streams in their older form.
    is_for_old: bool,
    /// Whether the next string is a packed set.
    is_packed_set: bool,
    /// Whether the next string is a value of a module type.
    is_module: bool,
    /// Whether integers are expiry times of hash fields.
    is_timed: bool,
    /// If set, hashes with expiring fields are written in the form of Redis 7.4, where a field's
    /// expiry comes before the field. The field and its value are kept here until the expiry is
    /// known.
    field: Option<Encoder>,
    /// The head of a stream, kept until the data before it is known.
    stream: Option<Encoder>,
}

impl RdbRecords {
    /// Creates an encoder for readers of this version, with the present options.
    pub fn for_version(engine: &Engine, version: u16) -> RdbRecords {
        let config = &engine.config;
        let policy = config.maxmemory_policy().name();
        let is_needed = policy.ends_with("lru") || policy.ends_with("lfu");
        let compression = if config.rdbcompression() { Compression::Lzf } else { Compression::Off };
        let is_for_redis = version == rdb::REDIS_TIMED_VERSION;
        let records = Records {
            field: is_for_redis.then(|| Encoder::new(compression)),
            access: is_needed.then(|| engine.access_policy()),
            now_ms: engine::clock::now().0,
            chunk: None,
            parts: None,
            is_for_old: version < REDIS_7_2,
            is_packed_set: false,
            is_module: false,
            is_timed: false,
            stream: None,
        };
        RdbRecords { to: Encoder::new(compression), records }
    }
}

impl Records {
    fn token(&mut self, token: Token<'_>, to: &mut Encoder) {
        if let Token::Head(head @ Head { form: Form::Stream, .. }) = &token {
            let mut stream = Encoder::new(Compression::Off);
            self.head(head, &mut stream);
            self.stream = Some(stream);
            return;
        }
        if let Some(stream) = self.stream.take() {
            if let Token::Stream(Part::Idempotency(bytes)) = &token {
                to.aux(rdb::IDEMPOTENCY, bytes);
            }
            to.raw(stream.as_bytes());
        }
        if self.is_timed
            && !matches!(token, Token::Head(_))
            && let Some(mut field) = self.field.take()
        {
            self.part_of_field(token, &mut field, to);
            self.field = Some(field);
            return;
        }
        self.plain_token(token, to);
    }

    /// Writes a token of a hash with expiring fields, in the form of Redis 7.4. For each field this
    /// is: 0, or the time by which its expiry exceeds the earliest expiry, plus one; the field; the
    /// value. The earliest expiry is written as 0.
    fn part_of_field(&mut self, token: Token<'_>, field: &mut Encoder, to: &mut Encoder) {
        let Token::Int(expiry) = token else { return self.plain_token(token, field) };
        to.length(u64::try_from(expiry).map_or(0, |expiry| expiry + 1));
        to.raw(field.as_bytes());
        field.clear();
    }

    fn plain_token(&mut self, token: Token<'_>, to: &mut Encoder) {
        match token {
            Token::Head(head) => self.head(&head, to),
            Token::Bytes(bytes) => self.string(bytes, to),
            Token::Int(expiry) if self.is_timed => to.field_expiry(expiry),
            Token::Int(number) => to.integer(number),
            Token::Score(score) => to.binary_double(score),
            Token::Chunk { is_packed } => self.chunk = Some(is_packed),
            Token::Long(len) => self.long(len, to),
            Token::Part(bytes) => self.part(bytes, to),
            Token::Cold(_) => unreachable!("the snapshot has read cold values"),
            Token::Stream(part) if self.is_for_old => to.old_stream_part(part),
            Token::Stream(part) => to.stream_part(part),
        }
    }

    fn head(&mut self, head: &Head<'_>, to: &mut Encoder) {
        let access = match self.access {
            None => Access::Unknown,
            Some(policy @ (Policy::Lru | Policy::Clock)) => {
                Access::IdleSeconds(access::idle_seconds(policy, head.access, self.now_ms).into())
            }
            Some(policy) => Access::Frequency(access::frequency(policy, head.access, self.now_ms)),
        };
        let kind = match head.form {
            Form::String => Kind::String,
            Form::List => Kind::ListQuicklist2,
            Form::SetIntset => Kind::SetIntset,
            Form::SetListpack if self.is_for_old => Kind::Set,
            Form::SetListpack => Kind::SetListpack,
            Form::Set => Kind::Set,
            Form::HashListpack => Kind::HashListpack,
            Form::Hash => Kind::Hash,
            Form::ZsetListpack => Kind::ZsetListpack,
            Form::Zset => Kind::Zset2,
            Form::Stream if self.is_for_old => Kind::StreamListpacks2,
            Form::Stream => Kind::StreamListpacks3,
            Form::TimedHash if self.field.is_some() => Kind::RedisTimedHash,
            Form::TimedHash => Kind::TimedHash,
            Form::Module => Kind::Module,
        };
        let record = RecordHead { key: head.key, expiry_ms: head.expiry.map(|at| at.0), access };
        to.record_head(&record, kind);
        self.is_module = head.form == Form::Module;
        self.is_packed_set = self.is_for_old && head.form == Form::SetListpack;
        self.is_timed = head.form == Form::TimedHash;
        if self.is_timed && self.field.is_some() {
            to.raw(&0i64.to_le_bytes());
        }
        use Form::{Hash, List, Set, Stream, TimedHash, Zset};
        if matches!(head.form, List | Set | Hash | TimedHash | Zset | Stream) {
            to.length(head.count);
        }
    }

    fn string(&mut self, bytes: &[u8], to: &mut Encoder) {
        if std::mem::take(&mut self.is_packed_set) {
            return unpack_set(bytes, to);
        }
        if self.is_module {
            return rdb::module::recode(bytes, to).expect("the keyspace has sound values");
        }
        match self.chunk.take() {
            None => to.string(bytes),
            Some(true) => to.list_chunk(Chunk::Packed(bytes.into())),
            Some(false) => to.list_chunk(Chunk::Plain(bytes)),
        }
    }

    fn long(&mut self, len: u64, to: &mut Encoder) {
        if len <= JOIN_UP_TO {
            self.parts = Some((Vec::with_capacity(len as usize), len as usize));
            return;
        }
        match self.chunk.take() {
            None => {}
            Some(true) => to.length(rdb::NODE_PACKED),
            Some(false) => to.length(rdb::NODE_PLAIN),
        }
        // A value of a module type says itself where it ends.
        if !self.is_module {
            to.length(len);
        }
    }

    fn part(&mut self, bytes: &[u8], to: &mut Encoder) {
        let Some((mut joined, len)) = self.parts.take() else { return to.raw(bytes) };
        joined.extend_from_slice(bytes);
        if joined.len() < len {
            self.parts = Some((joined, len));
        } else {
            self.string(&joined, to);
        }
    }
}

/// Writes a packed set element by element.
fn unpack_set(bytes: &[u8], to: &mut Encoder) {
    let set = Listpack::from_bytes(bytes).expect("the keyspace has sound listpacks");
    to.length(set.count() as u64);
    for element in set.iter() {
        match element {
            Element::Int(number) => to.integer(number),
            Element::Bytes(bytes) => to.string(bytes),
        }
    }
}

impl Encode for RdbRecords {
    fn encode(&mut self, tokens: Tokens<'_>, out: &mut Vec<u8>) {
        self.to.swap(out);
        for token in tokens {
            self.records.token(token, &mut self.to);
        }
        self.to.swap(out);
    }

    fn end_of_value(&mut self, _out: &mut Vec<u8>) {
        let Records { parts, chunk, .. } = &self.records;
        debug_assert!(parts.is_none() && chunk.is_none(), "a value was cut short");
    }

    fn held_bytes(&self) -> usize {
        self.records.parts.as_ref().map_or(0, |(joined, _)| joined.capacity())
    }
}
