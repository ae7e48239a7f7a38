//! `LPOP key [count]`, `RPOP key [count]`

use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Event, Flags, Group, Key, KeyFlags,
    KeySpec, Outcome, event,
};
use resp::Reply;
use structs::list::{End, List};
use structs::listpack::Element;

/// `LPOP`.
pub static LPOP: Command = Command {
    name: "lpop",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for N elements in the reply",
    effort: Effort::Estimate(crate::effort::popped),
    summary: "Takes elements from the front of a list.",
    history: &[("6.2.0", "Takes `count`.")],
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).optional().since("6.2.0")],
    run: lpop,
    ..Command::ROW
};

/// `RPOP`.
pub static RPOP: Command = Command {
    name: "rpop",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::List,
    since: "1.0.0",
    complexity: "O(N) for N elements in the reply",
    effort: Effort::Estimate(crate::effort::popped),
    summary: "Takes elements from the back of a list.",
    history: &[("6.2.0", "Takes `count`.")],
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).optional().since("6.2.0")],
    run: rpop,
    ..Command::ROW
};

const LPOP_EVENT: Event = event(Class::LIST, "lpop");
const RPOP_EVENT: Event = event(Class::LIST, "rpop");

fn lpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    pop(cx, args, End::Left)
}
fn rpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    pop(cx, args, End::Right)
}

/// Writes an element as a bulk string.
#[inline]
pub(crate) fn write(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        Element::Int(number) => reply.bulk_integer(number),
    }
}

fn pop(cx: &mut Cx<'_>, args: Args<'_>, end: End) -> Outcome {
    let key = args.key(1);
    let count =
        match args.len() {
            2 => None,
            3 => Some(args.integer_in(2, 0..=i64::MAX, "value is out of range, must be positive")?
                as usize),
            _ => return Err(Error::Arity(cx.resolved.command.name.into())),
        };
    let limits = crate::limits::list(&cx.engine.config, &cx.engine.debug);
    let Cx { db, reply, .. } = cx;
    let Some(list) = db.write::<List>(key)? else {
        if count.is_some() {
            reply.null_array();
        } else {
            reply.null();
        }
        return Ok(());
    };
    match count {
        None => {
            list.pop(end, &limits, |element| write(reply, element));
            popped(cx, key, end, 1);
        }
        Some(0) => reply.array(0),
        Some(count) => {
            let count = count.min(list.len());
            reply.array(count);
            for _ in 0..count {
                list.pop(end, &limits, |element| write(reply, element));
            }
            popped(cx, key, end, count);
        }
    }
    Ok(())
}

/// Reports that elements were popped.
pub(crate) fn popped(cx: &mut Cx<'_>, key: Key<'_>, end: End, count: usize) {
    cx.db.changed_in(key, if end == End::Left { LPOP_EVENT } else { RPOP_EVENT }, count as u64);
    cx.db.remove_if_empty::<List>(key);
}
