//! `ZUNION`, `ZINTER`, `ZDIFF`, their STORE forms, and `ZINTERCARD`; sets count as sorted sets of
//! score 1.

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Effort, Error, Event, Flags, Group, Key, KeyFlags,
    KeySpec, Outcome, event,
};
use keyspace::{Entry, Kind, Value};
use std::collections::HashMap;
use std::ops::Range;
use structs::set::Set;
use structs::zset::{Zset, ZsetLimits};

const AGGREGATES: &[Arg] = &[
    Arg::token("sum", "SUM"),
    Arg::token("min", "MIN"),
    Arg::token("max", "MAX"),
    Arg::token("count", "COUNT").since("8.8.0"),
];

/// `ZUNION`.
pub static ZUNION: Command = Command {
    name: "zunion",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(N+M*log(M)) for sets with N members together and a result of M",
    effort: Effort::Elements(8),
    summary: "The members of any of the sets, with their scores joined.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of("aggregate", AGGREGATES).after("AGGREGATE").optional(),
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
    complexity: "O(N*K+M*log(M)) for K sets of which the smallest has N members, and a result of M",
    effort: Effort::Intersection(8),
    summary: "The members of all of the sets, with their scores joined.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of("aggregate", AGGREGATES).after("AGGREGATE").optional(),
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
    complexity: "O(L+(N-K)*log(N)) for a first set of N members, a result of K, and L members in all sets",
    effort: Effort::Elements(8),
    summary: "The members of the first set that no other has, with scores.",
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
    complexity: "O(N*K) for K sets of which the smallest has N members",
    effort: Effort::Intersection(4),
    summary: "How many members all sorted sets have in common.",
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
    complexity: "O(N+M*log(M)) for sets with N members together and a result of M",
    effort: Effort::Elements(8),
    summary: "Keeps the members of any of the sets.",
    args: &[
        Arg::key("destination", 0),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 1).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of("aggregate", AGGREGATES).after("AGGREGATE").optional(),
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
    complexity: "O(N*K+M*log(M)) for K sets of which the smallest has N members, and a result of M",
    effort: Effort::Intersection(8),
    summary: "Keeps the members of all of the sets.",
    args: &[
        Arg::key("destination", 0),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 1).multiple(),
        Arg::new("weight", ArgKind::Integer).after("WEIGHTS").optional().multiple(),
        Arg::one_of("aggregate", AGGREGATES).after("AGGREGATE").optional(),
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
    complexity: "O(L+(N-K)*log(N)) for a first set of N members, a result of K, and L members in all sets",
    effort: Effort::Elements(8),
    summary: "Keeps the members of the first set that no other has.",
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
    /// The sum of the weights of the inputs that have the member.
    Count,
}

struct Request {
    keys: Range<usize>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// One of the keys: what it holds, and what its scores are multiplied by.
#[derive(Clone, Copy)]
struct Input<'a> {
    value: Members<'a>,
    weight: f64,
    /// Whether a member counts as 1 whatever its score.
    counts: bool,
}

#[derive(Clone, Copy)]
enum Members<'a> {
    None,
    Set(&'a Set),
    Zset(&'a Zset),
}

type Scored = (Vec<u8>, f64);

fn parse_keys(cx: &Cx<'_>, args: Args<'_>, at: usize) -> Result<Range<usize>, Error> {
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
    let keys = at + 1..at + 1 + count;
    // A key of another type is found before an option that makes no sense.
    for index in keys.clone() {
        let kind = cx.db.lookup_no_effects(args.key(index)).map(Entry::kind);
        if !matches!(kind, None | Some(Kind::Set | Kind::Zset)) {
            // The keys up to this one have been looked for all the same.
            for looked_at in keys.start..=index {
                let _ = cx.db.lookup_read(args.key(looked_at));
            }
            return Err(Error::WrongType);
        }
    }
    Ok(keys)
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
            } else if args.is(at, "count") {
                Aggregate::Count
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

impl Input<'_> {
    fn len(&self) -> usize {
        match self.value {
            Members::None => 0,
            Members::Set(set) => set.len(),
            Members::Zset(zset) => zset.len(),
        }
    }

    fn weighted(&self, score: f64) -> f64 {
        if self.counts {
            return self.weight;
        }
        let product = score * self.weight;
        // Infinity times zero.
        if product.is_nan() { 0.0 } else { product }
    }

    /// The weighted score of a member, not a number for infinity times zero: unlike the score of
    /// the smallest input, which counts as zero then, it is left out by MIN and MAX, as in Redis.
    fn score(&self, member: &[u8]) -> Option<f64> {
        let score = match self.value {
            Members::None => None,
            Members::Set(set) => set.contains(member).then_some(1.0),
            Members::Zset(zset) => zset.score(member),
        };
        score.map(|score| if self.counts { self.weight } else { score * self.weight })
    }

    /// Visits members with their weighted scores until `visit` says no.
    fn all_while(&self, mut visit: impl FnMut(&[u8], f64) -> bool) {
        match self.value {
            Members::None => {}
            Members::Set(set) => {
                let score = self.weighted(1.0);
                set.iter().all(|member| member.with_bytes(|bytes| visit(bytes, score)));
            }
            Members::Zset(zset) => {
                zset.iter().all(|(member, score)| {
                    member.with_bytes(|bytes| visit(bytes, self.weighted(score)))
                });
            }
        }
    }
}

/// The keys' values, in the order of the request.
fn inputs<'c>(cx: &'c Cx<'_>, args: Args<'_>, request: &Request) -> Result<Vec<Input<'c>>, Error> {
    let mut inputs = Vec::with_capacity(request.keys.len());
    for (index, &weight) in request.keys.clone().zip(&request.weights) {
        let value = match cx.db.lookup_read(args.key(index)) {
            None => Members::None,
            Some(entry) => {
                let set = cx.db.shown::<Set>(entry).map(Members::Set);
                let value = set.or_else(|| cx.db.shown::<Zset>(entry).map(Members::Zset));
                value.ok_or(Error::WrongType)?
            }
        };
        inputs.push(Input { value, weight, counts: request.aggregate == Aggregate::Count });
    }
    Ok(inputs)
}

/// `a` and then `b`: where they are equal, or `b` is not a number, `a` stays, sign of zero
/// included.
fn combine(aggregate: Aggregate, a: f64, b: f64) -> f64 {
    match aggregate {
        Aggregate::Min => {
            if b < a {
                b
            } else {
                a
            }
        }
        Aggregate::Max => {
            if b > a {
                b
            } else {
                a
            }
        }
        Aggregate::Sum | Aggregate::Count => {
            let sum = a + b;
            // Infinities of both signs.
            if sum.is_nan() { 0.0 } else { sum }
        }
    }
}

/// Visits the members of the intersection with their scores until `visit` says no. The inputs are
/// ordered by size, so that the work is in proportion to the smallest.
fn intersect(
    db: &Db<'_>,
    inputs: &[Input<'_>],
    aggregate: Aggregate,
    mut visit: impl FnMut(&[u8], f64) -> bool,
) {
    let Some((smallest, others)) = inputs.split_first() else { return };
    smallest.all_while(|member, score| {
        let total = others
            .iter()
            .try_fold(score, |total, input| Some(combine(aggregate, total, input.score(member)?)));
        total.is_none_or(|total| visit(member, total)) && db.is_wanted()
    });
}

fn unite(db: &Db<'_>, inputs: &[Input<'_>], aggregate: Aggregate) -> Vec<Scored> {
    let mut scores: HashMap<Vec<u8>, f64> = HashMap::new();
    for input in inputs {
        input.all_while(|member, score| {
            match scores.get_mut(member) {
                Some(old) => *old = combine(aggregate, *old, score),
                None => drop(scores.insert(member.to_vec(), score)),
            }
            db.is_wanted()
        });
    }
    scores.into_iter().collect()
}

fn subtract(db: &Db<'_>, inputs: &[Input<'_>]) -> Vec<Scored> {
    let mut left = Vec::new();
    if let Some((first, others)) = inputs.split_first() {
        first.all_while(|member, score| {
            if others.iter().all(|input| input.score(member).is_none()) {
                left.push((member.to_vec(), score));
            }
            db.is_wanted()
        });
    }
    left
}

fn compute(
    cx: &Cx<'_>,
    args: Args<'_>,
    operation: Operation,
    request: &Request,
    limits: &ZsetLimits,
) -> Result<Zset, Error> {
    let mut inputs = inputs(cx, args, request)?;
    if operation != Operation::Difference {
        // The smallest first; sums of doubles depend on the order too, and this is Redis's.
        inputs.sort_by_key(Input::len);
    }
    let members = match operation {
        Operation::Union => unite(&cx.db, &inputs, request.aggregate),
        Operation::Difference => subtract(&cx.db, &inputs),
        Operation::Intersection => {
            let mut members = Vec::new();
            intersect(&cx.db, &inputs, request.aggregate, |member, score| {
                members.push((member.to_vec(), score));
                true
            });
            members
        }
    };
    let longest = members.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
    let mut zset = Zset::with_capacity(members.len(), longest, limits);
    for (member, score) in members.iter().take_while(|_| cx.db.is_wanted()) {
        zset.insert(member, *score, limits);
    }
    Ok(zset)
}

/// Members of one command in the journal.
const MEMBERS_OF_EFFECT: usize = 64;

/// What is only shown is never in a listpack, which loses the sign of zero.
const SHOWN: ZsetLimits = ZsetLimits { max_listpack_entries: 0, max_listpack_value: 0 };

fn answer(cx: &mut Cx<'_>, args: Args<'_>, operation: Operation) -> Outcome {
    let request = parse(cx, args, 1, operation, false)?;
    let zset = compute(cx, args, operation, &request, &SHOWN)?;
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
    let limits = limits::zset(&cx.engine.config);
    let zset = compute(cx, args, operation, &request, &limits)?;
    if !cx.db.is_wanted() {
        // It may be only a part of the result.
        return Ok(());
    }
    let (key, len) = (args.key(1), zset.len());
    if request.aggregate == Aggregate::Count {
        propagate_result(cx, key, &zset);
    }
    if len == 0 {
        cx.db.delete(key);
    } else {
        cx.db.put(key, Value::Zset(zset), None);
        cx.db.changed(key, name);
    }
    cx.reply.integer(len as i64);
    Ok(())
}

/// Hands on the result in place of the request, whose COUNT servers before Redis 8.8 do not know.
fn propagate_result(cx: &mut Cx<'_>, key: Key<'_>, zset: &Zset) {
    cx.db.propagate_as(|p| {
        p.command(&[b"DEL", key.bytes]);
        let mut left = zset.len();
        let mut members = zset.iter();
        while left > 0 {
            let part = left.min(MEMBERS_OF_EFFECT);
            p.begin(2 + 2 * part);
            p.word(b"ZADD");
            p.word(key.bytes);
            for (member, score) in members.by_ref().take(part) {
                let mut text = Vec::new();
                structs::numbers::push_f64(&mut text, score);
                p.word(&text);
                member.with_bytes(|bytes| p.word(bytes));
            }
            left -= part;
        }
    });
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
    let mut limit = 0;
    let mut at = keys.end;
    while at < args.len() {
        if !args.is(at, "limit") || at + 1 >= args.len() {
            return Err(Error::Syntax);
        }
        limit = args.integer_in(at + 1, 0..=i64::MAX, "LIMIT can't be negative")?;
        at += 2;
    }
    let request = Request {
        weights: vec![1.0; keys.len()],
        keys,
        aggregate: Aggregate::Sum,
        with_scores: false,
    };
    let mut inputs = inputs(cx, args, &request)?;
    inputs.sort_by_key(Input::len);
    let mut count = 0;
    intersect(&cx.db, &inputs, Aggregate::Sum, |_, _| {
        count += 1;
        count != limit
    });
    cx.reply.integer(count);
    Ok(())
}
