//! `CF.INFO key`, `CF.DEBUG key`

use super::NOT_FOUND;
use crate::typed;
use engine::{Arg, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};
use sketches::cuckoo::Cuckoo;

/// `CF.INFO`.
pub static CF_INFO: Command = Command {
    name: "cf.info",
    arity: 2,
    summary: "Describes a cuckoo filter.",
    args: &[Arg::key("key", 0)],
    run: info,
    ..READS
};

/// `CF.DEBUG`.
pub static CF_DEBUG: Command = Command {
    name: "cf.debug",
    arity: 2,
    summary: "Describes a cuckoo filter in one line, for tests.",
    args: &[Arg::key("key", 0)],
    run: debug,
    ..READS
};

/// What the rows have in common.
const READS: Command = Command {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["cuckoo"],
    since: "1.0.0",
    ..Command::ROW
};

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filter = typed::read::<Cuckoo>(&cx.db, args.key(1))?.ok_or(NOT_FOUND)?;
    let fields = [
        ("Size", filter.reported_bytes() as u64),
        ("Number of buckets", filter.buckets()),
        ("Number of filters", filter.layers() as u64),
        ("Number of items inserted", filter.len()),
        ("Number of items deleted", filter.deleted()),
        ("Bucket size", filter.bucket_size().into()),
        ("Expansion rate", filter.expansion().into()),
        ("Max iterations", filter.max_iterations().into()),
    ];
    cx.reply.map(fields.len());
    for (title, number) in fields {
        cx.reply.simple(title);
        cx.reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    Ok(())
}

fn debug(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filter = typed::read::<Cuckoo>(&cx.db, args.key(1))?.ok_or(NOT_FOUND)?;
    cx.reply.simple(&format!(
        "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
        filter.bucket_size(),
        filter.buckets(),
        filter.len(),
        filter.deleted(),
        filter.layers(),
        filter.max_iterations(),
        filter.expansion(),
    ));
    Ok(())
}
