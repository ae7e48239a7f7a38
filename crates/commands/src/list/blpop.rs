//! `BLPOP key [key …] timeout`, `BRPOP`, `LMPOP numkeys key [key …] LEFT|RIGHT [COUNT count]`,
//! `BLMPOP`

use super::lmove::parse_end;
use super::pop::{popped, write};
use engine::blocking::{TimeoutReply, parse_timeout};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome,
};
use structs::list::{End, List};

/// `BLPOP`.
pub static BLPOP: Command = Command {
    name: "blpop",
    arity: -3,
    flags: Flags::WRITE.with(Flags::BLOCKING),
    keys: &[KeySpec::all_but_last(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::List,
    since: "2.0.0",
    complexity: "O(N) for N keys",
    summary: "Takes the first element of a list; waits for one.",
    history: &[("6.0.0", "`timeout` may have a fraction.")],
    args: &[Arg::key("key", 0).multiple(), Arg::new("timeout", ArgKind::Double)],
    run: blpop,
    ..Command::ROW
};

/// `BRPOP`.
pub static BRPOP: Command = Command {
    name: "brpop",
    arity: -3,
    flags: Flags::WRITE.with(Flags::BLOCKING),
    keys: &[KeySpec::all_but_last(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::List,
    since: "2.0.0",
    complexity: "O(N) for N keys",
    summary: "Takes the last element of a list; waits for one.",
    history: &[("6.0.0", "`timeout` may have a fraction.")],
    args: &[Arg::key("key", 0).multiple(), Arg::new("timeout", ArgKind::Double)],
    run: brpop,
    ..Command::ROW
};

/// `LMPOP`.
pub static LMPOP: Command = Command {
    name: "lmpop",
    arity: -4,
    flags: Flags::WRITE,
    keys: &[KeySpec::counted(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::List,
    since: "7.0.0",
    complexity: "O(N+M) for N keys and M elements in the reply",
    summary: "Takes elements from the first list that has some.",
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
    ],
    run: lmpop,
    ..Command::ROW
};

/// `BLMPOP`.
pub static BLMPOP: Command = Command {
    name: "blmpop",
    arity: -5,
    flags: Flags::WRITE.with(Flags::BLOCKING),
    keys: &[KeySpec::counted(2, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::List,
    since: "7.0.0",
    complexity: "O(N+M) for N keys and M elements in the reply",
    summary: "Takes elements from the first list that has some; waits for them.",
    args: &[
        Arg::new("timeout", ArgKind::Double),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
    ],
    run: blmpop,
    ..Command::ROW
};

fn blpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    pop_one(cx, args, End::Left)
}
fn brpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    pop_one(cx, args, End::Right)
}

fn pop_one(cx: &mut Cx<'_>, args: Args<'_>, end: End) -> Outcome {
    let last = args.len() - 1;
    let deadline = parse_timeout(args[last], cx.now())?;
    for index in 1..last {
        let key = args.key(index);
        if cx.db.object_for_write::<List>(key)?.is_some() {
            cx.reply.array(2);
            cx.reply.bulk(key.bytes);
            pop(cx, key, end, 1)?;
            return Ok(());
        }
    }
    cx.block(&args.words()[1..last], deadline, TimeoutReply::NullArray)
}

/// Pops so many elements and writes them.
fn pop(cx: &mut Cx<'_>, key: Key<'_>, end: End, count: usize) -> Outcome {
    let limits = crate::limits::list(&cx.engine.config, &cx.engine.debug);
    let Cx { db, reply, .. } = cx;
    if let Some(list) = db.write::<List>(key)? {
        for _ in 0..count {
            list.pop(end, &limits, |element| write(reply, element));
        }
        popped(cx, key, end, count);
        let name = if end == End::Left { "LPOP" } else { "RPOP" };
        cx.db.propagate_as(|p| {
            p.begin(3);
            p.word(name.as_bytes());
            p.word(key.bytes);
            p.integer(count as i64);
        });
    }
    Ok(())
}

struct BlpopOptions {
    keys: std::ops::Range<usize>,
    end: End,
    count: usize,
}

fn parse(args: Args<'_>, at: usize) -> Result<BlpopOptions, Error> {
    let numkeys =
        args.integer_in(at, 1..=i64::from(i32::MAX), "numkeys should be greater than 0")? as usize;
    let keys = at + 1..at + 1 + numkeys;
    if keys.end >= args.len() {
        return Err(Error::Syntax);
    }
    let end = parse_end(args, keys.end)?;
    let count = parse_pop_count(args, keys.end + 1)?;
    Ok(BlpopOptions { end, keys, count })
}

/// `[COUNT count]` from word `at` on, 1 if it is not given. A bad count is reported before anything
/// that follows it.
pub(crate) fn parse_pop_count(args: Args<'_>, at: usize) -> Result<usize, Error> {
    if at == args.len() {
        return Ok(1);
    }
    if !args.is(at, "count") || at + 1 == args.len() {
        return Err(Error::Syntax);
    }
    let count = args.integer_in(at + 1, 1..=i64::MAX, "count should be greater than 0")?;
    if args.len() > at + 2 {
        return Err(Error::Syntax);
    }
    Ok(count as usize)
}

/// Pops from the first list that is there; `false` if none is.
fn pop_several(cx: &mut Cx<'_>, args: Args<'_>, options: &BlpopOptions) -> Result<bool, Error> {
    for index in options.keys.clone() {
        let key = args.key(index);
        let Some(len) = cx.db.object_for_write::<List>(key)?.map(List::len) else { continue };
        let count = options.count.min(len);
        cx.reply.array(2);
        cx.reply.bulk(key.bytes);
        cx.reply.array(count);
        pop(cx, key, options.end, count)?;
        return Ok(true);
    }
    Ok(false)
}

fn lmpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, 1)?;
    if !pop_several(cx, args, &options)? {
        cx.reply.null_array();
    }
    Ok(())
}

fn blmpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, 2)?;
    let deadline = parse_timeout(args[1], cx.now())?;
    if pop_several(cx, args, &options)? {
        return Ok(());
    }
    cx.block(&args.words()[options.keys], deadline, TimeoutReply::NullArray)
}
