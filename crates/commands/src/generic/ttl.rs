//! `TTL key`, `PTTL key`, `EXPIRETIME key`, `PEXPIRETIME key`: −2 without the key, −1 without an
//! expiry.

use engine::{Arg, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Millis, Outcome};

/// `TTL`.
pub static TTL: Command = Command {
    name: "ttl",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Seconds until a key expires.",
    history: &[("2.8.0", "A key that does not exist is told as -2.")],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: ttl,
    ..Command::ROW
};

/// `PTTL`.
pub static PTTL: Command = Command {
    name: "pttl",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Generic,
    since: "2.6.0",
    complexity: "O(1)",
    summary: "Milliseconds until a key expires.",
    history: &[("2.8.0", "A key that does not exist is told as -2.")],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: pttl,
    ..Command::ROW
};

/// `EXPIRETIME`.
pub static EXPIRETIME: Command = Command {
    name: "expiretime",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Generic,
    since: "7.0.0",
    complexity: "O(1)",
    summary: "The second of Unix time at which a key expires.",
    args: &[Arg::key("key", 0)],
    run: expiretime,
    ..Command::ROW
};

/// `PEXPIRETIME`.
pub static PEXPIRETIME: Command = Command {
    name: "pexpiretime",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Generic,
    since: "7.0.0",
    complexity: "O(1)",
    summary: "The millisecond of Unix time at which a key expires.",
    args: &[Arg::key("key", 0)],
    run: pexpiretime,
    ..Command::ROW
};

/// What a command says of an expiry at this moment.
pub(crate) type Figure = fn(at: Millis, now: Millis) -> i64;

/// The time left, rounded to seconds.
pub(crate) fn seconds_left(at: Millis, now: Millis) -> i64 {
    rounded(at.left(now))
}
/// The time left.
pub(crate) fn milliseconds_left(at: Millis, now: Millis) -> i64 {
    at.left(now)
}
/// The moment, rounded to seconds since the epoch.
pub(crate) fn seconds(at: Millis, _now: Millis) -> i64 {
    rounded(at.0)
}
/// The moment, in milliseconds since the epoch.
pub(crate) fn milliseconds(at: Millis, _now: Millis) -> i64 {
    at.0
}

fn rounded(milliseconds: i64) -> i64 {
    milliseconds.saturating_add(500) / 1000
}

fn ttl(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, seconds_left)
}
fn pttl(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, milliseconds_left)
}
fn expiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, seconds)
}
fn pexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, milliseconds)
}

fn answer(cx: &mut Cx<'_>, args: Args<'_>, figure: Figure) -> Outcome {
    let number = match cx.db.lookup_no_touch(args.key(1)) {
        None => -2,
        Some(entry) => entry.expiry().map_or(-1, |at| figure(at, cx.now())),
    };
    cx.reply.integer(number);
    Ok(())
}
