//! `TS.MRANGE fromTimestamp toTimestamp [options] FILTER filter … [GROUPBY label REDUCE reducer]`,
//! `TS.MREVRANGE …`

use super::grouping::{begin, begin_series, parse, reply_groups};
use super::query::{QueryOptions, TOO_MANY};
use super::range::{AGGREGATION, BY_TIME, BY_VALUE, COUNT, FROM, LATEST, TO};
use super::search::Found;
use super::{FINDS, JOINED, compaction, gather, replies, search};
use engine::routing::{About, Merge, Routing};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Key, Outcome};
use rdb::module::Module;
use resp::Reply;
use series::Series;
use series::range::Rows;

/// `TS.MRANGE`.
pub static MRANGE: Command = Command {
    name: "ts.mrange",
    summary: "Returns the samples of the time series whose labels pass filters.",
    run: |cx, args| mrange(cx, args, false),
    ..READ
};

/// `TS.MREVRANGE`.
pub static MREVRANGE: Command = Command {
    name: "ts.mrevrange",
    since: "1.4.0",
    summary: "Returns the samples of time series whose labels pass filters, the last first.",
    run: |cx, args| mrange(cx, args, true),
    ..READ
};

const READ: Command = Command {
    arity: -4,
    tips: JOINED,
    routing: Routing::all(Merge::Gather(&gather::GROUPS), About::AllKeys),
    complexity: "O(n/m+k) where n = Number of data points, m = Chunk size (data points per chunk), \
                 k = Number of data points that are in the requested ranges",
    args: &[
        FROM,
        TO,
        LATEST,
        BY_TIME,
        BY_VALUE,
        Arg::one_of(
            "labels",
            &[
                Arg::token("withlabels", "WITHLABELS"),
                Arg::new("label", ArgKind::String).after("SELECTED_LABELS").multiple(),
            ],
        )
        .optional(),
        COUNT,
        AGGREGATION,
        Arg::token("excludeempty", "EXCLUDEEMPTY").optional(),
        Arg::new("filterExpr", ArgKind::String).after("FILTER").multiple(),
        Arg::block(
            "groupby",
            &[
                Arg::new("label", ArgKind::String).after("GROUPBY"),
                Arg::new("reducer", ArgKind::String).after("REDUCE"),
            ],
        )
        .optional(),
    ],
    ..FINDS
};

fn mrange(cx: &mut Cx<'_>, args: Args<'_>, is_reverse: bool) -> Outcome {
    let (options, filters, count) = parse(args, is_reverse)?;
    let mut all = Vec::new();
    for found in search::find(cx, &filters)? {
        if let Some(rows) = read(cx, &found, &options)?
            && (!options.excludes_empty || !rows.is_empty())
        {
            all.push((found, rows));
        }
    }
    match &options.grouping {
        None => reply(&mut cx.reply, &all, &options),
        Some(_) => reply_groups(&mut cx.reply, all, &options, count),
    }
    Ok(())
}

/// Returns the rows of a series, unless it has gone since it was found.
fn read(cx: &Cx<'_>, found: &Found, options: &QueryOptions) -> Result<Option<Rows>, Error> {
    let key = Key::new(&found.key);
    let latest = match options.latest {
        true => {
            let source = cx.db.look_at(key, |entry| {
                let series = entry?.object::<Module>()?.get::<Series>()?;
                series.source().map(Box::<[u8]>::from)
            })?;
            compaction::latest(cx, &found.key, source.as_deref())?
        }
        false => None,
    };
    let rows = cx.db.look_at(key, |entry| {
        let series = entry?.object::<Module>()?.get::<Series>()?;
        Some(options.query.run(series, latest))
    })?;
    rows.transpose().map_err(|_| TOO_MANY)
}

fn reply(reply: &mut Reply<'_>, all: &[(Found, Rows)], options: &QueryOptions) {
    begin(reply, all.len());
    for (found, rows) in all {
        begin_series(reply, &found.key, 3);
        replies::labels(reply, &found.labels, &options.shown);
        if reply.is_resp3() {
            let aggregators = options.of_keys.first().map_or(&[][..], |of| of);
            reply.map(1);
            reply.bulk(b"aggregators");
            reply.array(aggregators.len());
            aggregators.iter().for_each(|it| reply.bulk(it.name().as_bytes()));
        }
        replies::rows(reply, rows);
    }
}
