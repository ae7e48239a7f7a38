//! `HSET key field value [field value …]`, `HMSET`, `HSETNX key field value`

use crate::limits;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Event, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::hash::Hash;

/// `HSET`.
pub static HSET: Command = Command {
    name: "hset",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "Sets fields, and counts those that are new.",
    history: &[("4.0.0", "Takes more than one `field` and `value`.")],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "data",
            &[Arg::new("field", ArgKind::String), Arg::new("value", ArgKind::String)],
        )
        .multiple(),
    ],
    run: hset,
    ..Command::ROW
};

/// `HMSET`.
pub static HMSET: Command = Command {
    name: "hmset",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "Sets fields; HSET says more.",
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "data",
            &[Arg::new("field", ArgKind::String), Arg::new("value", ArgKind::String)],
        )
        .multiple(),
    ],
    run: hmset,
    ..Command::ROW
};

/// `HSETNX`.
pub static HSETNX: Command = Command {
    name: "hsetnx",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "Sets a field that is not there yet.",
    args: &[
        Arg::key("key", 0),
        Arg::new("field", ArgKind::String),
        Arg::new("value", ArgKind::String),
    ],
    run: hsetnx,
    ..Command::ROW
};

/// Fields were set.
pub(crate) const HSET_EVENT: Event = event(Class::HASH, "hset");

fn set_all(cx: &mut Cx<'_>, args: Args<'_>, name: &'static str) -> Result<i64, Error> {
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity(name.into()));
    }
    let key = args.key(1);
    let limits = limits::hash(&cx.engine.config);
    let horizon = cx.db.horizon().0;
    let hash = cx.db.write_or_create::<Hash>(key)?;
    if args.len() > 4 {
        hash.will_grow(args.from(2).iter().copied(), &limits);
    }
    let is_timed = hash.is_timed();
    let (mut added, mut revived) = (0, Vec::new());
    for index in (2..args.len()).step_by(2) {
        if is_timed && hash.has_expired(args[index], horizon) {
            revived.push(args[index]);
        }
        added += i64::from(hash.set(args[index], args[index + 1], &limits));
    }
    if is_timed {
        cx.db.list_fields(key);
    }
    if !revived.is_empty() {
        cx.db.fields_expired(key, &revived);
    }
    cx.db.changed_in(key, HSET_EVENT, (args.len() as u64 - 2) / 2);
    cx.db.notify_fields(key, HSET_EVENT, args.from(2).iter().step_by(2).copied());
    Ok(added + revived.len() as i64)
}

fn hset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let added = set_all(cx, args, "hset")?;
    cx.reply.integer(added);
    Ok(())
}

fn hmset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    set_all(cx, args, "hmset")?;
    cx.reply.ok();
    Ok(())
}

fn hsetnx(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let limits = limits::hash(&cx.engine.config);
    let horizon = cx.db.horizon().0;
    let hash = cx.db.write_or_create::<Hash>(key)?;
    let revives = hash.has_expired(args[2], horizon);
    let added = if revives {
        hash.set(args[2], args[3], &limits);
        cx.db.list_fields(key);
        cx.db.fields_expired(key, &[args[2]]);
        // A reader of the journal finds the field there.
        cx.db.propagate_as(|p| p.command(&[b"HSET", key.bytes, args[2], args[3]]));
        true
    } else {
        hash.set_if_absent(args[2], args[3], &limits)
    };
    if added {
        cx.db.changed(key, HSET_EVENT);
        cx.db.notify_fields(key, HSET_EVENT, [args[2]]);
    }
    cx.reply.integer(i64::from(added));
    Ok(())
}
