//! `TTL key`, `PTTL key`, `EXPIRETIME key`, `PEXPIRETIME key`: −2 without the key, −1 without an expiry.

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
    summary: "Returns the expiration time in seconds of a key.",
    history: &[("2.8.0", "Added the -2 reply.")],
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
    summary: "Returns the expiration time in milliseconds of a key.",
    history: &[("2.8.0", "Added the -2 reply.")],
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
    summary: "Returns the expiration time of a key as a Unix timestamp.",
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
    summary: "Returns the expiration time of a key as a Unix milliseconds timestamp.",
    args: &[Arg::key("key", 0)],
    run: pexpiretime,
    ..Command::ROW
};

fn ttl(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, |at, now| at.left(now).saturating_add(500) / 1000)
}
fn pttl(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, Millis::left)
}
fn expiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, |at, _| at.0.saturating_add(500) / 1000)
}
fn pexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, |at, _| at.0)
}

fn answer(cx: &mut Cx<'_>, args: Args<'_>, figure: fn(Millis, Millis) -> i64) -> Outcome {
    let number = match cx.db.look(args.key(1)) {
        None => -2,
        Some(entry) => entry.expiry().map_or(-1, |at| figure(at, cx.now())),
    };
    cx.reply.integer(number);
    Ok(())
}
