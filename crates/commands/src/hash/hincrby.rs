//! `HINCRBY key field increment`, `HINCRBYFLOAT key field increment`

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome,
    event,
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
    summary: "Adds an integer to the number in a field.",
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
    summary: "Adds a fraction to the number in a field.",
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
    let horizon = cx.db.horizon().0;
    let live = cx.db.object_for_write::<Hash>(key)?.map(|hash| hash.live(horizon));
    let old = match live.and_then(|live| live.get(args[2])) {
        Some(old) => old.to_int().ok_or(Error::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = old.checked_add(increment).ok_or(Error::Overflow)?;
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    let digits = structs::numbers::format_i64(&mut digits, sum);
    let kept = keep_expiry(cx, key, args[2])?;
    let hash = cx.db.write_or_create::<Hash>(key)?;
    match kept {
        Kept::Expiry(at) => hash.set_timed(args[2], digits, at),
        _ => hash.set(args[2], digits, &limits),
    };
    if kept == Kept::Revived {
        revive(cx, key, args[2]);
        cx.db.propagate_as(|p| p.command(&[b"HSET", key.bytes, args[2], digits]));
    }
    let increased = event(Class::HASH, "hincrby");
    cx.db.changed(key, increased);
    cx.db.notify_fields(key, increased, [args[2]]);
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
    let horizon = cx.db.horizon().0;
    let live = cx.db.object_for_write::<Hash>(key)?.map(|hash| hash.live(horizon));
    let old = live.and_then(|live| live.get(args[2]));
    let old = old.map_or_else(|| b"0".to_vec(), |old| old.to_vec());
    let old = LongDouble::parse(&old).ok_or(Error::text("ERR hash value is not a float"))?;
    let sum = old + increment;
    if !sum.is_finite() {
        return Err(Error::NanOrInfinity);
    }
    let mut text = Vec::new();
    sum.push_human(&mut text);
    let kept = keep_expiry(cx, key, args[2])?;
    let hash = cx.db.write_or_create::<Hash>(key)?;
    match kept {
        Kept::Expiry(at) => hash.set_timed(args[2], &text, at),
        _ => hash.set(args[2], &text, &limits),
    };
    if kept == Kept::Revived {
        revive(cx, key, args[2]);
    }
    let increased = event(Class::HASH, "hincrbyfloat");
    cx.db.changed(key, increased);
    cx.db.notify_fields(key, increased, [args[2]]);
    cx.db.propagate_as(|p| match kept {
        Kept::Expiry(_) => {
            let words: [&[u8]; 7] =
                [b"HSETEX", key.bytes, b"KEEPTTL", b"FIELDS", b"1", args[2], &text];
            p.command(&words);
        }
        _ => p.command(&[b"HSET", key.bytes, args[2], &text]),
    });
    cx.reply.bulk(&text);
    Ok(())
}

/// What a field's new value has of the old one's expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// The old one did not expire, or there was none.
    Nothing,
    /// It goes on to expire then.
    Expiry(i64),
    /// The old one had expired: the new one is another field.
    Revived,
}

fn keep_expiry(cx: &Cx<'_>, key: Key<'_>, field: &[u8]) -> Result<Kept, Error> {
    let Some(hash) = cx.db.object_for_write::<Hash>(key)?.filter(|hash| hash.is_timed()) else {
        return Ok(Kept::Nothing);
    };
    Ok(match hash.expiry(field).flatten() {
        None => Kept::Nothing,
        Some(at) if at < cx.db.horizon().0 => Kept::Revived,
        Some(at) => Kept::Expiry(at),
    })
}

/// Reports that a field took the place of one that had expired.
fn revive(cx: &mut Cx<'_>, key: Key<'_>, field: &[u8]) {
    cx.db.list_fields(key);
    cx.db.fields_expired(key, &[field]);
}
