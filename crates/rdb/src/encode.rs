//! Writing values.

mod stream;

use crate::{Kind, ObjectRef};
use structs::hash::{Hash, HashContents};
use structs::list::Chunk;
use structs::lzf::Compressor;
use structs::numbers::{INT_MAX_LEN, format_i64, parse_i64};
use structs::set::{Set, SetContents};
use structs::zset::{Zset, ZsetContents};

/// Lengths and strings: the upper two bits of the first byte.
pub(crate) const LEN_14_BITS: u8 = 0b0100_0000;
pub(crate) const LEN_32_BITS: u8 = 0b1000_0000;
pub(crate) const LEN_64_BITS: u8 = 0b1000_0001;
pub(crate) const SPECIAL: u8 = 0b1100_0000;
/// Special strings: the lower six bits.
pub(crate) const INT_8_BITS: u8 = 0;
pub(crate) const INT_16_BITS: u8 = 1;
pub(crate) const INT_32_BITS: u8 = 2;
pub(crate) const COMPRESSED: u8 = 3;
/// Quicklist nodes: one element alone, or a listpack.
/// One element alone.
pub const NODE_PLAIN: u64 = 1;
/// A listpack.
pub const NODE_PACKED: u64 = 2;

/// The expiry of a field that has none.
pub(crate) const NEVER: i64 = -1;

/// Shorter strings are not worth compressing.
const COMPRESS_MIN: usize = 21;
/// The longest text that can be a 32-bit integer.
const INT_TEXT_MAX: usize = 11;

/// Whether strings may be compressed (option `rdbcompression`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Strings are stored as they are.
    Off,
    /// Strings of more than 20 bytes are stored compressed if that makes them shorter.
    Lzf,
}

/// Writes into a growing buffer; the owner takes it out as it pleases.
pub struct Encoder {
    out: Vec<u8>,
    /// What compresses strings, if they are to be.
    compressor: Option<Compressor>,
}

impl Encoder {
    /// An encoder with nothing written.
    pub fn new(compression: Compression) -> Self {
        let compressor = (compression == Compression::Lzf).then(Compressor::default);
        Self { out: Vec::new(), compressor }
    }

    /// Exchanges what has been written for what `out` holds; appends to that from now on.
    pub fn swap(&mut self, out: &mut Vec<u8>) {
        std::mem::swap(&mut self.out, out);
    }

    /// What has been written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// What has been written; forgets it and keeps the memory for more.
    pub fn clear(&mut self) {
        self.out.clear();
    }

    /// What has been written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// A type byte.
    pub fn kind(&mut self, kind: Kind) {
        self.byte(kind as u8);
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// One byte as it is.
    pub fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    /// A length in 1, 2, 5 or 9 bytes.
    pub fn length(&mut self, length: u64) {
        if length < 1 << 6 {
            self.out.push(length as u8);
        } else if length < 1 << 14 {
            self.out.extend_from_slice(&[LEN_14_BITS | (length >> 8) as u8, length as u8]);
        } else if let Ok(length) = u32::try_from(length) {
            self.out.push(LEN_32_BITS);
            self.out.extend_from_slice(&length.to_be_bytes());
        } else {
            self.out.push(LEN_64_BITS);
            self.out.extend_from_slice(&length.to_be_bytes());
        }
    }

    /// A string in the shortest form: an integer, compressed, or as it is.
    pub fn string(&mut self, string: &[u8]) {
        if string.len() <= INT_TEXT_MAX
            && let Some(value) = parse_i64(string)
            && self.small_integer(value)
        {
            return;
        }
        if string.len() >= COMPRESS_MIN && self.compressed(string) {
            return;
        }
        self.length(string.len() as u64);
        self.out.extend_from_slice(string);
    }

    /// The decimal form of an integer, as a string.
    pub fn integer(&mut self, value: i64) {
        if !self.small_integer(value) {
            let mut buf = [0; INT_MAX_LEN];
            let text = format_i64(&mut buf, value);
            self.length(text.len() as u64);
            self.out.extend_from_slice(text);
        }
    }

    /// False, with nothing written, for one of more than 32 bits.
    fn small_integer(&mut self, value: i64) -> bool {
        if let Ok(value) = i8::try_from(value) {
            self.out.extend_from_slice(&[SPECIAL | INT_8_BITS, value as u8]);
        } else if let Ok(value) = i16::try_from(value) {
            self.out.push(SPECIAL | INT_16_BITS);
            self.out.extend_from_slice(&value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.out.push(SPECIAL | INT_32_BITS);
            self.out.extend_from_slice(&value.to_le_bytes());
        } else {
            return false;
        }
        true
    }

    /// False, with nothing written, if it does not become shorter, or strings are not to be
    /// compressed.
    fn compressed(&mut self, string: &[u8]) -> bool {
        let Some(compressor) = &mut self.compressor else { return false };
        let start = self.out.len();
        // The compressed length comes first, so compress behind the room for the longest header
        // and move the bytes up.
        const HEADER_MAX: usize = 1 + 9 + 9;
        self.out.resize(start + HEADER_MAX, 0);
        if !compressor.compress(string, string.len() - 4, &mut self.out) {
            self.out.truncate(start);
            return false;
        }
        let compressed = start + HEADER_MAX..self.out.len();
        let mut header = Self::new(Compression::Off);
        header.byte(SPECIAL | COMPRESSED);
        header.length(compressed.len() as u64);
        header.length(string.len() as u64);
        let len = header.out.len();
        self.out[start..start + len].copy_from_slice(&header.out);
        self.out.copy_within(compressed.clone(), start + len);
        self.out.truncate(start + len + compressed.len());
        true
    }

    /// A double in 8 bytes.
    pub fn binary_double(&mut self, value: f64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A value with its type byte.
    pub fn object(&mut self, object: ObjectRef<'_>) {
        self.kind(object.kind());
        self.value(object);
    }

    /// A value behind its type byte, which [`ObjectRef::kind`] tells.
    pub fn value(&mut self, object: ObjectRef<'_>) {
        match object {
            ObjectRef::String(string) => self.string(string),
            ObjectRef::Int(value) => self.integer(value),
            ObjectRef::List(list) => {
                self.length(list.chunks().count() as u64);
                list.chunks().for_each(|chunk| self.list_chunk(chunk));
            }
            ObjectRef::Set(set) => self.set(set),
            ObjectRef::Hash(hash) => self.hash(hash),
            ObjectRef::Zset(zset) => self.zset(zset),
            ObjectRef::Stream(stream) => self.stream(stream),
            ObjectRef::Module(module) => module.save(self),
        }
    }

    /// One of the chunks that a list is written as.
    pub fn list_chunk(&mut self, chunk: Chunk<'_>) {
        match chunk {
            Chunk::Packed(listpack) => {
                self.length(NODE_PACKED);
                self.string(&listpack);
            }
            Chunk::Plain(element) => {
                self.length(NODE_PLAIN);
                self.string(element);
            }
        }
    }

    fn set(&mut self, set: &Set) {
        match set.contents() {
            SetContents::Intset(bytes) | SetContents::Listpack(bytes) => self.string(&bytes),
            SetContents::Table(members) => {
                self.length(set.len() as u64);
                members.for_each(|member| self.string(member));
            }
        }
    }

    fn hash(&mut self, hash: &Hash) {
        match hash.contents() {
            HashContents::Listpack(listpack) => self.string(&listpack),
            HashContents::Table(fields) => {
                self.length(hash.len() as u64);
                for (field, value, _) in fields {
                    self.string(field);
                    self.string(value);
                }
            }
            HashContents::Timed(fields) => {
                self.length(hash.len() as u64);
                for (field, value, expiry) in fields {
                    self.string(field);
                    self.string(value);
                    self.field_expiry(expiry.unwrap_or(NEVER));
                }
            }
        }
    }

    /// When a field of a [`Kind::TimedHash`] expires, or [`NEVER`].
    pub fn field_expiry(&mut self, expiry: i64) {
        self.out.extend_from_slice(&expiry.to_le_bytes());
    }

    fn zset(&mut self, zset: &Zset) {
        match zset.contents() {
            ZsetContents::Listpack(listpack) => self.string(&listpack),
            ZsetContents::Sorted(members) => {
                self.length(members.len() as u64);
                // From the highest score down: for a skiplist each insertion then is at its head.
                for (member, score) in members.rev() {
                    self.string(member);
                    self.binary_double(score);
                }
            }
        }
    }
}
