//! `TS.QUERYINDEX filter [filter …]`, `TS.QUERYLABELS LABELS|VALUES label [FILTER filter …]`

use super::{FINDS, JOINED, query, search};
use engine::routing::{About, Merge, Routing};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Outcome};
use std::collections::BTreeSet;

/// `TS.QUERYINDEX`.
pub static QUERYINDEX: Command = Command {
    name: "ts.queryindex",
    arity: -2,
    complexity: "O(n) where n is the number of time-series that match the filters",
    summary: "Returns the keys of the time series whose labels pass filters.",
    args: &[Arg::new("filterExpr", ArgKind::String).multiple()],
    run: queryindex,
    ..FINDS
};

/// `TS.QUERYLABELS`.
pub static QUERYLABELS: Command = Command {
    name: "ts.querylabels",
    arity: -2,
    since: "8.10.0",
    complexity: "O(n) where n is the number of time-series that match the filters (all indexed \
                 series when FILTER is omitted)",
    summary: "Returns the labels, or a label's values, of time series that pass filters.",
    args: &[
        Arg::one_of(
            "what",
            &[Arg::token("labels", "LABELS"), Arg::new("label", ArgKind::String).after("VALUES")],
        ),
        Arg::new("filterExpr", ArgKind::String).after("FILTER").optional().multiple(),
    ],
    tips: JOINED,
    routing: Routing::all(Merge::Union, About::AllKeys),
    run: querylabels,
    ..FINDS
};

fn queryindex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filters = query::filters(args.from(1))?;
    search::check(&filters)?;
    let found = search::find(cx, &filters)?;
    cx.reply.set(found.len());
    found.iter().for_each(|found| cx.reply.bulk(&found.key));
    Ok(())
}

fn querylabels(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let arity = || Error::Arity("ts.querylabels".into());
    let (label, at) = match () {
        () if args.is(1, "labels") => (None, 2),
        () if args.is(1, "values") => (Some(args.get(2).ok_or_else(arity)?), 3),
        () => return Err(Error::Syntax),
    };
    let filters = match args.from(at) {
        [] => Vec::new(),
        [filter, words @ ..] if filter.eq_ignore_ascii_case(b"filter") => {
            if words.is_empty() {
                return Err(arity());
            }
            query::filters(words)?
        }
        _ => return Err(Error::Syntax),
    };
    if !filters.is_empty() {
        search::check(&filters)?;
    }
    let mut texts = BTreeSet::new();
    for found in search::find(cx, &filters)? {
        match label {
            Some(label) => texts.extend(found.labels.get(label).map(Box::<[u8]>::from)),
            None => texts.extend(found.labels.iter().map(|(name, _)| Box::<[u8]>::from(name))),
        }
    }
    cx.reply.set(texts.len());
    texts.iter().for_each(|text| cx.reply.bulk(text));
    Ok(())
}
