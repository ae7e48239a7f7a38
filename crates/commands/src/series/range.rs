//! `TS.RANGE key fromTimestamp toTimestamp [options]`, `TS.REVRANGE …`

use super::query::{self, TOO_MANY};
use super::{NO_KEY, READS, compaction, replies};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Outcome};
use series::Series;

/// `TS.RANGE`.
pub static RANGE: Command = Command {
    name: "ts.range",
    summary: "Returns the samples between two times, the first one first.",
    run: |cx, args| range(cx, args, false),
    ..READ
};

/// `TS.REVRANGE`.
pub static REVRANGE: Command = Command {
    name: "ts.revrange",
    since: "1.4.0",
    summary: "Returns the samples between two times, the last one first.",
    run: |cx, args| range(cx, args, true),
    ..READ
};

/// The arguments behind the key, which other queries have, too.
pub(super) const FROM: Arg = Arg::new("fromTimestamp", ArgKind::String);
pub(super) const TO: Arg = Arg::new("toTimestamp", ArgKind::String);
pub(super) const LATEST: Arg = Arg::token("latest", "LATEST").optional();
pub(super) const BY_TIME: Arg =
    Arg::new("ts", ArgKind::Integer).after("FILTER_BY_TS").optional().multiple();
pub(super) const BY_VALUE: Arg =
    Arg::block("fbv", &[Arg::new("min", ArgKind::Double), Arg::new("max", ArgKind::Double)])
        .after("FILTER_BY_VALUE")
        .optional();
pub(super) const COUNT: Arg = Arg::new("count", ArgKind::Integer).after("COUNT").optional();
pub(super) const AGGREGATION: Arg = Arg::block(
    "aggregation",
    &[
        Arg::new("align", ArgKind::String).after("ALIGN").optional(),
        Arg::new("aggregators", ArgKind::String).after("AGGREGATION"),
        Arg::new("bucketDuration", ArgKind::Integer),
        Arg::new("bt", ArgKind::String).after("BUCKETTIMESTAMP").optional(),
        Arg::token("empty", "EMPTY").optional(),
    ],
)
.optional();

const READ: Command = Command {
    arity: -4,
    complexity: "O(n/m+k) where n = Number of data points, m = Chunk size (data points per chunk), \
                 k = Number of data points that are in the requested range",
    effort: Effort::Part(1, effort),
    args: &[Arg::key("key", 0), FROM, TO, LATEST, BY_TIME, BY_VALUE, COUNT, AGGREGATION],
    ..READS
};

/// Samples that are read in the time of one step of other commands.
const SAMPLES_PER_STEP: usize = 4;

/// Estimates how much there is to read: the samples of the chunks of the time.
fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    let Ok(Some(series)) = typed::read_for_write::<Series>(db, args.key(1)) else { return 0 };
    let Ok(options) = query::parse(args, 2, false, 1) else { return 0 };
    let (from, to) = (options.query.from, options.query.to);
    let touched = series.chunks().filter(|it| it.last >= from && it.first <= to);
    touched.map(|chunk| chunk.samples).sum::<usize>() / SAMPLES_PER_STEP
}

fn range(cx: &mut Cx<'_>, args: Args<'_>, is_reverse: bool) -> Outcome {
    let options = query::parse(args, 2, is_reverse, 1)?;
    if options.filters.is_some() || options.grouping.is_some() || options.excludes_empty {
        return Err(Error::Syntax);
    }
    let series = typed::read::<Series>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let latest = match options.latest {
        true => compaction::latest(cx, args[1], series.source())?,
        false => None,
    };
    let rows = options.query.run(series, latest).map_err(|_| TOO_MANY)?;
    replies::rows(&mut cx.reply, &rows);
    Ok(())
}
