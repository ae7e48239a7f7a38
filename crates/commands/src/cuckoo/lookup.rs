//! `CF.EXISTS key item`, `CF.MEXISTS key item [item …]`, `CF.COUNT key item`

use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use sketches::cuckoo::Cuckoo;

/// `CF.EXISTS`.
pub static CF_EXISTS: Command = Command {
    name: "cf.exists",
    arity: 3,
    summary: "Tells whether an item may be in a cuckoo filter.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String)],
    run: exists,
    ..READS
};

/// `CF.MEXISTS`.
pub static CF_MEXISTS: Command = Command {
    name: "cf.mexists",
    arity: -3,
    complexity: "O(k * n), where k is the number of sub-filters and n is the number of items",
    effort: Effort::Words(3),
    summary: "Tells of items whether they may be in a cuckoo filter.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String).multiple()],
    run: mexists,
    ..READS
};

/// `CF.COUNT`.
pub static CF_COUNT: Command = Command {
    name: "cf.count",
    arity: 3,
    summary: "Returns how often an item may be in a cuckoo filter.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String)],
    run: count,
    ..READS
};

/// What the rows have in common.
const READS: Command = Command {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["cuckoo"],
    since: "1.0.0",
    complexity: "O(k), where k is the number of sub-filters",
    ..Command::ROW
};

fn exists(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filter = typed::read::<Cuckoo>(&cx.db, args.key(1))?;
    cx.reply.boolean(filter.is_some_and(|filter| filter.contains(args[2])));
    Ok(())
}

fn mexists(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let items = args.from(2);
    let filter = typed::read::<Cuckoo>(&cx.db, args.key(1))?;
    cx.reply.array(items.len());
    match filter {
        Some(filter) => filter.contains_all(items, |found| cx.reply.boolean(found)),
        None => items.iter().for_each(|_| cx.reply.boolean(false)),
    }
    Ok(())
}

fn count(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filter = typed::read::<Cuckoo>(&cx.db, args.key(1))?;
    let count = filter.map_or(0, |filter| filter.count(args[2]));
    cx.reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}
