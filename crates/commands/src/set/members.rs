//! `SADD`, `SREM`, `SCARD`, `SISMEMBER`, `SMISMEMBER`, `SMEMBERS`, `SMOVE`

use crate::limits;
use crate::list::write;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Event, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::set::Set;

/// `SADD`.
pub static SADD: Command = Command {
    name: "sadd",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N) for N elements",
    effort: Effort::Words(3),
    summary: "Adds members to a set.",
    history: &[("2.4.0", "Takes more than one `member`.")],
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String).multiple()],
    run: sadd,
    ..Command::ROW
};

/// `SREM`.
pub static SREM: Command = Command {
    name: "srem",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N) for N members",
    effort: Effort::Words(3),
    summary: "Takes members out of a set.",
    history: &[("2.4.0", "Takes more than one `member`.")],
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String).multiple()],
    run: srem,
    ..Command::ROW
};

/// `SCARD`.
pub static SCARD: Command = Command {
    name: "scard",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "How many members a set has.",
    args: &[Arg::key("key", 0)],
    run: scard,
    ..Command::ROW
};

/// `SISMEMBER`.
pub static SISMEMBER: Command = Command {
    name: "sismember",
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Whether a set has a member.",
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String)],
    run: sismember,
    ..Command::ROW
};

/// `SMISMEMBER`.
pub static SMISMEMBER: Command = Command {
    name: "smismember",
    arity: -3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "6.2.0",
    complexity: "O(N) for N members",
    effort: Effort::Words(3),
    summary: "Which of several members a set has.",
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String).multiple()],
    run: smismember,
    ..Command::ROW
};

/// `SMEMBERS`.
pub static SMEMBERS: Command = Command {
    name: "smembers",
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N) for a set of N members",
    effort: Effort::Elements(1),
    summary: "All members of a set.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0)],
    run: smembers,
    ..Command::ROW
};

/// `SMOVE`.
pub static SMOVE: Command = Command {
    name: "smove",
    arity: 4,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT)),
    ],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Takes a member out of one set and puts it into another.",
    args: &[Arg::key("source", 0), Arg::key("destination", 1), Arg::new("member", ArgKind::String)],
    run: smove,
    ..Command::ROW
};

pub(crate) const SADD_EVENT: Event = event(Class::SET, "sadd");
pub(crate) const SREM_EVENT: Event = event(Class::SET, "srem");

fn sadd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let limits = limits::set(&cx.engine.config);
    let set = cx.db.write_or_create::<Set>(key)?;
    set.will_grow(args[2], args.len() - 2, &limits);
    let mut added = 0;
    for member in args.from(2) {
        added += u64::from(set.insert(member, &limits));
    }
    if added > 0 {
        cx.db.changed_in(key, SADD_EVENT, added);
    }
    cx.reply.integer(added as i64);
    Ok(())
}

fn srem(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let mut removed = 0;
    if let Some(set) = cx.db.write::<Set>(key)? {
        removed = args.from(2).iter().filter(|member| set.remove(member)).count();
    }
    if removed > 0 {
        cx.db.changed_in(key, SREM_EVENT, removed as u64);
        cx.db.remove_if_empty::<Set>(key);
    }
    cx.reply.integer(removed as i64);
    Ok(())
}

fn scard(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let len = cx.db.read::<Set>(args.key(1))?.map_or(0, Set::len);
    cx.reply.integer(len as i64);
    Ok(())
}

fn sismember(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let found = cx.db.read::<Set>(args.key(1))?.is_some_and(|set| set.contains(args[2]));
    cx.reply.integer(i64::from(found));
    Ok(())
}

fn smismember(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let set = db.read::<Set>(args.key(1))?;
    reply.array(args.len() - 2);
    for member in args.from(2) {
        reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    Ok(())
}

fn smembers(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let set = db.read::<Set>(args.key(1))?;
    reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| write(reply, member));
    Ok(())
}

fn smove(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (source, destination, member) = (args.key(1), args.key(2), args[3]);
    let limits = limits::set(&cx.engine.config);
    let is_there = cx.db.object_for_write::<Set>(source)?.map(|set| set.contains(member));
    if is_there.is_some() {
        cx.db.object_for_write::<Set>(destination)?;
    }
    if is_there != Some(true) || source.bytes == destination.bytes {
        cx.reply.integer(i64::from(is_there == Some(true)));
        return Ok(());
    }
    if let Some(set) = cx.db.write::<Set>(source)? {
        set.remove(member);
        cx.db.changed(source, SREM_EVENT);
        cx.db.remove_if_empty::<Set>(source);
    }
    let set = cx.db.write_or_create::<Set>(destination)?;
    if set.is_empty() {
        *set = Set::new(member, 1, &limits);
    }
    if set.insert(member, &limits) {
        cx.db.changed(destination, SADD_EVENT);
    }
    cx.reply.integer(1);
    Ok(())
}
