//! `TOPK.QUERY key item [item …]`, `TOPK.COUNT key item [item …]`, `TOPK.LIST key [WITHCOUNT]`,
//! `TOPK.INFO key`

use super::NO_KEY;
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::topk::TopK;

/// `TOPK.QUERY`.
pub static TOPK_QUERY: Command = Command {
    name: "topk.query",
    arity: -3,
    complexity: "O(n) where n is the number of items",
    effort: Effort::Words(10),
    summary: "Tells of items whether they are in the list.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String).multiple()],
    run: query,
    ..READS
};

/// `TOPK.COUNT`.
pub static TOPK_COUNT: Command = Command {
    name: "topk.count",
    arity: -3,
    complexity: "O(n) where n is the number of items",
    effort: Effort::Words(10),
    summary: "Returns the counts of items.",
    deprecated: Some(("2.4.0", "none")),
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String).multiple()],
    run: count,
    ..READS
};

/// `TOPK.LIST`.
pub static TOPK_LIST: Command = Command {
    name: "topk.list",
    arity: -2,
    complexity: "O(k*log(k)) where k is the value of top-k",
    effort: Effort::Elements(4),
    summary: "Returns the list, the most frequent item first.",
    args: &[Arg::key("key", 0), Arg::token("withcount", "WITHCOUNT").optional()],
    run: list,
    ..READS
};

/// `TOPK.INFO`.
pub static TOPK_INFO: Command = Command {
    name: "topk.info",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    summary: "Describes the sketch behind the list.",
    args: &[Arg::key("key", 0)],
    run: info,
    ..READS
};

/// What the rows have in common.
const READS: Command = Command {
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["topk"],
    since: "2.0.0",
    ..Command::ROW
};

fn query(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let topk = typed::read::<TopK>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let items = args.from(2);
    cx.reply.array(items.len());
    items.iter().for_each(|item| cx.reply.boolean(topk.contains(item)));
    Ok(())
}

fn count(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let topk = typed::read::<TopK>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let items = args.from(2);
    cx.reply.array(items.len());
    items.iter().for_each(|item| cx.reply.integer(topk.count(item).into()));
    Ok(())
}

fn list(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let counts = args.is(2, "withcount");
    match args.len() {
        2 => (),
        3 if counts => (),
        3 => return Err(Error::text("WITHCOUNT keyword expected")),
        _ => return Err(Error::Arity("topk.list".into())),
    }
    let topk = typed::read::<TopK>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let items = topk.items();
    cx.reply.array(items.len() * if counts { 2 } else { 1 });
    for (item, count) in items {
        cx.reply.bulk(item);
        if counts {
            cx.reply.integer(count.into());
        }
    }
    Ok(())
}

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let topk = typed::read::<TopK>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    cx.reply.map(4);
    for (title, number) in [("k", topk.k()), ("width", topk.width()), ("depth", topk.depth())] {
        cx.reply.simple(title);
        cx.reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    cx.reply.simple("decay");
    cx.reply.double(topk.decay());
    Ok(())
}
