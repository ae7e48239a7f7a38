//! `SETBIT key offset value`, `GETBIT key offset`

use super::parse_offset;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Event, Flags, Group, KeyFlags, KeySpec, Outcome,
    event,
};

/// `SETBIT`.
pub static SETBIT: Command = Command {
    name: "setbit",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::Bitmap,
    since: "2.2.0",
    complexity: "O(1)",
    summary: "Puts one bit into a string, and answers with the one before it.",
    args: &[
        Arg::key("key", 0),
        Arg::new("offset", ArgKind::Integer),
        Arg::new("value", ArgKind::Integer),
    ],
    run: setbit,
    ..Command::ROW
};

/// `GETBIT`.
pub static GETBIT: Command = Command {
    name: "getbit",
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Bitmap,
    since: "2.2.0",
    complexity: "O(1)",
    summary: "Reads one bit of a string.",
    args: &[Arg::key("key", 0), Arg::new("offset", ArgKind::Integer)],
    run: getbit,
    ..Command::ROW
};

/// What SETBIT and BITFIELD report.
pub(super) const EVENT: Event = event(Class::STRING, "setbit");

fn setbit(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let offset = parse_offset(cx, args[2], None)?;
    let bit = match args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Error::text("ERR bit is not an integer or out of range")),
    };
    let key = args.key(1);
    let (index, mask) = ((offset >> 3) as usize, 0x80 >> (offset & 7));
    if cx.is_for_background(index) {
        let len = cx.db.string_for_write(key)?.map_or(0, |old| old.len());
        if cx.is_for_background(index.saturating_sub(len)) {
            return Err(Error::TakesLong);
        }
    }
    let string = cx.db.edit_string(key)?;
    let grows = string.len() <= index;
    if grows {
        string.resize(index + 1);
    }
    let byte = &mut string.as_mut_slice()[index];
    let old = *byte & mask != 0;
    if bit {
        *byte |= mask;
    } else {
        *byte &= !mask;
    }
    if grows || old != bit {
        cx.db.changed(key, EVENT);
    }
    cx.reply.integer(i64::from(old));
    Ok(())
}

fn getbit(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let offset = parse_offset(cx, args[2], None)?;
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    let string = cx.db.string(args.key(1))?;
    let bytes = string.as_ref().map_or(&b""[..], |string| string.bytes(&mut digits));
    let byte = bytes.get((offset >> 3) as usize).copied().unwrap_or(0);
    cx.reply.integer(i64::from(byte >> (7 - (offset & 7)) & 1));
    Ok(())
}
