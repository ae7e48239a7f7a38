//! `LMOVE source destination LEFT|RIGHT LEFT|RIGHT`, `RPOPLPUSH`, and blocking `BLMOVE`,
//! `BRPOPLPUSH`

use super::pop::popped;
use super::push::push_event;
use crate::limits;
use engine::blocking::{TimeoutReply, parse_timeout};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::list::{End, List};

/// `LMOVE`.
pub static LMOVE: Command = Command {
    name: "lmove",
    arity: 5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT)),
    ],
    group: Group::List,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Moves an element from an end of one list to an end of another.",
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
    ],
    run: lmove,
    ..Command::ROW
};

/// `RPOPLPUSH`.
pub static RPOPLPUSH: Command = Command {
    name: "rpoplpush",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT)),
    ],
    group: Group::List,
    since: "1.2.0",
    complexity: "O(1)",
    summary: "Moves the last element of one list to the front of another.",
    args: &[Arg::key("source", 0), Arg::key("destination", 1)],
    run: rpoplpush,
    ..Command::ROW
};

/// `BLMOVE`.
pub static BLMOVE: Command = Command {
    name: "blmove",
    arity: 6,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BLOCKING),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT)),
    ],
    group: Group::List,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "LMOVE that waits for an element.",
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::new("timeout", ArgKind::Double),
    ],
    run: blmove,
    ..Command::ROW
};

/// `BRPOPLPUSH`.
pub static BRPOPLPUSH: Command = Command {
    name: "brpoplpush",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BLOCKING),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT)),
    ],
    group: Group::List,
    since: "2.2.0",
    complexity: "O(1)",
    summary: "RPOPLPUSH that waits for an element.",
    history: &[("6.0.0", "`timeout` may have a fraction.")],
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::new("timeout", ArgKind::Double),
    ],
    run: brpoplpush,
    ..Command::ROW
};

/// LEFT or RIGHT.
pub(crate) fn parse_end(args: Args<'_>, index: usize) -> Result<End, Error> {
    if args.is(index, "left") {
        Ok(End::Left)
    } else if args.is(index, "right") {
        Ok(End::Right)
    } else {
        Err(Error::Syntax)
    }
}

fn lmove(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (parse_end(args, 3)?, parse_end(args, 4)?);
    if !move_element(cx, args, from, to, Effect::Move)? {
        cx.reply.null();
    }
    Ok(())
}

fn rpoplpush(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !move_element(cx, args, End::Right, End::Left, Effect::PopPush)? {
        cx.reply.null();
    }
    Ok(())
}

/// The command that repeats it: that of the same family, as statistics of replicas show.
#[derive(Clone, Copy)]
enum Effect {
    Move,
    PopPush,
}

fn blmove(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (parse_end(args, 3)?, parse_end(args, 4)?);
    block(cx, args, (from, to, Effect::Move), 5)
}

fn brpoplpush(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    block(cx, args, (End::Right, End::Left, Effect::PopPush), 3)
}

fn block(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    (from, to, effect): (End, End, Effect),
    timeout: usize,
) -> Outcome {
    let deadline = parse_timeout(args[timeout], cx.now())?;
    if move_element(cx, args, from, to, effect)? {
        return Ok(());
    }
    if cx.in_transaction {
        // Unlike the time's running out this is the answer of LMOVE.
        cx.reply.null();
        return Ok(());
    }
    cx.block(&[args[1]], deadline, TimeoutReply::NullArray)
}

/// Moves an element and answers with it; `false` if there is none.
fn move_element(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    from: End,
    to: End,
    effect: Effect,
) -> Result<bool, Error> {
    let (source, destination) = (args.key(1), args.key(2));
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    if cx.db.object_for_write::<List>(source)?.is_none() {
        return Ok(false);
    }
    cx.db.object_for_write::<List>(destination)?;
    let Some(list) = cx.db.write::<List>(source)? else { return Ok(false) };
    let Some(element) = list.pop(from, &limits, |element| element.to_vec()) else {
        return Ok(false);
    };
    cx.db.write_or_create::<List>(destination)?.push(to, &element, &limits);
    cx.db.changed(destination, push_event(to));
    popped(cx, source, from, 1);
    let word = |end: End| if end == End::Left { &b"LEFT"[..] } else { &b"RIGHT"[..] };
    let (source, destination) = (source.bytes, destination.bytes);
    cx.db.propagate_as(|p| match effect {
        Effect::Move => p.command(&[b"LMOVE", source, destination, word(from), word(to)]),
        Effect::PopPush => p.command(&[b"RPOPLPUSH", source, destination]),
    });
    cx.reply.bulk(&element);
    Ok(true)
}
