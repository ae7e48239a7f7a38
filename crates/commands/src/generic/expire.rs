//! `EXPIRE key seconds [NX|XX|GT|LT]`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`
//!
//! A time that has passed deletes the key at once, with the event of an expiry.

use crate::string::expiry;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Key, KeyFlags, KeySpec, Millis, Outcome,
    events,
};

/// `EXPIRE`.
pub static EXPIRE: Command = Command {
    name: "expire",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Lets a key end in so many seconds.",
    history: &[("7.0.0", "Takes `NX`, `XX`, `GT` and `LT`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("seconds", ArgKind::Integer),
        Arg::one_of(
            "condition",
            &[
                Arg::token("nx", "NX"),
                Arg::token("xx", "XX"),
                Arg::token("gt", "GT"),
                Arg::token("lt", "LT"),
            ],
        )
        .optional()
        .since("7.0.0"),
    ],
    run: expire,
    ..Command::ROW
};

/// `PEXPIRE`.
pub static PEXPIRE: Command = Command {
    name: "pexpire",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Generic,
    since: "2.6.0",
    complexity: "O(1)",
    summary: "Lets a key end in so many milliseconds.",
    history: &[("7.0.0", "Takes `NX`, `XX`, `GT` and `LT`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("milliseconds", ArgKind::Integer),
        Arg::one_of(
            "condition",
            &[
                Arg::token("nx", "NX"),
                Arg::token("xx", "XX"),
                Arg::token("gt", "GT"),
                Arg::token("lt", "LT"),
            ],
        )
        .optional()
        .since("7.0.0"),
    ],
    run: pexpire,
    ..Command::ROW
};

/// `EXPIREAT`.
pub static EXPIREAT: Command = Command {
    name: "expireat",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Generic,
    since: "1.2.0",
    complexity: "O(1)",
    summary: "Lets a key end at a second of Unix time.",
    history: &[("7.0.0", "Takes `NX`, `XX`, `GT` and `LT`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("unix-time-seconds", ArgKind::UnixTime),
        Arg::one_of(
            "condition",
            &[
                Arg::token("nx", "NX"),
                Arg::token("xx", "XX"),
                Arg::token("gt", "GT"),
                Arg::token("lt", "LT"),
            ],
        )
        .optional()
        .since("7.0.0"),
    ],
    run: expireat,
    ..Command::ROW
};

/// `PEXPIREAT`.
pub static PEXPIREAT: Command = Command {
    name: "pexpireat",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Generic,
    since: "2.6.0",
    complexity: "O(1)",
    summary: "Lets a key end at a millisecond of Unix time.",
    history: &[("7.0.0", "Takes `NX`, `XX`, `GT` and `LT`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("unix-time-milliseconds", ArgKind::UnixTime),
        Arg::one_of(
            "condition",
            &[
                Arg::token("nx", "NX"),
                Arg::token("xx", "XX"),
                Arg::token("gt", "GT"),
                Arg::token("lt", "LT"),
            ],
        )
        .optional()
        .since("7.0.0"),
    ],
    run: pexpireat,
    ..Command::ROW
};

/// Which expiries may be replaced.
#[derive(Default)]
pub(crate) struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

/// Reads the conditions that the words from the third on are.
pub(crate) fn parse_conditions(args: Args<'_>, end: usize) -> Result<Conditions, Error> {
    let mut conditions = Conditions::default();
    for index in 3..end {
        if args.is(index, "nx") {
            conditions.nx = true;
        } else if args.is(index, "xx") {
            conditions.xx = true;
        } else if args.is(index, "gt") {
            conditions.gt = true;
        } else if args.is(index, "lt") {
            conditions.lt = true;
        } else {
            let mut text = b"ERR Unsupported option ".to_vec();
            text.extend_from_slice(args[index]);
            return Err(Error::Bytes(text));
        }
    }
    if conditions.nx && (conditions.xx || conditions.gt || conditions.lt) {
        return Err(Error::text(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if conditions.gt && conditions.lt {
        return Err(Error::text("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(conditions)
}

impl Conditions {
    /// No expiry counts as one infinitely far away.
    pub(crate) fn allow(&self, present: Option<Millis>, wanted: Millis) -> bool {
        !(self.nx && present.is_some()
            || self.xx && present.is_none()
            || self.gt && present.is_none_or(|present| wanted <= present)
            || self.lt && present.is_some_and(|present| wanted >= present))
    }
}

fn expire(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    set_expiry(cx, args, 1000, true)
}
fn pexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    set_expiry(cx, args, 1, true)
}
fn expireat(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    set_expiry(cx, args, 1000, false)
}
fn pexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    set_expiry(cx, args, 1, false)
}

fn set_expiry(cx: &mut Cx<'_>, args: Args<'_>, unit_ms: i64, is_relative: bool) -> Outcome {
    let conditions = parse_conditions(args, args.len())?;
    let number = args.integer(2)?;
    let invalid = Error::InvalidExpire(cx.resolved.command.name);
    let base = if is_relative { cx.now().0 } else { 0 };
    let at = number.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base)).ok_or(invalid)?;
    let key = args.key(1);
    let Some(entry) = cx.db.lookup_write(key) else {
        cx.reply.integer(0);
        return Ok(());
    };
    let at = Millis(at);
    if !conditions.allow(entry.expiry(), at) {
        cx.reply.integer(0);
        return Ok(());
    }
    if cx.db.has_passed(at) {
        expiry::expire(cx, key);
    } else {
        cx.db.set_expiry(key, Some(at));
        cx.db.changed(key, events::EXPIRE);
        propagate(cx, key, at);
    }
    cx.reply.integer(1);
    Ok(())
}

fn propagate(cx: &mut Cx<'_>, key: Key<'_>, at: Millis) {
    cx.db.propagate_as(|p| {
        p.begin(3);
        p.word(b"PEXPIREAT");
        p.word(key.bytes);
        p.integer(at.0);
    });
}
