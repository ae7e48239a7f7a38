//! What TS.MRANGE and TS.MREVRANGE read, and the groups that they reply, on one server or of
//! several.

use super::query::{self, QueryOptions, Shown};
use super::search::Found;
use super::{replies, search};
use engine::{Args, Error};
use resp::Reply;
use series::range::{Rows, group};
use std::collections::BTreeMap;
use structs::labels::Filter;

/// Reads a request: what is read of each series, which series, and how many rows a group has at
/// most.
pub(super) fn parse(
    args: Args<'_>,
    is_reverse: bool,
) -> Result<(QueryOptions, Vec<Filter>, usize), Error> {
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

/// Begins the reply of so many series.
pub(super) fn begin(reply: &mut Reply<'_>, len: usize) {
    if reply.is_resp3() {
        reply.map(len);
    } else {
        reply.array(len);
    }
}

/// Begins the reply of one series, which has so many parts behind its key in RESP3.
pub(super) fn begin_series(reply: &mut Reply<'_>, key: &[u8], parts: usize) {
    if reply.is_resp3() {
        reply.bulk(key);
        reply.array(parts);
    } else {
        reply.array(3);
        reply.bulk(key);
    }
}

/// Writes the groups of series, with so many rows each at most. The series are in the order of
/// their keys.
pub(super) fn reply_groups(
    reply: &mut Reply<'_>,
    all: Vec<(Found, Rows)>,
    options: &QueryOptions,
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
