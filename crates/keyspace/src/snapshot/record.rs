//! The form in which a snapshot takes entries out of the keyspace: a stream of tokens.
//!
//! An entry is taken under its stripe's lock, possibly on a client's thread, so taking only copies.
//! A thread of the snapshot later converts the tokens to a file (compression, numbers, groups of
//! commands).
//!
//! ```text
//!  HEAD  kind u8 │ expiry i64 (i64::MIN: none) │ access u32 │ count u64 │ key len u32 │ key
//!  then `count` elements, as the kind says, each of:
//!  BYTES len u32 │ bytes        INT i64        SCORE f64        PACKED, PLAIN (a list's chunk)
//!  LONG  len u64                … whose bytes follow in PARTs: len u32 │ bytes
//!
//!  COLD  expiry i64 │ access u32 │ location u64 │ key len u32 │ key     a key whose value is not in RAM
//!  STREAM …                     a part of a stream (`record/stream.rs`)
//! ```
//!
//! A value may be cut into pieces at any token.

mod stream;

use crate::cold::ColdLocation;
use crate::collection::{Collection, Element, Layout};
use crate::entry::{Entry, StringRef};
use crate::types::Millis;
use std::ops::ControlFlow;

const HEAD: u8 = 0;
const BYTES: u8 = 1;
const INT: u8 = 2;
const SCORE: u8 = 3;
const PACKED: u8 = 4;
const PLAIN: u8 = 5;
const LONG: u8 = 6;
const PART: u8 = 7;
const COLD: u8 = 8;
const STREAM: u8 = 9;
const NO_EXPIRY: i64 = i64::MIN;

/// The composition of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Form {
    /// One string or integer.
    String = 0,
    /// Chunks: [`Token::Chunk`] and a string.
    List = 1,
    /// The bytes of an intset.
    SetIntset = 2,
    /// The bytes of a listpack of members.
    SetListpack = 3,
    /// Members.
    Set = 4,
    /// The bytes of a listpack of fields and values.
    HashListpack = 5,
    /// Fields, each with its value.
    Hash = 6,
    /// The bytes of a listpack of members and scores.
    ZsetListpack = 7,
    /// Members, each with its score.
    Zset = 8,
    /// Parts of a stream. The count is the number of its blocks.
    Stream = 9,
    /// Fields, each with its value and its expiry: an integer, [`NEVER`] if it has none.
    TimedHash = 10,
    /// A value of a module type as RDB files have it behind the type byte, uncompressed.
    Module = 11,
}

/// The expiry of a field that has none.
pub const NEVER: i64 = -1;

impl Form {
    fn from_byte(byte: u8) -> Form {
        match byte {
            0 => Form::String,
            1 => Form::List,
            2 => Form::SetIntset,
            3 => Form::SetListpack,
            4 => Form::Set,
            5 => Form::HashListpack,
            6 => Form::Hash,
            7 => Form::ZsetListpack,
            8 => Form::Zset,
            9 => Form::Stream,
            10 => Form::TimedHash,
            11 => Form::Module,
            _ => panic!("a snapshot has the unknown form {byte}"),
        }
    }
}

/// The head of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The composition of the value.
    pub form: Form,
    /// The key's expiry.
    pub expiry: Option<Millis>,
    /// Its access bits.
    pub access: u32,
    /// Number of chunks, members or fields of the value. It is 1 for a value in one piece.
    pub count: u64,
}

/// A key whose value is not in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdHead<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The key's expiry.
    pub expiry: Option<Millis>,
    /// Its access bits.
    pub access: u32,
    /// The location of the value.
    pub location: ColdLocation,
}

/// A piece of the stream of tokens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Token<'a> {
    /// The next key.
    Head(Head<'a>),
    /// A string value, or a string of another value.
    Bytes(&'a [u8]),
    /// A string that is the decimal form of a number.
    Int(i64),
    /// The score of the member before it.
    Score(f64),
    /// A list's chunk follows: a listpack or one element.
    Chunk {
        /// Whether it is a listpack.
        is_packed: bool,
    },
    /// The length of a string that follows in parts.
    Long(u64),
    /// A part of such a string.
    Part(&'a [u8]),
    /// The next key, whose value has yet to be read.
    Cold(ColdHead<'a>),
    /// A part of a stream.
    Stream(structs::stream::Part<'a>),
}

/// The tokens of a stream.
pub struct Tokens<'a>(&'a [u8]);

impl<'a> Tokens<'a> {
    /// Creates an iterator over bytes that [`write_entry`] and similar functions have written.
    pub fn new(bytes: &'a [u8]) -> Tokens<'a> {
        Tokens(bytes)
    }

    /// Returns the number of remaining bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no token is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("the stream is our own");
        self.0 = rest;
        *taken
    }
    fn expiry(&mut self) -> Option<Millis> {
        let expiry = i64::from_le_bytes(self.array());
        (expiry != NO_EXPIRY).then_some(Millis(expiry))
    }
    fn bytes(&mut self) -> &'a [u8] {
        let len = u32::from_le_bytes(self.array());
        self.take(len as usize)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match tag {
            HEAD => {
                let [form] = self.array();
                let expiry = self.expiry();
                let access = u32::from_le_bytes(self.array());
                let count = u64::from_le_bytes(self.array());
                Token::Head(Head {
                    form: Form::from_byte(form),
                    expiry,
                    access,
                    count,
                    key: self.bytes(),
                })
            }
            BYTES => Token::Bytes(self.bytes()),
            INT => Token::Int(i64::from_le_bytes(self.array())),
            SCORE => Token::Score(f64::from_le_bytes(self.array())),
            PACKED | PLAIN => Token::Chunk { is_packed: tag == PACKED },
            LONG => Token::Long(u64::from_le_bytes(self.array())),
            PART => Token::Part(self.bytes()),
            COLD => Token::Cold(ColdHead {
                expiry: self.expiry(),
                access: u32::from_le_bytes(self.array()),
                location: ColdLocation(u64::from_le_bytes(self.array())),
                key: self.bytes(),
            }),
            STREAM => Token::Stream(self.stream_part()),
            _ => panic!("a snapshot has the unknown token {tag}"),
        })
    }
}

/// Appends tokens to a buffer.
pub struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn head(&mut self, entry: &Entry, form: Form, count: usize) {
        self.0.reserve(entry.key().len() + 32);
        self.0.extend_from_slice(&[HEAD, form as u8]);
        self.expiry_and_access(entry);
        self.0.extend_from_slice(&(count as u64).to_le_bytes());
        self.tail(entry.key());
    }
    fn cold(&mut self, entry: &Entry, location: ColdLocation) {
        self.0.push(COLD);
        self.expiry_and_access(entry);
        self.0.extend_from_slice(&location.0.to_le_bytes());
        self.tail(entry.key());
    }
    fn expiry_and_access(&mut self, entry: &Entry) {
        let expiry = entry.expiry().map_or(NO_EXPIRY, |at| at.0);
        self.0.extend_from_slice(&expiry.to_le_bytes());
        self.0.extend_from_slice(&entry.access().to_le_bytes());
    }
    fn tail(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(BYTES);
        self.tail(bytes);
    }
    /// Appends an element of a value of this form.
    pub(crate) fn element(&mut self, form: Form, element: Element<'_>) {
        match element {
            Element::Member(member) => self.bytes(member),
            Element::Field(field, value, expiry) => {
                self.bytes(field);
                self.bytes(value);
                if form == Form::TimedHash {
                    self.int(expiry.unwrap_or(NEVER));
                }
            }
            Element::Scored(member, score) => {
                self.bytes(member);
                self.score(score);
            }
        }
    }
    fn score(&mut self, score: f64) {
        self.0.push(SCORE);
        self.0.extend_from_slice(&score.to_le_bytes());
    }
    pub(crate) fn chunk(&mut self, is_packed: bool) {
        self.0.push(if is_packed { PACKED } else { PLAIN });
    }
    pub(crate) fn long(&mut self, len: usize) {
        self.0.push(LONG);
        self.0.extend_from_slice(&(len as u64).to_le_bytes());
    }
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.push(PART);
        self.tail(bytes);
    }
    fn int(&mut self, number: i64) {
        self.0.push(INT);
        self.0.extend_from_slice(&number.to_le_bytes());
    }
}

/// Number of elements above which a value is not taken at once.
pub(crate) const MAX_ELEMENTS: usize = 1000;
/// Number of bytes above which it is not.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// A value is too big to be taken at once.
pub(crate) struct TooBig;

/// Appends an entry with its value. If the value is too big, nothing is appended.
pub(crate) fn write_entry(out: &mut Vec<u8>, entry: &Entry) -> Result<(), TooBig> {
    let start = out.len();
    let most = start + MAX_BYTES;
    let written = write_below(out, entry, most);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn fits(len: usize, most: usize) -> Result<(), TooBig> {
    if len <= most { Ok(()) } else { Err(TooBig) }
}

fn write_below(out: &mut Vec<u8>, entry: &Entry, most: usize) -> Result<(), TooBig> {
    let mut to = Writer(out);
    if let Some(cold) = entry.cold() {
        to.cold(entry, cold.location);
        return Ok(());
    }
    let Some(collection) = entry.collection() else { return write_string(&mut to, entry) };
    match collection.layout() {
        Layout::Block(form, bytes) => whole(&mut to, entry, form, &bytes),
        Layout::Chunks(form, count) => {
            fits(count, MAX_ELEMENTS)?;
            to.head(entry, form, count);
            for chunk in (0..count).map_while(|index| collection.chunk(index)) {
                fits(to.0.len() + chunk.bytes.len(), most)?;
                to.chunk(chunk.is_packed);
                to.bytes(&chunk.bytes);
            }
            Ok(())
        }
        Layout::Elements(form) => {
            fits(collection.len(), MAX_ELEMENTS)?;
            to.head(entry, form, collection.len());
            write_elements(&mut to, form, &*collection, most)
        }
        Layout::Shared(form, count) => {
            // At least half of the allocated bytes are used.
            fits(to.0.len() + collection.allocated_bytes() / 2, most)?;
            to.head(entry, form, count);
            if let Some(mut parts) = collection.take_apart() {
                while parts.write_next(&mut to) {}
            }
            Ok(())
        }
    }
}

fn write_string(to: &mut Writer<'_>, entry: &Entry) -> Result<(), TooBig> {
    let string = entry.string().expect("a value is a string or a collection");
    if let StringRef::Integer(number) = string {
        to.head(entry, Form::String, 1);
        to.int(number);
    }
    if let Some(bytes) = string.text() {
        fits(bytes.len(), MAX_BYTES)?;
        to.head(entry, Form::String, 1);
        to.bytes(bytes);
    }
    Ok(())
}

fn write_elements(
    to: &mut Writer<'_>,
    form: Form,
    collection: &dyn Collection,
    most: usize,
) -> Result<(), TooBig> {
    let mut result = Ok(());
    collection.visit(&mut |element| {
        result = fits(to.0.len() + element.bytes_len(), most);
        if result.is_err() {
            return ControlFlow::Break(());
        }
        to.element(form, element);
        ControlFlow::Continue(())
    });
    result
}

/// Writes a value whose bytes are one block. Options bound the size of such blocks, but not
/// strictly.
fn whole(to: &mut Writer<'_>, entry: &Entry, form: Form, bytes: &[u8]) -> Result<(), TooBig> {
    if bytes.len() > 16 * MAX_BYTES {
        return Err(TooBig);
    }
    to.head(entry, form, 1);
    to.bytes(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use structs::hash::{Hash, HashLimits};

    fn tokens(entry: &Entry) -> Vec<u8> {
        let mut out = vec![];
        assert!(write_entry(&mut out, entry).is_ok());
        out
    }

    #[test]
    fn entries_come_back_as_they_were() {
        let entry = Entry::new_string(b"key", b"value", Some(Millis(7)), 5);
        let head =
            Head { key: b"key", form: Form::String, expiry: Some(Millis(7)), access: 5, count: 1 };
        let out = tokens(&entry);
        assert!(Tokens::new(&out).eq([Token::Head(head), Token::Bytes(b"value")]));
        let out = tokens(&Entry::new_string(b"n", b"-12", None, 0));
        assert!(Tokens::new(&out).any(|token| token == Token::Int(-12)));
    }

    #[test]
    fn what_is_too_big_leaves_no_trace() {
        let mut out = b"before".to_vec();
        let big = Entry::new_string(b"key", &vec![b'x'; MAX_BYTES + 1], None, 0);
        assert!(write_entry(&mut out, &big).is_err());
        let mut hash = Hash::new();
        for number in 0..600u32 {
            hash.set(&number.to_le_bytes(), &[b'v'; 1000], &HashLimits::default());
        }
        assert!(write_entry(&mut out, &Entry::new_object(b"h", hash, None, 0)).is_err());
        assert_eq!(out, b"before");
    }
}
