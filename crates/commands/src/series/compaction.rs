//! What a change of a series means for those that its rules make of it.

use super::{NO_KEY, series_event};
use crate::typed;
use engine::{Cx, Error, Event, Key};
use rdb::module::Module;
use series::{Added, Counted, Policy, Rule, Sample, Series};
use structs::numbers;

const ADDED: Event = series_event("ts.add:dest");

/// What the journal gets of the series of rules, behind what it gets of their source.
#[derive(Default)]
pub(super) struct Effects(Vec<Vec<Vec<u8>>>);

impl Effects {
    /// Returns whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another change.
    pub fn extend(&mut self, others: Effects) {
        self.0.extend(others.0);
    }

    /// Adds a rule that was there before under the name of another key.
    pub fn rule_made(&mut self, source: Key<'_>, target: Key<'_>, rule: &Rule) {
        let name = rule.aggregator.name().as_bytes();
        let [duration, align] = [rule.buckets.duration, rule.buckets.align].map(time_word);
        let after = rule.after.map_or(b"-".to_vec(), time_word);
        let ends = [&b"TS.CREATERULE"[..], source.bytes, target.bytes];
        let how = [&b"AGGREGATION"[..], name, &duration, &align, b"AFTER", &after];
        self.command(&[&ends[..], &how[..]].concat());
    }

    /// Adds the end of a rule.
    pub fn rule_removed(&mut self, source: Key<'_>, target: Key<'_>) {
        self.command(&[b"TS.DELETERULE", source.bytes, target.bytes]);
    }

    /// Adds a command.
    pub fn command(&mut self, words: &[&[u8]]) {
        self.0.push(words.iter().map(|word| word.to_vec()).collect());
    }

    /// Has the journal get this command and then the effects in place of the request.
    pub fn propagate(&self, cx: &mut Cx<'_>, command: &[&[u8]]) {
        cx.db.propagate_as(|journal| {
            journal.command(command);
            for words in &self.0 {
                let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
                journal.command(&words);
            }
        });
    }
}

/// Returns a time as a word.
pub(super) fn time_word(time: u64) -> Vec<u8> {
    time.to_string().into_bytes()
}

/// Holds the keys of the rules of a series, which is about to change. Returns whether there are
/// any.
///
/// # Errors
/// One cannot be had now.
pub(super) fn hold_targets(cx: &mut Cx<'_>, key: Key<'_>) -> Result<bool, Error> {
    if cx.db.repeats_history() {
        return Ok(false);
    }
    let Some(series) = typed::read_for_write::<Series>(&cx.db, key)? else { return Ok(false) };
    if series.rules().is_empty() {
        return Ok(false);
    }
    let targets: Vec<Box<[u8]>> = series.rules().iter().map(|it| it.target.clone()).collect();
    for target in &targets {
        cx.db.hold_also(Key::new(target))?;
    }
    Ok(true)
}

/// Reduces again what an added sample has changed.
pub(super) fn after_adding(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    time: u64,
    added: Added,
) -> Result<Effects, Error> {
    match added {
        Added::Appended(Some(last)) => reduce(cx, key, &[last], Counted::SinceRule),
        Added::Inserted => reduce(cx, key, &[time], Counted::All),
        _ => Ok(Effects::default()),
    }
}

/// Reduces again the closed buckets of these times, whose rules' keys are held.
pub(super) fn reduce(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    times: &[u64],
    counted: Counted,
) -> Result<Effects, Error> {
    let mut effects = Effects::default();
    let series = typed::read_for_write::<Series>(&cx.db, key)?.ok_or(NO_KEY)?;
    let mut changes = Vec::new();
    for rule in series.rules() {
        changes.push((rule.target.clone(), changed_buckets(series, rule, times, counted)));
    }
    let mut orphans = Vec::new();
    for (target, buckets) in changes {
        if !put(cx, key, Key::new(&target), &buckets, &mut effects)? {
            effects.rule_removed(key, Key::new(&target));
            orphans.push(target);
        }
    }
    if !orphans.is_empty() {
        let series = typed::write::<Series>(&mut cx.db, key)?.ok_or(NO_KEY)?;
        series.rules_mut().retain(|rule| !orphans.contains(&rule.target));
    }
    Ok(effects)
}

/// Returns the closed buckets of these times, and what the rule reduces them to.
fn changed_buckets(
    series: &Series,
    rule: &Rule,
    times: &[u64],
    counted: Counted,
) -> Vec<(u64, Option<Sample>)> {
    let open = series.last().map(|last| rule.buckets.start(last.time));
    let mut buckets: Vec<u64> = times.iter().map(|&time| rule.buckets.start(time)).collect();
    buckets.dedup();
    let closed = buckets.into_iter().filter(|&start| open.is_none_or(|open| start < open));
    closed.map(|start| (start, series.reduced(rule, start, counted))).collect()
}

/// Writes buckets into the series of a rule. Returns whether it is still that of the rule.
fn put(
    cx: &mut Cx<'_>,
    source: Key<'_>,
    key: Key<'_>,
    buckets: &[(u64, Option<Sample>)],
    effects: &mut Effects,
) -> Result<bool, Error> {
    let target = match typed::write::<Series>(&mut cx.db, key) {
        Ok(Some(target)) if target.source() == Some(source.bytes) => target,
        Ok(_) | Err(Error::WrongType) => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut is_changed = false;
    for &(start, sample) in buckets {
        match sample {
            Some(sample) => {
                // One beyond the target's retention is left out.
                let Ok(Added::Appended(_) | Added::Inserted) = target.add(sample, Policy::Last)
                else {
                    continue;
                };
                let mut value = Vec::new();
                numbers::push_f64(&mut value, sample.value);
                let time = time_word(sample.time);
                effects.command(&[b"TS.ADD", key.bytes, &time, &value, b"ON_DUPLICATE", b"LAST"]);
            }
            None => {
                if target.remove(start, start).is_empty() {
                    continue;
                }
                let time = time_word(start);
                effects.command(&[b"TS.DEL", key.bytes, &time, &time]);
            }
        }
        is_changed = true;
    }
    if is_changed {
        cx.db.changed(key, ADDED);
    }
    Ok(true)
}

/// Returns the sample of the open bucket of a series that a rule makes, if it is one.
///
/// # Errors
/// The source cannot be had now.
pub(super) fn latest(
    cx: &Cx<'_>,
    key: &[u8],
    source: Option<&[u8]>,
) -> Result<Option<Sample>, Error> {
    let Some(source) = source else { return Ok(None) };
    cx.db.look_at(Key::new(source), |entry| {
        let series = entry?.object::<Module>()?.get::<Series>()?;
        let rule = series.rules().iter().find(|rule| &*rule.target == key)?;
        series.open_bucket(rule)
    })
}

/// Returns whether a key has a series of which something is true.
///
/// # Errors
/// The key cannot be had now.
pub(super) fn is_of(
    cx: &Cx<'_>,
    key: &[u8],
    is_it: impl FnOnce(&Series) -> bool,
) -> Result<bool, Error> {
    cx.db.look_at(Key::new(key), |entry| {
        let series = entry.and_then(|it| it.object::<Module>()).and_then(|it| it.get::<Series>());
        series.is_some_and(is_it)
    })
}

/// Returns the key of the series that this one is made of, if it is still there and has the rule.
///
/// # Errors
/// The key cannot be had now.
pub(super) fn true_source<'s>(
    cx: &Cx<'_>,
    key: &[u8],
    series: &'s Series,
) -> Result<Option<&'s [u8]>, Error> {
    let Some(source) = series.source() else { return Ok(None) };
    let has_rule = |series: &Series| series.rules().iter().any(|rule| *rule.target == *key);
    Ok(is_of(cx, source, has_rule)?.then_some(source))
}
