//! `VCARD key`, `VDIM key`, `VEMB key element [RAW]`, `VINFO key`, `VLINKS key element
//! [WITHSCORES]`

use super::READS;
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Outcome};
use vectors::{Quant, VectorSet};

/// `VCARD`.
pub static VCARD: Command = Command {
    name: "vcard",
    arity: 2,
    summary: "Returns the number of elements of a vector set.",
    args: &[Arg::key("key", 0)],
    run: card,
    ..READS
};

/// `VDIM`.
pub static VDIM: Command = Command {
    name: "vdim",
    arity: 2,
    summary: "Returns the dimensions of the vectors of a vector set.",
    args: &[Arg::key("key", 0)],
    run: dim,
    ..READS
};

/// `VEMB`.
pub static VEMB: Command = Command {
    name: "vemb",
    arity: -3,
    complexity: "O(D), where D is the number of dimensions",
    summary: "Returns the vector of an element.",
    args: &[
        Arg::key("key", 0),
        Arg::new("element", ArgKind::String),
        Arg::token("raw", "RAW").optional(),
    ],
    run: embedding,
    ..READS
};

/// `VINFO`.
pub static VINFO: Command = Command {
    name: "vinfo",
    arity: 2,
    summary: "Describes a vector set.",
    args: &[Arg::key("key", 0)],
    run: info,
    ..READS
};

/// `VLINKS`.
pub static VLINKS: Command = Command {
    name: "vlinks",
    arity: -3,
    summary: "Returns the neighbours of an element, level by level.",
    args: &[
        Arg::key("key", 0),
        Arg::new("element", ArgKind::String),
        Arg::token("withscores", "WITHSCORES").optional(),
    ],
    run: links,
    ..READS
};

fn card(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let set = typed::read::<VectorSet>(&cx.db, args.key(1))?;
    cx.reply.integer(set.map_or(0, VectorSet::len) as i64);
    Ok(())
}

fn dim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let set = typed::read::<VectorSet>(&cx.db, args.key(1))?;
    let set = set.ok_or(Error::text("ERR key does not exist"))?;
    cx.reply.integer(set.dim() as i64);
    Ok(())
}

fn embedding(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_raw = args.is(3, "raw");
    if args.len() > 4 || (args.len() == 4 && !is_raw) {
        return Err(Error::text("ERR invalid option"));
    }
    let set = typed::read::<VectorSet>(&cx.db, args.key(1))?;
    let Some((set, (vector, norm))) = set.and_then(|set| Some((set, set.vector(args[2])?))) else {
        cx.reply.null();
        return Ok(());
    };
    if is_raw {
        cx.reply.array(3 + usize::from(vector.largest().is_some()));
        cx.reply.simple(set.quant().name());
        cx.reply.bulk(&vector.bytes());
        cx.reply.double(norm.into());
        if let Some(largest) = vector.largest() {
            cx.reply.double(largest.into());
        }
        return Ok(());
    }
    // The signs have lost the length.
    let factor = if set.quant() == Quant::Bin { 1.0 } else { norm };
    let numbers = vector.numbers(set.dim());
    cx.reply.array(numbers.len());
    numbers.into_iter().for_each(|number| cx.reply.double((number * factor).into()));
    Ok(())
}

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Some(set) = typed::read::<VectorSet>(&cx.db, args.key(1))? else {
        cx.reply.null_array();
        return Ok(());
    };
    let fields = [
        ("hnsw-m", set.links() as u64),
        ("vector-dim", set.dim() as u64),
        ("projection-input-dim", set.input_dim().unwrap_or(0) as u64),
        ("size", set.len() as u64),
        ("max-level", set.max_level() as u64),
        ("attributes-count", set.with_attributes() as u64),
        ("vset-uid", set.uid()),
        ("hnsw-max-node-uid", set.added()),
    ];
    cx.reply.map(1 + fields.len());
    cx.reply.simple("quant-type");
    cx.reply.simple(set.quant().name());
    for (title, number) in fields {
        cx.reply.simple(title);
        cx.reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    Ok(())
}

fn links(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let with_scores = args.is(3, "withscores");
    if args.len() > 4 || (args.len() == 4 && !with_scores) {
        return Err(Error::Arity("vlinks".into()));
    }
    let set = typed::read::<VectorSet>(&cx.db, args.key(1))?;
    let Some(levels) = set.and_then(|set| set.neighbours(args[2])) else {
        cx.reply.null();
        return Ok(());
    };
    cx.reply.array(levels.len());
    for level in levels {
        if with_scores {
            cx.reply.map(level.len())
        } else {
            cx.reply.array(level.len())
        }
        for found in level {
            cx.reply.bulk(found.name);
            if with_scores {
                cx.reply.double(found.score);
            }
        }
    }
    Ok(())
}
