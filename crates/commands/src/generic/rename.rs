//! `RENAME key newkey`, `RENAMENX key newkey`: value and expiry move; what `newkey` held is gone.
//! Rules of time series [go on](crate::series::renaming).

use crate::series::renaming;
use engine::{
    Arg, Args, Class, Command, Cx, Error, Event, Flags, Group, KeyFlags, KeySpec, Outcome, event,
};

/// `RENAME`.
pub static RENAME: Command = Command {
    name: "rename",
    arity: 3,
    flags: Flags::WRITE.with(Flags::NO_VALUES).with(Flags::RELINKS),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::OW.with(KeyFlags::UPDATE)),
    ],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Gives a key another name, in place of what has it.",
    args: &[Arg::key("key", 0), Arg::key("newkey", 1)],
    run: rename,
    ..Command::ROW
};

/// `RENAMENX`.
pub static RENAMENX: Command = Command {
    name: "renamenx",
    arity: 3,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES).with(Flags::RELINKS),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::OW.with(KeyFlags::INSERT)),
    ],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Gives a key another name if that is free.",
    history: &[("3.2.0", "Both names may be the same.")],
    args: &[Arg::key("key", 0), Arg::key("newkey", 1)],
    run: renamenx,
    ..Command::ROW
};

const FROM: Event = event(Class::GENERIC, "rename_from");
const TO: Event = event(Class::GENERIC, "rename_to");

fn rename(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    move_value(cx, args, false)?;
    cx.reply.ok();
    Ok(())
}

fn renamenx(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let moved = move_value(cx, args, true)?;
    cx.reply.integer(i64::from(moved));
    Ok(())
}

fn move_value(cx: &mut Cx<'_>, args: Args<'_>, only_if_free: bool) -> Result<bool, Error> {
    let (from, to) = (args.key(1), args.key(2));
    let Some(found) = cx.db.lookup_write(from) else { return Err(Error::NoSuchKey) };
    let is_series = renaming::is_series(found);
    if from.bytes == to.bytes {
        return Ok(!only_if_free);
    }
    if only_if_free && cx.db.lookup_write(to).is_some() {
        return Ok(false);
    }
    let ends = if is_series { renaming::hold(cx, from, to)? } else { None };
    let Some(entry) = cx.db.take(from) else { return Err(Error::NoSuchKey) };
    cx.db.recreate(to, entry.rekeyed(to.bytes));
    cx.db.changed(from, FROM);
    cx.db.changed(to, TO);
    if let Some(ends) = ends {
        renaming::follow(cx, &ends, (from, to), args.words())?;
    }
    Ok(true)
}
