//! `TS.DEL key fromTimestamp toTimestamp`

use super::compaction;
use super::query::{Bound, bound};
use super::{NO_KEY, WRITES, series_event};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Event, Flags, Outcome};
use series::{Counted, Series};

/// `TS.DEL`.
pub static DEL: Command = Command {
    name: "ts.del",
    arity: 4,
    flags: Flags::WRITE.with(Flags::REACHES),
    since: "1.6.0",
    complexity: "O(N) where N is the number of data points that will be removed",
    summary: "Deletes the samples between two times.",
    args: &[
        Arg::key("key", 0),
        Arg::new("from_timestamp", ArgKind::Integer),
        Arg::new("to_timestamp", ArgKind::Integer),
    ],
    run: del,
    ..WRITES
};

const DELETED: Event = series_event("ts.del");

fn del(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let from = bound(args[2], Bound::From)?;
    let to = bound(args[3], Bound::To)?;
    let key = args.key(1);
    let has_rules = compaction::hold_targets(cx, key)?;
    let series = typed::read_for_write::<Series>(&cx.db, key)?.ok_or(NO_KEY)?;
    if has_rules && from < series.floor() {
        return Err(Error::text(
            "ERR TSDB: When a series has compactions, deleting samples or compaction buckets \
             beyond the series retention period is not possible",
        ));
    }
    let series = typed::write::<Series>(&mut cx.db, key)?.ok_or(NO_KEY)?;
    let removed = series.remove(from, to);
    if !removed.is_empty() {
        cx.db.changed_in(key, DELETED, removed.len() as u64);
        if has_rules {
            let effects = compaction::reduce(cx, key, &removed, Counted::All)?;
            effects.propagate(cx, args.words());
        }
    }
    cx.reply.integer(removed.len() as i64);
    Ok(())
}
