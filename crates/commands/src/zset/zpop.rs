//! `ZPOPMIN`, `ZPOPMAX`, `ZMPOP`, and blocking `BZPOPMIN`, `BZPOPMAX`, `BZMPOP`

use crate::list::write;
use engine::blocking::{TimeoutReply, parse_timeout};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Flags, Group, Key, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::zset::{Extreme, Zset};

/// `ZPOPMIN`.
pub static ZPOPMIN: Command = Command {
    name: "zpopmin",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "5.0.0",
    complexity: "O(M*log(N)) for M members that a set of N loses",
    effort: Effort::Estimate(crate::effort::popped),
    summary: "Takes the members with the lowest scores.",
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).optional()],
    run: zpopmin,
    ..Command::ROW
};

/// `ZPOPMAX`.
pub static ZPOPMAX: Command = Command {
    name: "zpopmax",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "5.0.0",
    complexity: "O(M*log(N)) for M members that a set of N loses",
    effort: Effort::Estimate(crate::effort::popped),
    summary: "Takes the members with the highest scores.",
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).optional()],
    run: zpopmax,
    ..Command::ROW
};

/// `ZMPOP`.
pub static ZMPOP: Command = Command {
    name: "zmpop",
    arity: -4,
    flags: Flags::WRITE,
    keys: &[KeySpec::counted(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "7.0.0",
    complexity: "O(K+M*log(N)) for K keys, and M members that a set of N loses",
    summary: "Takes members from the first sorted set that has some.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::token("min", "MIN"), Arg::token("max", "MAX")]),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
    ],
    run: zmpop,
    ..Command::ROW
};

/// `BZPOPMIN`.
pub static BZPOPMIN: Command = Command {
    name: "bzpopmin",
    arity: -3,
    flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::FAST),
    keys: &[KeySpec::all_but_last(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "5.0.0",
    complexity: "O(log(N)) for a set of N members",
    summary: "Takes the member with the lowest score; waits for one.",
    history: &[("6.0.0", "`timeout` may have a fraction.")],
    args: &[Arg::key("key", 0).multiple(), Arg::new("timeout", ArgKind::Double)],
    run: bzpopmin,
    ..Command::ROW
};

/// `BZPOPMAX`.
pub static BZPOPMAX: Command = Command {
    name: "bzpopmax",
    arity: -3,
    flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::FAST),
    keys: &[KeySpec::all_but_last(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "5.0.0",
    complexity: "O(log(N)) for a set of N members",
    summary: "Takes the member with the highest score; waits for one.",
    history: &[("6.0.0", "`timeout` may have a fraction.")],
    args: &[Arg::key("key", 0).multiple(), Arg::new("timeout", ArgKind::Double)],
    run: bzpopmax,
    ..Command::ROW
};

/// `BZMPOP`.
pub static BZMPOP: Command = Command {
    name: "bzmpop",
    arity: -5,
    flags: Flags::WRITE.with(Flags::BLOCKING),
    keys: &[KeySpec::counted(2, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "7.0.0",
    complexity: "O(K+M*log(N)) for K keys, and M members that a set of N loses",
    summary: "Takes members from the first sorted set that has some; waits.",
    args: &[
        Arg::new("timeout", ArgKind::Double),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::token("min", "MIN"), Arg::token("max", "MAX")]),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
    ],
    run: bzmpop,
    ..Command::ROW
};

fn zpopmin(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    pop(cx, args, Extreme::Min)
}
fn zpopmax(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    pop(cx, args, Extreme::Max)
}

fn pop(cx: &mut Cx<'_>, args: Args<'_>, end: Extreme) -> Outcome {
    let key = args.key(1);
    let count =
        match args.len() {
            2 => None,
            3 => Some(args.integer_in(2, 0..=i64::MAX, "value is out of range, must be positive")?
                as usize),
            _ => return Err(Error::Syntax),
        };
    let len = cx.db.object_for_write::<Zset>(key)?.map_or(0, Zset::len);
    let pairs = count.unwrap_or(1).min(len);
    let is_nested = cx.reply.is_resp3() && count.is_some();
    cx.reply.array(if is_nested { pairs } else { pairs * 2 });
    pop_pairs(cx, key, end, pairs, is_nested)
}

/// Pops so many pairs and writes them, each as an array of its own if asked to.
fn pop_pairs(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    end: Extreme,
    pairs: usize,
    is_nested: bool,
) -> Outcome {
    if pairs == 0 {
        return Ok(());
    }
    let Cx { db, reply, .. } = cx;
    if let Some(zset) = db.write::<Zset>(key)? {
        for _ in 0..pairs {
            zset.pop(end, |member, score| {
                if is_nested {
                    reply.array(2);
                }
                write(reply, member);
                reply.double(score);
            });
        }
    }
    let (name, command) = match end {
        Extreme::Min => ("zpopmin", &b"ZPOPMIN"[..]),
        Extreme::Max => ("zpopmax", &b"ZPOPMAX"[..]),
    };
    cx.db.changed_in(key, event(Class::ZSET, name), pairs as u64);
    cx.db.propagate_as(|p| {
        p.begin(3);
        p.word(command);
        p.word(key.bytes);
        p.integer(pairs as i64);
    });
    cx.db.remove_if_empty::<Zset>(key);
    Ok(())
}

fn bzpopmin(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    blocking_pop(cx, args, Extreme::Min)
}
fn bzpopmax(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    blocking_pop(cx, args, Extreme::Max)
}

fn blocking_pop(cx: &mut Cx<'_>, args: Args<'_>, end: Extreme) -> Outcome {
    let last = args.len() - 1;
    let deadline = parse_timeout(args[last], cx.now())?;
    for index in 1..last {
        let key = args.key(index);
        if cx.db.object_for_write::<Zset>(key)?.is_some() {
            cx.reply.array(3);
            cx.reply.bulk(key.bytes);
            return pop_pairs(cx, key, end, 1, false);
        }
    }
    cx.block(&args.words()[1..last], deadline, TimeoutReply::NullArray)
}

struct ZpopOptions {
    keys: std::ops::Range<usize>,
    end: Extreme,
    count: usize,
}

fn parse(args: Args<'_>, at: usize) -> Result<ZpopOptions, Error> {
    let numkeys =
        args.integer_in(at, 1..=i64::from(i32::MAX), "numkeys should be greater than 0")? as usize;
    let keys = at + 1..at + 1 + numkeys;
    let end = if args.is(keys.end, "min") {
        Extreme::Min
    } else if args.is(keys.end, "max") {
        Extreme::Max
    } else {
        return Err(Error::Syntax);
    };
    let count = crate::list::parse_pop_count(args, keys.end + 1)?;
    Ok(ZpopOptions { keys, end, count })
}

fn pop_several(cx: &mut Cx<'_>, args: Args<'_>, options: &ZpopOptions) -> Result<bool, Error> {
    for index in options.keys.clone() {
        let key = args.key(index);
        let Some(len) = cx.db.object_for_write::<Zset>(key)?.map(Zset::len) else { continue };
        let pairs = options.count.min(len);
        cx.reply.array(2);
        cx.reply.bulk(key.bytes);
        cx.reply.array(pairs);
        pop_pairs(cx, key, options.end, pairs, true)?;
        return Ok(true);
    }
    Ok(false)
}

fn zmpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, 1)?;
    if !pop_several(cx, args, &options)? {
        cx.reply.null_array();
    }
    Ok(())
}

fn bzmpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, 2)?;
    let deadline = parse_timeout(args[1], cx.now())?;
    if pop_several(cx, args, &options)? {
        return Ok(());
    }
    cx.block(&args.words()[options.keys], deadline, TimeoutReply::NullArray)
}
