//! `SET key value [NX|XX|IFEQ value|IFNE value|IFDEQ digest|IFDNE digest] [GET] [EX|PX|EXAT|PXAT
//! time|KEEPTTL]`, `SETNX`, `SETEX`, `PSETEX`, `GETSET`
//!
//! [`super::comparison`] has the last four. The ordinary SET without options takes a short way: one
//! look-up, no allocation if the new value fits the old one's block.

use super::comparison::{self, Comparison, is_comparison};
use super::expiry::{Expiry, ExpiryOptions, expire};
use engine::db::SetExpiry;
use engine::keys::InvalidKeys;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome, events,
};
use keyspace::{HeapString, StringRef};

/// `SET`.
pub static SET: Command = Command {
    name: "set",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(
        KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE),
    )
    .note("RW and ACCESS due to the optional `GET` argument")],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Sets a string, whatever was there; has conditions and expiry.",
    history: &[
        ("2.6.12", "Takes `EX`, `PX`, `NX` and `XX`."),
        ("6.0.0", "Takes `KEEPTTL`."),
        ("6.2.0", "Takes `GET`, `EXAT` and `PXAT`."),
        ("7.0.0", "`NX` and `GET` go together."),
        ("8.1.0", "Takes `IFEQ`."),
        ("8.4.0", "Takes `IFNE`, `IFDEQ` and `IFDNE`."),
    ],
    find_keys: Some(find_keys),
    args: &[
        Arg::key("key", 0),
        Arg::new("value", ArgKind::String),
        Arg::one_of(
            "condition",
            &[
                Arg::token("nx", "NX").since("2.6.12"),
                Arg::token("xx", "XX").since("2.6.12"),
                Arg::new("comparison-value", ArgKind::String).after("IFEQ").since("8.1.0").summary(
                    "Sets the key's value only if the current value \
                matches the specified comparison value.",
                ),
                comparison::YOUNG[0],
                comparison::YOUNG[1],
                comparison::YOUNG[2],
            ],
        )
        .optional(),
        Arg::token("get", "GET").optional().since("6.2.0"),
        Arg::one_of(
            "expiration",
            &[
                Arg::new("seconds", ArgKind::Integer).after("EX").since("2.6.12"),
                Arg::new("milliseconds", ArgKind::Integer).after("PX").since("2.6.12"),
                Arg::new("unix-time-seconds", ArgKind::UnixTime).after("EXAT").since("6.2.0"),
                Arg::new("unix-time-milliseconds", ArgKind::UnixTime).after("PXAT").since("6.2.0"),
                Arg::token("keepttl", "KEEPTTL").since("6.0.0"),
            ],
        )
        .optional(),
    ],
    run: set,
    ..Command::ROW
};

/// `SETNX`.
pub static SETNX: Command = Command {
    name: "setnx",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::OW.with(KeyFlags::INSERT))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Sets a string if the key is not there.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::String)],
    run: setnx,
    ..Command::ROW
};

/// `SETEX`.
pub static SETEX: Command = Command {
    name: "setex",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "Sets a string that expires in so many seconds.",
    args: &[
        Arg::key("key", 0),
        Arg::new("seconds", ArgKind::Integer),
        Arg::new("value", ArgKind::String),
    ],
    run: setex,
    ..Command::ROW
};

/// `PSETEX`.
pub static PSETEX: Command = Command {
    name: "psetex",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "2.6.0",
    complexity: "O(1)",
    summary: "Sets a string that expires in so many milliseconds.",
    args: &[
        Arg::key("key", 0),
        Arg::new("milliseconds", ArgKind::Integer),
        Arg::new("value", ArgKind::String),
    ],
    run: psetex,
    ..Command::ROW
};

/// `GETSET`.
pub static GETSET: Command = Command {
    name: "getset",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Sets a string and answers with the value before it.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::String)],
    run: getset,
    ..Command::ROW
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    Always,
    IfAbsent,
    IfPresent,
    If(Comparison<'a>),
}

struct SetOptions<'a> {
    condition: Condition<'a>,
    expiry: Expiry,
    returns_old: bool,
}

fn parse<'a>(cx: &Cx<'_>, args: Args<'a>) -> Result<SetOptions<'a>, Error> {
    let mut options =
        SetOptions { condition: Condition::Always, expiry: Expiry::Clear, returns_old: false };
    let mut expiry = ExpiryOptions::default();
    let mut at = 3;
    while at < args.len() {
        // A condition may be given again (but a comparison), only not with one that excludes it.
        let allows = |condition| [Condition::Always, condition].contains(&options.condition);
        if args.is(at, "nx") && allows(Condition::IfAbsent) {
            options.condition = Condition::IfAbsent;
        } else if args.is(at, "xx") && allows(Condition::IfPresent) {
            options.condition = Condition::IfPresent;
        } else if options.condition == Condition::Always
            && let Some(comparison) = Comparison::parse(args, at)?
        {
            at += 1;
            options.condition = Condition::If(comparison);
        } else if args.is(at, "get") {
            options.returns_old = true;
        } else {
            at += expiry.take(args, at, "keepttl").ok_or(Error::Syntax)?;
            continue;
        }
        at += 1;
    }
    let expiry = expiry.resolve(args, cx.now(), "set", Expiry::Keep)?;
    options.expiry = expiry.unwrap_or(Expiry::Clear);
    Ok(options)
}

/// SET reads the old value with GET and with a comparison, else overwrites it.
fn find_keys(argv: &[&[u8]], found: &mut dyn FnMut(usize, KeyFlags)) -> Result<(), InvalidKeys> {
    let reads = argv.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"get"));
    let how = if reads { KeyFlags::RW.with(KeyFlags::ACCESS) } else { KeyFlags::OW };
    let compares = argv.iter().skip(3).any(|word| is_comparison(word));
    let how = if compares { how.with(KeyFlags::COMPARES) } else { how };
    found(1, how.with(KeyFlags::UPDATE));
    Ok(())
}

fn set(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    if args.len() == 3 {
        cx.db.set_string(key, args[2], SetExpiry::Clear);
        cx.db.changed(key, events::SET);
        cx.reply.ok();
        return Ok(());
    }
    let options = parse(cx, args)?;
    set_with(cx, key, args[2], options)
}

fn set_with(cx: &mut Cx<'_>, key: Key<'_>, value: &[u8], options: SetOptions<'_>) -> Outcome {
    let old = if options.returns_old {
        cx.db.string(key)?
    } else if matches!(options.condition, Condition::If(_)) {
        cx.db.string_for_write(key)?
    } else {
        None
    };
    let old = old.map(StringRef::to_heap_string);
    let allowed = match options.condition {
        Condition::Always => true,
        Condition::IfAbsent => cx.db.lookup_write(key).is_none(),
        Condition::IfPresent => cx.db.lookup_write(key).is_some(),
        Condition::If(comparison) => comparison.holds(old.as_ref().map(HeapString::as_slice)),
    };
    if allowed {
        store(cx, key, value, options.expiry);
    }
    if options.returns_old {
        match old {
            Some(old) => cx.reply.bulk_of(&old, 0..old.len()),
            None => cx.reply.null(),
        }
    } else if allowed {
        cx.reply.ok();
    } else {
        cx.reply.null();
    }
    Ok(())
}

fn store(cx: &mut Cx<'_>, key: Key<'_>, value: &[u8], expiry: Expiry) {
    if let Expiry::At(at) = expiry
        && cx.db.has_passed(at)
    {
        expire(cx, key);
        return;
    }
    cx.db.set_string(key, value, expiry.into());
    cx.db.changed(key, events::SET);
    if let Expiry::At(_) = expiry {
        cx.db.notify(key, events::EXPIRE);
    }
    cx.db.propagate_as(|p| match expiry {
        Expiry::At(at) => {
            p.begin(5);
            [b"SET", key.bytes, value, b"PXAT"].iter().for_each(|word| p.word(word));
            p.integer(at.0);
        }
        Expiry::Keep => p.command(&[b"SET", key.bytes, value, b"KEEPTTL"]),
        Expiry::Clear => p.command(&[b"SET", key.bytes, value]),
    });
}

fn setnx(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let is_absent = cx.db.lookup_write(key).is_none();
    if is_absent {
        cx.db.set_string(key, args[2], SetExpiry::Clear);
        cx.db.changed(key, events::SET);
    }
    cx.reply.integer(i64::from(is_absent));
    Ok(())
}

fn setex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    set_for(cx, args, 1000, "setex")
}
fn psetex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    set_for(cx, args, 1, "psetex")
}
fn set_for(cx: &mut Cx<'_>, args: Args<'_>, unit_ms: i64, name: &'static str) -> Outcome {
    let at = super::expiry::relative(args.integer(2)?, unit_ms, cx.now(), name)?;
    store(cx, args.key(1), args[3], Expiry::At(at));
    cx.reply.ok();
    Ok(())
}

fn getset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options =
        SetOptions { condition: Condition::Always, expiry: Expiry::Clear, returns_old: true };
    set_with(cx, args.key(1), args[2], options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(request: &str, expected: KeyFlags) {
        let argv: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let mut found = Vec::new();
        find_keys(&argv, &mut |index, flags| found.push((index, flags))).expect("it is valid");
        assert_eq!(found, [(1, expected.with(KeyFlags::UPDATE))]);
    }

    #[test]
    fn the_old_value_is_read_with_get() {
        check("set k v NX", KeyFlags::OW);
        check("set k get", KeyFlags::OW);
        check("set k v NX get", KeyFlags::RW.with(KeyFlags::ACCESS));
    }
}
