//! `TOPK.ADD key item [item …]`, `TOPK.INCRBY key item increment [item increment …]`
//!
//! The reply has for each item the one that leaves the list for it. Chance is part of the value, so
//! the requests themselves go into the journal.

use super::{ADDED, NO_KEY};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::topk::{MAX_INCREMENT, TopK};
use structs::numbers::parse_i64;

/// `TOPK.ADD`.
pub static TOPK_ADD: Command = Command {
    name: "topk.add",
    arity: -3,
    summary: "Counts items once each.",
    args: &[Arg::key("key", 0), Arg::new("items", ArgKind::String).multiple()],
    run: add,
    ..WRITES
};

/// `TOPK.INCRBY`.
pub static TOPK_INCRBY: Command = Command {
    name: "topk.incrby",
    arity: -4,
    summary: "Counts items several times each.",
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "items",
            &[Arg::new("item", ArgKind::String), Arg::new("increment", ArgKind::Integer)],
        )
        .multiple(),
    ],
    run: increment,
    ..WRITES
};

/// What the rows have in common.
const WRITES: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["topk"],
    since: "2.0.0",
    complexity: "O(n * k) where n is the number of items and k is the depth",
    effort: Effort::Words(10),
    ..Command::ROW
};

/// The text is Redis's, with the white space of its source.
const BAD_INCREMENT: &str = "TopK: increment must be an integer greater or equal to 0 \
    \x20                          and smaller or equal to 100,000";

fn add(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let topk = typed::write::<TopK>(&mut cx.db, key)?.ok_or(NO_KEY)?;
    let items = args.from(2);
    cx.reply.array(items.len());
    for item in items {
        cx.reply.bulk_or_null(topk.add(item, 1).as_deref());
    }
    cx.db.changed_in(key, ADDED, items.len() as u64);
    Ok(())
}

fn increment(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity("topk.incrby".into()));
    }
    let key = args.key(1);
    let topk = typed::write::<TopK>(&mut cx.db, key)?.ok_or(NO_KEY)?;
    let pairs = args.from(2).chunks_exact(2);
    cx.reply.array(pairs.len());
    let mut changed = 0;
    for pair in pairs {
        let by = parse_i64(pair[1]).and_then(|by| u32::try_from(by).ok());
        match by.filter(|&by| by <= MAX_INCREMENT) {
            Some(by) => {
                cx.reply.bulk_or_null(topk.add(pair[0], by).as_deref());
                changed += 1;
            }
            None => cx.reply.error(BAD_INCREMENT),
        }
    }
    if changed > 0 {
        cx.db.changed_in(key, ADDED, changed);
    }
    Ok(())
}
