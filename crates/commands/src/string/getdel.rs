//! `GETDEL key`, `GETEX key [EX|PX|EXAT|PXAT time|PERSIST]`

use super::expiry::{EXPIRE_OR_PERSIST, Expiry, ExpiryOptions};
use engine::{Arg, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome, events};
use keyspace::StringRef;

/// `GETDEL`.
pub static GETDEL: Command = Command {
    name: "getdel",
    arity: 2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::String,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Takes a string away and answers with its value.",
    args: &[Arg::key("key", 0)],
    run: getdel,
    ..Command::ROW
};

/// `GETEX`.
pub static GETEX: Command = Command {
    name: "getex",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))
        .note("RW and UPDATE because it changes the TTL")],
    group: Group::String,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "The value of a string, whose expiry it can change.",
    args: &[Arg::key("key", 0), EXPIRE_OR_PERSIST],
    run: getex,
    ..Command::ROW
};

fn getdel(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let Some(old) = cx.db.string(key)?.map(StringRef::to_heap_string) else {
        cx.reply.null();
        return Ok(());
    };
    cx.db.delete(key);
    cx.db.propagate_as(|p| p.command(&[b"DEL", key.bytes]));
    cx.reply.bulk_of(&old, 0..old.len());
    Ok(())
}

/// What to do with the expiry; `None` leaves it.
fn parse(cx: &Cx<'_>, args: Args<'_>) -> Result<Option<Expiry>, Error> {
    let mut options = ExpiryOptions::default();
    let mut at = 2;
    while at < args.len() {
        at += options.take(args, at, "persist").ok_or(Error::Syntax)?;
    }
    options.resolve(args, cx.now(), "getex", Expiry::Clear)
}

fn getex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let wanted = parse(cx, args)?;
    let Some(value) = cx.db.string(key)?.map(StringRef::to_heap_string) else {
        cx.reply.null();
        return Ok(());
    };
    match wanted {
        Some(Expiry::At(at)) if cx.db.has_passed(at) => {
            super::expiry::expire(cx, key);
        }
        Some(Expiry::At(at)) => {
            cx.db.set_expiry(key, Some(at));
            cx.db.changed(key, events::EXPIRE);
            cx.db.propagate_as(|p| {
                p.begin(3);
                p.word(b"PEXPIREAT");
                p.word(key.bytes);
                p.integer(at.0);
            });
        }
        Some(Expiry::Clear) if cx.db.expiry(key).is_some() => {
            cx.db.set_expiry(key, None);
            cx.db.changed(key, events::PERSIST);
            cx.db.propagate_as(|p| p.command(&[b"PERSIST", key.bytes]));
        }
        _ => {}
    }
    cx.reply.bulk_of(&value, 0..value.len());
    Ok(())
}
