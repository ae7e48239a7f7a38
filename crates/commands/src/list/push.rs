//! `LPUSH key element [element …]`, `RPUSH`, `LPUSHX`, `RPUSHX`

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Event, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::list::{End, List};

/// `LPUSH`.
pub static LPUSH: Command = Command {
    name: "lpush",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for N elements",
    effort: Effort::Words(1),
    summary: "Puts elements in front of a list.",
    history: &[("2.4.0", "Takes more than one `element`.")],
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String).multiple()],
    run: lpush,
    ..Command::ROW
};

/// `RPUSH`.
pub static RPUSH: Command = Command {
    name: "rpush",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for N elements",
    effort: Effort::Words(1),
    summary: "Puts elements behind a list.",
    history: &[("2.4.0", "Takes more than one `element`.")],
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String).multiple()],
    run: rpush,
    ..Command::ROW
};

/// `LPUSHX`.
pub static LPUSHX: Command = Command {
    name: "lpushx",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::List,
    since: "2.2.0",
    complexity: "O(N) for N elements",
    effort: Effort::Words(1),
    summary: "Puts elements in front of a list that is there.",
    history: &[("4.0.0", "Takes more than one `element`.")],
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String).multiple()],
    run: lpushx,
    ..Command::ROW
};

/// `RPUSHX`.
pub static RPUSHX: Command = Command {
    name: "rpushx",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::List,
    since: "2.2.0",
    complexity: "O(N) for N elements",
    effort: Effort::Words(1),
    summary: "Puts elements behind a list that is there.",
    history: &[("4.0.0", "Takes more than one `element`.")],
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String).multiple()],
    run: rpushx,
    ..Command::ROW
};

const LPUSH_EVENT: Event = event(Class::LIST, "lpush");
const RPUSH_EVENT: Event = event(Class::LIST, "rpush");

/// The event of a push at this end.
pub(crate) fn push_event(end: End) -> Event {
    if end == End::Left { LPUSH_EVENT } else { RPUSH_EVENT }
}

fn lpush(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    push(cx, args, End::Left)
}
fn rpush(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    push(cx, args, End::Right)
}
fn lpushx(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    push_if_there(cx, args, End::Left)
}
fn rpushx(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    push_if_there(cx, args, End::Right)
}

fn push_if_there(cx: &mut Cx<'_>, args: Args<'_>, end: End) -> Outcome {
    if cx.db.object_for_write::<List>(args.key(1))?.is_none() {
        cx.reply.integer(0);
        return Ok(());
    }
    push(cx, args, end)
}

fn push(cx: &mut Cx<'_>, args: Args<'_>, end: End) -> Outcome {
    let key = args.key(1);
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    let list = cx.db.write_or_create::<List>(key)?;
    if args.len() == 3 {
        list.push(end, args[2], &limits);
    } else {
        list.push_all(end, args.from(2).iter().copied(), &limits);
    }
    let len = list.len();
    cx.db.changed_in(key, push_event(end), args.len() as u64 - 2);
    cx.reply.integer(len as i64);
    Ok(())
}
