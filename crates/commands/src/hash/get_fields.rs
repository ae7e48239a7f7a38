//! `HGET key field`, `HMGET key field [field …]`, `HEXISTS`, `HSTRLEN`, `HLEN`

use super::read;
use crate::list::write;
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::hash::Hash;

/// `HGET`.
pub static HGET: Command = Command {
    name: "hget",
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "The value of one field.",
    args: &[Arg::key("key", 0), Arg::new("field", ArgKind::String)],
    run: hget,
    ..Command::ROW
};

/// `HMGET`.
pub static HMGET: Command = Command {
    name: "hmget",
    arity: -3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "The values of several fields.",
    args: &[Arg::key("key", 0), Arg::new("field", ArgKind::String).multiple()],
    run: hmget,
    ..Command::ROW
};

/// `HEXISTS`.
pub static HEXISTS: Command = Command {
    name: "hexists",
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "Whether a hash has a field.",
    args: &[Arg::key("key", 0), Arg::new("field", ArgKind::String)],
    run: hexists,
    ..Command::ROW
};

/// `HSTRLEN`.
pub static HSTRLEN: Command = Command {
    name: "hstrlen",
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::Hash,
    since: "3.2.0",
    complexity: "O(1)",
    summary: "How many bytes the value of a field has.",
    args: &[Arg::key("key", 0), Arg::new("field", ArgKind::String)],
    run: hstrlen,
    ..Command::ROW
};

/// `HLEN`.
pub static HLEN: Command = Command {
    name: "hlen",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "How many fields a hash has.",
    args: &[Arg::key("key", 0)],
    run: hlen,
    ..Command::ROW
};

fn hget(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    match read(db, args.key(1))?.and_then(|hash| hash.get(args[2])) {
        Some(value) => write(reply, value),
        None => reply.null(),
    }
    Ok(())
}

fn hmget(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let hash = read(db, args.key(1))?;
    reply.array(args.len() - 2);
    for field in args.from(2) {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) => write(reply, value),
            None => reply.null(),
        }
    }
    Ok(())
}

fn hexists(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let found = read(&cx.db, args.key(1))?.is_some_and(|hash| hash.contains(args[2]));
    cx.reply.integer(i64::from(found));
    Ok(())
}

fn hstrlen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let value = read(&cx.db, args.key(1))?.and_then(|hash| hash.get(args[2]));
    let len = value.map_or(0, |value| value.len());
    cx.reply.integer(len as i64);
    Ok(())
}

/// Fields that have expired count until the expiry cycle has removed them, as in the reference.
fn hlen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let len = cx.db.read::<Hash>(args.key(1))?.map_or(0, Hash::len);
    cx.reply.integer(len as i64);
    Ok(())
}
