//! `GETRANGE key start end`, `SUBSTR`, `SETRANGE key offset value`

use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Event, Flags, Group, KeyFlags, KeySpec, Outcome,
    event,
};
use keyspace::StringRef;

/// `GETRANGE`.
pub static GETRANGE: Command = Command {
    name: "getrange",
    arity: 4,
    flags: Flags::READONLY.with(Flags::READS_STRING),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::String,
    since: "2.4.0",
    complexity: "O(N) for N bytes in the reply",
    summary: "The bytes between two places of a string.",
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::Integer),
        Arg::new("end", ArgKind::Integer),
    ],
    run: getrange,
    ..Command::ROW
};

/// `SUBSTR`.
pub static SUBSTR: Command = Command {
    name: "substr",
    arity: 4,
    flags: Flags::READONLY.with(Flags::READS_STRING),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(N) for N bytes in the reply",
    summary: "The old name of GETRANGE.",
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::Integer),
        Arg::new("end", ArgKind::Integer),
    ],
    run: getrange,
    ..Command::ROW
};

/// `SETRANGE`.
pub static SETRANGE: Command = Command {
    name: "setrange",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "2.2.0",
    complexity: "O(N) for N bytes that are written",
    summary: "Writes bytes over a part of a string.",
    args: &[
        Arg::key("key", 0),
        Arg::new("offset", ArgKind::Integer),
        Arg::new("value", ArgKind::String),
    ],
    run: setrange,
    ..Command::ROW
};

const EVENT: Event = event(Class::STRING, "setrange");

fn getrange(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (start, end) = (args.integer(2)?, args.integer(3)?);
    let Some(string) = cx.db.string(args.key(1))? else {
        cx.reply.bulk(b"");
        return Ok(());
    };
    let range = super::clamp(start, end, string.len()).unwrap_or(0..0);
    match string {
        StringRef::Block(block) => cx.reply.bulk_of(block, range),
        _ => cx.reply.bulk(&string.bytes(&mut [0; structs::numbers::INT_MAX_LEN])[range]),
    }
    Ok(())
}

fn setrange(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let out_of_range = |_| Error::OutOfRange("offset is out of range");
    let offset = usize::try_from(args.integer(2)?).map_err(out_of_range)?;
    let (key, value) = (args.key(1), args[3]);
    let old_len = cx.db.string_for_write(key)?.map(|old| old.len());
    if value.is_empty() {
        cx.reply.integer(old_len.unwrap_or(0) as i64);
        return Ok(());
    }
    let end = offset.checked_add(value.len()).ok_or(Error::StringTooLong)?;
    super::check_len(cx, end)?;
    if cx.is_for_background(end.saturating_sub(old_len.unwrap_or(0))) {
        return Err(Error::TakesLong);
    }
    let string = cx.db.edit_string(key)?;
    if string.len() < end {
        string.resize(end);
    }
    string.as_mut_slice()[offset..end].copy_from_slice(value);
    let len = string.len();
    cx.db.changed(key, EVENT);
    cx.reply.integer(len as i64);
    Ok(())
}
