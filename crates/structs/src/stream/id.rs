//! The ID of a stream's entry: a time in milliseconds and a sequence number within it.

use crate::numbers::{INT_MAX_LEN, parse_u64};

/// Room for the text of an ID: two numbers of up to 20 digits and a dash.
pub type IdBuf = [u8; 2 * INT_MAX_LEN + 1];

/// An entry's ID. IDs are ordered by time, then by sequence number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct StreamId {
    /// Milliseconds since the epoch of Unix, by the clock of the ID's maker.
    pub ms: u64,
    /// Distinguishes the entries of one millisecond.
    pub seq: u64,
}

impl StreamId {
    /// `0-0`, which no entry has.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The last ID there can be.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// An ID of these parts.
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The ID after this one.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The ID before this one.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Whether it is `0-0`.
    pub fn is_zero(self) -> bool {
        self == StreamId::MIN
    }

    /// Reads `ms-seq`, or `ms` alone, to which `missing_seq` is added.
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<StreamId> {
        match text.iter().position(|&byte| byte == b'-') {
            None => Some(StreamId { ms: parse_u64(text)?, seq: missing_seq }),
            Some(dash) => {
                let (ms, seq) = (&text[..dash], &text[dash + 1..]);
                Some(StreamId { ms: parse_u64(ms)?, seq: parse_u64(seq)? })
            }
        }
    }

    /// Writes `ms-seq` into `buf`.
    pub fn text(self, buf: &mut IdBuf) -> &[u8] {
        let mut at = buf.len();
        at = digits(buf, at, self.seq);
        at -= 1;
        buf[at] = b'-';
        at = digits(buf, at, self.ms);
        &buf[at..]
    }

    /// Calls `f` with `ms-seq`.
    pub fn with_text<R>(self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self.text(&mut [0; 2 * INT_MAX_LEN + 1]))
    }

    /// The 16 bytes by which RDB files name it: both parts, high byte first.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// The reverse of [`StreamId::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId { ms: (both >> 64) as u64, seq: both as u64 }
    }

    /// The ID that is this far from `master`, as blocks store it; sums wrap around.
    pub(super) fn at(master: StreamId, ms: i64, seq: i64) -> StreamId {
        StreamId { ms: master.ms.wrapping_add(ms as u64), seq: master.seq.wrapping_add(seq as u64) }
    }

    /// How far it is from `master`; see [`StreamId::at`].
    pub(super) fn distance_from(self, master: StreamId) -> (i64, i64) {
        let (ms, seq) = (self.ms.wrapping_sub(master.ms), self.seq.wrapping_sub(master.seq));
        (ms as i64, seq as i64)
    }
}

/// Writes a number so that it ends at `end`; where it begins.
fn digits(buf: &mut IdBuf, mut end: usize, mut number: u64) -> usize {
    loop {
        end -= 1;
        buf[end] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_come_back() {
        for id in [StreamId::MIN, StreamId::MAX, StreamId::new(1526919030474, 55)] {
            assert_eq!(id.with_text(|text| StreamId::parse(text, 7)), Some(id));
            assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
        }
        assert_eq!(StreamId::parse(b"12", 7), Some(StreamId::new(12, 7)));
        for wrong in ["", "-", "1-", "-1", "1-2-3", "1-*", "+", "18446744073709551616"] {
            assert_eq!(StreamId::parse(wrong.as_bytes(), 0), None, "{wrong}");
        }
        StreamId::new(0, 10).with_text(|text| assert_eq!(text, b"0-10"));
    }

    #[test]
    fn neighbours_carry_over() {
        assert_eq!(StreamId::new(1, u64::MAX).next(), Some(StreamId::new(2, 0)));
        assert_eq!(StreamId::new(2, 0).previous(), Some(StreamId::new(1, u64::MAX)));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    }

    #[test]
    fn distances_wrap_around() {
        let (master, id) = (StreamId::new(5, u64::MAX), StreamId::new(9, 1));
        let (ms, seq) = id.distance_from(master);
        assert_eq!(StreamId::at(master, ms, seq), id);
    }
}
