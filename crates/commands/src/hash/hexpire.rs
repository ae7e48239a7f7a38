//! `HEXPIRE key seconds [NX|XX|GT|LT] FIELDS numfields field [field …]`, `HPEXPIRE`, `HEXPIREAT`,
//! `HPEXPIREAT`
//!
//! For each field: 1 the expiry was set, 0 a condition forbade it, 2 it has passed and the field is
//! gone, -2 there is no such field.

use super::fields::{FIELDS, counted, find_fields, report_expiries, report_passed};
use crate::generic::expire::{Conditions, parse_conditions};
use crate::string::expiry::from_now_on;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Millis, Outcome,
};
use structs::hash::Hash;

const CONDITION: Arg = Arg::one_of(
    "condition",
    &[
        Arg::token("nx", "NX"),
        Arg::token("xx", "XX"),
        Arg::token("gt", "GT"),
        Arg::token("lt", "LT"),
    ],
)
.optional();

/// What the four rows have in common.
const EXPIRE: Command = Command {
    arity: -6,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Hash,
    since: "9.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    ..Command::ROW
};

/// `HEXPIRE`.
pub static HEXPIRE: Command = Command {
    name: "hexpire",
    summary: "Lets fields end in so many seconds.",
    args: &[
        Arg::key("key", 0),
        Arg::new("seconds", ArgKind::Integer),
        CONDITION,
        Arg::block(
            "fields",
            &[
                Arg::new("numfields", ArgKind::Integer),
                Arg::new("field", ArgKind::String).multiple(),
            ],
        )
        .after("FIELDS"),
    ],
    run: hexpire,
    ..EXPIRE
};

/// `HPEXPIRE`.
pub static HPEXPIRE: Command = Command {
    name: "hpexpire",
    summary: "Lets fields end in so many milliseconds.",
    args: &[
        Arg::key("key", 0),
        Arg::new("milliseconds", ArgKind::Integer),
        CONDITION.since("9.0.0"),
        FIELDS,
    ],
    run: hpexpire,
    ..EXPIRE
};

/// `HEXPIREAT`.
pub static HEXPIREAT: Command = Command {
    name: "hexpireat",
    summary: "Lets fields end at a second of Unix time.",
    args: &[
        Arg::key("key", 0),
        Arg::new("unix-time-seconds", ArgKind::Integer),
        CONDITION.since("9.0.0"),
        FIELDS,
    ],
    run: hexpireat,
    ..EXPIRE
};

/// `HPEXPIREAT`.
pub static HPEXPIREAT: Command = Command {
    name: "hpexpireat",
    summary: "Lets fields end at a millisecond of Unix time.",
    args: &[
        Arg::key("key", 0),
        Arg::new("unix-time-milliseconds", ArgKind::Integer),
        CONDITION.since("9.0.0"),
        FIELDS,
    ],
    run: hpexpireat,
    ..EXPIRE
};

fn hexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let now = cx.now();
    expire(cx, args, 1000, now)
}
fn hpexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let now = cx.now();
    expire(cx, args, 1, now)
}
fn hexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    expire(cx, args, 1000, Millis(0))
}
fn hpexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    expire(cx, args, 1, Millis(0))
}

/// `base` is what the time counts from.
fn expire(cx: &mut Cx<'_>, args: Args<'_>, unit_ms: i64, base: Millis) -> Outcome {
    let (conditions, fields) = match find_fields(args, 3) {
        Some(at) => (parse_conditions(args, at)?, counted(args, at + 1, 1)?),
        None => (Conditions::default(), counted(args, args.len(), 1)?),
    };
    let at = from_now_on(args.integer(2)?, unit_ms, base, cx.resolved.command.name)?;
    let key = args.key(1);
    let (horizon, has_passed) = (cx.db.horizon().0, cx.db.has_passed(at));
    let Cx { db, reply, .. } = cx;
    let mut hash = db.write::<Hash>(key)?;
    let mut changed: Vec<&[u8]> = Vec::new();
    reply.array(fields.len());
    for &field in fields {
        let found = hash.as_deref_mut().map(|hash| (hash.live(horizon).expiry(field), hash));
        let Some((Some(present), hash)) = found else {
            reply.integer(-2);
            continue;
        };
        if !conditions.allow(present.map(Millis), at) {
            reply.integer(0);
            continue;
        }
        changed.push(field);
        if has_passed {
            hash.remove(field);
        } else {
            hash.set_expiry(field, Some(at.0));
        }
        reply.integer(if has_passed { 2 } else { 1 });
    }
    if changed.is_empty() {
        return Ok(());
    }
    if has_passed {
        report_passed(cx, key, &changed);
    } else {
        report_expiries(cx, key, &changed, Some(at));
    }
    Ok(())
}
