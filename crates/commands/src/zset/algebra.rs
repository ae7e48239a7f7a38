//! `ZUNION`, `ZINTER`, `ZDIFF`, their STORE forms, and `ZINTERCARD`; sets count as sorted sets of score 1.

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Event, Flags, Group, Key, KeyFlags, KeySpec,
    Outcome, event,
};
use keyspace::{Entry, Value};
use std::collections::HashMap;
use structs::set::Set;
use structs::zset::Zset;

/// `ZUNION`.
pub static ZUNION: Command = Command {
    name: "zunion",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted \
        sets, and M being the number of elements in the resulting sorted set.",
    summary: "Returns the union of multiple sorted sets.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of(
            "aggregate",
            &[Arg::token("sum", "SUM"), Arg::token("min", "MIN"), Arg::token("max", "MAX")],
        )
        .after("AGGREGATE")
        .optional(),
        Arg::token("withscores", "WITHSCORES").optional(),
    ],
    run: zunion,
    ..Command::ROW
};

/// `ZINTER`.
pub static ZINTER: Command = Command {
    name: "zinter",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted \
        set, K being the number of input sorted sets and M being the number of elements \
        in the resulting sorted set.",
    summary: "Returns the intersect of multiple sorted sets.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of(
            "aggregate",
            &[Arg::token("sum", "SUM"), Arg::token("min", "MIN"), Arg::token("max", "MAX")],
        )
        .after("AGGREGATE")
        .optional(),
        Arg::token("withscores", "WITHSCORES").optional(),
    ],
    run: zinter,
    ..Command::ROW
};

/// `ZDIFF`.
pub static ZDIFF: Command = Command {
    name: "zdiff",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements \
        in all the sets, N is the size of the first set, and K is the size of the result \
        set.",
    summary: "Returns the difference between multiple sorted sets.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::token("withscores", "WITHSCORES").optional(),
    ],
    run: zdiff,
    ..Command::ROW
};

/// `ZINTERCARD`.
pub static ZINTERCARD: Command = Command {
    name: "zintercard",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "7.0.0",
    complexity: "O(N*K) worst case with N being the smallest input sorted set, K being \
        the number of input sorted sets.",
    summary: "Returns the number of members of the intersect of multiple sorted \
        sets.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::new("limit", ArgKind::Integer).after("LIMIT").optional(),
    ],
    run: zintercard,
    ..Command::ROW
};

/// `ZUNIONSTORE`.
pub static ZUNIONSTORE: Command = Command {
    name: "zunionstore",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::counted(2, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::SortedSet,
    since: "2.0.0",
    complexity: "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted \
        sets, and M being the number of elements in the resulting sorted set.",
    summary: "Stores the union of multiple sorted sets in a key.",
    args: &[
        Arg::key("destination", 0),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 1).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of(
            "aggregate",
            &[Arg::token("sum", "SUM"), Arg::token("min", "MIN"), Arg::token("max", "MAX")],
        )
        .after("AGGREGATE")
        .optional(),
    ],
    run: zunionstore,
    ..Command::ROW
};

/// `ZINTERSTORE`.
pub static ZINTERSTORE: Command = Command {
    name: "zinterstore",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::counted(2, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::SortedSet,
    since: "2.0.0",
    complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted \
        set, K being the number of input sorted sets and M being the number of elements \
        in the resulting sorted set.",
    summary: "Stores the intersect of multiple sorted sets in a key.",
    args: &[
        Arg::key("destination", 0),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 1).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of(
            "aggregate",
            &[Arg::token("sum", "SUM"), Arg::token("min", "MIN"), Arg::token("max", "MAX")],
        )
        .after("AGGREGATE")
        .optional(),
    ],
    run: zinterstore,
    ..Command::ROW
};

/// `ZDIFFSTORE`.
pub static ZDIFFSTORE: Command = Command {
    name: "zdiffstore",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::counted(2, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements \
        in all the sets, N is the size of the first set, and K is the size of the result \
        set.",
    summary: "Stores the difference of multiple sorted sets in a key.",
    args: &[
        Arg::key("destination", 0),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 1).multiple(),
    ],
    run: zdiffstore,
    ..Command::ROW
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

struct Request {
    keys: std::ops::Range<usize>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

type Scores = HashMap<Vec<u8>, f64>;

fn parse_keys(cx: &Cx<'_>, args: Args<'_>, at: usize) -> Result<std::ops::Range<usize>, Error> {
    let name = cx.resolved.command.name;
    let count = args.integer(at)?;
    if count < 1 {
        return Err(Error::format(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let count = count as usize;
    if count > args.len() - at - 1 {
        return Err(Error::Syntax);
    }
    Ok(at + 1..at + 1 + count)
}

fn parse(
    cx: &Cx<'_>,
    args: Args<'_>,
    at: usize,
    operation: Operation,
    stores: bool,
) -> Result<Request, Error> {
    let keys = parse_keys(cx, args, at)?;
    let mut request = Request {
        weights: vec![1.0; keys.len()],
        keys,
        aggregate: Aggregate::Sum,
        with_scores: false,
        limit: usize::MAX,
    };
    let mut at = request.keys.end;
    while at < args.len() {
        let combines = operation != Operation::Difference;
        if combines && args.is(at, "weights") && at + request.keys.len() < args.len() {
            for weight in &mut request.weights {
                at += 1;
                *weight = structs::numbers::parse_f64(args[at])
                    .ok_or(Error::text("ERR weight value is not a float"))?;
            }
        } else if combines && args.is(at, "aggregate") && at + 1 < args.len() {
            at += 1;
            request.aggregate = if args.is(at, "sum") {
                Aggregate::Sum
            } else if args.is(at, "min") {
                Aggregate::Min
            } else if args.is(at, "max") {
                Aggregate::Max
            } else {
                return Err(Error::Syntax);
            };
        } else if !stores && args.is(at, "withscores") {
            request.with_scores = true;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    Ok(request)
}

/// The members of a key, a set or a sorted set, with their weighted scores.
fn load(cx: &Cx<'_>, key: Key<'_>, weight: f64) -> Result<Scores, Error> {
    let Some(entry) = cx.db.entry(key) else { return Ok(Scores::new()) };
    members(entry, weight).ok_or(Error::WrongType)
}

fn members(entry: &Entry, weight: f64) -> Option<Scores> {
    let weighted = |score: f64| {
        let product = score * weight;
        if product.is_nan() { 0.0 } else { product }
    };
    if let Some(zset) = entry.object::<Zset>() {
        return Some(zset.iter().map(|(m, score)| (m.to_vec(), weighted(score))).collect());
    }
    let set = entry.object::<Set>()?;
    Some(set.iter().map(|member| (member.to_vec(), weighted(1.0))).collect())
}

fn combine(aggregate: Aggregate, a: f64, b: f64) -> f64 {
    match aggregate {
        Aggregate::Min => a.min(b),
        Aggregate::Max => a.max(b),
        Aggregate::Sum => {
            let sum = a + b;
            // Infinities of both signs.
            if sum.is_nan() { 0.0 } else { sum }
        }
    }
}

fn compute(
    cx: &Cx<'_>,
    args: Args<'_>,
    operation: Operation,
    request: &Request,
) -> Result<Zset, Error> {
    let mut inputs = Vec::with_capacity(request.keys.len());
    for (index, &weight) in request.keys.clone().zip(&request.weights) {
        inputs.push(load(cx, args.key(index), weight)?);
    }
    let mut inputs = inputs.into_iter();
    let mut result = inputs.next().unwrap_or_default();
    for input in inputs {
        match operation {
            Operation::Union => {
                for (member, score) in input {
                    result
                        .entry(member)
                        .and_modify(|old| *old = combine(request.aggregate, *old, score))
                        .or_insert(score);
                }
            }
            Operation::Intersection => result.retain(|member, old| {
                input.get(member).is_some_and(|&score| {
                    *old = combine(request.aggregate, *old, score);
                    true
                })
            }),
            Operation::Difference => result.retain(|member, _| !input.contains_key(member)),
        }
    }
    let limits = limits::zset(&cx.engine.config);
    let longest = result.keys().map(Vec::len).max().unwrap_or(0);
    let mut zset = Zset::with_capacity(result.len(), longest, &limits);
    for (member, score) in &result {
        zset.insert(member, *score, &limits);
    }
    Ok(zset)
}

fn answer(cx: &mut Cx<'_>, args: Args<'_>, operation: Operation) -> Outcome {
    let request = parse(cx, args, 1, operation, false)?;
    let zset = compute(cx, args, operation, &request)?;
    let is_nested = request.with_scores && cx.reply.is_resp3();
    let per_member = if request.with_scores && !is_nested { 2 } else { 1 };
    cx.reply.array(zset.len() * per_member);
    for (member, score) in zset.iter() {
        if is_nested {
            cx.reply.array(2);
        }
        crate::list::write(&mut cx.reply, member);
        if request.with_scores {
            cx.reply.double(score);
        }
    }
    Ok(())
}

fn store(cx: &mut Cx<'_>, args: Args<'_>, operation: Operation, name: Event) -> Outcome {
    let request = parse(cx, args, 2, operation, true)?;
    let zset = compute(cx, args, operation, &request)?;
    let (key, len) = (args.key(1), zset.len());
    if len == 0 {
        cx.db.delete(key);
    } else {
        cx.db.put(key, Value::Zset(zset), None);
        cx.db.changed(key, name);
    }
    cx.reply.integer(len as i64);
    Ok(())
}

fn zunion(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, Operation::Union)
}
fn zinter(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, Operation::Intersection)
}
fn zdiff(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, Operation::Difference)
}
fn zunionstore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    store(cx, args, Operation::Union, event(Class::ZSET, "zunionstore"))
}
fn zinterstore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    store(cx, args, Operation::Intersection, event(Class::ZSET, "zinterstore"))
}
fn zdiffstore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    store(cx, args, Operation::Difference, event(Class::ZSET, "zdiffstore"))
}

fn zintercard(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let keys = parse_keys(cx, args, 1)?;
    let mut request = Request {
        weights: vec![1.0; keys.len()],
        aggregate: Aggregate::Sum,
        with_scores: false,
        limit: usize::MAX,
        keys,
    };
    let rest = request.keys.end;
    if rest < args.len() {
        if args.len() != rest + 2 || !args.is(rest, "limit") {
            return Err(Error::Syntax);
        }
        let limit = args.integer_in(rest + 1, 0..=i64::MAX, "LIMIT can't be negative")?;
        if limit > 0 {
            request.limit = limit as usize;
        }
    }
    let len = compute(cx, args, Operation::Intersection, &request)?.len();
    cx.reply.integer(len.min(request.limit) as i64);
    Ok(())
}
