//! `LSET`, `LINSERT`, `LREM`, `LTRIM`: changes inside a list.

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Effort, Error, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::list::{End, List, Side};

/// `LSET`.
pub static LSET: Command = Command {
    name: "lset",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for a list of N elements, O(1) at its ends",
    summary: "Puts a value in the place of an element.",
    args: &[
        Arg::key("key", 0),
        Arg::new("index", ArgKind::Integer),
        Arg::new("element", ArgKind::String),
    ],
    run: lset,
    ..Command::ROW
};

/// `LINSERT`.
pub static LINSERT: Command = Command {
    name: "linsert",
    arity: 5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::List,
    since: "2.2.0",
    complexity: "O(N) for N elements before the pivot",
    effort: Effort::Elements(1),
    summary: "Puts an element in front of another one, or behind it.",
    args: &[
        Arg::key("key", 0),
        Arg::one_of("where", &[Arg::token("before", "BEFORE"), Arg::token("after", "AFTER")]),
        Arg::new("pivot", ArgKind::String),
        Arg::new("element", ArgKind::String),
    ],
    run: linsert,
    ..Command::ROW
};

/// `LREM`.
pub static LREM: Command = Command {
    name: "lrem",
    arity: 4,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for a list of N elements",
    effort: Effort::Elements(1),
    summary: "Takes elements that equal a value out of a list.",
    args: &[
        Arg::key("key", 0),
        Arg::new("count", ArgKind::Integer),
        Arg::new("element", ArgKind::String),
    ],
    run: lrem,
    ..Command::ROW
};

/// `LTRIM`.
pub static LTRIM: Command = Command {
    name: "ltrim",
    arity: 4,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for N elements that are removed",
    effort: Effort::Part(1, trimmed),
    summary: "Keeps one range of a list and drops the rest.",
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::Integer),
        Arg::new("stop", ArgKind::Integer),
    ],
    run: ltrim,
    ..Command::ROW
};

fn lset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    let list = cx.db.write::<List>(key)?.ok_or(Error::NoSuchKey)?;
    // Valkey cuts the index down to 32 bits and may set another element than the one asked for.
    let place = super::place(args.integer(2)?, list.len()).unwrap_or(usize::MAX);
    if !list.set(place, args[3], &limits) {
        return Err(Error::OutOfRange("index out of range"));
    }
    cx.db.changed(key, event(Class::LIST, "lset"));
    cx.reply.ok();
    Ok(())
}

fn linsert(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let side = if args.is(2, "before") {
        Side::Before
    } else if args.is(2, "after") {
        Side::After
    } else {
        return Err(Error::Syntax);
    };
    let key = args.key(1);
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    let Some(list) = cx.db.write::<List>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let done = list.insert(side, args[3], args[4], &limits);
    let len = list.len() as i64;
    if done {
        cx.db.changed(key, event(Class::LIST, "linsert"));
    }
    cx.reply.integer(if done { len } else { -1 });
    Ok(())
}

fn lrem(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (key, count) = (args.key(1), super::negatable(args, 2)?);
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    let Some(list) = cx.db.write::<List>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let end = if count < 0 { End::Right } else { End::Left };
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = list.remove(end, args[3], most, &limits);
    if removed > 0 {
        cx.db.changed_in(key, event(Class::LIST, "lrem"), removed as u64);
        cx.db.remove_if_empty::<List>(key);
    }
    cx.reply.integer(removed as i64);
    Ok(())
}

/// How many elements are to go.
fn trimmed(db: &Db<'_>, args: Args<'_>) -> usize {
    let len = db.size(args.key(1));
    let kept = args.integer(2).and_then(|start| Ok(super::range(start, args.integer(3)?, len)));
    kept.map_or(0, |kept| len - kept.map_or(0, |kept| kept.len()))
}

fn ltrim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (key, start, stop) = (args.key(1), args.integer(2)?, args.integer(3)?);
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    if let Some(list) = cx.db.write::<List>(key)? {
        let range = super::range(start, stop, list.len()).unwrap_or(0..0);
        let removed = list.len() - range.len();
        if removed == 0 {
            // Published all the same.
            cx.db.notify(key, event(Class::LIST, "ltrim"));
        } else {
            list.trim(range.start, range.len(), &limits);
            cx.db.changed_in(key, event(Class::LIST, "ltrim"), removed as u64);
            cx.db.remove_if_empty::<List>(key);
        }
    }
    cx.reply.ok();
    Ok(())
}
