//! The marked primitives that a module's value consists of.

use crate::{Decoder, Encoder, Error};
use std::borrow::Cow;

/// What stands in front of a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    End = 0,
    Signed = 1,
    Unsigned = 2,
    Float = 3,
    Double = 4,
    String = 5,
}

impl Mark {
    pub(crate) fn read(decoder: &mut Decoder<'_>) -> Result<Mark, Error> {
        Ok(match decoder.length()? {
            0 => Mark::End,
            1 => Mark::Signed,
            2 => Mark::Unsigned,
            3 => Mark::Float,
            4 => Mark::Double,
            5 => Mark::String,
            _ => return Err(Error::Corrupt("a module's value")),
        })
    }
}

/// Writes the primitives of a value.
pub struct Writer<'a>(&'a mut Encoder);

impl<'a> Writer<'a> {
    /// Returns a writer that appends to an encoder.
    pub fn new(encoder: &'a mut Encoder) -> Writer<'a> {
        Writer(encoder)
    }

    /// Writes a signed number.
    pub fn signed(&mut self, value: i64) {
        self.mark(Mark::Signed);
        self.0.length(value.cast_unsigned());
    }

    /// Writes an unsigned number.
    pub fn unsigned(&mut self, value: u64) {
        self.mark(Mark::Unsigned);
        self.0.length(value);
    }

    /// Writes a number of 8 bytes.
    pub fn double(&mut self, value: f64) {
        self.mark(Mark::Double);
        self.0.binary_double(value);
    }

    /// Writes a string.
    pub fn string(&mut self, value: &[u8]) {
        self.mark(Mark::String);
        self.0.string(value);
    }

    /// Writes the mark of the value's end. A type's code does not: it is written behind it.
    pub fn end(&mut self) {
        self.mark(Mark::End);
    }

    fn mark(&mut self, mark: Mark) {
        self.0.byte(mark as u8);
    }
}

/// Reads the primitives of a value. The input may be hostile: every length is checked against what
/// is there, and a mark of another primitive is an error.
pub struct Reader<'a, 'd>(&'d mut Decoder<'a>);

impl<'a, 'd> Reader<'a, 'd> {
    /// Returns a reader of what a decoder is at.
    pub fn new(decoder: &'d mut Decoder<'a>) -> Reader<'a, 'd> {
        Reader(decoder)
    }

    /// Returns how many bytes of input are left, of this value and what follows it. No payload can
    /// have more primitives than this: allocate within a small multiple of it.
    pub fn remaining(&self) -> usize {
        self.0.remaining().len()
    }

    /// Reads a signed number.
    ///
    /// # Errors
    /// Something else is there.
    pub fn signed(&mut self) -> Result<i64, Error> {
        self.mark(Mark::Signed)?;
        self.0.length().map(u64::cast_signed)
    }

    /// Reads an unsigned number.
    ///
    /// # Errors
    /// Something else is there.
    pub fn unsigned(&mut self) -> Result<u64, Error> {
        self.mark(Mark::Unsigned)?;
        self.0.length()
    }

    /// Reads an unsigned number of things of which each takes at least `least` bytes of what
    /// follows. The result is safe to allocate by.
    ///
    /// # Errors
    /// Something else is there, or there are more than the input can hold.
    pub fn count(&mut self, least: usize) -> Result<usize, Error> {
        self.mark(Mark::Unsigned)?;
        self.0.count(least.max(1))
    }

    /// Reads a number of 8 bytes. It may be no number at all (NaN).
    ///
    /// # Errors
    /// Something else is there.
    pub fn double(&mut self) -> Result<f64, Error> {
        self.mark(Mark::Double)?;
        self.0.binary_double()
    }

    /// Reads a string. A compressed one may be up to 88 times as long as its input.
    ///
    /// # Errors
    /// Something else is there.
    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, Error> {
        self.mark(Mark::String)?;
        self.0.string()
    }

    /// Reads the mark of the value's end. A type's code does not: it is read behind it.
    ///
    /// # Errors
    /// Something else is there.
    pub fn end(&mut self) -> Result<(), Error> {
        self.mark(Mark::End)
    }

    fn mark(&mut self, expected: Mark) -> Result<(), Error> {
        if Mark::read(self.0)? == expected {
            Ok(())
        } else {
            Err(Error::Corrupt("another primitive of a module's value"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compression;

    fn written() -> Vec<u8> {
        let mut encoder = Encoder::new(Compression::Lzf);
        let mut to = Writer::new(&mut encoder);
        to.signed(-2);
        to.unsigned(u64::MAX);
        to.double(-0.25);
        to.string(&[b'x'; 100]);
        to.end();
        encoder.into_bytes()
    }

    fn read(bytes: &[u8]) -> Result<(), Error> {
        let mut decoder = Decoder::new(bytes);
        let mut from = Reader::new(&mut decoder);
        assert_eq!(from.signed()?, -2);
        assert_eq!(from.unsigned()?, u64::MAX);
        assert_eq!(from.double()?, -0.25);
        assert_eq!(*from.string()?, [b'x'; 100]);
        from.end()
    }

    #[test]
    fn primitives_come_back() {
        let bytes = written();
        assert_eq!(read(&bytes), Ok(()));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn another_primitive_and_a_count_beyond_the_input_are_refused() {
        let mut decoder = Decoder::new(b"\x02\x05");
        assert!(matches!(Reader::new(&mut decoder).signed(), Err(Error::Corrupt(_))));
        let mut decoder = Decoder::new(b"\x02\x05abcd");
        assert_eq!(Reader::new(&mut decoder).count(1), Err(Error::Truncated));
        let mut decoder = Decoder::new(b"\x02\x04abcd");
        assert_eq!(Reader::new(&mut decoder).count(1), Ok(4));
        let mut decoder = Decoder::new(b"\x09\x04");
        assert!(Reader::new(&mut decoder).unsigned().is_err());
    }
}
