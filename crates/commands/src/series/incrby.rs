//! `TS.INCRBY key number [TIMESTAMP milliseconds] [options]`, `TS.DECRBY …`

use super::add::{add_sample, create_missing, value};
use super::compaction::time_word;
use super::options::{self, SeriesOptions};
use super::{WRITES, series_event};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Event, Outcome};
use series::{Policy, Sample, Series};

/// `TS.INCRBY`.
pub static INCRBY: Command = Command {
    name: "ts.incrby",
    summary: "Adds a number to the last value of a time series.",
    run: |cx, args| change(cx, args, 1.0, INCREASED),
    ..CHANGES
};

/// `TS.DECRBY`.
pub static DECRBY: Command = Command {
    name: "ts.decrby",
    summary: "Takes a number from the last value of a time series.",
    run: |cx, args| change(cx, args, -1.0, DECREASED),
    ..CHANGES
};

const CHANGES: Command = Command {
    arity: -3,
    complexity: "O(M) when M is the amount of compaction rules or O(1) with no compaction",
    args: &[
        Arg::key("key", 0),
        Arg::new("value", ArgKind::Double),
        Arg::new("timestamp", ArgKind::String).after("TIMESTAMP").optional(),
        options::RETENTION,
        options::ENCODING,
        options::CHUNK_SIZE,
        options::DUPLICATE_POLICY,
        options::IGNORE,
        options::LABELS,
    ],
    ..WRITES
};

const INCREASED: Event = series_event("ts.incrby");
const DECREASED: Event = series_event("ts.decrby");

fn change(cx: &mut Cx<'_>, args: Args<'_>, sign: f64, event: Event) -> Outcome {
    let number = value(args[2])? * sign;
    let options = SeriesOptions::parse(args, 3)?;
    let time = options.time.unwrap_or(cx.now().0.max(0).cast_unsigned());
    let key = args.key(1);
    let last = typed::read_for_write::<Series>(&cx.db, key)?.and_then(Series::last);
    if last.is_some_and(|last| time < last.time) {
        return Err(Error::text(
            "ERR TSDB: timestamp must be equal to or higher than the maximum existing timestamp",
        ));
    }
    let value = last.map_or(0.0, |last| last.value) + number;
    if value.is_infinite() {
        return Err(Error::NanOrInfinity);
    }
    let is_now = options.time.is_none();
    let is_told = create_missing(cx, key, options)?;
    let step = add_sample(cx, key, Sample { time, value }, Some(Policy::Last), event)?;
    if is_told || step.is_changed && (is_now || !step.effects.is_empty()) {
        // The last TIMESTAMP counts, and labels may be behind it.
        let time = time_word(time);
        let mut words = args.words()[..3].to_vec();
        words.extend([&b"TIMESTAMP"[..], &time]);
        words.extend(without_time(args));
        step.effects.propagate(cx, &words);
    }
    cx.reply.integer(step.time.cast_signed());
    Ok(())
}

/// Returns the options without the time.
fn without_time<'a>(args: Args<'a>) -> Vec<&'a [u8]> {
    let mut rest = Vec::new();
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "timestamp") {
            at += 2;
            continue;
        }
        rest.push(args[at]);
        at += 1;
    }
    rest
}
