//! Cutting a file into records, without decoding them.
//!
//! A [`Scanner`] is given what has arrived of a file, and says what stands at its front and how
//! many bytes that takes; the caller drops these and asks again. Records of ordinary size come
//! whole. A collection that is larger than `piece_bytes` comes in pieces of whole elements, so
//! memory stays bounded by the largest string and not by the largest value. A value of a type that
//! cannot be loaded is announced, and stepped over if the caller asks for more.

use super::opcode;
use super::shape::{self, Walk, shape};
use super::write::Access;
use crate::module::{self, Id, Types};
use crate::{Builder, Decoder, Error, Kind, NEWEST_VERSION, VALKEY_VERSION};
use std::fmt;

/// A key and its value, as offsets into the bytes that the item takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The database it is in.
    pub db: u32,
    /// The value's type; one of [`Kind`]'s unless it is announced as foreign.
    pub kind: u8,
    /// Milliseconds since the epoch of Unix.
    pub expiry_ms: Option<i64>,
    /// Its last use.
    pub access: Access,
    /// Where the key begins, a string in any form.
    pub key_at: usize,
    /// Where the value begins.
    pub value_at: usize,
}

/// What stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The first bytes, with the version.
    Header(u16),
    /// A field of metadata.
    Aux {
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// Keys that follow are in this database.
    SelectDb(u32),
    /// How large the database is; a hint.
    ResizeDb {
        /// Keys.
        keys: u64,
        /// Those of them that expire.
        expiring: u64,
    },
    /// A library of functions; its source.
    Function(Vec<u8>),
    /// A key with its value.
    Record(Record),
    /// The key of a large collection, up to its first element, with the number of elements;
    /// [`Item::Elements`] follow, and [`Item::End`].
    Begin(Record, u64),
    /// So many elements of a large collection.
    Elements(u64),
    /// The end of a large collection.
    End,
    /// Something that cannot be loaded. A caller that wants the rest skips it.
    Foreign(Foreign),
    /// Bytes without a meaning of their own: a part of what is done without.
    Passed,
    /// The mark of the end; checksums cover everything up to and including it.
    EndOfFile,
    /// The checksum, 0 if there is none. Not in files before version 5.
    Checksum(u64),
}

/// Things in files that there is no place for here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A key with a value of a type that is not supported.
    Key {
        /// The key.
        key: Vec<u8>,
        /// The type's name.
        kind: &'static str,
        /// The module, if the type is one's.
        module: Option<String>,
    },
    /// Data of a module's, by the name of its type.
    ModuleAux(String),
    /// The state of a slot that was being moved.
    SlotImport,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { key, kind, module: Some(module) } => {
                write!(f, "key '{}' of type {kind} of module '{module}'", key.escape_ascii())
            }
            Self::Key { key, kind, module: None } => {
                write!(f, "key '{}' of type {kind}", key.escape_ascii())
            }
            Self::ModuleAux(module) => write!(f, "data of module '{module}'"),
            Self::SlotImport => f.write_str("the state of a slot's migration"),
        }
    }
}

/// What was being read; redis-check-rdb's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The header.
    Start,
    /// A type or opcode.
    Type,
    /// An expiry.
    Expire,
    /// A key.
    Key,
    /// A value.
    Value,
    /// The checksum.
    Checksum,
    /// A length.
    Length,
    /// A field of metadata.
    Aux,
    /// A module's data.
    ModuleAux,
    /// Functions.
    Functions,
}

impl Doing {
    /// As redis-check-rdb says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Type => "read-type",
            Self::Expire => "read-expire",
            Self::Key => "read-key",
            Self::Value => "read-object-value",
            Self::Checksum => "check-sum",
            Self::Length => "read-len",
            Self::Aux => "read-aux",
            Self::ModuleAux => "read-module-aux",
            Self::Functions => "read-functions",
        }
    }
}

/// An item and the bytes that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// There must be more bytes; none have been taken.
    More,
    /// An item that takes so many bytes.
    Item(Item, usize),
}

enum ScanState {
    Header,
    /// In front of a type or opcode.
    Between,
    /// Within a value.
    Value(Record, Walk),
    /// Within a large collection, behind its beginning.
    Pieces(Walk),
    /// Within something to do without.
    Foreign(Walk),
    Checksum,
    Done,
}

/// How a value's name is kept for messages without holding on to a huge one.
const KEY_SHOWN: usize = 256;

/// Cuts a file; see the module's documentation.
pub struct Scanner {
    state: ScanState,
    version: u16,
    is_valkey: bool,
    piece_bytes: usize,
    accepts_newer: bool,
    /// The module types whose values are records.
    types: Types,
    /// Where the container ends.
    end: u64,
    /// Of the first byte that has not been taken.
    offset: u64,
    /// How far beyond it has been read.
    at: usize,
    db: u32,
    expiry_ms: Option<i64>,
    access: Access,
    doing: Doing,
    kind: Option<u8>,
    key: Option<Vec<u8>>,
}

impl Scanner {
    /// A scanner at the beginning of a file, which stands at byte `offset` of its container; the
    /// container ends at byte `end`, so no longer string is waited for. Collections of more than
    /// `piece_bytes` come in pieces of about this size.
    pub fn new(offset: u64, end: u64, piece_bytes: usize) -> Self {
        Self {
            state: ScanState::Header,
            version: 0,
            is_valkey: false,
            piece_bytes,
            accepts_newer: false,
            types: &[],
            end,
            offset,
            at: 0,
            db: 0,
            expiry_ms: None,
            access: Access::Unknown,
            doing: Doing::Start,
            kind: None,
            key: None,
        }
    }

    /// Where reading stands, in bytes from the container's beginning.
    pub fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Reads files of versions that were not known when this was written, as far as it can.
    pub fn accept_newer(mut self, accepts: bool) -> Self {
        self.accepts_newer = accepts;
        self
    }

    /// Takes values of these module types for records. Without them they are foreign.
    pub fn knowing(mut self, types: Types) -> Self {
        self.types = types;
        self
    }

    /// The database that keys are in.
    pub fn db(&self) -> u32 {
        self.db
    }

    /// What is being read.
    pub fn doing(&self) -> Doing {
        self.doing
    }

    /// The key whose value is being read, or the front of a long one.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The type of the value that is being read: its number and name.
    pub fn kind(&self) -> Option<(u8, &'static str)> {
        self.kind.map(|kind| (kind, shape(kind, self.is_valkey).name))
    }

    /// The version, once the header has been read.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// What `input` begins with, which is the first byte that has not been taken and all that has
    /// arrived behind it. After an error the scanner still knows where and in what it was.
    pub fn next(&mut self, input: &[u8]) -> Result<ScanStep, Error> {
        let step = self.step(input)?;
        if let ScanStep::Item(_, taken) = step {
            self.offset += taken as u64;
            self.at -= taken;
        }
        Ok(step)
    }

    fn step(&mut self, input: &[u8]) -> Result<ScanStep, Error> {
        loop {
            match &mut self.state {
                ScanState::Header => return self.header(input),
                ScanState::Between => match self.between(input) {
                    Ok(Some(item)) => return Ok(ScanStep::Item(item, self.at)),
                    Ok(None) => {}
                    Err(Error::Truncated) => return Ok(ScanStep::More),
                    Err(error) => return Err(error),
                },
                ScanState::Value(record, walk) => {
                    if walk.advance(input, &mut self.at)? {
                        let record = *record;
                        self.key_ends();
                        return Ok(ScanStep::Item(Item::Record(record), self.at));
                    }
                    fits(walk.pending, self.offset + self.at as u64, self.end)?;
                    if self.at < self.piece_bytes || !in_elements(record.kind) {
                        return Ok(ScanStep::More);
                    }
                    return self.begin_pieces(input);
                }
                ScanState::Pieces(walk) => {
                    let ended = walk.advance(input, &mut self.at)?;
                    let taken = walk.boundary;
                    let elements = std::mem::take(&mut walk.elements);
                    if elements > 0 {
                        // The end comes as an item of its own.
                        walk.boundary = 0;
                        return Ok(ScanStep::Item(Item::Elements(elements), taken));
                    }
                    if !ended {
                        fits(walk.pending, self.offset + self.at as u64, self.end)?;
                        return Ok(ScanStep::More);
                    }
                    self.key_ends();
                    return Ok(ScanStep::Item(Item::End, self.at));
                }
                ScanState::Foreign(walk) => {
                    let ended = walk.advance(input, &mut self.at)?;
                    if ended {
                        self.key_ends();
                    } else if self.at == 0 {
                        fits(walk.pending, self.offset, self.end)?;
                        return Ok(ScanStep::More);
                    }
                    return Ok(ScanStep::Item(Item::Passed, self.at));
                }
                ScanState::Checksum => {
                    let Some(bytes) = input[self.at..].first_chunk() else {
                        return Ok(ScanStep::More);
                    };
                    self.at += bytes.len();
                    self.state = ScanState::Done;
                    return Ok(ScanStep::Item(Item::Checksum(u64::from_le_bytes(*bytes)), self.at));
                }
                ScanState::Done => return Ok(ScanStep::More),
            }
        }
    }

    /// Whether everything has been read; what follows is not the file's any more.
    pub fn is_done(&self) -> bool {
        matches!(self.state, ScanState::Done)
    }

    fn header(&mut self, input: &[u8]) -> Result<ScanStep, Error> {
        const LEN: usize = 9;
        // Valkey has six letters and three digits, Redis five and four.
        let seen = &input[..input.len().min(LEN)];
        let is_valkey = seen.starts_with(b"V");
        let magic: &[u8] = if is_valkey { b"VALKEY" } else { b"REDIS" };
        let common = seen.len().min(magic.len());
        if seen[..common] != magic[..common] {
            return Err(Error::Corrupt("signature"));
        }
        if seen.len() < LEN {
            return Ok(ScanStep::More);
        }
        let digits = std::str::from_utf8(&seen[magic.len()..]).unwrap_or_default();
        let version: u16 = digits.parse().map_err(|_| Error::Corrupt("signature"))?;
        let is_newer = version > NEWEST_VERSION && !self.accepts_newer;
        if version == 0 || is_newer || (is_valkey && version < VALKEY_VERSION) {
            return Err(Error::Version(version));
        }
        self.is_valkey = is_valkey;
        self.version = version;
        self.state = ScanState::Between;
        self.at = LEN;
        Ok(ScanStep::Item(Item::Header(version), LEN))
    }

    /// Reads an opcode or the beginning of a record. `None`: what was read belongs to what follows.
    fn between(&mut self, input: &[u8]) -> Result<Option<Item>, Error> {
        self.doing = Doing::Type;
        let mut decoder = Decoder::new(&input[self.at..]);
        let byte = decoder.byte()?;
        let item = match byte {
            opcode::EXPIRE_TIME => {
                self.doing = Doing::Expire;
                let seconds = i32::from_le_bytes(decoder.array()?);
                self.expiry_ms = Some(i64::from(seconds) * 1000);
                None
            }
            opcode::EXPIRE_TIME_MS => {
                self.doing = Doing::Expire;
                // Redis and Valkey have -1 for a key that does not expire.
                self.expiry_ms = Some(i64::from_le_bytes(decoder.array()?)).filter(|&ms| ms != -1);
                None
            }
            opcode::FREQ => {
                self.access = Access::Frequency(decoder.byte()?);
                None
            }
            opcode::IDLE => {
                self.access = Access::IdleSeconds(decoder.length()?);
                None
            }
            opcode::EOF => {
                self.state = if self.version >= 5 { ScanState::Checksum } else { ScanState::Done };
                self.doing = Doing::Checksum;
                Some(Item::EndOfFile)
            }
            opcode::SELECT_DB => {
                self.doing = Doing::Length;
                let db = decoder.length()?;
                self.db = u32::try_from(db).map_err(|_| Error::Corrupt("database number"))?;
                Some(Item::SelectDb(self.db))
            }
            opcode::RESIZE_DB => {
                self.doing = Doing::Length;
                let keys = decoder.length()?;
                Some(Item::ResizeDb { keys, expiring: decoder.length()? })
            }
            opcode::AUX => {
                self.doing = Doing::Aux;
                let name = decoder.string()?.into_owned();
                Some(Item::Aux { name, value: decoder.string()?.into_owned() })
            }
            opcode::SLOT_INFO => {
                self.doing = Doing::Length;
                for _ in 0..3 {
                    decoder.length()?;
                }
                None
            }
            opcode::FUNCTION2 => {
                self.doing = Doing::Functions;
                Some(Item::Function(decoder.string()?.into_owned()))
            }
            opcode::FUNCTION_PRE_GA => {
                self.doing = Doing::Functions;
                return Err(Error::Corrupt("functions of a release candidate of Redis 7.0"));
            }
            opcode::MODULE_AUX => {
                self.doing = Doing::ModuleAux;
                let name = Id::from_bits(Decoder::new(decoder.remaining()).length()?).name();
                self.state = ScanState::Foreign(Walk::new(shape::MODULE_AUX));
                Some(Item::Foreign(Foreign::ModuleAux(name)))
            }
            opcode::SLOT_IMPORT if self.is_valkey => {
                self.state = ScanState::Foreign(Walk::new(shape::SLOT_IMPORT));
                Some(Item::Foreign(Foreign::SlotImport))
            }
            kind => return self.record(kind, input),
        };
        self.at = input.len() - decoder.remaining().len();
        Ok(item)
    }

    /// The beginning of a record, up to its value.
    fn record(&mut self, kind: u8, input: &[u8]) -> Result<Option<Item>, Error> {
        let shape = shape(kind, self.is_valkey);
        self.kind = Some(kind);
        self.doing = Doing::Key;
        let key_at = self.at + 1;
        let mut decoder = Decoder::new(&input[key_at..]);
        let bytes = shape::string_head(&mut decoder)?;
        fits(bytes, self.offset + key_at as u64, self.end)?;
        decoder.bytes(usize::try_from(bytes).map_err(|_| Error::Truncated)?)?;
        let value_at = input.len() - decoder.remaining().len();
        let module = match shape.name {
            "module-value" => Some(Id::from_bits(decoder.length()?)),
            _ => None,
        };
        // Nothing may have changed when input was missing.
        let record = Record {
            db: self.db,
            kind,
            expiry_ms: self.expiry_ms.take(),
            access: std::mem::take(&mut self.access),
            key_at,
            value_at,
        };
        self.at = value_at;
        self.doing = Doing::Value;
        if kind == Kind::String as u8 {
            // By far the most frequent: no walk if the value has arrived.
            let mut decoder = Decoder::new(&input[value_at..]);
            if let Ok(bytes) = shape::string_head(&mut decoder)
                && let Ok(bytes) = usize::try_from(bytes)
                && decoder.bytes(bytes).is_ok()
            {
                self.at = input.len() - decoder.remaining().len();
                self.kind = None;
                return Ok(Some(Item::Record(record)));
            }
        }
        let key = match Decoder::new(&input[key_at..value_at]).string() {
            Ok(key) => key,
            // As above, where it is not looked at: decoding the record finds out.
            Err(_) if kind == Kind::String as u8 => std::borrow::Cow::Borrowed(&b""[..]),
            Err(error) => return Err(error),
        };
        self.key = Some(key[..key.len().min(KEY_SHOWN)].to_vec());
        let Some(parts) = shape.parts else { return Err(Error::UnsupportedType(kind)) };
        let walk = Walk::new(parts);
        let is_known = module.is_none_or(|id| module::find(self.types, id).is_some());
        if is_known && Kind::in_dialect(kind, self.is_valkey).is_some() {
            self.state = ScanState::Value(record, walk);
            return Ok(None);
        }
        self.state = ScanState::Foreign(walk);
        let key = key.into_owned();
        let module = module.map(|id| match self.types.iter().any(|row| row.name == id.name()) {
            true => format!("{} version {}", id.name(), id.version()),
            false => id.name(),
        });
        Ok(Some(Item::Foreign(Foreign::Key { key, kind: shape.name, module })))
    }

    /// Turns the record that is being read into one that comes in pieces.
    fn begin_pieces(&mut self, input: &[u8]) -> Result<ScanStep, Error> {
        let ScanState::Value(record, _) = self.state else {
            unreachable!("only called in a value")
        };
        let mut decoder = Decoder::new(&input[record.value_at..]);
        let count = match decoder.length() {
            Err(Error::Truncated) => return Ok(ScanStep::More),
            count => count?,
        };
        let taken = input.len() - decoder.remaining().len();
        if let Some(kind) = Kind::from_byte(record.kind) {
            // The builder of the value reserves room for so many.
            let least = count.saturating_mul(Builder::least(kind) as u64);
            fits(least, self.offset + taken as u64, self.end)?;
        }
        let state = std::mem::replace(&mut self.state, ScanState::Between);
        if let ScanState::Value(_, mut walk) = state {
            walk.boundary = walk.boundary.saturating_sub(taken);
            self.state = ScanState::Pieces(walk);
        }
        Ok(ScanStep::Item(Item::Begin(record, count), taken))
    }

    fn key_ends(&mut self) {
        self.state = ScanState::Between;
        self.key = None;
        self.kind = None;
    }
}

/// Refuses a string that would end behind its container, rather than wait for it.
fn fits(bytes: u64, at: u64, end: u64) -> Result<(), Error> {
    if bytes > end.saturating_sub(at) {
        Err(Error::Corrupt("a length beyond the end"))
    } else {
        Ok(())
    }
}

/// Whether a value of this type is a number and then so many elements.
fn in_elements(kind: u8) -> bool {
    use Kind::{Hash, List, ListQuicklist, ListQuicklist2, Set, TimedHash, Zset, Zset2};
    let kinds = [List, Set, Zset, Hash, TimedHash, Zset2, ListQuicklist, ListQuicklist2];
    kinds.iter().any(|&known| known as u8 == kind)
}
