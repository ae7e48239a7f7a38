//! `MOVE key db`

use crate::connection::parse_db;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Databases, Error, Event, Flags, Group, KeyFlags,
    KeySpec, Outcome, event,
};

/// `MOVE`.
pub static MOVE: Command = Command {
    name: "move",
    arity: 3,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES).with(Flags::CROSSES_DATABASES),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Takes a key into another database.",
    args: &[Arg::key("key", 0), Arg::new("db", ArgKind::Integer)],
    databases: Databases::Named(|_, found| found(2)),
    run: move_key,
    ..Command::ROW
};

const FROM: Event = event(Class::GENERIC, "move_from");
const TO: Event = event(Class::GENERIC, "move_to");

fn move_key(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let target = parse_db(cx, args[2])?;
    if target == cx.db.index {
        return Err(Error::text("ERR source and destination objects are the same"));
    }
    let key = args.key(1);
    let is_free = cx.db.in_db(target, |db| db.lookup_no_stats(key).is_none());
    let entry = if is_free { cx.db.take(key) } else { None };
    let moved = entry.is_some();
    if let Some(entry) = entry {
        cx.db.in_db(target, |db| db.put_entry(key, entry));
        cx.db.changed(key, FROM);
        cx.db.in_db(target, |db| db.changed(key, TO));
    }
    cx.reply.integer(i64::from(moved));
    Ok(())
}
