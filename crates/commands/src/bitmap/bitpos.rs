//! `BITPOS key bit [start [end [BYTE|BIT]]]`
//!
//! A string counts as followed by zeros without end, so a search for a clear bit that has no given
//! end succeeds right after the string; with a given end it may fail.

use super::range::BitRange;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use std::ops::Range;

/// `BITPOS`.
pub static BITPOS: Command = Command {
    name: "bitpos",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Bitmap,
    since: "2.8.7",
    complexity: "O(N)",
    effort: Effort::Elements(1),
    summary: "Where the first bit of a kind is in a string.",
    history: &[("7.0.0", "Takes `BYTE|BIT`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("bit", ArgKind::Integer),
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
    run: bitpos,
    ..Command::ROW
};

fn bitpos(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let bit = match args.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    let range = BitRange::parse(args, 3)?;
    let Some(string) = cx.db.string(args.key(1))? else {
        cx.reply.integer(if bit { -1 } else { 0 });
        return Ok(());
    };
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    let bytes = string.bytes(&mut digits);
    let found = range.bits(bytes.len()).and_then(|bits| {
        let end = bits.end;
        let in_padding = (!bit && range.end.is_none()).then_some(end);
        find(bytes, bits, bit).or(in_padding)
    });
    cx.reply.integer(found.map_or(-1, |at| at as i64));
    Ok(())
}

/// The first such bit of a range that is not empty.
fn find(bytes: &[u8], bits: Range<usize>, bit: bool) -> Option<usize> {
    // Whatever is looked for becomes a one.
    let flip = if bit { 0 } else { 0xff };
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let head = (bytes[first] ^ flip) & (0xff >> (bits.start % 8));
    let at = if head != 0 {
        first * 8 + head.leading_zeros() as usize
    } else {
        let index = first + 1 + skip(bytes.get(first + 1..=last)?, flip)?;
        index * 8 + (bytes[index] ^ flip).leading_zeros() as usize
    };
    (at < bits.end).then_some(at)
}

/// The index of the first byte that is not `fill`.
fn skip(bytes: &[u8], fill: u8) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    let full = words.iter().take_while(|&&word| word == [fill; 8]).count() * 8;
    let tail = if full == words.len() * 8 { rest } else { &bytes[full..] };
    tail.iter().position(|&byte| byte != fill).map(|at| full + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_looking_at_every_bit_finds() {
        for (fill, other) in [(0u8, 0x10u8), (0xff, 0xfb), (0, 0xff)] {
            let mut bytes = vec![fill; 30];
            bytes[1] = other;
            bytes[21] = other;
            let is_set = |bit: usize| bytes[bit / 8] >> (7 - bit % 8) & 1 == 1;
            for start in 0..240 {
                for end in start + 1..=240 {
                    for bit in [false, true] {
                        let expected = (start..end).find(|&at| is_set(at) == bit);
                        assert_eq!(find(&bytes, start..end, bit), expected, "{start}..{end} {bit}");
                    }
                }
            }
        }
    }
}
