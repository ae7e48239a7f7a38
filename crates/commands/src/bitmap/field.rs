//! Integers of 1 to 64 bits anywhere in a string, and what happens when one overflows.

use engine::Error;
use structs::numbers::parse_i64;

/// The type of a field: `i1` to `i64`, `u1` to `u63`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FieldType {
    pub is_signed: bool,
    pub bits: u32,
}

/// What a result that does not fit becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overflow {
    /// Its lowest bits.
    Wrap,
    /// The nearest number that fits.
    Saturate,
    /// Nothing: the field stays.
    Fail,
}

impl FieldType {
    pub fn parse(word: &[u8]) -> Result<FieldType, Error> {
        let (is_signed, digits) = match word {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => (false, &b""[..]),
        };
        let most = if is_signed { 64 } else { 63 };
        match parse_i64(digits) {
            Some(bits) if (1..=most).contains(&bits) => {
                Ok(FieldType { is_signed, bits: bits as u32 })
            }
            _ => Err(Error::text(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
                 supported but i64 is.",
            )),
        }
    }

    /// The number that the field's bits stand for.
    fn value(self, bits: u64) -> i64 {
        if self.is_signed {
            let unused = 64 - self.bits;
            (bits << unused) as i64 >> unused
        } else {
            bits as i64
        }
    }

    /// The field at bit `offset`; what lies behind the string is zero.
    pub fn read(self, string: &[u8], offset: u64) -> i64 {
        let window = u128::from_be_bytes(window(string, offset));
        self.value((window << (offset & 7) >> (128 - self.bits)) as u64)
    }

    /// Sets the field, which must lie inside the string.
    pub fn write(self, string: &mut [u8], offset: u64, value: i64) {
        let shift = 128 - u64::from(self.bits) - (offset & 7);
        let mask = ((1u128 << self.bits) - 1) << shift;
        let old = u128::from_be_bytes(window(string, offset));
        let new = (old & !mask | (value as u128) << shift & mask).to_be_bytes();
        let first = (offset >> 3) as usize;
        let last = ((offset + u64::from(self.bits) - 1) >> 3) as usize;
        string[first..=last].copy_from_slice(&new[..=last - first]);
    }

    /// `value + increment` as the field can hold it; `None` if it cannot and must not change.
    ///
    /// Valkey computes in 64 bits, which themselves overflow when a field is set to a number close
    /// to the least of all: it then saturates at the wrong end.
    pub fn add(self, value: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        // An unsigned field is set to a negative number's 64 bits, a number too big for it.
        let value = if self.is_signed { i128::from(value) } else { i128::from(value as u64) };
        let (least, most) = if self.is_signed {
            (-(1i128 << (self.bits - 1)), (1i128 << (self.bits - 1)) - 1)
        } else {
            (0, (1i128 << self.bits) - 1)
        };
        let sum = value + i128::from(increment);
        if (least..=most).contains(&sum) {
            return Some(sum as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.value((sum & ((1i128 << self.bits) - 1)) as u64)),
            Overflow::Saturate => Some(sum.clamp(least, most) as i64),
            Overflow::Fail => None,
        }
    }
}

/// The sixteen bytes from that of bit `offset` on; a field needs nine at most.
fn window(string: &[u8], offset: u64) -> [u8; 16] {
    let mut window = [0; 16];
    let first = usize::try_from(offset >> 3).unwrap_or(usize::MAX).min(string.len());
    let bytes = &string[first..string.len().min(first + 16)];
    window[..bytes.len()].copy_from_slice(bytes);
    window
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> FieldType {
        FieldType::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn every_width_at_every_offset_keeps_its_neighbours() {
        for bits in 1..=64u32 {
            for offset in 0..24u64 {
                let mut string = [0xa5u8; 12];
                let wide = FieldType { is_signed: true, bits };
                let written = 0x1234_5678_9abc_def1u64 as i64;
                wide.write(&mut string, offset, written);
                assert_eq!(wide.read(&string, offset), wide.value(written as u64 & mask(bits)));
                for bit in 0..96u64 {
                    if bit < offset || bit >= offset + u64::from(bits) {
                        let expected = i64::from(0xa5u8 >> (7 - bit % 8) & 1);
                        assert_eq!(field("u1").read(&string, bit), expected, "{bits} {offset}");
                    }
                }
            }
        }
    }

    fn mask(bits: u32) -> u64 {
        if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
    }

    #[test]
    fn fields_behind_the_string_are_zero() {
        assert_eq!(field("u8").read(b"\xff", 4), 0xf0);
        assert_eq!(field("i64").read(b"\xff", 1 << 40), 0);
    }

    #[test]
    fn overflow_wraps_saturates_or_fails() {
        use Overflow::{Fail, Saturate, Wrap};
        assert_eq!(field("u8").add(250, 10, Wrap), Some(4));
        assert_eq!(field("u8").add(250, 10, Saturate), Some(255));
        assert_eq!(field("u8").add(250, 10, Fail), None);
        assert_eq!(field("u8").add(5, -10, Wrap), Some(251));
        assert_eq!(field("u8").add(5, -10, Saturate), Some(0));
        assert_eq!(field("u8").add(-1, 0, Saturate), Some(255));
        assert_eq!(field("i8").add(120, 10, Wrap), Some(-126));
        assert_eq!(field("i8").add(120, 10, Saturate), Some(127));
        assert_eq!(field("i8").add(-120, -10, Saturate), Some(-128));
        assert_eq!(field("i64").add(i64::MAX, 1, Wrap), Some(i64::MIN));
        assert_eq!(field("i64").add(i64::MIN, -1, Saturate), Some(i64::MIN));
        assert_eq!(field("u63").add(i64::MAX, 1, Wrap), Some(0));
    }

    #[test]
    fn rejects_other_types() {
        for name in ["", "i", "u0", "i0", "u64", "i65", "x8", "I8", "i+8", "i08"] {
            assert!(FieldType::parse(name.as_bytes()).is_err(), "{name}");
        }
    }
}
