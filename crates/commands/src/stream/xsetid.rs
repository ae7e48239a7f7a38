//! `XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]`

use super::ids;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome, event,
};
use structs::stream::{Stream, StreamId};

/// `XSETID`.
pub static XSETID: Command = Command {
    name: "xsetid",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Sets the last ID of a stream, as replication needs it.",
    history: &[("7.0.0", "Takes `entries_added` and `max_deleted_entry_id`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("last-id", ArgKind::String),
        Arg::new("entries-added", ArgKind::Integer).after("ENTRIESADDED").optional().since("7.0.0"),
        Arg::new("max-deleted-id", ArgKind::String).after("MAXDELETEDID").optional().since("7.0.0"),
    ],
    run: xsetid,
    ..Command::ROW
};

/// `ENTRIESADDED` and `MAXDELETEDID`.
fn parse(args: Args<'_>, last: StreamId) -> Result<(Option<u64>, StreamId), Error> {
    let (mut added, mut max_deleted) = (None, StreamId::MIN);
    let mut at = 3;
    while at + 1 < args.len() {
        if args.is(at, "entriesadded") {
            let count = u64::try_from(args.integer(at + 1)?);
            added = Some(count.map_err(|_| Error::text("ERR entries_added must be positive"))?);
        } else if args.is(at, "maxdeletedid") {
            max_deleted = ids::strict(args[at + 1], 0)?;
            if last < max_deleted {
                return Err(Error::text(
                    "ERR The ID specified in XSETID is smaller than the provided \
                     max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    if at == args.len() { Ok((added, max_deleted)) } else { Err(Error::Syntax) }
}

fn xsetid(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let last = ids::strict(args[2], 0)?;
    let (added, max_deleted) = parse(args, last)?;
    let key = args.key(1);
    let Some(stream) = cx.db.write::<Stream>(key)? else { return Err(Error::NoSuchKey) };
    if last < stream.counters().max_deleted_id {
        return Err(Error::text(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if let Some(top) = stream.edge(true) {
        if last < top {
            return Err(Error::text(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| added < stream.len() as u64) {
            return Err(Error::text(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    stream.set_last_id(last, added, max_deleted);
    cx.db.add_dirty(1);
    cx.db.notify(key, event(Class::STREAM, "xsetid"));
    cx.reply.ok();
    Ok(())
}
