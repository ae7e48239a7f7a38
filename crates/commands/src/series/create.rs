//! `TS.CREATE key [options]`, `TS.ALTER key [options]`

use super::options::{self, SeriesOptions};
use super::{NO_KEY, WRITES, series_event};
use crate::typed;
use engine::{Arg, Args, Command, Cx, Error, Event, Flags, KeyFlags, KeySpec, Outcome};
use series::Series;

/// `TS.CREATE`.
pub static CREATE: Command = Command {
    name: "ts.create",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    summary: "Creates a time series.",
    args: &[
        Arg::key("key", 0),
        options::RETENTION,
        options::ENCODING,
        options::CHUNK_SIZE,
        options::DUPLICATE_POLICY,
        options::IGNORE,
        options::LABELS,
    ],
    run: create,
    ..WRITES
};

/// `TS.ALTER`.
pub static ALTER: Command = Command {
    name: "ts.alter",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    complexity: "O(N) where N is the number of labels requested to update",
    summary: "Changes the settings or the labels of a time series.",
    args: &[
        Arg::key("key", 0),
        options::RETENTION,
        options::CHUNK_SIZE,
        options::DUPLICATE_POLICY,
        options::IGNORE,
        options::LABELS,
    ],
    run: alter,
    ..WRITES
};

pub(super) const CREATED: Event = series_event("ts.create");
const ALTERED: Event = series_event("ts.alter");

fn create(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let options = SeriesOptions::parse(args, 2)?;
    if cx.db.lookup_write(key).is_some() {
        return Err(Error::text("ERR TSDB: key already exists"));
    }
    let (series, settings) = options.create(cx)?;
    let creation = options::creation(key, &series);
    typed::create(&mut cx.db, key, series);
    cx.db.changed(key, CREATED);
    settings.propagate(cx, &creation, None);
    cx.reply.ok();
    Ok(())
}

fn alter(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let options = SeriesOptions::parse(args, 2)?;
    let series = typed::write::<Series>(&mut cx.db, key)?.ok_or(NO_KEY)?;
    if options.alter(series) {
        cx.db.list_labels(key);
    }
    cx.db.changed(key, ALTERED);
    cx.reply.ok();
    Ok(())
}
