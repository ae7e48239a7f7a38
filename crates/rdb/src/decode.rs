//! Reading the primitives: bytes, lengths, strings, doubles.

mod build;
mod object;
mod stream;
mod ziplist;
mod zipmap;

pub use build::Builder;

use crate::Error;
use crate::encode::{
    COMPRESSED, INT_8_BITS, INT_16_BITS, INT_32_BITS, LEN_14_BITS, LEN_32_BITS, LEN_64_BITS,
    SPECIAL,
};
use std::borrow::Cow;
use structs::lzf;
use structs::numbers::{parse_f64, push_i64};

/// Reads from a slice. After an error its position means nothing.
pub struct Decoder<'a> {
    input: &'a [u8],
}

/// What stands where a length does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A length.
    Plain(u64),
    /// The mark of a string in a special form.
    Special(u8),
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Self { input }
    }

    /// What has not been read yet.
    pub fn remaining(&self) -> &'a [u8] {
        self.input
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (bytes, rest) = self.input.split_at_checked(count).ok_or(Error::Truncated)?;
        self.input = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self.input.split_first_chunk::<N>().ok_or(Error::Truncated)?;
        self.input = rest;
        Ok(*bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A length or the mark of a special string.
    pub fn length_or_special(&mut self) -> Result<Length, Error> {
        let first = self.byte()?;
        let value = match first & 0b1100_0000 {
            SPECIAL => return Ok(Length::Special(first & !SPECIAL)),
            LEN_14_BITS => u64::from(first & 0b0011_1111) << 8 | u64::from(self.byte()?),
            0 => u64::from(first),
            _ if first == LEN_32_BITS => u64::from(u32::from_be_bytes(self.array()?)),
            _ if first == LEN_64_BITS => u64::from_be_bytes(self.array()?),
            _ => return Err(Error::Corrupt("length")),
        };
        Ok(Length::Plain(value))
    }

    /// A length.
    pub fn length(&mut self) -> Result<u64, Error> {
        match self.length_or_special()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(Error::Corrupt("length")),
        }
    }

    /// A number of things of at least `least` bytes each that follow. More than the input can hold
    /// is refused here, so the result is safe to allocate by.
    pub fn count(&mut self, least: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.length()?).map_err(|_| Error::Truncated)?;
        if count > self.input.len() / least {
            return Err(Error::Truncated);
        }
        Ok(count)
    }

    /// A string in any form.
    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, Error> {
        let integer = match self.length_or_special()? {
            Length::Plain(length) => {
                let length = usize::try_from(length).map_err(|_| Error::Truncated)?;
                return self.bytes(length).map(Cow::Borrowed);
            }
            Length::Special(INT_8_BITS) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Special(INT_16_BITS) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Special(INT_32_BITS) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Special(COMPRESSED) => {
                let compressed = self.count(1)?;
                let length = usize::try_from(self.length()?)
                    .map_err(|_| Error::Corrupt("compressed string"))?;
                let bytes = self.bytes(compressed)?;
                let string =
                    lzf::decompress(bytes, length).ok_or(Error::Corrupt("compressed string"))?;
                return Ok(Cow::Owned(string));
            }
            Length::Special(_) => return Err(Error::Corrupt("string encoding")),
        };
        let mut text = Vec::new();
        push_i64(&mut text, integer);
        Ok(Cow::Owned(text))
    }

    /// A double in 8 bytes.
    pub fn binary_double(&mut self) -> Result<f64, Error> {
        self.array().map(f64::from_le_bytes)
    }

    /// A double as text, as RDB files before version 8 have them.
    pub fn text_double(&mut self) -> Result<f64, Error> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Ok(f64::NAN),
            length => {
                let text = self.bytes(usize::from(length))?;
                parse_f64(text).ok_or(Error::Corrupt("double"))
            }
        }
    }
}
