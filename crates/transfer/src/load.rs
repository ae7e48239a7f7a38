//! Records of a snapshot as requests: a value as RESTORE, a large collection as several requests
//! that fill it.

use crate::source::Problem;
use rdb::file::{Access, Foreign, Item, Record, ScanStep, Scanner};
use rdb::{Builder, Decoder, Kind, Limits, Object, VALKEY_VERSION};
use structs::crc64::crc64;

/// Collections of more bytes come in pieces of this size.
const PIECE: usize = 1 << 20;

/// What is to be done with a record of a snapshot.
pub struct Load<'a> {
    /// The database.
    pub db: u32,
    /// The key; `None` for what concerns all of the target.
    pub key: Option<&'a [u8]>,
    /// The request.
    pub words: &'a [&'a [u8]],
}

/// What has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// Bytes.
    pub bytes: u64,
    /// Keys.
    pub keys: u64,
}

/// The collection that comes in pieces.
struct Large {
    record: Record,
    key: Vec<u8>,
}

/// See the head of this file.
pub struct Loader {
    scanner: Scanner,
    crc: u64,
    is_done: bool,
    large: Option<Large>,
    loaded: Loaded,
    limits: Limits,
    payload: Vec<u8>,
    /// Nothing is sent.
    only_checks: bool,
}

type Send<'a> = &'a mut dyn FnMut(Load<'_>) -> Result<(), Problem>;

impl Default for Loader {
    fn default() -> Loader {
        Loader {
            scanner: Scanner::new(0, u64::MAX, PIECE).knowing(datatypes::ALL),
            crc: 0,
            is_done: false,
            large: None,
            loaded: Loaded::default(),
            limits: Limits::default(),
            payload: Vec::new(),
            only_checks: false,
        }
    }
}

impl Loader {
    /// Looks at the form and the checksum of a snapshot, without making requests.
    pub fn checking() -> Loader {
        Loader { only_checks: true, ..Loader::default() }
    }

    /// What has been read so far.
    pub fn loaded(&self) -> Loaded {
        self.loaded
    }

    /// Whether the end has been read, and the checksum is right.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes what stands at the front of the input. Returns the bytes that it took, or `None` if
    /// there must be more.
    ///
    /// # Errors
    /// The snapshot is damaged, or has what no server without modules can load; and those of
    /// `send`.
    pub fn take(&mut self, input: &[u8], send: Send<'_>) -> Result<Option<usize>, Problem> {
        let step = self.scanner.next(input).map_err(|why| self.damaged(&format!("{why:?}")))?;
        let ScanStep::Item(item, taken) = step else { return Ok(None) };
        let bytes = &input[..taken];
        if !matches!(item, Item::Checksum(_)) {
            self.crc = crc64(self.crc, bytes);
        }
        self.loaded.bytes += taken as u64;
        if self.only_checks && matches!(item, Item::Record(_) | Item::Begin(..)) {
            self.loaded.keys += 1;
            return Ok(Some(taken));
        }
        match item {
            Item::Elements(_) | Item::End | Item::Function(_) if self.only_checks => {}
            Item::Record(record) => self.record(&record, bytes, send)?,
            Item::Begin(record, _) => self.begin(record, bytes, send)?,
            Item::Elements(count) => self.elements(count, bytes, send)?,
            Item::End => self.end(send)?,
            Item::Function(source) => {
                let words: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", &source];
                send(Load { db: self.scanner.db(), key: None, words: &words })?;
            }
            Item::Foreign(what @ Foreign::Key { .. }) => {
                return Err(Problem::Final(format!("{what} cannot be loaded")));
            }
            // What modules keep beside their keys is of no use without them.
            Item::Foreign(_) => {}
            Item::Checksum(expected) if expected != 0 && expected != self.crc => {
                return Err(self.damaged("its checksum is wrong"));
            }
            Item::Checksum(_) => self.is_done = true,
            // Files of the first versions have no checksum.
            Item::EndOfFile => self.is_done = self.scanner.is_done(),
            _ => {}
        }
        Ok(Some(taken))
    }

    fn damaged(&self, why: &str) -> Problem {
        let (at, doing) = (self.scanner.position(), self.scanner.doing().name());
        Problem::Again(format!("the snapshot is damaged at byte {at}, {doing}: {why}"))
    }

    fn key(&self, record: &Record, bytes: &[u8]) -> Result<Vec<u8>, Problem> {
        let key = Decoder::new(&bytes[record.key_at..]).string();
        Ok(key.map_err(|why| self.damaged(&format!("{why:?}")))?.into_owned())
    }

    fn record(&mut self, record: &Record, bytes: &[u8], send: Send<'_>) -> Result<(), Problem> {
        self.loaded.keys += 1;
        let key = self.key(record, bytes)?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        payload.push(record.kind);
        payload.extend_from_slice(&bytes[record.value_at..]);
        payload.extend_from_slice(&self.scanner.version().to_le_bytes());
        let checksum = crc64(0, &payload);
        payload.extend_from_slice(&checksum.to_le_bytes());
        let ttl = record.expiry_ms.unwrap_or(0).to_string();
        let mut words: Vec<&[u8]> = vec![b"RESTORE", &key, ttl.as_bytes(), &payload, b"REPLACE"];
        if record.expiry_ms.is_some() {
            words.push(b"ABSTTL");
        }
        let access = match record.access {
            Access::Unknown => None,
            Access::IdleSeconds(seconds) => Some((&b"IDLETIME"[..], seconds.to_string())),
            Access::Frequency(count) => Some((&b"FREQ"[..], count.to_string())),
        };
        if let Some((option, value)) = &access {
            words.extend([option, value.as_bytes()]);
        }
        send(Load { db: record.db, key: Some(&key), words: &words })?;
        self.payload = payload;
        Ok(())
    }

    fn begin(&mut self, record: Record, bytes: &[u8], send: Send<'_>) -> Result<(), Problem> {
        self.loaded.keys += 1;
        let key = self.key(&record, bytes)?;
        send(Load { db: record.db, key: Some(&key), words: &[b"UNLINK", &key] })?;
        self.large = Some(Large { record, key });
        Ok(())
    }

    fn elements(&mut self, count: u64, bytes: &[u8], send: Send<'_>) -> Result<(), Problem> {
        let damaged = |why: &str| Problem::Again(format!("the snapshot is damaged: {why}"));
        let Some(large) = &self.large else { return Err(damaged("elements without a key")) };
        let is_valkey = self.scanner.version() >= VALKEY_VERSION;
        let kind = Kind::in_dialect(large.record.kind, is_valkey);
        let count = usize::try_from(count).map_err(|_| damaged("too many elements"))?;
        let builder = kind.and_then(|kind| Builder::new(kind, count, &self.limits));
        let mut builder = builder.ok_or_else(|| damaged("a collection of an unknown type"))?;
        let part = builder.add(&mut Decoder::new(bytes), count).and_then(|()| builder.finish());
        let part = part.map_err(|why| damaged(&format!("{why:?}")))?;
        fill(large, &part, send)
    }

    fn end(&mut self, send: Send<'_>) -> Result<(), Problem> {
        let Some(Large { record, key }) = self.large.take() else { return Ok(()) };
        let Some(expiry) = record.expiry_ms else { return Ok(()) };
        let expiry = expiry.to_string();
        let words: [&[u8]; 3] = [b"PEXPIREAT", &key, expiry.as_bytes()];
        send(Load { db: record.db, key: Some(&key), words: &words })
    }
}

fn fill(large: &Large, part: &Object, send: Send<'_>) -> Result<(), Problem> {
    let (db, key) = (large.record.db, &*large.key);
    // Strings and streams come whole.
    rdb::fill(part.as_ref(), key, &mut |words| send(Load { db, key: Some(key), words })).map(drop)
}
