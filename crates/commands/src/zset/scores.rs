//! `ZREM`, `ZSCORE`, `ZMSCORE`, `ZCARD`, `ZRANK`, `ZREVRANK`

use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::zset::Zset;

/// `ZREM`.
pub static ZREM: Command = Command {
    name: "zrem",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(M*log(N)) for M members that a set of N loses",
    effort: Effort::Words(8),
    summary: "Takes members out of a sorted set.",
    history: &[("2.4.0", "Takes several members.")],
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String).multiple()],
    run: zrem,
    ..Command::ROW
};

/// `ZSCORE`.
pub static ZSCORE: Command = Command {
    name: "zscore",
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(1)",
    summary: "The score of a member.",
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String)],
    run: zscore,
    ..Command::ROW
};

/// `ZMSCORE`.
pub static ZMSCORE: Command = Command {
    name: "zmscore",
    arity: -3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(N) for N members",
    effort: Effort::Words(3),
    summary: "The scores of several members.",
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String).multiple()],
    run: zmscore,
    ..Command::ROW
};

/// `ZCARD`.
pub static ZCARD: Command = Command {
    name: "zcard",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(1)",
    summary: "How many members a sorted set has.",
    args: &[Arg::key("key", 0)],
    run: zcard,
    ..Command::ROW
};

/// `ZRANK`.
pub static ZRANK: Command = Command {
    name: "zrank",
    arity: -3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.0.0",
    complexity: "O(log(N))",
    summary: "The place of a member, counted from the lowest score.",
    history: &[("7.2.0", "Takes `WITHSCORE`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("member", ArgKind::String),
        Arg::token("withscore", "WITHSCORE").optional(),
    ],
    run: zrank,
    ..Command::ROW
};

/// `ZREVRANK`.
pub static ZREVRANK: Command = Command {
    name: "zrevrank",
    arity: -3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.0.0",
    complexity: "O(log(N))",
    summary: "The place of a member, counted from the highest score.",
    history: &[("7.2.0", "Takes `WITHSCORE`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("member", ArgKind::String),
        Arg::token("withscore", "WITHSCORE").optional(),
    ],
    run: zrevrank,
    ..Command::ROW
};

fn zrem(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let mut removed = 0;
    if let Some(zset) = cx.db.write::<Zset>(key)? {
        removed = args.from(2).iter().filter(|member| zset.remove(member).is_some()).count();
    }
    if removed > 0 {
        cx.db.changed_in(key, event(Class::ZSET, "zrem"), removed as u64);
        cx.db.remove_if_empty::<Zset>(key);
    }
    cx.reply.integer(removed as i64);
    Ok(())
}

fn zscore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    match cx.db.read::<Zset>(args.key(1))?.and_then(|zset| zset.score(args[2])) {
        Some(score) => cx.reply.double(score),
        None => cx.reply.null(),
    }
    Ok(())
}

fn zmscore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let zset = db.read::<Zset>(args.key(1))?;
    reply.array(args.len() - 2);
    for member in args.from(2) {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

fn zcard(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let len = cx.db.read::<Zset>(args.key(1))?.map_or(0, Zset::len);
    cx.reply.integer(len as i64);
    Ok(())
}

fn zrank(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    rank(cx, args, |rank, _| rank)
}
fn zrevrank(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    rank(cx, args, |rank, len| len - 1 - rank)
}
fn rank(cx: &mut Cx<'_>, args: Args<'_>, place: fn(usize, usize) -> usize) -> Outcome {
    let with_score = match args.len() {
        3 => false,
        4 if args.is(3, "withscore") => true,
        4 => return Err(Error::Syntax),
        _ => return Err(Error::Arity(cx.resolved.command.name.into())),
    };
    let found = cx
        .db
        .read::<Zset>(args.key(1))?
        .and_then(|zset| zset.rank(args[2]).map(|(rank, score)| (place(rank, zset.len()), score)));
    match found {
        None if with_score => cx.reply.null_array(),
        None => cx.reply.null(),
        Some((rank, score)) if with_score => {
            cx.reply.array(2);
            cx.reply.integer(rank as i64);
            cx.reply.double(score);
        }
        Some((rank, _)) => cx.reply.integer(rank as i64),
    }
    Ok(())
}
