//! `SINTERCARD`, `SUNIONCARD`, `SDIFFCARD`: how many members the result of an operation has.

use super::algebra::{intersection, load};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use std::ops::Range;
use structs::hyperloglog::{self, REGISTERS};
use structs::set::Set;

/// `SINTERCARD`.
pub static SINTERCARD: Command = Command {
    name: "sintercard",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "7.0.0",
    complexity: "O(N*M) for M sets of which the smallest has N members",
    effort: Effort::Intersection(3),
    summary: "How many members all sets have in common.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::new("limit", ArgKind::Integer).after("LIMIT").optional(),
    ],
    run: sintercard,
    ..Command::ROW
};

/// `SUNIONCARD`.
pub static SUNIONCARD: Command = Command {
    name: "sunioncard",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "8.10.0",
    complexity: "O(N) for sets with N members together",
    effort: Effort::Elements(3),
    summary: "Counts the members that at least one of the sets has.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::token("approx", "APPROX").optional(),
        Arg::new("limit", ArgKind::Integer).after("LIMIT").optional(),
    ],
    run: sunioncard,
    ..Command::ROW
};

/// `SDIFFCARD`.
pub static SDIFFCARD: Command = Command {
    name: "sdiffcard",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "8.10.0",
    complexity: "O(N) for sets with N members together",
    effort: Effort::Elements(3),
    summary: "Counts the members of the first set that no other set has.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::new("limit", ArgKind::Integer).after("LIMIT").optional(),
    ],
    run: sdiffcard,
    ..Command::ROW
};

struct CardinalityOptions {
    keys: Range<usize>,
    /// Where counting may end.
    most: usize,
    is_approximate: bool,
}

fn parse(args: Args<'_>, may_approximate: bool) -> Result<CardinalityOptions, Error> {
    let numkeys =
        args.integer_in(1, 1..=i64::from(i32::MAX), "numkeys should be greater than 0")? as usize;
    let end = 2 + numkeys;
    if end > args.len() {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    let mut options = CardinalityOptions { keys: 2..end, most: usize::MAX, is_approximate: false };
    let mut at = end;
    while at < args.len() {
        if args.is(at, "limit") && at + 1 < args.len() {
            let limit = args.integer_in(at + 1, 0..=i64::MAX, "LIMIT can't be negative")?;
            options.most =
                if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
            at += 2;
        } else if may_approximate && args.is(at, "approx") {
            options.is_approximate = true;
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(options)
}

fn sintercard(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, false)?;
    let len = intersection(cx, &load(cx, args, options.keys)?, options.most).len();
    cx.reply.integer(len as i64);
    Ok(())
}

fn sunioncard(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, true)?;
    let sets = load(cx, args, options.keys.clone())?;
    let len = if options.is_approximate {
        estimate_union(cx, &sets).min(options.most)
    } else {
        count_union(cx, &sets, options.most)
    };
    cx.reply.integer(len as i64);
    Ok(())
}

/// Counts the members of a union up to `most`: those of each set that no set before it has,
/// beginning with the largest, all of whose members count without a look at the others.
fn count_union(cx: &Cx<'_>, sets: &[Option<&Set>], most: usize) -> usize {
    let mut sets: Vec<&Set> = sets.iter().copied().flatten().collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let mut count = 0;
    for (index, set) in sets.iter().enumerate() {
        let before = &sets[..index];
        if before.is_empty() {
            count = set.len();
        } else {
            for member in set.iter().take_while(|_| cx.db.is_wanted()) {
                if count >= most {
                    break;
                }
                count += usize::from(!before.iter().any(|set| set.contains_element(member)));
            }
        }
        if count >= most {
            return most;
        }
    }
    count
}

/// An estimate that is off by 0.81 %, in a constant amount of memory.
fn estimate_union(cx: &Cx<'_>, sets: &[Option<&Set>]) -> usize {
    let mut registers = [0; REGISTERS];
    for set in sets.iter().flatten() {
        for member in set.iter().take_while(|_| cx.db.is_wanted()) {
            let (place, value) = member.with_bytes(hyperloglog::place);
            registers[place] = registers[place].max(value);
        }
    }
    hyperloglog::estimate(&registers) as usize
}

fn sdiffcard(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, false)?;
    let sets = load(cx, args, options.keys)?;
    let mut count = 0;
    if let Some((Some(first), others)) = sets.split_first() {
        for member in first.iter().take_while(|_| cx.db.is_wanted()) {
            if count == options.most {
                break;
            }
            let is_elsewhere = others.iter().flatten().any(|set| set.contains_element(member));
            count += usize::from(!is_elsewhere);
        }
    }
    cx.reply.integer(count as i64);
    Ok(())
}
