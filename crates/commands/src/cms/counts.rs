//! `CMS.INCRBY key item increment [item increment …]`, `CMS.QUERY key item [item …]`, `CMS.INFO
//! key`

use super::{COUNTED, NO_KEY};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::cms::{Cms, Overflow};
use structs::numbers::parse_i64;

/// `CMS.INCRBY`.
pub static CMS_INCRBY: Command = Command {
    name: "cms.incrby",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["cms"],
    since: "2.0.0",
    complexity: "O(n) where n is the number of items",
    effort: Effort::Words(3),
    summary: "Adds to the counts of items.",
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "items",
            &[Arg::new("item", ArgKind::String), Arg::new("increment", ArgKind::Integer)],
        )
        .multiple(),
    ],
    run: increment,
    ..Command::ROW
};

/// `CMS.QUERY`.
pub static CMS_QUERY: Command = Command {
    name: "cms.query",
    arity: -3,
    complexity: "O(n) where n is the number of items",
    effort: Effort::Words(3),
    summary: "Returns the counts of items.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String).multiple()],
    run: query,
    ..READS
};

/// `CMS.INFO`.
pub static CMS_INFO: Command = Command {
    name: "cms.info",
    arity: 2,
    summary: "Describes a count-min sketch.",
    args: &[Arg::key("key", 0)],
    run: info,
    ..READS
};

/// What the rows have in common.
const READS: Command = Command {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["cms"],
    since: "2.0.0",
    ..Command::ROW
};

fn increment(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity("cms.incrby".into()));
    }
    let key = args.key(1);
    typed::read_for_write::<Cms>(&cx.db, key)?.ok_or(NO_KEY)?;
    let pairs = args.from(2).chunks_exact(2);
    let counts = pairs.map(|pair| {
        let by = parse_i64(pair[1]).ok_or(Error::text("CMS: Cannot parse number"))?;
        let by = u64::try_from(by).map_err(|_| Error::text("CMS: Number cannot be negative"))?;
        Ok((pair[0], by))
    });
    let counts = counts.collect::<Result<Vec<(&[u8], u64)>, Error>>()?;
    let sketch = typed::write::<Cms>(&mut cx.db, key)?.ok_or(NO_KEY)?;
    cx.reply.array(counts.len());
    let mut changed = 0;
    for (item, by) in counts {
        match sketch.increment(item, by) {
            Ok(count) => {
                changed += u64::from(by > 0);
                cx.reply.integer(count.into());
            }
            Err(Overflow) => cx.reply.error("CMS: INCRBY overflow"),
        }
    }
    if changed > 0 {
        cx.db.changed_in(key, COUNTED, changed);
    }
    Ok(())
}

fn query(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let sketch = typed::read::<Cms>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let items = args.from(2);
    cx.reply.array(items.len());
    sketch.query_all(items, |count| cx.reply.integer(count.into()));
    Ok(())
}

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let sketch = typed::read::<Cms>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let (width, depth) = (number(sketch.width()), number(sketch.depth()));
    cx.reply.map(3);
    for (title, number) in [("width", width), ("depth", depth), ("count", sketch.sum())] {
        cx.reply.simple(title);
        cx.reply.integer(number);
    }
    Ok(())
}
