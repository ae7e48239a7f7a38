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
//! three-byte prefix was seen, sized by the input so that short strings do not pay for clearing a big
//! one. Any LZF decoder reads its output; it need not equal liblzf's byte for byte.

const MAX_LITERALS: usize = 32;
const MAX_OFFSET: usize = 1 << 13;
const MAX_MATCH: usize = 264;
const MIN_MATCH: usize = 3;

const MIN_TABLE_BITS: u32 = 7;
const MAX_TABLE_BITS: u32 = 14;

/// Appends the compressed form of `input` to `out` if that takes at most `limit` bytes; otherwise
/// leaves `out` as it was and returns false.
pub fn compress(input: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    // Positions are kept in 32 bits; strings beyond that are stored as they are.
    if input.len() < MIN_MATCH || u32::try_from(input.len()).is_err() {
        return false;
    }
    let bits = input.len().ilog2().clamp(MIN_TABLE_BITS, MAX_TABLE_BITS);
    // Entries are positions plus one, zero means none.
    let mut table = vec![0u32; 1 << bits];
    let mut literals = 0;
    let mut at = 0;
    while at + MIN_MATCH <= input.len() {
        let prefix = [input[at], input[at + 1], input[at + 2]];
        let slot = &mut table[hash(prefix, bits)];
        let candidate = std::mem::replace(slot, at as u32 + 1) as usize;
        let offset = at + 1 - candidate;
        if candidate == 0 || offset > MAX_OFFSET || input[candidate - 1..candidate + 2] != prefix {
            at += 1;
            continue;
        }
        let longest = (input.len() - at).min(MAX_MATCH);
        let len = MIN_MATCH
            + (MIN_MATCH..longest)
                .take_while(|&idx| input[at + idx] == input[candidate - 1 + idx])
                .count();
        push_literals(&input[literals..at], out);
        push_match(offset - 1, len - 2, out);
        if out.len() - start > limit {
            out.truncate(start);
            return false;
        }
        // The prefixes inside the match are candidates too; its last two suffice for long runs.
        for inside in (at + len).saturating_sub(2).max(at + 1)..at + len {
            if let Some(&[a, b, c]) = input[inside..].first_chunk() {
                table[hash([a, b, c], bits)] = inside as u32 + 1;
            }
        }
        at += len;
        literals = at;
    }
    push_literals(&input[literals..], out);
    if out.len() - start > limit {
        out.truncate(start);
        return false;
    }
    true
}

#[inline]
fn hash([a, b, c]: [u8; 3], bits: u32) -> usize {
    let prefix = u32::from_le_bytes([a, b, c, 0]);
    (prefix.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize
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
        assert!(compress(input, usize::MAX, &mut out));
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
        let mut out = b"kept".to_vec();
        assert!(!compress(b"no repetition: 0123456789", 21, &mut out));
        assert_eq!(out, b"kept");
        assert!(!compress(b"ab", 10, &mut out));
        assert!(!compress(b"", 10, &mut out));
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
        fn garbage_never_panics(input in proptest::collection::vec(any::<u8>(), 0..200), len in 0usize..5000) {
            if let Some(out) = decompress(&input, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
