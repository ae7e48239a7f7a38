//! `BITOP AND|OR|XOR|NOT|DIFF|DIFF1|ANDOR|ONE destkey key [key …]`
//!
//! DIFF, DIFF1 and ANDOR set the first source against the union of the others, ONE keeps bits that
//! a single source has. They are of Redis 8.2, so the journal holds their result in place of them.
//! Sources count as padded with zeros to the length of the longest one.

use engine::{
    Arg, Args, Command, Cx, Effort, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome, events,
};
use keyspace::{Entry, HeapString};
use std::borrow::Cow;

/// `BITOP`.
pub static BITOP: Command = Command {
    name: "bitop",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::at(2, KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::rest(3, 1, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::Bitmap,
    since: "2.6.0",
    complexity: "O(N)",
    effort: Effort::Elements(2),
    summary: "Combines strings bit by bit and keeps what comes out.",
    history: &[("8.2.0", "Takes `DIFF`, `DIFF1`, `ANDOR` and `ONE`.")],
    args: &[
        Arg::one_of(
            "operation",
            &[
                Arg::token("and", "AND"),
                Arg::token("or", "OR"),
                Arg::token("xor", "XOR"),
                Arg::token("not", "NOT"),
                Arg::token("diff", "DIFF").since("8.2.0"),
                Arg::token("diff1", "DIFF1").since("8.2.0"),
                Arg::token("andor", "ANDOR").since("8.2.0"),
                Arg::token("one", "ONE").since("8.2.0"),
            ],
        ),
        Arg::key("destkey", 0),
        Arg::key("key", 1).multiple(),
    ],
    run: bitop,
    ..Command::ROW
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// In the first source and in no other.
    Diff,
    /// In another source and not in the first.
    Diff1,
    /// In the first source and in another.
    AndOr,
    /// In a single source.
    One,
}

use Operation::{And, AndOr, Diff, Diff1, Not, One, Or, Xor};

impl Operation {
    const NAMES: [(&'static str, Operation); 8] = [
        ("and", And),
        ("or", Or),
        ("xor", Xor),
        ("not", Not),
        ("diff", Diff),
        ("diff1", Diff1),
        ("andor", AndOr),
        ("one", One),
    ];

    /// Whether the first source has a role of its own.
    fn sets_first_against_others(self) -> bool {
        matches!(self, Diff | Diff1 | AndOr)
    }

    /// Whether servers before Redis 8.2 do not know it.
    fn is_young(self) -> bool {
        matches!(self, Diff | Diff1 | AndOr | One)
    }
}

fn parse(args: Args<'_>) -> Result<Operation, Error> {
    let found = Operation::NAMES.into_iter().find(|(name, _)| args.is(1, name));
    let (name, operation) = found.ok_or(Error::Syntax)?;
    if operation == Not && args.len() != 4 {
        return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
    }
    if operation.sets_first_against_others() && args.len() < 5 {
        return Err(Error::format(format!(
            "ERR BITOP {} must be called with at least two source keys.",
            name.to_ascii_uppercase()
        )));
    }
    Ok(operation)
}

fn bitop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let operation = parse(args)?;
    let mut sources = Vec::with_capacity(args.len() - 3);
    for index in 3..args.len() {
        sources.push(match cx.db.string(args.key(index))? {
            None => Cow::Borrowed(&b""[..]),
            Some(string) => {
                string.text().map_or_else(|| Cow::Owned(string.to_vec()), Cow::Borrowed)
            }
        });
    }
    let result = combine(operation, &sources);
    drop(sources);
    let (target, len) = (args.key(2), result.len());
    if len == 0 {
        if cx.db.delete(target) && operation.is_young() {
            cx.db.propagate_as(|p| p.command(&[b"DEL", target.bytes]));
        }
    } else {
        let access = cx.db.fresh_access();
        cx.db.put_entry(target, Entry::new_heap_string(target.bytes, result, None, access));
        cx.db.changed(target, events::SET);
        if operation.is_young() {
            propagate_result(cx, target);
        }
    }
    cx.reply.integer(len as i64);
    Ok(())
}

/// Hands on the result as it was stored.
fn propagate_result(cx: &mut Cx<'_>, target: Key<'_>) {
    let stored = cx.db.string_for_write(target).ok().flatten().map(|value| value.to_vec());
    let Some(stored) = stored else { return };
    cx.db.propagate_as(|p| p.command(&[b"SET", target.bytes, &stored]));
}

fn combine(operation: Operation, sources: &[Cow<'_, [u8]>]) -> HeapString {
    let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut result = HeapString::with_capacity(len);
    let Some((first, others)) = sources.split_first() else { return result };
    if !operation.sets_first_against_others() {
        result.extend(first);
    }
    result.resize(len);
    let bytes = result.as_mut_slice();
    let mut seen_twice = vec![0; if operation == One { len } else { 0 }];
    if operation == Not {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for other in others {
        let pairs = bytes.iter_mut().zip(other.iter());
        match operation {
            And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                bytes[other.len()..].fill(0);
            }
            Or | Diff | Diff1 | AndOr => pairs.for_each(|(byte, other)| *byte |= other),
            Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            One => pairs.zip(&mut seen_twice).for_each(|((byte, other), twice)| {
                *twice |= *byte & other;
                *byte |= other;
            }),
            Not => {}
        }
    }
    let padded = first.iter().copied().chain(std::iter::repeat(0));
    match operation {
        Diff => bytes.iter_mut().zip(padded).for_each(|(byte, first)| *byte = first & !*byte),
        Diff1 => bytes.iter_mut().zip(padded).for_each(|(byte, first)| *byte &= !first),
        AndOr => bytes.iter_mut().zip(padded).for_each(|(byte, first)| *byte &= first),
        One => bytes.iter_mut().zip(seen_twice).for_each(|(byte, twice)| *byte &= !twice),
        And | Or | Xor | Not => {}
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_sources_are_padded_with_zeros() {
        let sources = [Cow::Borrowed(&b"\xf0\xff"[..]), Cow::Borrowed(b"\x3c"), Cow::Borrowed(b"")];
        let combined =
            |operation, sources: &[Cow<'_, [u8]>]| combine(operation, sources).as_slice().to_vec();
        assert_eq!(combined(And, &sources[..2]), b"\x30\x00");
        assert_eq!(combined(And, &sources), b"\x00\x00");
        assert_eq!(combined(Or, &sources), b"\xfc\xff");
        assert_eq!(combined(Xor, &sources), b"\xcc\xff");
        assert_eq!(combined(Not, &sources[..1]), b"\x0f\x00");
        assert_eq!(combined(Or, &sources[2..]), b"");
        assert_eq!(combined(Diff, &sources), b"\xc0\xff");
        assert_eq!(combined(Diff1, &sources), b"\x0c\x00");
        assert_eq!(combined(AndOr, &sources), b"\x30\x00");
        assert_eq!(combined(One, &sources), b"\xcc\xff");
        let three = [Cow::Borrowed(&b"\x01"[..]), Cow::Borrowed(b"\x03"), Cow::Borrowed(b"\x05")];
        assert_eq!(combined(One, &three), b"\x06", "a bit of three sources is not of one");
    }
}
