//! LZF, the compression of strings in RDB files and DUMP payloads.
//!
//! The format (that of liblzf) is a sequence of
//!
//! ```text
//! 000LLLLL                       L+1 literal bytes follow                        1..=32
//! LLLooooo oooooooo              copy L+2 bytes from o+1 bytes back    L = 1..=6: 3..=8
//! 111ooooo LLLLLLLL oooooooo     copy L+9 bytes from o+1 bytes back               9..=264
//! ```
//!
//! A copy may overlap what it writes. The compressor is greedy with a table of the last place each
//! three-byte prefix was seen. Any LZF decoder reads its output; it need not equal liblzf's byte
//! for byte.

const MAX_LITERALS: usize = 32;
const MAX_OFFSET: u64 = 1 << 13;
const MAX_MATCH: usize = 264;
const MIN_MATCH: usize = 3;

/// A short string's table stays in the innermost cache.
const SHORT: usize = 2 << 10;
const SHORT_TABLE_BITS: u32 = 10;
const LONG_TABLE_BITS: u32 = 14;

/// Where nothing was found at so many places, only every second is looked at, and then every third.
const HOPELESS: usize = 64;
/// No more places than one of so many.
const LONGEST_STEP: usize = 4;

/// Compresses one string after the other. What it keeps in between (8 KiB, or 128 if there was a
/// long one) need not be cleared for the next, which would be most of the work for a short string.
#[derive(Debug, Default)]
pub struct Compressor {
    /// Prefixes, above, and where they were seen last, below: places count from the first string's
    /// beginning on, so what is before `begin` belongs to an earlier one, or to none.
    table: Vec<u64>,
    /// Where the next string begins. The first begins at 1: zero stands for no place.
    begin: u32,
}

impl Compressor {
    /// Appends the compressed form of `input` to `out` if that takes at most `limit` bytes;
    /// otherwise leaves `out` as it was and returns false.
    pub fn compress(&mut self, input: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
        if input.len() < SHORT {
            self.compress_with::<SHORT_TABLE_BITS>(input, limit, out)
        } else {
            self.compress_with::<LONG_TABLE_BITS>(input, limit, out)
        }
    }

    fn compress_with<const BITS: u32>(
        &mut self,
        input: &[u8],
        limit: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        if input.len() < MIN_MATCH {
            return false;
        }
        let Some(mut seen) = self.prepare::<BITS>(input.len()) else { return false };
        let mut literals = 0;
        while let Some((at, back)) = seen.next_match(input, literals) {
            let end = input.len().min(at + MAX_MATCH);
            let rest = common_prefix(&input[at + MIN_MATCH..end], &input[at + MIN_MATCH - back..]);
            let len = MIN_MATCH + rest;
            push_literals(&input[literals..at], out);
            push_match(back - 1, len - 2, out);
            literals = at + len;
            if out.len() - start > limit {
                break;
            }
            // The prefixes inside the match are candidates too; its last two suffice for long runs.
            for inside in literals - 2..literals {
                if let Some(prefix) = prefix_at(input, inside) {
                    seen.exchange(prefix, inside);
                }
            }
        }
        // Literals take more than their own length: what cannot fit is not copied.
        let mut fits = out.len() - start + (input.len() - literals) <= limit;
        if fits {
            push_literals(&input[literals..], out);
            fits = out.len() - start <= limit;
        }
        if !fits {
            out.truncate(start);
        }
        fits
    }

    /// The table for a string of this length. `None` if it is too long to count; such strings are
    /// stored as they are.
    fn prepare<const BITS: u32>(&mut self, len: usize) -> Option<Seen<'_, BITS>> {
        let len = u32::try_from(len).ok()?;
        if self.begin.checked_add(len).is_none() {
            self.table.fill(0);
            self.begin = 0;
        }
        let begin = self.begin.max(1);
        self.begin = begin.checked_add(len)?;
        if self.table.len() < 1 << BITS {
            self.table.resize(1 << BITS, 0);
        }
        Some(Seen { table: &mut self.table[..1 << BITS], begin })
    }
}

/// The prefixes of one string.
#[derive(Debug)]
struct Seen<'a, const BITS: u32> {
    table: &'a mut [u64],
    begin: u32,
}

impl<const BITS: u32> Seen<'_, BITS> {
    /// Notes that a prefix is at this place. Returns how many bytes before it was seen last; if
    /// that was never, or is forgotten, a number above them all.
    #[inline]
    fn exchange(&mut self, prefix: u32, at: usize) -> u64 {
        let slot = prefix.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS);
        let new = u64::from(prefix) << 32 | u64::from(self.begin + at as u32);
        let old = std::mem::replace(&mut self.table[slot as usize], new);
        // Another prefix makes a difference in the upper half.
        new.wrapping_sub(old)
    }

    /// The first place from `at` on whose prefix was seen before, and how many bytes before.
    // Inlined, it would share the registers with all that a match needs.
    #[inline(never)]
    fn next_match(&mut self, input: &[u8], mut at: usize) -> Option<(usize, usize)> {
        let end = input.len().saturating_sub(PREFIX_READ - 1);
        for step in (1..LONGEST_STEP).chain(std::iter::repeat(LONGEST_STEP)) {
            let stop = end.min(at + step * HOPELESS);
            while at < stop {
                let prefix = prefix_at(input, at)?;
                let back = self.exchange(prefix, at);
                // Beyond `at` is an earlier string.
                if back <= MAX_OFFSET.min(at as u64) {
                    return Some((at, back as usize));
                }
                at += step;
            }
            if at >= end {
                break;
            }
        }
        None
    }
}

/// Bytes that are read for a prefix.
const PREFIX_READ: usize = 4;

/// The three bytes at a place, in the upper part of a word; `None` at the end, where the last three
/// are not worth a match.
#[inline]
fn prefix_at(input: &[u8], at: usize) -> Option<u32> {
    let word: &[u8; PREFIX_READ] = input.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word) << 8)
}

/// How many bytes two strings begin with in common; the first is not longer.
#[inline]
fn common_prefix(short: &[u8], other: &[u8]) -> usize {
    let mut len = 0;
    while let (Some(a), Some(b)) = (short[len..].first_chunk(), other[len..].first_chunk()) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return len + different.trailing_zeros() as usize / 8;
        }
        len += size_of::<u64>();
    }
    len + short[len..].iter().zip(&other[len..]).take_while(|(a, b)| a == b).count()
}

fn push_literals(literals: &[u8], out: &mut Vec<u8>) {
    for run in literals.chunks(MAX_LITERALS) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

fn push_match(offset: usize, len: usize, out: &mut Vec<u8>) {
    let high = (offset >> 8) as u8;
    if len < 7 {
        out.extend_from_slice(&[(len as u8) << 5 | high, offset as u8]);
    } else {
        out.extend_from_slice(&[7 << 5 | high, (len - 7) as u8, offset as u8]);
    }
}

/// Decompresses `input` into exactly `len` bytes. `None` when the input is truncated, points before
/// its beginning, or yields another length. Never allocates more than the input could fill.
pub fn decompress(input: &[u8], len: usize) -> Option<Vec<u8>> {
    // Three bytes yield at most MAX_MATCH, and nothing yields more.
    if len / (MAX_MATCH / 3) > input.len() {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    let mut rest = input;
    while let Some((&control, tail)) = rest.split_first() {
        rest = tail;
        if control < 1 << 5 {
            let (literals, tail) = rest.split_at_checked(usize::from(control) + 1)?;
            rest = tail;
            out.extend_from_slice(literals);
        } else {
            let mut copy = usize::from(control >> 5) + 2;
            if copy == 9 {
                let (&more, tail) = rest.split_first()?;
                rest = tail;
                copy += usize::from(more);
            }
            let (&low, tail) = rest.split_first()?;
            rest = tail;
            let offset = usize::from(control & 0x1f) << 8 | usize::from(low);
            let mut from = out.len().checked_sub(offset + 1)?;
            // An overlapping copy repeats what it has just written, doubling each time round.
            let end = out.len() + copy;
            if end > len {
                return None;
            }
            while out.len() < end {
                let part = (out.len() - from).min(end - out.len());
                out.extend_from_within(from..from + part);
                from += part;
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(input: &[u8]) -> usize {
        let mut out = vec![7];
        assert!(Compressor::default().compress(input, usize::MAX, &mut out));
        assert_eq!(out[0], 7, "what was there stays");
        assert_eq!(decompress(&out[1..], input.len()).as_deref(), Some(input));
        out.len() - 1
    }

    #[test]
    fn repetition_shrinks() {
        assert!(round_trip(&[b'a'; 100_000]) < 1200);
        assert!(round_trip(b"abcabcabcabcabcabcabcabcabc") < 10);
        let mut words = Vec::new();
        for n in 0..5000 {
            words.extend_from_slice(format!("user:{n:05}:name;").as_bytes());
        }
        assert!(round_trip(&words) < words.len() / 2);
    }

    #[test]
    fn a_limit_is_kept() {
        let mut compressor = Compressor::default();
        let mut out = b"kept".to_vec();
        assert!(!compressor.compress(b"no repetition: 0123456789", 21, &mut out));
        assert_eq!(out, b"kept");
        assert!(!compressor.compress(b"ab", 10, &mut out));
        assert!(!compressor.compress(b"", 10, &mut out));
        // Too long as soon as the first match is there.
        assert!(!compressor.compress(b"0123456789abcdef 0123456789abcdef", 10, &mut out));
        assert_eq!(out, b"kept");
    }

    #[test]
    fn what_came_before_is_not_referred_to() {
        // With the last ones counting begins anew after a while.
        for begin in [0, 1000, u32::MAX - 3000, u32::MAX - 100] {
            let mut compressor = Compressor { begin, ..Compressor::default() };
            for len in [30, 100, 1000, 70] {
                let input = b"the same words again and again; ".repeat(len / 10);
                let mut out = Vec::new();
                assert!(compressor.compress(&input, usize::MAX, &mut out));
                assert_eq!(decompress(&out, input.len()).as_deref(), Some(&input[..]));
            }
        }
        let mut compressor = Compressor::default();
        assert!(compressor.prepare::<LONG_TABLE_BITS>(usize::MAX).is_none());
        assert!(compressor.prepare::<LONG_TABLE_BITS>(u32::MAX as usize).is_none());
        assert!(compressor.prepare::<LONG_TABLE_BITS>(u32::MAX as usize - 1).is_some());
    }

    #[test]
    fn repetition_is_found_behind_what_has_none() {
        let mut random = crate::random::Rng::seeded(7);
        let mut input: Vec<u8> = (0..5000).map(|_| random.next_u64() as u8).collect();
        let len = input.len();
        input.extend_from_slice(&b"repetition; ".repeat(100));
        assert!(round_trip(&input) < len + len / MAX_LITERALS + 60);
    }

    /// Streams as liblzf writes them.
    #[test]
    fn reads_foreign_streams() {
        assert_eq!(decompress(b"\x01aa\xe0\x5c\x00\x01aa", 103), None);
        assert_eq!(decompress(b"\x01aa\xe0\x57\x00\x01aa", 100), Some(vec![b'a'; 100]));
        assert_eq!(decompress(b"\x02abc\x20\x02", 6), Some(b"abcabc".to_vec()));
        assert_eq!(decompress(b"", 0), Some(Vec::new()));
    }

    #[test]
    fn refuses_broken_streams() {
        for (input, len) in [
            (&b"\x05ab"[..], 6),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\x20", 4),
            (b"\x00a\xe0\x05", 15),
            (b"\x00a\xe0", 15),
            (b"\x20\x00", 3),
            (b"\x00a", 0),
            (b"\x00a", 2),
            (b"\x00a\x20\x00", 3),
            (b"\x00a", usize::MAX),
        ] {
            assert_eq!(decompress(input, len), None, "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn everything_round_trips(input in proptest::collection::vec(0u8..4, 3..600)) {
            round_trip(&input);
        }

        #[test]
        fn bytes_round_trip(input in proptest::collection::vec(any::<u8>(), 3..20_000)) {
            round_trip(&input);
        }

        #[test]
        fn one_after_the_other_round_trips(
            inputs in proptest::collection::vec(proptest::collection::vec(0u8..6, 3..300), 1..20)
        ) {
            let mut compressor = Compressor::default();
            for input in inputs {
                let mut out = Vec::new();
                prop_assert!(compressor.compress(&input, usize::MAX, &mut out));
                prop_assert_eq!(decompress(&out, input.len()), Some(input));
            }
        }

        #[test]
        fn garbage_never_panics(input in proptest::collection::vec(any::<u8>(), 0..200), len in 0usize..5000) {
            if let Some(out) = decompress(&input, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
