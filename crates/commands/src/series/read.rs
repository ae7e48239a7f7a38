//! `TS.READ key timestamp [BLOCK milliseconds min_count] [MAX_COUNT max_count]`
//!
//! What `-`, `+` and `$` mean is found out once: when it runs again after a wait, its words have
//! the time. Where nothing may block it is an error only if it would have to wait.

use super::{READS, replies, whole};
use crate::typed;
use engine::blocking::Run;
use engine::routing::Routing;
use engine::{Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Millis, Outcome};
use series::Series;
use series::range::Query;

/// `TS.READ`.
pub static READ: Command = Command {
    name: "ts.read",
    arity: -3,
    flags: Flags::READONLY.with(Flags::BLOCKING).with(Flags::NOTICES_LOSS),
    since: "8.10.0",
    complexity: "O(log(n)+k) where n is the number of samples in the series and k is the number of \
                 returned samples",
    effort: Effort::Part(1, effort),
    summary: "Returns the samples from a time on; can wait for some.",
    tips: &["dont_cache"],
    args: &[
        Arg::key("key", 0),
        Arg::new("timestamp", ArgKind::String),
        Arg::block(
            "block",
            &[
                Arg::new("milliseconds", ArgKind::Integer).after("BLOCK"),
                Arg::new("min_count", ArgKind::Integer),
            ],
        )
        .optional(),
        Arg::new("max_count", ArgKind::Integer).after("MAX_COUNT").optional(),
    ],
    routing: Routing::USUAL.waits_if(names_block),
    run: read,
    ..READS
};

const BAD_TIME: Error = Error::text("TSDB: invalid timestamp");
const BAD_WAIT: Error = Error::text("TSDB: BLOCK milliseconds must be a non-negative integer");
const BAD_LEAST: Error = Error::text("TSDB: BLOCK min_count must be a positive integer");
const BAD_MOST: Error = Error::text("TSDB: MAX_COUNT must be a positive integer");
const LEAST_ABOVE_MOST: Error = Error::text("TSDB: BLOCK min_count must be <= MAX_COUNT");
const MAY_NOT_BLOCK: Error = Error::text(
    "TSDB: blocking TS.READ (with BLOCK) is not allowed inside MULTI, EVAL, or a deny-blocking \
     context",
);

/// Returns whether a request has the word BLOCK among its options.
fn names_block(words: &[&[u8]]) -> bool {
    words.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"BLOCK"))
}

/// What a request waits for.
struct Wait {
    /// When it ends, if ever.
    deadline: Option<Millis>,
    /// Samples for which it waits.
    least: usize,
}

#[derive(Default)]
struct TsReadOptions {
    wait: Option<Wait>,
    /// Samples of the reply, at most.
    most: Option<usize>,
}

fn parse(args: Args<'_>, now: Millis) -> Result<TsReadOptions, Error> {
    let mut options = TsReadOptions::default();
    let mut at = 3;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "block") && more > 1 && options.wait.is_none() {
            let number = |at| args.integer(at).map_err(|_| BAD_WAIT);
            let (ms, least) = (number(at + 1)?, number(at + 2)?);
            let end = now.0.checked_add(ms).filter(|_| ms >= 0).ok_or(BAD_WAIT)?;
            let deadline = (ms > 0).then_some(Millis(end));
            options.wait = Some(Wait { deadline, least: positive(least).ok_or(BAD_LEAST)? });
            at += 3;
        } else if args.is(at, "max_count") && more > 0 && options.most.is_none() {
            let most = args.integer(at + 1).ok().and_then(positive).ok_or(BAD_MOST)?;
            options.most = Some(most);
            at += 2;
        } else {
            return Err(Error::Arity("ts.read".into()));
        }
    }
    let most = options.most.unwrap_or(usize::MAX);
    if options.wait.as_ref().is_some_and(|wait| wait.least > most) {
        return Err(LEAST_ABOVE_MOST);
    }
    Ok(options)
}

fn positive(number: i64) -> Option<usize> {
    usize::try_from(number).ok().filter(|&number| number > 0)
}

/// Returns the time that a word of a request means for a series.
fn cursor(word: &[u8], series: Option<&Series>) -> Result<u64, Error> {
    let last = || series.and_then(Series::last).map(|last| last.time);
    Ok(match word {
        b"-" => series.and_then(Series::first).map_or(0, |first| first.time),
        b"+" => last().unwrap_or(0),
        b"$" => last().map_or(0, |last| last + 1),
        word => whole(word).ok_or(BAD_TIME)?,
    })
}

/// Returns the time in the words of a further run. It may be one behind the last that a sample can
/// have.
fn found_before(word: &[u8]) -> Result<u64, Error> {
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).ok_or(BAD_TIME)
}

/// Samples that are read in the time of one step of other commands.
const SAMPLES_PER_STEP: usize = 4;

/// Estimates how much there is to read: the samples of the chunks from the time on.
fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    let Ok(Some(series)) = typed::read_for_write::<Series>(db, args.key(1)) else { return 0 };
    let Ok(from) = cursor(args[2], Some(series)) else { return 0 };
    let Ok(options) = parse(args, Millis(0)) else { return 0 };
    let touched = series.chunks().filter(|chunk| chunk.last >= from);
    let samples = touched.map(|chunk| chunk.samples).sum::<usize>();
    samples.min(options.most.unwrap_or(usize::MAX)) / SAMPLES_PER_STEP
}

fn read(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args, cx.now())?;
    let key = args.key(1);
    let (series, from) = match cx.run {
        Run::First => {
            let series = typed::read::<Series>(&cx.db, key)?;
            (series, cursor(args[2], series)?)
        }
        // It is counted as one look-up.
        Run::Again | Run::Last => {
            (typed::read_for_write::<Series>(&cx.db, key)?, found_before(args[2])?)
        }
    };
    if let Some(wait) = options.wait {
        let has_enough = match (series, cx.run) {
            (_, Run::Last) => true,
            // A series for which it has waited has gone.
            (None, Run::Again) => true,
            (None, Run::First) => false,
            (Some(series), _) => series.count_from(from, wait.least) == wait.least,
        };
        if !has_enough {
            if cx.in_transaction {
                return Err(MAY_NOT_BLOCK);
            }
            let mut words: Vec<Box<[u8]>> = args.words().iter().map(|&it| it.into()).collect();
            words[2] = from.to_string().into_bytes().into();
            cx.block_until_read(key, wait.deadline, words);
            return Ok(());
        }
    }
    let Some(series) = series else {
        cx.reply.array(0);
        return Ok(());
    };
    let query = Query {
        from,
        to: u64::MAX,
        times: None,
        values: None,
        aggregation: None,
        count: options.most,
        is_reverse: false,
    };
    let rows = query.run(series, None).map_err(|_| super::query::TOO_MANY)?;
    replies::rows(&mut cx.reply, &rows);
    Ok(())
}
