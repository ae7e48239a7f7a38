//! `HGETEX key [EX s|PX ms|EXAT s|PXAT ms|PERSIST] FIELDS numfields field [field …]`
//!
//! The values, and another expiry for those fields that are there. One that has passed removes
//! them.

use super::fields::{FIELDS, WRONG_COUNT, counted, find_fields, report_expiries, report_passed};
use crate::list::write;
use crate::string::expiry::{EXPIRE_OR_PERSIST, Expiry, ExpiryOptions};
use engine::{
    Arg, Args, Command, Cx, Effort, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome,
};
use structs::hash::Hash;

/// `HGETEX`.
pub static HGETEX: Command = Command {
    name: "hgetex",
    arity: -5,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::Hash,
    since: "9.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "The values of fields, whose expiry it can change.",
    args: &[Arg::key("key", 0), EXPIRE_OR_PERSIST, FIELDS],
    run: hgetex,
    ..Command::ROW
};

fn hgetex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let end = find_fields(args, 2).ok_or(WRONG_COUNT)?;
    let (mut options, mut at) = (ExpiryOptions::default(), 2);
    while at < end {
        at += options.take(args, at, "persist").ok_or(Error::Syntax)?;
    }
    // `FIELDS` is no time.
    if at > end {
        return Err(Error::Syntax);
    }
    let fields = counted(args, end + 1, 1)?;
    let (key, horizon) = (args.key(1), cx.db.horizon().0);
    // The type is looked at before the number.
    cx.db.object_for_write::<Hash>(key)?;
    let expiry = options.resolve_for_fields(args, cx.now(), "hgetex", Expiry::Clear)?;
    cx.db.read::<Hash>(key)?;
    let Some(expiry) = expiry else { return read(cx, key, fields) };
    let passes = matches!(expiry, Expiry::At(at) if cx.db.has_passed(at));
    let Cx { db, reply, .. } = cx;
    let mut hash = db.write::<Hash>(key)?;
    let mut changed: Vec<&[u8]> = Vec::new();
    reply.array(fields.len());
    for &field in fields {
        let Some(hash) = hash.as_deref_mut() else {
            reply.null();
            continue;
        };
        let live = hash.live(horizon);
        let Some(value) = live.get(field) else {
            reply.null();
            continue;
        };
        write(reply, value);
        let is_changed = match expiry {
            Expiry::At(_) if passes => hash.remove(field),
            Expiry::At(at) => hash.set_expiry(field, Some(at.0)),
            _ => live.expiry(field).flatten().is_some() && hash.set_expiry(field, None),
        };
        if is_changed {
            changed.push(field);
        }
    }
    match expiry {
        _ if changed.is_empty() => {}
        _ if passes => report_passed(cx, key, &changed),
        Expiry::At(at) => report_expiries(cx, key, &changed, Some(at)),
        _ => report_expiries(cx, key, &changed, None),
    }
    Ok(())
}

fn read(cx: &mut Cx<'_>, key: Key<'_>, fields: &[&[u8]]) -> Outcome {
    let horizon = cx.db.horizon().0;
    let Cx { db, reply, .. } = cx;
    let live = db.object_for_write::<Hash>(key)?.map(|hash| hash.live(horizon));
    reply.array(fields.len());
    for field in fields {
        match live.and_then(|live| live.get(field)) {
            None => reply.null(),
            Some(value) => write(reply, value),
        }
    }
    Ok(())
}
