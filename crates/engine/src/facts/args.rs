//! The words of a request.

use crate::error::Error;
use keyspace::Key;
use std::ops::Index;
use structs::numbers;

/// The words of a request, the command's name first; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    words: &'a [&'a [u8]],
    /// The word whose hash is known, 0 if none.
    hashed: usize,
    hash: u64,
    /// The request's bytes, if the journal would spell it the same way; else empty.
    sent: &'a [u8],
}

impl<'a> Args<'a> {
    /// Words of which nothing else is known.
    #[inline]
    pub fn new(words: &'a [&'a [u8]]) -> Args<'a> {
        Args { words, hashed: 0, hash: 0, sent: &[] }
    }

    /// Notes the hash of one of the words, which is a key.
    #[inline]
    pub fn with_hash(self, hashed: usize, hash: u64) -> Args<'a> {
        Args { hashed, hash, ..self }
    }

    /// Notes the bytes that the words came in. They are [plain](resp::plain), or empty.
    #[inline]
    pub fn with_sent(self, sent: &'a [u8]) -> Args<'a> {
        Args { sent, ..self }
    }

    /// Returns the request as the journal spells it, or nothing if it would have to be composed.
    #[inline]
    pub fn sent(self) -> &'a [u8] {
        self.sent
    }

    /// Returns the number of words, the command's name included.
    #[inline]
    pub fn len(self) -> usize {
        self.words.len()
    }

    /// Returns false: a request that runs has a name.
    pub fn is_empty(self) -> bool {
        self.words.is_empty()
    }

    /// Returns all words.
    #[inline]
    pub fn words(self) -> &'a [&'a [u8]] {
        self.words
    }

    /// Returns the bytes of all words, without what is between them on the way.
    pub fn bytes(self) -> usize {
        self.words.iter().map(|word| word.len()).sum()
    }

    /// Returns the word at `index`, if there is one.
    #[inline]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        self.words.get(index).copied()
    }

    /// Returns the words from `index` on.
    pub fn from(self, index: usize) -> &'a [&'a [u8]] {
        &self.words[index.min(self.words.len())..]
    }

    /// Returns the word at `index` as a key. Its hash is not computed twice.
    #[inline]
    pub fn key(self, index: usize) -> Key<'a> {
        let bytes = self.words[index];
        if index == self.hashed {
            return Key { bytes, hash: self.hash };
        }
        Key::new(bytes)
    }

    /// Returns whether the word at `index` is this keyword, in any case; `false` past the end.
    #[inline]
    pub fn is(self, index: usize, keyword: &str) -> bool {
        self.get(index).is_some_and(|word| word.eq_ignore_ascii_case(keyword.as_bytes()))
    }

    /// Returns the word at `index` as a 64-bit integer.
    #[inline]
    pub fn integer(self, index: usize) -> Result<i64, Error> {
        self.get(index).and_then(numbers::parse_i64).ok_or(Error::NotInteger)
    }

    /// Returns the word at `index` as an integer within bounds. The error is `message` (without
    /// `ERR`) if it is out of them or no integer.
    pub fn integer_in(
        self,
        index: usize,
        bounds: std::ops::RangeInclusive<i64>,
        message: &'static str,
    ) -> Result<i64, Error> {
        let number = self.integer(index).map_err(|_| Error::OutOfRange(message))?;
        if bounds.contains(&number) { Ok(number) } else { Err(Error::OutOfRange(message)) }
    }

    /// Returns the word at `index` as a double.
    pub fn float(self, index: usize) -> Result<f64, Error> {
        self.get(index).and_then(numbers::parse_f64).ok_or(Error::NotFloat)
    }
}

impl<'a> Index<usize> for Args<'a> {
    type Output = &'a [u8];
    #[inline]
    fn index(&self, index: usize) -> &&'a [u8] {
        &self.words[index]
    }
}
