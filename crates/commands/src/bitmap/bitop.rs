//! `BITOP AND|OR|XOR|NOT destkey key [key …]`
//!
//! Sources count as padded with zeros to the length of the longest one.

use engine::{
    Arg, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome, events,
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
    summary: "Performs bitwise operations on multiple strings, and stores the \
        result.",
    args: &[
        Arg::one_of(
            "operation",
            &[
                Arg::token("and", "AND"),
                Arg::token("or", "OR"),
                Arg::token("xor", "XOR"),
                Arg::token("not", "NOT"),
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
}

fn parse(args: Args<'_>) -> Result<Operation, Error> {
    let operation = if args.is(1, "and") {
        Operation::And
    } else if args.is(1, "or") {
        Operation::Or
    } else if args.is(1, "xor") {
        Operation::Xor
    } else if args.is(1, "not") {
        Operation::Not
    } else {
        return Err(Error::Syntax);
    };
    if operation == Operation::Not && args.len() != 4 {
        return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
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
        cx.db.delete(target);
    } else {
        let access = cx.db.fresh_access();
        cx.db.put_entry(target, Entry::new_heap_string(target.bytes, result, None, access));
        cx.db.changed(target, events::SET);
    }
    cx.reply.integer(len as i64);
    Ok(())
}

fn combine(operation: Operation, sources: &[Cow<'_, [u8]>]) -> HeapString {
    let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut result = HeapString::with_capacity(len);
    let Some((first, others)) = sources.split_first() else { return result };
    result.extend(first);
    result.resize(len);
    let bytes = result.as_mut_slice();
    if operation == Operation::Not {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for other in others {
        let pairs = bytes.iter_mut().zip(other.iter());
        match operation {
            Operation::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                bytes[other.len()..].fill(0);
            }
            Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Operation::Not => {}
        }
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
        assert_eq!(combined(Operation::And, &sources[..2]), b"\x30\x00");
        assert_eq!(combined(Operation::And, &sources), b"\x00\x00");
        assert_eq!(combined(Operation::Or, &sources), b"\xfc\xff");
        assert_eq!(combined(Operation::Xor, &sources), b"\xcc\xff");
        assert_eq!(combined(Operation::Not, &sources[..1]), b"\x0f\x00");
        assert_eq!(combined(Operation::Or, &sources[2..]), b"");
    }
}
