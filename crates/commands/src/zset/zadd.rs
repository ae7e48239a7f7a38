//! `ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member [score member …]`, `ZINCRBY key increment
//! member`

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::numbers::parse_f64;
use structs::zset::{Change, Zset};

/// `ZADD`.
pub static ZADD: Command = Command {
    name: "zadd",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(M*log(N)) for M members that a set of N gets",
    effort: Effort::Words(5),
    summary: "Adds members with their scores, or changes scores.",
    history: &[
        ("2.4.0", "Takes several members."),
        ("3.0.2", "Takes `XX`, `NX`, `CH` and `INCR`."),
        ("6.2.0", "Takes `GT` and `LT`."),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::one_of("condition", &[Arg::token("nx", "NX"), Arg::token("xx", "XX")])
            .optional()
            .since("3.0.2"),
        Arg::one_of("comparison", &[Arg::token("gt", "GT"), Arg::token("lt", "LT")])
            .optional()
            .since("6.2.0"),
        Arg::token("change", "CH").optional().since("3.0.2"),
        Arg::token("increment", "INCR").optional().since("3.0.2"),
        Arg::block(
            "data",
            &[Arg::new("score", ArgKind::Double), Arg::new("member", ArgKind::String)],
        )
        .multiple(),
    ],
    run: zadd,
    ..Command::ROW
};

/// `ZINCRBY`.
pub static ZINCRBY: Command = Command {
    name: "zincrby",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::SortedSet,
    since: "1.2.0",
    complexity: "O(log(N)) for a set of N members",
    summary: "Adds to the score of a member.",
    args: &[
        Arg::key("key", 0),
        Arg::new("increment", ArgKind::Integer),
        Arg::new("member", ArgKind::String),
    ],
    run: zincrby,
    ..Command::ROW
};

#[derive(Clone, Copy, Default)]
struct ZaddOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    counts_changed: bool,
    incr: bool,
}

fn parse(args: Args<'_>) -> Result<(ZaddOptions, usize), Error> {
    let mut options = ZaddOptions::default();
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "nx") {
            options.nx = true;
        } else if args.is(at, "xx") {
            options.xx = true;
        } else if args.is(at, "gt") {
            options.gt = true;
        } else if args.is(at, "lt") {
            options.lt = true;
        } else if args.is(at, "ch") {
            options.counts_changed = true;
        } else if args.is(at, "incr") {
            options.incr = true;
        } else {
            break;
        }
        at += 1;
    }
    let words = args.len() - at;
    if words == 0 || !words.is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    if options.nx && options.xx {
        return Err(Error::text("ERR XX and NX options at the same time are not compatible"));
    }
    if [options.nx, options.gt, options.lt].iter().filter(|&&given| given).count() > 1 {
        return Err(Error::text(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if options.incr && words > 2 {
        return Err(Error::text("ERR INCR option supports a single increment-element pair"));
    }
    Ok((options, at))
}

/// The score a member gets, `None` to leave it.
fn decide(options: ZaddOptions, old: Option<f64>, score: f64) -> Option<f64> {
    match old {
        None => (!options.xx).then_some(score),
        Some(_) if options.nx => None,
        Some(old) => {
            let new = if options.incr { old + score } else { score };
            let allowed = !(options.gt && new <= old || options.lt && new >= old);
            (allowed && !new.is_nan()).then_some(new)
        }
    }
}

pub(crate) fn zadd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (options, first) = parse(args)?;
    if options.incr {
        return increment(cx, args, options, args[first], args[first + 1]);
    }
    let key = args.key(1);
    let limits = limits::zset(&cx.engine.config);
    let pairs = (args.len() - first) / 2;
    // Every score is read before anything changes; one alone is not read twice.
    let only = parse_f64(args[first]).ok_or(Error::NotFloat)?;
    let mut longest = args[first + 1].len();
    if pairs > 1 {
        for index in (first..args.len()).step_by(2) {
            parse_f64(args[index]).ok_or(Error::NotFloat)?;
            longest = longest.max(args[index + 1].len());
        }
    }
    if options.xx && cx.db.object_for_write::<Zset>(key)?.is_none() {
        cx.reply.integer(0);
        return Ok(());
    }
    let zset = cx.db.write_or_create::<Zset>(key)?;
    zset.will_grow(pairs, longest, &limits);
    let (mut added, mut updated) = (0, 0);
    for index in (first..args.len()).step_by(2) {
        let score = if pairs == 1 { only } else { parse_f64(args[index]).unwrap_or(only) };
        match zset.update(args[index + 1], &limits, |old| decide(options, old, score)) {
            Change::Added => added += 1,
            Change::Updated => updated += 1,
            Change::Unchanged => {}
        }
    }
    if added + updated > 0 {
        cx.db.changed_in(key, event(Class::ZSET, "zadd"), added + updated);
    }
    let counted = if options.counts_changed { added + updated } else { added };
    cx.reply.integer(counted as i64);
    Ok(())
}

fn increment(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    options: ZaddOptions,
    increment: &[u8],
    member: &[u8],
) -> Outcome {
    let key = args.key(1);
    let limits = limits::zset(&cx.engine.config);
    let increment = parse_f64(increment).ok_or(Error::NotFloat)?;
    let old = cx.db.write::<Zset>(key)?.and_then(|zset| {
        // Even if nothing comes of it: the encoding shows.
        zset.will_grow(1, member.len(), &limits);
        zset.score(member)
    });
    if old.is_some_and(|old| (old + increment).is_nan()) {
        return Err(Error::text("ERR resulting score is not a number (NaN)"));
    }
    let Some(new) = decide(options, old, increment) else {
        cx.reply.null();
        return Ok(());
    };
    let change = cx.db.write_or_create::<Zset>(key)?.insert(member, new, &limits);
    if change != Change::Unchanged {
        cx.db.changed(key, event(Class::ZSET, "zincr"));
        cx.db.propagate_as(|p| {
            let mut score = Vec::new();
            structs::numbers::push_f64(&mut score, new);
            p.command(&[b"ZADD", key.bytes, &score, member]);
        });
    }
    cx.reply.double(new);
    Ok(())
}

fn zincrby(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = ZaddOptions { incr: true, ..ZaddOptions::default() };
    increment(cx, args, options, args[2], args[3])
}
