//! What a packed structure yields: bytes, or an integer it had stored as one.

use crate::numbers::{INT_MAX_LEN, decimal_len, format_i64};

/// Room for the digits of an [`Element::Int`].
pub type IntBuf = [u8; INT_MAX_LEN];

/// An element as it lies in a packed structure.
///
/// The same value may come as bytes from one encoding and as an integer from another; both stand
/// for the same bytes, which is what the comparison compares.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// The element's bytes.
    Bytes(&'a [u8]),
    /// An integer; its bytes are the decimal digits.
    Int(i64),
}

impl<'a> Element<'a> {
    /// The element's bytes; digits are written into `buf`.
    #[inline]
    pub fn as_bytes<'b>(&self, buf: &'b mut IntBuf) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Element::Bytes(bytes) => bytes,
            Element::Int(value) => format_i64(buf, value),
        }
    }

    /// Calls `f` with the element's bytes.
    #[inline]
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self.as_bytes(&mut [0; INT_MAX_LEN]))
    }

    /// Number of the element's bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty element is nothing special")]
    pub fn len(&self) -> usize {
        match *self {
            Element::Bytes(bytes) => bytes.len(),
            Element::Int(value) => decimal_len(value.unsigned_abs()) + usize::from(value < 0),
        }
    }

    /// The integer this element is the shortest decimal form of, however it is stored.
    #[inline]
    pub fn to_int(&self) -> Option<i64> {
        match *self {
            Element::Bytes(bytes) => crate::numbers::parse_i64(bytes),
            Element::Int(value) => Some(value),
        }
    }

    /// Appends the element's bytes to `out`.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        self.with_bytes(|bytes| out.extend_from_slice(bytes));
    }

    /// The element's bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }
}

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Element::Int(a), Element::Int(b)) => a == b,
            (a, b) => a.with_bytes(|a| b.with_bytes(|b| a == b)),
        }
    }
}

impl Eq for Element<'_> {}

impl PartialEq<[u8]> for Element<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        self.with_bytes(|bytes| bytes == other)
    }
}

/// A value looked for among elements; parsed once, so that integers compare as integers.
#[derive(Clone, Copy)]
pub struct Needle<'a> {
    bytes: &'a [u8],
    int: Option<i64>,
}

impl<'a> Needle<'a> {
    /// Prepares `bytes` to be compared with many elements.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, int: crate::numbers::parse_i64(bytes) }
    }

    /// Whether `element` has the bytes looked for.
    #[inline(always)]
    pub fn matches(&self, element: Element<'_>) -> bool {
        match element {
            Element::Bytes(bytes) => bytes == self.bytes,
            Element::Int(value) => self.int == Some(value),
        }
    }
}
