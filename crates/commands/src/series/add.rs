//! `TS.ADD key timestamp value [options]`, `TS.MADD key timestamp value [key timestamp value …]`

use super::compaction::{self, Effects, time_word};
use super::create::CREATED;
use super::options::{self, SeriesOptions};
use super::{BAD_TIME, NO_KEY, WRITES, policy, series_event, whole};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Event, Key, KeyFlags, KeySpec, Outcome};
use series::{AddError, Added, Policy, Sample, Series};
use std::sync::Arc;
use structs::numbers::parse_f64;

/// `TS.ADD`.
pub static ADD: Command = Command {
    name: "ts.add",
    arity: -4,
    complexity: "O(M) when M is the amount of compaction rules or O(1) with no compaction",
    summary: "Adds a sample to a time series.",
    args: &[
        Arg::key("key", 0),
        Arg::new("timestamp", ArgKind::String),
        Arg::new("value", ArgKind::Double),
        options::RETENTION,
        options::ENCODING,
        options::CHUNK_SIZE,
        options::DUPLICATE_POLICY,
        options::ON_DUPLICATE,
        options::IGNORE,
        options::LABELS,
    ],
    run: add,
    ..WRITES
};

/// `TS.MADD`.
pub static MADD: Command = Command {
    name: "ts.madd",
    arity: -4,
    keys: &[KeySpec::rest(1, 3, KeyFlags::RW.with(KeyFlags::UPDATE))],
    complexity: "O(N*M) when N is the amount of series updated and M is the amount of compaction \
                 rules or O(N) with no compaction",
    summary: "Adds samples to time series.",
    tips: &["request_policy:multi_shard"],
    args: &[Arg::block(
        "ktv",
        &[
            Arg::key("key", 0),
            Arg::new("timestamp", ArgKind::String),
            Arg::new("value", ArgKind::Double),
        ],
    )
    .multiple()],
    run: madd,
    ..WRITES
};

pub(super) const ADDED: Event = series_event("ts.add");

/// Returns a word as the value of a sample.
pub(super) fn value(word: &[u8]) -> Result<f64, Error> {
    if word.eq_ignore_ascii_case(b"nan") {
        return Ok(f64::NAN);
    }
    let value = parse_f64(word).filter(|value| value.is_finite());
    value.ok_or(Error::text("ERR TSDB: invalid value"))
}

/// Returns a word as the time of a sample.
fn time(cx: &Cx<'_>, word: &[u8]) -> Result<u64, Error> {
    if word == b"*" {
        return Ok(cx.now().0.max(0).cast_unsigned());
    }
    whole(word).ok_or(BAD_TIME)
}

/// Returns the text of an error of a sample.
pub(super) fn refused(error: AddError) -> Error {
    Error::text(match error {
        AddError::Blocked => {
            "ERR TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to \
             BLOCK mode"
        }
        AddError::NotComparable => {
            "ERR TSDB: Error at upsert, a NaN value cannot be compared with a number or added to it"
        }
        AddError::TooOld => "ERR TSDB: Timestamp is older than retention",
        AddError::Infinite => "ERR TSDB: Error at upsert, the sum is infinite",
    })
}

/// What adding one sample has done.
pub(super) struct AddedSample {
    /// The time of the reply.
    pub time: u64,
    /// Whether the series has changed.
    pub is_changed: bool,
    /// What else has.
    pub effects: Effects,
}

/// Adds a sample to a series that is there, and to those that its rules make. `event` is reported.
pub(super) fn add_sample(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    sample: Sample,
    policy: Option<Policy>,
    event: Event,
) -> Result<AddedSample, Error> {
    let has_rules = compaction::hold_targets(cx, key)?;
    let series = typed::read_for_write::<Series>(&cx.db, key)?.ok_or(NO_KEY)?;
    if series.ignores(sample) {
        let time = series.last().map_or(sample.time, |last| last.time);
        return Ok(AddedSample { time, is_changed: false, effects: Effects::default() });
    }
    let policy = policy.unwrap_or(series.settings().policy);
    let series = typed::write::<Series>(&mut cx.db, key)?.ok_or(NO_KEY)?;
    let added = series.add(sample, policy).map_err(refused)?;
    let is_changed = !matches!(added, Added::Unchanged | Added::Ignored);
    if is_changed {
        cx.db.changed(key, event);
    }
    let effects = match has_rules {
        true => compaction::after_adding(cx, key, sample.time, added)?,
        false => Effects::default(),
    };
    Ok(AddedSample { time: sample.time, is_changed, effects })
}

/// Creates the series of a request if it is not there. Returns whether the journal has got that:
/// then it needs the request, too, which does not say all of it.
pub(super) fn create_missing(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    options: SeriesOptions,
) -> Result<bool, Error> {
    if typed::read_for_write::<Series>(&cx.db, key)?.is_some() {
        return Ok(false);
    }
    let rules = policy::rules(cx, key)?;
    let (series, settings) = options.create(cx)?;
    let creation = options::creation(key, &series);
    let labels = Arc::clone(series.labels());
    typed::create(&mut cx.db, key, series);
    cx.db.notify(key, CREATED);
    if rules.is_empty() {
        settings.propagate(cx, &creation, None);
        return Ok(!settings.is_usual);
    }
    let mut effects = Effects::default();
    for rule in rules {
        policy::make(cx, key, &labels, rule, &mut effects)?;
    }
    let creation: Vec<&[u8]> = creation.iter().map(|word| &**word).collect();
    effects.propagate(cx, &creation);
    Ok(true)
}

fn add(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let sample = Sample { time: time(cx, args[2])?, value: value(args[3])? };
    let options = SeriesOptions::parse(args, 4)?;
    let (key, policy) = (args.key(1), options.on_duplicate);
    let is_told = create_missing(cx, key, options)?;
    let step = add_sample(cx, key, sample, policy, ADDED)?;
    if is_told || step.is_changed && (args[2] == b"*" || !step.effects.is_empty()) {
        let time = time_word(sample.time);
        let mut words = args.words().to_vec();
        words[2] = &time;
        step.effects.propagate(cx, &words);
    }
    cx.reply.integer(step.time.cast_signed());
    Ok(())
}

fn madd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !(args.len() - 1).is_multiple_of(3) {
        return Err(Error::Arity("ts.madd".into()));
    }
    for at in (1..args.len()).step_by(3) {
        match compaction::hold_targets(cx, args.key(at)) {
            // The reply says it at its place.
            Ok(_) | Err(Error::WrongType) => {}
            Err(error) => return Err(error),
        }
    }
    let mut words: Vec<Vec<u8>> = vec![b"TS.MADD".to_vec()];
    let mut effects = Effects::default();
    cx.reply.array((args.len() - 1) / 3);
    for at in (1..args.len()).step_by(3) {
        match add_one(cx, args, at) {
            Ok((sample, step)) => {
                if step.is_changed {
                    let value = args[at + 2].to_vec();
                    words.extend([args[at].to_vec(), time_word(sample.time), value]);
                }
                cx.reply.integer(step.time.cast_signed());
                effects.extend(step.effects);
            }
            Err(error) => cx.reply.error_bytes(&error.line()),
        }
    }
    if words.len() > 1 {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        effects.propagate(cx, &words);
    }
    Ok(())
}

fn add_one(cx: &mut Cx<'_>, args: Args<'_>, at: usize) -> Result<(Sample, AddedSample), Error> {
    let sample = Sample { time: time(cx, args[at + 1])?, value: value(args[at + 2])? };
    let step = add_sample(cx, args.key(at), sample, None, ADDED)?;
    Ok((sample, step))
}
