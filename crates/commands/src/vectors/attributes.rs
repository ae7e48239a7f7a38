//! `VGETATTR key element`, `VSETATTR key element attributes`

use super::{ATTRIBUTES_SET, READS};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, KeyFlags, KeySpec, Outcome};
use vectors::VectorSet;

/// `VGETATTR`.
pub static VGETATTR: Command = Command {
    name: "vgetattr",
    arity: 3,
    summary: "Returns the attributes of an element.",
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String)],
    run: get,
    ..READS
};

/// `VSETATTR`.
pub static VSETATTR: Command = Command {
    name: "vsetattr",
    arity: 4,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    summary: "Sets the attributes of an element, or removes them by an empty string.",
    args: &[
        Arg::key("key", 0),
        Arg::new("element", ArgKind::String),
        Arg::new("attributes", ArgKind::String),
    ],
    run: set,
    ..READS
};

fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let set = typed::read::<VectorSet>(&cx.db, args.key(1))?;
    cx.reply.bulk_or_null(set.and_then(|set| set.attributes(args[2])));
    Ok(())
}

fn set(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let set = typed::read_for_write::<VectorSet>(&cx.db, key)?;
    let is_there = set.is_some_and(|set| set.contains(args[2]));
    if is_there {
        let set = typed::write::<VectorSet>(&mut cx.db, key)?.ok_or(Error::NoSuchKey)?;
        set.set_attributes(args[2], args[3]);
        cx.db.changed(key, ATTRIBUTES_SET);
    }
    cx.reply.boolean(is_there);
    Ok(())
}
