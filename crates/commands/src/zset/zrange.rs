//! `ZRANGE key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]` and the older
//! commands that do a part of it; `ZRANGESTORE destination source …`
//!
//! Whatever the range is of, it becomes a range of ranks.

use super::bounds::{parse_lex_range, parse_score_range};
use crate::limits;
use crate::list::{range, write};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Effort, Error, Flags, Group, Key, KeyFlags,
    KeySpec, Outcome, event,
};
use keyspace::Value;
use std::ops::Range;
use structs::listpack::Element;
use structs::zset::Zset;

/// `ZRANGE`.
pub static ZRANGE: Command = Command {
    name: "zrange",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(log(N)+M) for M members of a set of N in the reply",
    effort: Effort::Part(2, |db, args| ranged(db, args, By::Rank, false)),
    summary: "The members between two places, scores or texts.",
    history: &[("6.2.0", "Takes `REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::String),
        Arg::new("stop", ArgKind::String),
        Arg::one_of("sortby", &[Arg::token("byscore", "BYSCORE"), Arg::token("bylex", "BYLEX")])
            .optional()
            .since("6.2.0"),
        Arg::token("rev", "REV").optional().since("6.2.0"),
        Arg::block(
            "limit",
            &[Arg::new("offset", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
        )
        .after("LIMIT")
        .optional()
        .since("6.2.0"),
        Arg::token("withscores", "WITHSCORES").optional(),
    ],
    run: zrange,
    ..Command::ROW
};

/// `ZREVRANGE`.
pub static ZREVRANGE: Command = Command {
    name: "zrevrange",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(log(N)+M) for M members of a set of N in the reply",
    effort: Effort::Part(2, |db, args| ranged(db, args, By::Rank, true)),
    summary: "The members between two places, from the highest score down.",
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::Integer),
        Arg::new("stop", ArgKind::Integer),
        Arg::token("withscores", "WITHSCORES").optional(),
    ],
    run: zrevrange,
    ..Command::ROW
};

/// `ZRANGEBYSCORE`.
pub static ZRANGEBYSCORE: Command = Command {
    name: "zrangebyscore",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "1.0.5",
    complexity: "O(log(N)+M) for M members of a set of N in the reply",
    effort: Effort::Part(2, |db, args| ranged(db, args, By::Score, false)),
    summary: "The members with scores between two limits.",
    history: &[("2.0.0", "Takes `WITHSCORES`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("min", ArgKind::Double),
        Arg::new("max", ArgKind::Double),
        Arg::token("withscores", "WITHSCORES").optional().since("2.0.0"),
        Arg::block(
            "limit",
            &[Arg::new("offset", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
        )
        .after("LIMIT")
        .optional(),
    ],
    run: zrangebyscore,
    ..Command::ROW
};

/// `ZREVRANGEBYSCORE`.
pub static ZREVRANGEBYSCORE: Command = Command {
    name: "zrevrangebyscore",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.2.0",
    complexity: "O(log(N)+M) for M members of a set of N in the reply",
    effort: Effort::Part(2, |db, args| ranged(db, args, By::Score, true)),
    summary: "The members with scores between two limits, highest first.",
    history: &[("2.1.6", "`min` and `max` may be exclusive.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("max", ArgKind::Double),
        Arg::new("min", ArgKind::Double),
        Arg::token("withscores", "WITHSCORES").optional(),
        Arg::block(
            "limit",
            &[Arg::new("offset", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
        )
        .after("LIMIT")
        .optional(),
    ],
    run: zrevrangebyscore,
    ..Command::ROW
};

/// `ZRANGEBYLEX`.
pub static ZRANGEBYLEX: Command = Command {
    name: "zrangebylex",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.8.9",
    complexity: "O(log(N)+M) for M members of a set of N in the reply",
    effort: Effort::Part(2, |db, args| ranged(db, args, By::Lex, false)),
    summary: "The members between two texts.",
    args: &[
        Arg::key("key", 0),
        Arg::new("min", ArgKind::String),
        Arg::new("max", ArgKind::String),
        Arg::block(
            "limit",
            &[Arg::new("offset", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
        )
        .after("LIMIT")
        .optional(),
    ],
    run: zrangebylex,
    ..Command::ROW
};

/// `ZREVRANGEBYLEX`.
pub static ZREVRANGEBYLEX: Command = Command {
    name: "zrevrangebylex",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.8.9",
    complexity: "O(log(N)+M) for M members of a set of N in the reply",
    effort: Effort::Part(2, |db, args| ranged(db, args, By::Lex, true)),
    summary: "The members between two texts, the last first.",
    args: &[
        Arg::key("key", 0),
        Arg::new("max", ArgKind::String),
        Arg::new("min", ArgKind::String),
        Arg::block(
            "limit",
            &[Arg::new("offset", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
        )
        .after("LIMIT")
        .optional(),
    ],
    run: zrevrangebylex,
    ..Command::ROW
};

/// `ZRANGESTORE`.
pub static ZRANGESTORE: Command = Command {
    name: "zrangestore",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::at(2, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(log(N)+M) for M members of a set of N that are stored",
    effort: Effort::Elements(4),
    summary: "Keeps the members between two places, scores or texts.",
    args: &[
        Arg::key("dst", 0),
        Arg::key("src", 1),
        Arg::new("min", ArgKind::String),
        Arg::new("max", ArgKind::String),
        Arg::one_of("sortby", &[Arg::token("byscore", "BYSCORE"), Arg::token("bylex", "BYLEX")])
            .optional(),
        Arg::token("rev", "REV").optional(),
        Arg::block(
            "limit",
            &[Arg::new("offset", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
        )
        .after("LIMIT")
        .optional(),
    ],
    run: zrangestore,
    ..Command::ROW
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

struct ZrangeOptions {
    by: By,
    reverse: bool,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

/// Reads the options from word `at` on; which are allowed depends on the command.
fn parse(
    args: Args<'_>,
    mut at: usize,
    mut options: ZrangeOptions,
    all: bool,
    stores: bool,
) -> Result<ZrangeOptions, Error> {
    // How and which way may be said once.
    let (mut says_how, mut says_way) = (!all, !all);
    while at < args.len() {
        if args.is(at, "withscores") && !stores {
            options.with_scores = true;
        } else if args.is(at, "limit") && at + 2 < args.len() {
            options.limit = Some((args.integer(at + 1)?, args.integer(at + 2)?));
            at += 2;
        } else if !says_how && args.is(at, "byscore") {
            (options.by, says_how) = (By::Score, true);
        } else if !says_how && args.is(at, "bylex") {
            (options.by, says_how) = (By::Lex, true);
        } else if !says_way && args.is(at, "rev") {
            (options.reverse, says_way) = (true, true);
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    // A count of -1 is as good as no LIMIT.
    if options.limit.is_some_and(|(_, count)| count != -1) && options.by == By::Rank {
        return Err(Error::text(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if options.with_scores && options.by == By::Lex {
        return Err(Error::text(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    Ok(options)
}

/// The bounds as the client gave them: with REV the higher one comes first.
enum Bounds<'a> {
    Rank(i64, i64),
    Score(structs::zset::ScoreRange),
    Lex(structs::zset::LexRange<'a>),
}

fn parse_bounds<'a>(
    first: &'a [u8],
    second: &'a [u8],
    options: &ZrangeOptions,
) -> Result<Bounds<'a>, Error> {
    let (low, high) = if options.reverse { (second, first) } else { (first, second) };
    Ok(match options.by {
        By::Rank => {
            let number = |word| structs::numbers::parse_i64(word).ok_or(Error::NotInteger);
            Bounds::Rank(number(first)?, number(second)?)
        }
        By::Score => Bounds::Score(parse_score_range(low, high)?),
        By::Lex => Bounds::Lex(parse_lex_range(low, high)?),
    })
}

fn select(zset: &Zset, bounds: &Bounds<'_>, options: &ZrangeOptions) -> Range<usize> {
    let len = zset.len();
    let ranks = match bounds {
        Bounds::Rank(start, stop) => {
            let ranks = range(*start, *stop, len).unwrap_or(0..0);
            if options.reverse && !ranks.is_empty() {
                return len - ranks.end..len - ranks.start;
            }
            return ranks;
        }
        Bounds::Score(scores) => zset.ranks_by_score(scores),
        Bounds::Lex(members) => zset.ranks_by_lex(members),
    };
    let Some((offset, count)) = options.limit else { return ranks };
    // A negative offset selects nothing. (Valkey counts it from the other end, but only in sorted
    // sets that have outgrown the listpack.)
    let Ok(offset) = usize::try_from(offset) else { return 0..0 };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if offset >= ranks.len() {
        return 0..0;
    }
    let count = count.min(ranks.len() - offset);
    if options.reverse {
        ranks.end - offset - count..ranks.end - offset
    } else {
        ranks.start + offset..ranks.start + offset + count
    }
}

fn answer(cx: &mut Cx<'_>, key: Key<'_>, bounds: &Bounds<'_>, options: &ZrangeOptions) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let Some(zset) = db.read::<Zset>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let ranks = select(zset, bounds, options);
    let is_nested = options.with_scores && reply.is_resp3();
    let per_member = if options.with_scores && !is_nested { 2 } else { 1 };
    reply.array(ranks.len() * per_member);
    let mut show = |(member, score)| {
        if is_nested {
            reply.array(2);
        }
        write(reply, member);
        if options.with_scores {
            reply.double(score);
        }
    };
    if options.reverse {
        zset.range(ranks).rev().for_each(&mut show);
    } else {
        zset.range(ranks).for_each(&mut show);
    }
    Ok(())
}

fn run(cx: &mut Cx<'_>, args: Args<'_>, by: By, reverse: bool, all: bool) -> Outcome {
    let options = ZrangeOptions { by, reverse, limit: None, with_scores: false };
    let options = parse(args, 4, options, all, false)?;
    let bounds = parse_bounds(args[2], args[3], &options)?;
    answer(cx, args.key(1), &bounds, &options)
}

/// How many members a request for a range is for.
fn ranged(db: &Db<'_>, args: Args<'_>, by: By, reverse: bool) -> usize {
    let options = ZrangeOptions { by, reverse, limit: None, with_scores: false };
    let Ok(options) = parse(args, 4, options, true, false) else { return 0 };
    let Ok(bounds) = parse_bounds(args[2], args[3], &options) else { return 0 };
    let zset = db.lookup_no_effects(args.key(1)).and_then(|entry| entry.view::<Zset>());
    zset.map_or(0, |zset| select(&zset, &bounds, &options).len())
}

fn zrange(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, By::Rank, false, true)
}
fn zrevrange(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, By::Rank, true, false)
}
fn zrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, By::Score, false, false)
}
fn zrevrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, By::Score, true, false)
}
fn zrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, By::Lex, false, false)
}
fn zrevrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, By::Lex, true, false)
}

fn zrangestore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = ZrangeOptions { by: By::Rank, reverse: false, limit: None, with_scores: false };
    let options = parse(args, 5, options, true, true)?;
    let bounds = parse_bounds(args[3], args[4], &options)?;
    let (destination, source) = (args.key(1), args.key(2));
    let limits = limits::zset(&cx.engine.config);
    let (mut result, mut ranks, mut source_len) = (Zset::new(), 0..0, 0);
    if let Some(zset) = cx.db.read::<Zset>(source)? {
        ranks = select(zset, &bounds, &options);
        source_len = zset.len();
        // Where ranks are asked for, the encoding is chosen beforehand; and they are stored in the
        // order asked for. Both decide whether a negative zero is still one: a listpack does not
        // keep it.
        if options.by == By::Rank {
            result.will_grow(ranks.len(), 0, &limits);
        }
        let mut store = |(member, score): (Element<'_>, f64)| {
            member.with_bytes(|member| result.insert(member, score, &limits));
        };
        let members = zset.range(ranks.clone());
        if options.reverse { members.rev().for_each(&mut store) } else { members.for_each(store) }
    }
    let len = result.len();
    if len > 0 {
        cx.db.put(destination, Value::Zset(result), None);
        cx.db.changed(destination, event(Class::ZSET, "zrangestore"));
    } else if !cx.db.delete(destination) {
        cx.reply.integer(0);
        return Ok(());
    }
    if options.by == By::Lex {
        // Where scores differ, which members are in the range depends on how the sorted set is laid
        // out.
        cx.db.propagate_as(|p| {
            if len == 0 {
                return p.command(&[b"DEL", destination.bytes]);
            }
            // As a range of scores, of which a replica does not know the number beforehand either.
            let (min, max, first): (&[u8], &[u8], usize) = match options.reverse {
                true => (b"+inf", b"-inf", source_len - ranks.end),
                false => (b"-inf", b"+inf", ranks.start),
            };
            p.begin(if options.reverse { 10 } else { 9 });
            let words = [b"ZRANGESTORE", destination.bytes, source.bytes, min, max, b"BYSCORE"];
            words.iter().for_each(|word| p.word(word));
            if options.reverse {
                p.word(b"REV");
            }
            p.word(b"LIMIT");
            p.integer(first as i64);
            p.integer(ranks.len() as i64);
        });
    }
    cx.reply.integer(len as i64);
    Ok(())
}
