//! `LRANGE key start stop`, `LLEN key`, `LINDEX key index`

use super::pop::write;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Db, Effort, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use structs::list::List;

/// `LRANGE`.
pub static LRANGE: Command = Command {
    name: "lrange",
    arity: 4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(S+N) for N elements that are S away from the nearer end",
    effort: Effort::Part(1, ranged),
    summary: "The elements between two places of a list.",
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::Integer),
        Arg::new("stop", ArgKind::Integer),
    ],
    run: lrange,
    ..Command::ROW
};

/// `LLEN`.
pub static LLEN: Command = Command {
    name: "llen",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "How many elements a list has.",
    args: &[Arg::key("key", 0)],
    run: llen,
    ..Command::ROW
};

/// `LINDEX`.
pub static LINDEX: Command = Command {
    name: "lindex",
    arity: 3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for an element that is N away from the nearer end",
    summary: "The element at a place of a list.",
    args: &[Arg::key("key", 0), Arg::new("index", ArgKind::Integer)],
    run: lindex,
    ..Command::ROW
};

/// How many elements a request for a range is for.
fn ranged(db: &Db<'_>, args: Args<'_>) -> usize {
    let range = args
        .integer(2)
        .and_then(|start| Ok(super::range(start, args.integer(3)?, db.size(args.key(1)))));
    range.ok().flatten().map_or(0, |range| range.len())
}

fn lrange(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let Cx { db, reply, .. } = cx;
    let Some(list) = db.read::<List>(args.key(1))? else {
        reply.array(0);
        return Ok(());
    };
    match super::range(start, stop, list.len()) {
        None => reply.array(0),
        Some(range) => {
            reply.array(range.len());
            list.for_each_range(range.start, range.len(), |element| write(reply, element));
        }
    }
    Ok(())
}

fn llen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let len = cx.db.read::<List>(args.key(1))?.map_or(0, List::len);
    cx.reply.integer(len as i64);
    Ok(())
}

fn lindex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let Some(list) = db.read::<List>(args.key(1))? else {
        // Whatever the index is: a missing list is not asked for it.
        reply.null();
        return Ok(());
    };
    let place = super::place(args.integer(2)?, list.len());
    match place.and_then(|place| list.get(place)) {
        Some(element) => write(reply, element),
        None => reply.null(),
    }
    Ok(())
}
