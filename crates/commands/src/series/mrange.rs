//! `TS.MRANGE fromTimestamp toTimestamp [options] FILTER filter … [GROUPBY label REDUCE reducer]`,
//! `TS.MREVRANGE …`

use super::query::{self, Options, Shown, TOO_MANY};
use super::range::{AGGREGATION, BY_TIME, BY_VALUE, COUNT, FROM, LATEST, TO};
use super::search::Found;
use super::{FINDS, JOINED, compaction, gather, replies, search};
use engine::routing::{About, Merge, Routing};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Key, Outcome};
use rdb::module::Module;
use resp::Reply;
use series::Series;
use series::range::{Rows, group};
use std::collections::BTreeMap;
use structs::labels::Filter;

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

/// Reads a request: what is read of each series, which series, and how many rows a group has at
/// most.
pub(super) fn parse(
    args: Args<'_>,
    is_reverse: bool,
) -> Result<(Options, Vec<Filter>, usize), Error> {
    let mut options = query::parse(args, 1, is_reverse, 1)?;
    let missing = Error::text("ERR TSDB: missing FILTER argument");
    let filters = options.filters.take().ok_or(missing)?;
    search::check(&filters)?;
    let is_wide = options.of_keys.first().is_some_and(|of| of.len() > 1);
    if is_wide && options.grouping.is_some() {
        return Err(Error::text("ERR TSDB: GROUPBY is not allowed with multiple aggregators"));
    }
    if options.excludes_empty && options.grouping.is_some() {
        return Err(Error::text("ERR TSDB: EXCLUDEEMPTY is not allowed with GROUPBY"));
    }
    let count = match options.grouping {
        Some(_) => options.query.count.take(),
        None => None,
    };
    Ok((options, filters, count.unwrap_or(usize::MAX)))
}

/// Returns the rows of a series, unless it has gone since it was found.
fn read(cx: &Cx<'_>, found: &Found, options: &Options) -> Result<Option<Rows>, Error> {
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

/// Begins the reply of so many series.
fn begin(reply: &mut Reply<'_>, len: usize) {
    if reply.is_resp3() {
        reply.map(len);
    } else {
        reply.array(len);
    }
}

/// Begins the reply of one series, which has so many parts behind its key in RESP3.
fn begin_series(reply: &mut Reply<'_>, key: &[u8], parts: usize) {
    if reply.is_resp3() {
        reply.bulk(key);
        reply.array(parts);
    } else {
        reply.array(3);
        reply.bulk(key);
    }
}

fn reply(reply: &mut Reply<'_>, all: &[(Found, Rows)], options: &Options) {
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

/// Writes the groups of series, with so many rows each at most. The series are in the order of their
/// keys.
pub(super) fn reply_groups(
    reply: &mut Reply<'_>,
    all: Vec<(Found, Rows)>,
    options: &Options,
    count: usize,
) {
    let Some(grouping) = &options.grouping else { return };
    let mut groups = BTreeMap::<Box<[u8]>, (Vec<_>, Vec<_>)>::new();
    for (found, rows) in all {
        // A series without the label is in no group.
        let Some(value) = found.labels.get(&grouping.label) else { continue };
        let (keys, parts) = groups.entry(value.into()).or_default();
        keys.push(found.key);
        parts.push(rows);
    }
    let reducer = grouping.reducer.name();
    begin(reply, groups.len());
    for (value, (keys, parts)) in groups {
        let mut rows = group(&parts, grouping.reducer, options.query.is_reverse);
        rows.truncate(count);
        let name = [&*grouping.label, b"=", &value].concat();
        begin_series(reply, &name, 4);
        let own: (&[u8], Option<&[u8]>) = (&grouping.label, Some(&value));
        let sources = keys.join(&b","[..]);
        let of_group = [
            own,
            (&b"__reducer__"[..], Some(reducer.as_bytes())),
            (&b"__source__"[..], Some(&sources[..])),
        ];
        let is_shown = !matches!(options.shown, Shown::None);
        if reply.is_resp3() {
            replies::pairs(reply, if is_shown { &of_group[..1] } else { &[] });
            reply.map(1);
            reply.bulk(b"reducers");
            reply.array(1);
            reply.bulk(reducer.as_bytes());
            reply.map(1);
            reply.bulk(b"sources");
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        } else {
            replies::pairs(reply, if is_shown { &of_group } else { &[] });
        }
        replies::rows(reply, &rows);
    }
}
