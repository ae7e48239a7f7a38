//! A string value as it is stored.

use structs::heap_string::HeapString;

/// A string value as it is stored.
#[derive(Clone, Copy, Debug)]
pub enum StringRef<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Bytes in their own block.
    Block(&'a HeapString),
    /// A number.
    Integer(i64),
}

impl<'a> StringRef<'a> {
    /// Returns the bytes, unless it is a number.
    #[inline]
    pub fn text(self) -> Option<&'a [u8]> {
        match self {
            StringRef::Bytes(bytes) => Some(bytes),
            StringRef::Block(block) => Some(block.as_slice()),
            StringRef::Integer(_) => None,
        }
    }

    /// Returns an owned string: another reference to a long one, a copy of others.
    pub fn to_heap_string(self) -> HeapString {
        match self {
            StringRef::Block(block) => block.clone(),
            _ => HeapString::from_bytes(self.bytes(&mut [0; structs::numbers::INT_MAX_LEN])),
        }
    }

    /// Returns the bytes. A number is written into `buf`.
    pub fn bytes<'b>(self, buf: &'b mut [u8; structs::numbers::INT_MAX_LEN]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            StringRef::Bytes(bytes) => bytes,
            StringRef::Block(block) => block.as_slice(),
            StringRef::Integer(number) => structs::numbers::format_i64(buf, number),
        }
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(self) -> Vec<u8> {
        self.bytes(&mut [0; structs::numbers::INT_MAX_LEN]).to_vec()
    }

    /// Returns the length in bytes (STRLEN).
    #[inline]
    pub fn len(self) -> usize {
        match self {
            StringRef::Bytes(bytes) => bytes.len(),
            StringRef::Block(block) => block.len(),
            StringRef::Integer(number) => {
                usize::from(number < 0) + structs::numbers::decimal_len(number.unsigned_abs())
            }
        }
    }

    /// Returns whether it is the empty string.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the number that it is or spells, by the strict rule.
    pub fn integer(self) -> Option<i64> {
        match self {
            StringRef::Bytes(bytes) => structs::numbers::parse_i64(bytes),
            StringRef::Block(block) => structs::numbers::parse_i64(block.as_slice()),
            StringRef::Integer(number) => Some(number),
        }
    }
}
