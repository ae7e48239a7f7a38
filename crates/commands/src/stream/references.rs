//! What XDELEX and XACKDEL share: `[KEEPREF|DELREF|ACKED] IDS numids id [id …]`, and their replies.
//! And what they, XADD and XTRIM put into the journal where references count.

use super::ids;
use engine::journal::Effect;
use engine::{Arg, ArgKind, Args, Error};
use resp::Reply;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use structs::stream::{Group, Range, References, Stream, StreamId};

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

/// The choice that stands at a word, if one does.
pub(super) fn named(args: Args<'_>, at: usize) -> Option<References> {
    if args.is(at, "keepref") {
        Some(References::Keep)
    } else if args.is(at, "delref") {
        Some(References::Delete)
    } else if args.is(at, "acked") {
        Some(References::Acknowledged)
    } else {
        None
    }
}

/// Reads both from word `at` on, in any order.
pub(super) fn parse(args: Args<'_>, mut at: usize) -> Result<(References, Vec<StreamId>), Error> {
    let (mut references, mut found) = (None, None);
    while at < args.len() {
        if let Some(chosen) = named(args, at) {
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
        let is_pending = || stream.groups().any(|(_, group)| group.pending(id).is_some());
        let is_kept = references == References::Acknowledged && is_pending();
        return if is_kept { Fate::Kept } else { Fate::Absent };
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

/// What a change has taken from a stream.
///
/// XDELEX, XACKDEL, DELREF and ACKED are younger than most servers that read the journal, as
/// replicas or from a file. It gets XDEL and XACK in place of them.
#[derive(Default)]
pub(super) struct Taken {
    entries: Vec<StreamId>,
    /// What is no longer pending, by group.
    references: BTreeMap<Box<[u8]>, Vec<StreamId>>,
}

impl Taken {
    /// Compares two states of a stream in these entries.
    pub fn of_entries(before: &Stream, after: &Stream, mut ids: Vec<StreamId>) -> Taken {
        ids.sort_unstable();
        ids.dedup();
        let mut references = BTreeMap::new();
        for (name, group, now) in groups(before, after) {
            let is_settled =
                |id: &StreamId| group.pending(*id).is_some() && now.pending(*id).is_none();
            let settled: Vec<StreamId> = ids.iter().copied().filter(is_settled).collect();
            if !settled.is_empty() {
                references.insert(name.into(), settled);
            }
        }
        ids.retain(|&id| before.contains(id) && !after.contains(id));
        Taken { entries: ids, references }
    }

    /// What a trim of `deleted` entries has taken that the same trim without the options would not
    /// have.
    pub fn of_trim(before: &Stream, after: &Stream, references: References, deleted: u64) -> Taken {
        let mut taken = Taken::default();
        match references {
            References::Keep => {}
            References::Acknowledged if deleted > 0 => before.walk(Range::ALL, |id, _| {
                if !after.contains(id) {
                    taken.entries.push(id);
                }
                if (taken.entries.len() as u64) < deleted {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            }),
            References::Acknowledged => {}
            References::Delete => {
                let end = after.edge(false).unwrap_or(StreamId::MAX);
                for (name, group, now) in groups(before, after) {
                    let mut settled = Vec::new();
                    group.walk(StreamId::MIN, i64::MAX, |pending| {
                        if pending.id >= end {
                            return ControlFlow::Break(());
                        }
                        if now.pending(pending.id).is_none() {
                            settled.push(pending.id);
                        }
                        ControlFlow::Continue(())
                    });
                    if !settled.is_empty() {
                        taken.references.insert(name.into(), settled);
                    }
                }
            }
        }
        taken
    }

    /// Whether nothing was taken.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.references.is_empty()
    }

    /// Writes it as XACK and XDEL.
    pub fn write(&self, p: &mut Effect<'_>, key: &[u8]) {
        for (group, ids) in &self.references {
            write_ids(p, &[b"XACK", key, group], ids);
        }
        if !self.entries.is_empty() {
            write_ids(p, &[b"XDEL", key], &self.entries);
        }
    }
}

/// The groups of both states.
fn groups<'a>(
    before: &'a Stream,
    after: &'a Stream,
) -> impl Iterator<Item = (&'a [u8], &'a Group, &'a Group)> {
    before.groups().filter_map(|(name, group)| Some((name, group, after.group(name)?)))
}

fn write_ids(p: &mut Effect<'_>, words: &[&[u8]], ids: &[StreamId]) {
    p.begin(words.len() + ids.len());
    words.iter().for_each(|word| p.word(word));
    ids.iter().for_each(|id| id.with_text(|text| p.word(text)));
}
