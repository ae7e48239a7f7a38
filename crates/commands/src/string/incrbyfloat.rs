//! `INCRBYFLOAT key increment`: in the arithmetic of 80-bit floats, as Redis does.

use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Event, Flags, Group, KeyFlags, KeySpec, Outcome,
    event,
};
use keyspace::Entry;
use structs::numbers::LongDouble;

/// `INCRBYFLOAT`.
pub static INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "2.6.0",
    complexity: "O(1)",
    summary: "Adds a fraction to a number.",
    args: &[Arg::key("key", 0), Arg::new("increment", ArgKind::Double)],
    run: incrbyfloat,
    ..Command::ROW
};

const EVENT: Event = event(Class::STRING, "incrbyfloat");

fn incrbyfloat(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let old = match cx.db.string_for_write(key)? {
        Some(old) => LongDouble::parse(&old.to_vec()).ok_or(Error::NotFloat)?,
        None => LongDouble::parse(b"0").ok_or(Error::NotFloat)?,
    };
    let increment = LongDouble::parse(args[2]).ok_or(Error::NotFloat)?;
    let sum = old + increment;
    if !sum.is_finite() {
        return Err(Error::NanOrInfinity);
    }
    let mut text = Vec::new();
    sum.push_human(&mut text);
    let (expiry, access) = (cx.db.expiry(key), cx.db.fresh_access());
    cx.db.put_entry(key, Entry::new_text(key.bytes, &text, expiry, access));
    cx.db.changed(key, EVENT);
    cx.db.propagate_as(|p| p.command(&[b"SET", key.bytes, &text, b"KEEPTTL"]));
    cx.reply.bulk(&text);
    Ok(())
}
