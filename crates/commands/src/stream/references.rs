//! What XDELEX and XACKDEL share: `[KEEPREF|DELREF|ACKED] IDS numids id [id …]`, and their replies.

use super::ids;
use engine::{Arg, ArgKind, Args, Error};
use resp::Reply;
use structs::stream::{References, Stream, StreamId};

/// The choice of what becomes of references.
pub(super) const CONDITION: Arg = Arg::one_of(
    "condition",
    &[
        Arg::token("keepref", "KEEPREF"),
        Arg::token("delref", "DELREF"),
        Arg::token("acked", "ACKED"),
    ],
)
.optional();

/// The IDs.
pub(super) const IDS: Arg = Arg::block(
    "ids",
    &[Arg::new("numids", ArgKind::Integer), Arg::new("id", ArgKind::String).multiple()],
)
.after("IDS");

/// What became of an entry; the number is that of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i64)]
pub(super) enum Fate {
    /// There is no such entry.
    Absent = -1,
    /// It has been deleted.
    Deleted = 1,
    /// A group still needs it.
    Kept = 2,
}

/// Reads both from word `at` on, in any order.
pub(super) fn parse(args: Args<'_>, mut at: usize) -> Result<(References, Vec<StreamId>), Error> {
    let (mut references, mut found) = (None, None);
    while at < args.len() {
        let chosen = match () {
            () if args.is(at, "keepref") => Some(References::Keep),
            () if args.is(at, "delref") => Some(References::Delete),
            () if args.is(at, "acked") => Some(References::Acknowledged),
            () => None,
        };
        if let Some(chosen) = chosen {
            if references.replace(chosen).is_some() {
                return Err(Error::Syntax);
            }
            at += 1;
        } else if args.is(at, "ids") && found.is_none() {
            let count =
                args.integer_in(at + 1, 1..=i64::MAX, "Number of IDs must be a positive integer")?;
            let words = args.from(at + 2);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let Some(words) = words.get(..count) else {
                return Err(Error::text(
                    "ERR The `numids` parameter must match the number of arguments",
                ));
            };
            found = Some(ids::all(words)?);
            at += 2 + count;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok((references.unwrap_or_default(), found.ok_or(Error::Syntax)?))
}

/// Deletes an entry unless a group that counts needs it.
pub(super) fn delete(stream: &mut Stream, id: StreamId, references: References) -> Fate {
    // References to an entry that is gone are to go too.
    if references == References::Delete {
        stream.forget(id);
    }
    if !stream.contains(id) {
        return Fate::Absent;
    }
    if references == References::Acknowledged && !stream.is_acknowledged(id) {
        return Fate::Kept;
    }
    stream.delete(id);
    Fate::Deleted
}

/// Writes what became of the entries.
pub(super) fn write(reply: &mut Reply<'_>, fates: &[Fate]) {
    reply.array(fates.len());
    fates.iter().for_each(|&fate| reply.integer(fate as i64));
}
