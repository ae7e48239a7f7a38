//! `VISMEMBER key element`, `VRANDMEMBER key [count]`, `VRANGE key start end [count]`

use super::READS;
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Outcome};
use std::collections::HashSet;
use structs::numbers::parse_i64;
use vectors::VectorSet;

/// `VISMEMBER`.
pub static VISMEMBER: Command = Command {
    name: "vismember",
    arity: 3,
    summary: "Returns whether an element is in a vector set.",
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String)],
    run: is_member,
    ..READS
};

/// `VRANDMEMBER`.
pub static VRANDMEMBER: Command = Command {
    name: "vrandmember",
    arity: -2,
    flags: Flags::READONLY,
    complexity: "O(N), where N is the absolute value of the count",
    effort: Effort::Estimate(effort),
    summary: "Returns random elements of a vector set.",
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).optional()],
    run: random,
    ..READS
};

/// `VRANGE`.
pub static VRANGE: Command = Command {
    name: "vrange",
    arity: -4,
    flags: Flags::READONLY,
    since: "8.4.0",
    complexity: "O(N), where N is the number of elements",
    effort: Effort::Elements(1),
    summary: "Returns the elements between two names, in the order of their bytes.",
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::String),
        Arg::new("end", ArgKind::String),
        Arg::new("count", ArgKind::Integer).optional(),
    ],
    run: range,
    ..READS
};

fn is_member(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let set = typed::read::<VectorSet>(&cx.db, args.key(1))?;
    cx.reply.boolean(set.is_some_and(|set| set.contains(args[2])));
    Ok(())
}

/// Each name takes one unit.
fn effort(_: &Db<'_>, args: Args<'_>) -> usize {
    let count = args.get(2).and_then(parse_i64).unwrap_or(1);
    usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX)
}

fn random(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(Error::Arity("vrandmember".into()));
    }
    let count = args.get(2).map(parse_i64);
    if count == Some(None) {
        return Err(Error::text("ERR COUNT value is not an integer"));
    }
    let Some(set) = typed::read::<VectorSet>(&cx.db, args.key(1))? else {
        if count.is_some() {
            cx.reply.array(0)
        } else {
            cx.reply.null()
        }
        return Ok(());
    };
    let len = set.len() as u64;
    let draw = || (cx.db.random() % len) as usize;
    let Some(Some(count)) = count else {
        cx.reply.bulk(set.name_at(draw()));
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        // The most that a reply may have.
        if wanted > i32::MAX as usize {
            return Err(Error::OutOfRange("value is out of range"));
        }
        cx.reply.array(wanted);
        (0..wanted).for_each(|_| cx.reply.bulk(set.name_at(draw())));
        return Ok(());
    }
    if wanted >= set.len() {
        cx.reply.array(set.len());
        set.names().for_each(|name| cx.reply.bulk(name));
        return Ok(());
    }
    // Floyd's way to a sample without repetition.
    let mut places = HashSet::with_capacity(wanted);
    for last in set.len() - wanted..set.len() {
        let place = (cx.db.random() % (last as u64 + 1)) as usize;
        places.insert(if places.contains(&place) { last } else { place });
    }
    cx.reply.array(wanted);
    places.into_iter().for_each(|place| cx.reply.bulk(set.name_at(place)));
    Ok(())
}

/// An end of a range.
enum End<'a> {
    Least,
    Most,
    Including(&'a [u8]),
    Excluding(&'a [u8]),
}

fn end(word: &[u8]) -> Result<End<'_>, Error> {
    match (word, word.split_first()) {
        (b"-", _) => Ok(End::Least),
        (b"+", _) => Ok(End::Most),
        (_, Some((b'[', name))) => Ok(End::Including(name)),
        (_, Some((b'(', name))) => Ok(End::Excluding(name)),
        _ => Err(Error::text("ERR invalid range format: use '-', '+', '[name' or '(name'")),
    }
}

fn range(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 5 {
        return Err(Error::Arity("vrange".into()));
    }
    let (first, last) = (end(args[2])?, end(args[3])?);
    let count = match args.get(4).map(parse_i64) {
        None => usize::MAX,
        // A negative count is all.
        Some(Some(count)) => usize::try_from(count).unwrap_or(usize::MAX),
        Some(None) => return Err(Error::text("ERR invalid COUNT")),
    };
    let Some(set) = typed::read::<VectorSet>(&cx.db, args.key(1))? else {
        cx.reply.array(0);
        return Ok(());
    };
    let is_in = |name: &[u8]| {
        let from = match first {
            End::Least => true,
            End::Most => false,
            End::Including(start) => name >= start,
            End::Excluding(start) => name > start,
        };
        let to = match last {
            End::Least => false,
            End::Most => true,
            End::Including(end) => name <= end,
            End::Excluding(end) => name < end,
        };
        from && to
    };
    let mut names: Vec<&[u8]> = set.names().filter(|name| is_in(name)).collect();
    if count < names.len() && count > 0 {
        names.select_nth_unstable(count);
    }
    names.truncate(count);
    names.sort_unstable();
    cx.reply.array(names.len());
    names.into_iter().for_each(|name| cx.reply.bulk(name));
    Ok(())
}
