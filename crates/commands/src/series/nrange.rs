//! `TS.NRANGE numkeys key [key …] fromTimestamp toTimestamp [options]`, `TS.NREVRANGE …`

use super::query::{self, TOO_MANY};
use super::range::{AGGREGATION, BY_TIME, BY_VALUE, COUNT, FROM, LATEST, TO};
use super::{NO_KEY, READS, compaction, replies, whole};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Error, KeyFlags, KeySpec, Outcome};
use series::Series;
use series::range::{Rows, join};

/// `TS.NRANGE`.
pub static NRANGE: Command = Command {
    name: "ts.nrange",
    summary: "Returns the samples of several time series side by side, the first one first.",
    run: |cx, args| nrange(cx, args, false),
    ..READ
};

/// `TS.NREVRANGE`.
pub static NREVRANGE: Command = Command {
    name: "ts.nrevrange",
    summary: "Returns the samples of several time series side by side, the last one first.",
    run: |cx, args| nrange(cx, args, true),
    ..READ
};

const READ: Command = Command {
    arity: -5,
    keys: &[KeySpec::counted(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    since: "8.10.0",
    complexity: "O(numkeys*(n/m+k)) where n = Number of samples, m = Chunk size (samples per \
                 chunk), k = Number of samples that are in the requested range",
    effort: Effort::Elements(1),
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).multiple(),
        FROM,
        TO,
        LATEST,
        BY_TIME,
        BY_VALUE,
        COUNT,
        AGGREGATION,
    ],
    ..READS
};

fn nrange(cx: &mut Cx<'_>, args: Args<'_>, is_reverse: bool) -> Outcome {
    let keys = whole(args[1]).and_then(|keys| usize::try_from(keys).ok());
    let keys = keys
        .filter(|&keys| keys > 0 && keys <= args.len() - 2)
        .ok_or(Error::text("ERR TSDB: numkeys must be a positive number of keys"))?;
    let mut options = query::parse(args, 2 + keys, is_reverse, keys)?;
    if options.filters.is_some() || options.grouping.is_some() || options.excludes_empty {
        return Err(Error::Syntax);
    }
    let count = options.query.count.take();
    let mut parts: Vec<Rows> = Vec::with_capacity(keys);
    for at in 0..keys {
        let series = typed::read::<Series>(&cx.db, args.key(2 + at))?.ok_or(NO_KEY)?;
        if let (Some(aggregation), Some(of_key)) =
            (&mut options.query.aggregation, options.of_keys.get(at))
        {
            aggregation.aggregators.clone_from(of_key);
        }
        let latest = match options.latest {
            true => compaction::latest(cx, args[2 + at], series.source())?,
            false => None,
        };
        parts.push(options.query.run(series, latest).map_err(|_| TOO_MANY)?);
    }
    let mut joined = join(&parts, is_reverse);
    joined.truncate(count.unwrap_or(usize::MAX));
    cx.reply.array(joined.len());
    for (time, values) in joined.iter() {
        cx.reply.array(2);
        cx.reply.integer(time.cast_signed());
        cx.reply.array(values.len());
        values.iter().for_each(|&value| replies::number(&mut cx.reply, value));
    }
    Ok(())
}
