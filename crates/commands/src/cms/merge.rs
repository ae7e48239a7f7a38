//! `CMS.MERGE destination numKeys source [source …] [WEIGHTS weight [weight …]]`

use super::{MERGED, NO_KEY};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::cms::{Cms, Overflow};
use structs::numbers::parse_i64;

/// `CMS.MERGE`.
pub static CMS_MERGE: Command = Command {
    name: "cms.merge",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE)),
        KeySpec::counted(2, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::Module,
    categories: &["cms"],
    since: "2.0.0",
    complexity: "O(n) where n is the number of sketches",
    effort: Effort::Elements(16),
    summary: "Puts the weighted sum of sketches into the place of one.",
    args: &[
        Arg::key("destination", 0),
        Arg::new("numKeys", ArgKind::Integer),
        Arg::key("source", 1).multiple(),
        Arg::new("weight", ArgKind::Double).after("WEIGHTS").optional().multiple(),
    ],
    run: merge,
    ..Command::ROW
};

fn merge(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let target = typed::read_for_write::<Cms>(&cx.db, key)?.ok_or(NO_KEY)?;
    let weights = parse(args)?;
    let mut sources = Vec::with_capacity(weights.len());
    for (at, weight) in weights.into_iter().enumerate() {
        let source = typed::read::<Cms>(&cx.db, args.key(3 + at))?.ok_or(NO_KEY)?;
        if (source.width(), source.depth()) != (target.width(), target.depth()) {
            return Err(Error::text("CMS: width/depth is not equal"));
        }
        sources.push((source, weight));
    }
    let merged = Cms::merge(&sources).map_err(|Overflow| Error::text("CMS: MERGE overflow"))?;
    *typed::write::<Cms>(&mut cx.db, key)?.ok_or(NO_KEY)? = merged;
    cx.db.changed(key, MERGED);
    cx.reply.ok();
    Ok(())
}

/// Returns the weights of the sources.
fn parse(args: Args<'_>) -> Result<Vec<i64>, Error> {
    let count = parse_i64(args[2]).ok_or(Error::text("CMS: invalid numkeys"))?;
    let count = usize::try_from(count).ok().filter(|&count| count > 0);
    let count = count.ok_or(Error::text("CMS: Number of keys must be positive"))?;
    let others = args.len() - 3;
    if others == count {
        return Ok(vec![1; count]);
    }
    if !args.is(3_usize.saturating_add(count), "weights") {
        return Err(Error::text("CMS: wrong number of keys"));
    }
    if others != count * 2 + 1 {
        return Err(Error::text("CMS: wrong number of keys/weights"));
    }
    let weights = args.from(4 + count).iter().map(|weight| parse_i64(weight));
    let weights = weights.collect::<Option<Vec<i64>>>();
    weights.ok_or(Error::text("CMS: invalid weight value"))
}
