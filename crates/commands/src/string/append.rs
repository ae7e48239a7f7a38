//! `APPEND key value`, `STRLEN key`

use engine::db::SetExpiry;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Event, Flags, Group, KeyFlags, KeySpec, Outcome, event,
};

/// `APPEND`.
pub static APPEND: Command = Command {
    name: "append",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::String,
    since: "2.0.0",
    complexity: "O(N) for N appended bytes, amortised: a string that grows gets room for more",
    summary: "Puts bytes behind a string.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::String)],
    run: append,
    ..Command::ROW
};

/// `STRLEN`.
pub static STRLEN: Command = Command {
    name: "strlen",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::READS_STRING),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::String,
    since: "2.2.0",
    complexity: "O(1)",
    summary: "How many bytes a string has.",
    args: &[Arg::key("key", 0)],
    run: strlen,
    ..Command::ROW
};

const EVENT: Event = event(Class::STRING, "append");

fn append(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let len = match cx.db.string_for_write(key)? {
        None => {
            cx.db.set_string(key, args[2], SetExpiry::Clear);
            args[2].len()
        }
        Some(old) => {
            let len = old.len() + args[2].len();
            super::check_len(cx, len)?;
            cx.db.edit_string(key)?.extend(args[2]);
            len
        }
    };
    cx.db.changed(key, EVENT);
    cx.reply.integer(len as i64);
    Ok(())
}

fn strlen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let len = cx.db.string(args.key(1))?.map_or(0, |string| string.len());
    cx.reply.integer(len as i64);
    Ok(())
}
