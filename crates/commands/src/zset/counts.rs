//! `ZCOUNT`, `ZLEXCOUNT`, `ZREMRANGEBYRANK`, `ZREMRANGEBYSCORE`, `ZREMRANGEBYLEX`

use super::bounds::{parse_lex_range, parse_score_range};
use crate::list::range;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Effort, Error, Event, Flags, Group, KeyFlags,
    KeySpec, Outcome, event,
};
use std::ops::Range;
use structs::zset::Zset;

/// `ZCOUNT`.
pub static ZCOUNT: Command = Command {
    name: "zcount",
    arity: 4,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.0.0",
    complexity: "O(log(N)) for a set of N members",
    summary: "How many members have scores between two limits.",
    args: &[Arg::key("key", 0), Arg::new("min", ArgKind::Double), Arg::new("max", ArgKind::Double)],
    run: zcount,
    ..Command::ROW
};

/// `ZLEXCOUNT`.
pub static ZLEXCOUNT: Command = Command {
    name: "zlexcount",
    arity: 4,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.8.9",
    complexity: "O(log(N)) for a set of N members",
    summary: "How many members stand between two texts.",
    args: &[Arg::key("key", 0), Arg::new("min", ArgKind::String), Arg::new("max", ArgKind::String)],
    run: zlexcount,
    ..Command::ROW
};

/// `ZREMRANGEBYRANK`.
pub static ZREMRANGEBYRANK: Command = Command {
    name: "zremrangebyrank",
    arity: 4,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "2.0.0",
    complexity: "O(log(N)+M) for M members that a set of N loses",
    effort: Effort::Part(4, |db, args| removed(db, args, ranks(args))),
    summary: "Drops the members between two places.",
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::Integer),
        Arg::new("stop", ArgKind::Integer),
    ],
    run: zremrangebyrank,
    ..Command::ROW
};

/// `ZREMRANGEBYSCORE`.
pub static ZREMRANGEBYSCORE: Command = Command {
    name: "zremrangebyscore",
    arity: 4,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(log(N)+M) for M members that a set of N loses",
    effort: Effort::Part(4, |db, args| removed(db, args, scores(args))),
    summary: "Drops the members with scores between two limits.",
    args: &[Arg::key("key", 0), Arg::new("min", ArgKind::Double), Arg::new("max", ArgKind::Double)],
    run: zremrangebyscore,
    ..Command::ROW
};

/// `ZREMRANGEBYLEX`.
pub static ZREMRANGEBYLEX: Command = Command {
    name: "zremrangebylex",
    arity: 4,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::SortedSet,
    since: "2.8.9",
    complexity: "O(log(N)+M) for M members that a set of N loses",
    effort: Effort::Part(4, |db, args| removed(db, args, members(args))),
    summary: "Drops the members between two texts.",
    args: &[Arg::key("key", 0), Arg::new("min", ArgKind::String), Arg::new("max", ArgKind::String)],
    run: zremrangebylex,
    ..Command::ROW
};

fn zcount(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let scores = parse_score_range(args[2], args[3])?;
    let zset = cx.db.read::<Zset>(args.key(1))?;
    let count = zset.map_or(0, |zset| zset.ranks_by_score(&scores).len());
    cx.reply.integer(count as i64);
    Ok(())
}

fn zlexcount(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let members = parse_lex_range(args[2], args[3])?;
    let zset = cx.db.read::<Zset>(args.key(1))?;
    let count = zset.map_or(0, |zset| zset.ranks_by_lex(&members).len());
    cx.reply.integer(count as i64);
    Ok(())
}

/// Finds the ranks that a request is to remove.
type Select<'a> = Box<dyn Fn(&Zset) -> Range<usize> + 'a>;

fn ranks(args: Args<'_>) -> Result<Select<'_>, Error> {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    Ok(Box::new(move |zset| range(start, stop, zset.len()).unwrap_or(0..0)))
}

fn scores(args: Args<'_>) -> Result<Select<'_>, Error> {
    let scores = parse_score_range(args[2], args[3])?;
    Ok(Box::new(move |zset| zset.ranks_by_score(&scores)))
}

fn members(args: Args<'_>) -> Result<Select<'_>, Error> {
    let members = parse_lex_range(args[2], args[3])?;
    Ok(Box::new(move |zset| zset.ranks_by_lex(&members)))
}

/// How many members a request is to remove.
fn removed(db: &Db<'_>, args: Args<'_>, select: Result<Select<'_>, Error>) -> usize {
    let zset = db.lookup_no_effects(args.key(1)).and_then(|entry| entry.view::<Zset>());
    select.ok().zip(zset).map_or(0, |(select, zset)| select(&zset).len())
}

fn zremrangebyrank(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    remove(cx, args, event(Class::ZSET, "zremrangebyrank"), ranks(args)?).map(drop)
}

fn zremrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    remove(cx, args, event(Class::ZSET, "zremrangebyscore"), scores(args)?).map(drop)
}

fn zremrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let ranks = remove(cx, args, event(Class::ZSET, "zremrangebylex"), members(args)?)?;
    if !ranks.is_empty() {
        // Where scores differ, which members are in the range depends on how the sorted set is laid
        // out.
        cx.db.propagate_as(|p| {
            p.begin(4);
            p.word(b"ZREMRANGEBYRANK");
            p.word(args[1]);
            p.integer(ranks.start as i64);
            p.integer(ranks.end as i64 - 1);
        });
    }
    Ok(())
}

/// Removes what is selected; the ranks that it had.
fn remove(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    name: Event,
    select: Select<'_>,
) -> Result<Range<usize>, Error> {
    let key = args.key(1);
    let mut ranks = 0..0;
    if let Some(zset) = cx.db.write::<Zset>(key)? {
        ranks = select(zset);
        let removed = zset.remove_ranks(ranks.clone(), |_, _| {});
        ranks.end = ranks.start + removed;
    }
    if !ranks.is_empty() {
        cx.db.changed_in(key, name, ranks.len() as u64);
        cx.db.remove_if_empty::<Zset>(key);
    }
    cx.reply.integer(ranks.len() as i64);
    Ok(ranks)
}
