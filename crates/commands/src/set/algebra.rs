//! `SINTER`, `SUNION`, `SDIFF` and their STORE forms; [`super::cardinality`] only counts
//!
//! An intersection starts from the smallest set; a difference looks each member of the first up in
//! the others.

use crate::limits;
use crate::list::write;
use engine::{
    Arg, Args, Class, Command, Cx, Effort, Error, Event, Flags, Group, KeyFlags, KeySpec, Outcome,
    event,
};
use keyspace::Value;
use std::ops::Range;
use structs::set::Set;

/// `SINTER`.
pub static SINTER: Command = Command {
    name: "sinter",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::rest(1, 1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N*M) for M sets of which the smallest has N members",
    effort: Effort::Intersection(3),
    summary: "The members that all sets have.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0).multiple()],
    run: sinter,
    ..Command::ROW
};

/// `SUNION`.
pub static SUNION: Command = Command {
    name: "sunion",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::rest(1, 1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N) for sets with N members together",
    effort: Effort::Elements(3),
    summary: "The members that at least one set has.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0).multiple()],
    run: sunion,
    ..Command::ROW
};

/// `SDIFF`.
pub static SDIFF: Command = Command {
    name: "sdiff",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::rest(1, 1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N) for sets with N members together",
    effort: Effort::Elements(3),
    summary: "The members of the first set that no other has.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0).multiple()],
    run: sdiff,
    ..Command::ROW
};

/// `SINTERSTORE`.
pub static SINTERSTORE: Command = Command {
    name: "sinterstore",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::rest(2, 1, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N*M) for M sets of which the smallest has N members",
    effort: Effort::Intersection(3),
    summary: "Keeps the members that all sets have.",
    args: &[Arg::key("destination", 0), Arg::key("key", 1).multiple()],
    run: sinterstore,
    ..Command::ROW
};

/// `SUNIONSTORE`.
pub static SUNIONSTORE: Command = Command {
    name: "sunionstore",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::rest(2, 1, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N) for sets with N members together",
    effort: Effort::Elements(3),
    summary: "Keeps the members that at least one set has.",
    args: &[Arg::key("destination", 0), Arg::key("key", 1).multiple()],
    run: sunionstore,
    ..Command::ROW
};

/// `SDIFFSTORE`.
pub static SDIFFSTORE: Command = Command {
    name: "sdiffstore",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::rest(2, 1, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(N) for sets with N members together",
    effort: Effort::Elements(3),
    summary: "Keeps the members of the first set that no other has.",
    args: &[Arg::key("destination", 0), Arg::key("key", 1).multiple()],
    run: sdiffstore,
    ..Command::ROW
};

/// The sets of these words; `None` where there is no such key.
pub(super) fn load<'c>(
    cx: &'c Cx<'_>,
    args: Args<'_>,
    keys: Range<usize>,
) -> Result<Vec<Option<&'c Set>>, Error> {
    keys.map(|index| cx.db.read::<Set>(args.key(index))).collect()
}

pub(super) fn intersection(cx: &Cx<'_>, sets: &[Option<&Set>], most: usize) -> Set {
    let limits = limits::set(&cx.engine.config);
    let mut result = Set::empty();
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<&Set>>>() else {
        return result;
    };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return result };
    for member in smallest.iter() {
        if result.len() == most || !cx.db.is_wanted() {
            break;
        }
        if others.iter().all(|set| set.contains_element(member)) {
            result.insert_element(member, &limits);
        }
    }
    result
}

fn union(cx: &Cx<'_>, sets: &[Option<&Set>]) -> Set {
    let limits = limits::set(&cx.engine.config);
    let sizes = || sets.iter().flatten().map(|set| set.len());
    let largest = sizes().max().unwrap_or(0);
    // The result of sets too big for a compact encoding is a table, and growing that step by step
    // would cost more than filling it. Sets that overlap must not make it several times too big.
    let mut result = if largest > limits.max_listpack_entries.max(limits.max_intset_entries) {
        Set::new(b"", sizes().sum::<usize>().min(2 * largest), &limits)
    } else {
        Set::empty()
    };
    for set in sets.iter().flatten() {
        for member in set.iter().take_while(|_| cx.db.is_wanted()) {
            result.insert_element(member, &limits);
        }
    }
    result
}

fn difference(cx: &Cx<'_>, sets: &[Option<&Set>]) -> Set {
    let limits = limits::set(&cx.engine.config);
    let mut result = Set::empty();
    let Some((Some(first), others)) = sets.split_first() else { return result };
    for member in first.iter().take_while(|_| cx.db.is_wanted()) {
        if !others.iter().flatten().any(|set| set.contains_element(member)) {
            result.insert_element(member, &limits);
        }
    }
    result
}

fn answer(cx: &mut Cx<'_>, result: &Set) -> Outcome {
    cx.reply.set(result.len());
    result.iter().for_each(|member| write(&mut cx.reply, member));
    Ok(())
}

fn store(cx: &mut Cx<'_>, args: Args<'_>, result: Set, name: Event) -> Outcome {
    if !cx.db.is_wanted() {
        // It may be only a part of the result.
        return Ok(());
    }
    let (key, len) = (args.key(1), result.len());
    if len == 0 {
        cx.db.delete(key);
    } else {
        cx.db.put(key, Value::Set(result), None);
        cx.db.changed(key, name);
    }
    cx.reply.integer(len as i64);
    Ok(())
}

fn sinter(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let result = intersection(cx, &load(cx, args, 1..args.len())?, usize::MAX);
    answer(cx, &result)
}
fn sunion(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let result = union(cx, &load(cx, args, 1..args.len())?);
    answer(cx, &result)
}
fn sdiff(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let result = difference(cx, &load(cx, args, 1..args.len())?);
    answer(cx, &result)
}
fn sinterstore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let result = intersection(cx, &load(cx, args, 2..args.len())?, usize::MAX);
    store(cx, args, result, event(Class::SET, "sinterstore"))
}
fn sunionstore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let result = union(cx, &load(cx, args, 2..args.len())?);
    store(cx, args, result, event(Class::SET, "sunionstore"))
}
fn sdiffstore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let result = difference(cx, &load(cx, args, 2..args.len())?);
    store(cx, args, result, event(Class::SET, "sdiffstore"))
}
