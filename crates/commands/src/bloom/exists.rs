//! `BF.EXISTS key item`, `BF.MEXISTS key item [item …]`

use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use sketches::bloom::Bloom;

/// `BF.EXISTS`.
pub static BF_EXISTS: Command = Command {
    name: "bf.exists",
    arity: 3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["bloom"],
    since: "1.0.0",
    complexity: "O(k), where k is the number of hash functions used by the last sub-filter",
    summary: "Tells whether an item may have been added to a Bloom filter.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String)],
    run: exists,
    ..Command::ROW
};

/// `BF.MEXISTS`.
pub static BF_MEXISTS: Command = Command {
    name: "bf.mexists",
    arity: -3,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["bloom"],
    since: "1.0.0",
    complexity: "O(k * n), where k is the number of hash functions and n is the number of items",
    effort: Effort::Words(3),
    summary: "Tells of items whether they may have been added to a Bloom filter.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String).multiple()],
    run: mexists,
    ..Command::ROW
};

fn exists(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let bloom = typed::read::<Bloom>(&cx.db, args.key(1))?;
    cx.reply.boolean(bloom.is_some_and(|bloom| bloom.contains(args[2])));
    Ok(())
}

fn mexists(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let items = args.from(2);
    let bloom = typed::read::<Bloom>(&cx.db, args.key(1))?;
    cx.reply.array(items.len());
    match bloom {
        Some(bloom) => bloom.contains_all(items, |found| cx.reply.boolean(found)),
        None => items.iter().for_each(|_| cx.reply.boolean(false)),
    }
    Ok(())
}
