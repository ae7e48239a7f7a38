//! `TS.GET key [LATEST]`, `TS.MGET [LATEST] [WITHLABELS | SELECTED_LABELS label …] FILTER filter …`

use super::query::{self, Shown, end_of_list};
use super::{FINDS, NO_KEY, READS, compaction, replies, search};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Key, Outcome};
use rdb::module::Module;
use series::Series;
use structs::labels::Filter;

/// `TS.GET`.
pub static GET: Command = Command {
    name: "ts.get",
    arity: -2,
    summary: "Returns the last sample of a time series.",
    args: &[Arg::key("key", 0), Arg::token("latest", "LATEST").optional()],
    run: get,
    ..READS
};

/// `TS.MGET`.
pub static MGET: Command = Command {
    name: "ts.mget",
    arity: -3,
    complexity: "O(n) where n is the number of time-series that match the filters",
    summary: "Returns the last samples of the time series whose labels pass filters.",
    args: &[
        Arg::token("latest", "LATEST").optional(),
        Arg::one_of(
            "labels",
            &[
                Arg::token("withlabels", "WITHLABELS"),
                Arg::new("label", ArgKind::String).after("SELECTED_LABELS").multiple(),
            ],
        )
        .optional(),
        Arg::new("filterExpr", ArgKind::String).after("FILTER").multiple(),
    ],
    run: mget,
    ..FINDS
};

fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_latest = match args.len() {
        2 => false,
        3 if args.is(2, "latest") => true,
        _ => return Err(Error::Arity("ts.get".into())),
    };
    let series = typed::read::<Series>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let (last, source) = (series.last(), series.source());
    let latest = if is_latest { compaction::latest(cx, args[1], source)? } else { None };
    replies::sample(&mut cx.reply, latest.or(last));
    Ok(())
}

/// What TS.MGET asks for.
struct TsGetOptions {
    latest: bool,
    shown: Shown,
    filters: Vec<Filter>,
}

fn parse(args: Args<'_>) -> Result<TsGetOptions, Error> {
    let mut options = TsGetOptions { latest: false, shown: Shown::None, filters: Vec::new() };
    let mut at = 1;
    let mut has_filter = false;
    while at < args.len() {
        if args.is(at, "latest") {
            options.latest = true;
        } else if args.is(at, "withlabels") {
            options.shown.set(Shown::All)?;
        } else if args.is(at, "selected_labels") {
            let end = end_of_list(args, at + 1);
            let labels = args.words()[at + 1..end].iter().map(|&word| word.into());
            options.shown.set(Shown::Selected(labels.collect()))?;
            at = end;
            continue;
        } else if args.is(at, "filter") {
            let end = end_of_list(args, at + 1);
            options.filters = query::filters(&args.words()[at + 1..end])?;
            has_filter = true;
            at = end;
            continue;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    if !has_filter {
        return Err(Error::text("ERR TSDB: missing FILTER argument"));
    }
    search::check(&options.filters)?;
    Ok(options)
}

fn mget(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    let mut all = Vec::new();
    for found in search::find(cx, &options.filters)? {
        let looked = cx.db.look_at(Key::new(&found.key), |entry| {
            let series = entry?.object::<Module>()?.get::<Series>()?;
            Some((series.last(), series.source().map(Box::<[u8]>::from)))
        })?;
        // It has gone since it was found.
        let Some((last, source)) = looked else { continue };
        let latest = match options.latest {
            true => compaction::latest(cx, &found.key, source.as_deref())?,
            false => None,
        };
        all.push((found.key, found.labels, latest.or(last)));
    }
    if cx.reply.is_resp3() {
        cx.reply.map(all.len());
    } else {
        cx.reply.array(all.len());
    }
    for (key, labels, last) in all {
        if cx.reply.is_resp3() {
            cx.reply.bulk(&key);
            cx.reply.array(2);
        } else {
            cx.reply.array(3);
            cx.reply.bulk(&key);
        }
        replies::labels(&mut cx.reply, &labels, &options.shown);
        replies::sample(&mut cx.reply, last);
    }
    Ok(())
}
