//! `HINCRBY key field increment`, `HINCRBYFLOAT key field increment`

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome, event,
};
use structs::hash::Hash;
use structs::numbers::LongDouble;

/// `HINCRBY`.
pub static HINCRBY: Command = Command {
    name: "hincrby",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "Increments the integer value of a field in a hash by a number. Uses 0 \
        as initial value if the field doesn't exist.",
    args: &[
        Arg::key("key", 0),
        Arg::new("field", ArgKind::String),
        Arg::new("increment", ArgKind::Integer),
    ],
    run: hincrby,
    ..Command::ROW
};

/// `HINCRBYFLOAT`.
pub static HINCRBYFLOAT: Command = Command {
    name: "hincrbyfloat",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::Hash,
    since: "2.6.0",
    complexity: "O(1)",
    summary: "Increments the floating point value of a field by a number. Uses 0 as \
        initial value if the field doesn't exist.",
    args: &[
        Arg::key("key", 0),
        Arg::new("field", ArgKind::String),
        Arg::new("increment", ArgKind::Double),
    ],
    run: hincrbyfloat,
    ..Command::ROW
};

fn hincrby(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (key, increment) = (args.key(1), args.integer(3)?);
    let limits = limits::hash(&cx.engine.config);
    // The old value is judged before a key could be created.
    let old = match cx.db.target_object::<Hash>(key)?.and_then(|hash| hash.get(args[2])) {
        Some(old) => old.to_int().ok_or(Error::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = old.checked_add(increment).ok_or(Error::Overflow)?;
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    let digits = structs::numbers::format_i64(&mut digits, sum);
    cx.db.write_or_create::<Hash>(key)?.set(args[2], digits, &limits);
    cx.db.changed(key, event(Class::HASH, "hincrby"));
    cx.reply.integer(sum);
    Ok(())
}

fn hincrbyfloat(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let limits = limits::hash(&cx.engine.config);
    let increment = LongDouble::parse(args[3]).ok_or(Error::NotFloat)?;
    if !increment.is_finite() {
        return Err(Error::text("ERR value is NaN or Infinity"));
    }
    let old = cx.db.target_object::<Hash>(key)?.and_then(|hash| hash.get(args[2]));
    let old = old.map_or_else(|| b"0".to_vec(), |old| old.to_vec());
    let old = LongDouble::parse(&old).ok_or(Error::text("ERR hash value is not a float"))?;
    let sum = old + increment;
    if !sum.is_finite() {
        return Err(Error::NanOrInfinity);
    }
    let mut text = Vec::new();
    sum.push_human(&mut text);
    cx.db.write_or_create::<Hash>(key)?.set(args[2], &text, &limits);
    cx.db.changed(key, event(Class::HASH, "hincrbyfloat"));
    cx.db.propagate_as(|p| p.command(&[b"HSET", key.bytes, args[2], &text]));
    cx.reply.bulk(&text);
    Ok(())
}
