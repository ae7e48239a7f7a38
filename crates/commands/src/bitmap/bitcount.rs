//! `BITCOUNT key [start [end [BYTE|BIT]]]`

use super::range::BitRange;
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use std::ops::Range;

/// `BITCOUNT`.
pub static BITCOUNT: Command = Command {
    name: "bitcount",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Bitmap,
    since: "2.6.0",
    complexity: "O(N)",
    effort: Effort::Elements(1),
    summary: "How many bits of a string are set, in a part of it or in all.",
    history: &[("7.0.0", "Takes `BYTE|BIT`."), ("8.0.0", "Without `end` the last byte is meant.")],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "range",
            &[
                Arg::new("start", ArgKind::Integer),
                Arg::block(
                    "end-unit-block",
                    &[
                        Arg::new("end", ArgKind::Integer),
                        Arg::one_of(
                            "unit",
                            &[Arg::token("byte", "BYTE"), Arg::token("bit", "BIT")],
                        )
                        .optional()
                        .since("7.0.0"),
                    ],
                )
                .optional(),
            ],
        )
        .optional(),
    ],
    run: bitcount,
    ..Command::ROW
};

fn bitcount(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let range = BitRange::parse(args, 2)?;
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    let string = cx.db.string(args.key(1))?;
    let bytes = string.as_ref().map_or(&b""[..], |string| string.bytes(&mut digits));
    let bits = if range.is_backward() { None } else { range.bits(bytes.len()) };
    cx.reply.integer(bits.map_or(0, |bits| count_in(bytes, bits)) as i64);
    Ok(())
}

/// Number of bits set among those of a range that is not empty.
fn count_in(bytes: &[u8], bits: Range<usize>) -> u64 {
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let before = first_bits(bytes[first], bits.start % 8);
    let after = count(&bytes[last..=last]) - first_bits(bytes[last], (bits.end - 1) % 8 + 1);
    count(&bytes[first..=last]) - before - after
}

/// Number of bits set among the highest `bits` of a byte.
fn first_bits(byte: u8, bits: usize) -> u64 {
    u64::from((u16::from(byte) >> (8 - bits)).count_ones())
}

fn count(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words = words.iter().map(|&word| u64::from(u64::from_ne_bytes(word).count_ones()));
    in_words.sum::<u64>() + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_any_range_as_bit_by_bit() {
        let bytes: Vec<u8> = (0..40).map(|i: u8| i.wrapping_mul(97) ^ 0x5a).collect();
        let is_set = |bit: usize| bytes[bit / 8] >> (7 - bit % 8) & 1 == 1;
        for start in 0..320 {
            for end in start + 1..=320 {
                let expected = (start..end).filter(|&bit| is_set(bit)).count() as u64;
                assert_eq!(count_in(&bytes, start..end), expected, "{start}..{end}");
            }
        }
    }
}
