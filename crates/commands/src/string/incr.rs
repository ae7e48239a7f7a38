//! `INCR key`, `DECR key`, `INCRBY key increment`, `DECRBY key decrement`

use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Event, Flags, Group, KeyFlags, KeySpec, Outcome,
    event,
};

/// `INCR`.
pub static INCR: Command = Command {
    name: "incr",
    arity: 2,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Adds one to a number.",
    args: &[Arg::key("key", 0)],
    run: incr,
    ..Command::ROW
};

/// `DECR`.
pub static DECR: Command = Command {
    name: "decr",
    arity: 2,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Takes one from a number.",
    args: &[Arg::key("key", 0)],
    run: decr,
    ..Command::ROW
};

/// `INCRBY`.
pub static INCRBY: Command = Command {
    name: "incrby",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Adds an integer to a number.",
    args: &[Arg::key("key", 0), Arg::new("increment", ArgKind::Integer)],
    run: incrby,
    ..Command::ROW
};

/// `DECRBY`.
pub static DECRBY: Command = Command {
    name: "decrby",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Takes an integer from a number.",
    args: &[Arg::key("key", 0), Arg::new("decrement", ArgKind::Integer)],
    run: decrby,
    ..Command::ROW
};

const INCRBY_EVENT: Event = event(Class::STRING, "incrby");

fn incr(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    add(cx, args, 1)
}
fn decr(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    add(cx, args, -1)
}
fn incrby(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let increment = args.integer(2)?;
    add(cx, args, increment)
}
fn decrby(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let decrement = args.integer(2)?;
    let increment = decrement.checked_neg().ok_or(Error::text("ERR decrement would overflow"))?;
    add(cx, args, increment)
}

fn add(cx: &mut Cx<'_>, args: Args<'_>, increment: i64) -> Outcome {
    let key = args.key(1);
    let sum = cx.db.update_integer(key, |old| old.checked_add(increment).ok_or(Error::Overflow))?;
    cx.db.changed(key, INCRBY_EVENT);
    cx.reply.integer(sum);
    Ok(())
}
