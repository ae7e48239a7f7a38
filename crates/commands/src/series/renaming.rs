//! What RENAME and COPY mean for rules, whose ends refer to each other by name.
//!
//! The other ends of a renamed series are changed to refer to its new name. Their keys are not
//! among the request's words: they are held before anything changes. The journal gets
//! TS.CREATERULE and TS.DELETERULE behind the request, which name the keys that they change.

use super::compaction::{self, Effects};
use super::rules;
use engine::{Cx, Error, Key};
use keyspace::Entry;
use rdb::module::Module;
use series::{Rule, Series};

/// The other ends of the rules of a series that is about to get another name.
pub(crate) struct Ends {
    source: Option<Box<[u8]>>,
    rules: Vec<Rule>,
}

impl Ends {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.source.as_deref().into_iter().chain(self.rules.iter().map(|rule| &*rule.target))
    }
}

/// Returns whether a value is a series, so that rules may refer to it.
pub(crate) fn is_series(entry: &Entry) -> bool {
    entry.type_name() == series::NAME
}

/// Holds the other ends of the rules of `from`, a series that is about to become `to`. Returns
/// `None` if it has none.
///
/// # Errors
/// A key cannot be had now.
pub(crate) fn hold(cx: &mut Cx<'_>, from: Key<'_>, to: Key<'_>) -> Result<Option<Ends>, Error> {
    if cx.db.repeats_history() {
        return Ok(None);
    }
    let held = find(cx, from, to);
    if matches!(held, Err(Error::StripeTaken)) && (cx.in_transaction || cx.script.is_some()) {
        // There it cannot be run again. The world is stopped, unless the first of all series has
        // been made since.
        return Err(Error::text("ERR TSDB: a key of a rule cannot be changed now"));
    }
    held
}

fn find(cx: &mut Cx<'_>, from: Key<'_>, to: Key<'_>) -> Result<Option<Ends>, Error> {
    let ends = cx.db.look_at(from, |entry| {
        let series = entry?.object::<Module>()?.get::<Series>()?;
        Some(Ends { source: series.source().map(Box::from), rules: series.rules().to_vec() })
    })?;
    let Some(ends) = ends.filter(|ends| ends.keys().next().is_some()) else { return Ok(None) };
    for key in ends.keys().filter(|&key| key != from.bytes && key != to.bytes) {
        cx.db.hold_also(Key::new(key))?;
    }
    Ok(Some(ends))
}

/// Has the other ends, which are held, refer to `to`, which was `from`. A rule whose other end has
/// been overwritten, or does not refer to `from`, is removed. `request` goes into the journal.
///
/// # Errors
/// None that a request can cause.
pub(crate) fn follow(
    cx: &mut Cx<'_>,
    ends: &Ends,
    (from, to): (Key<'_>, Key<'_>),
    request: &[&[u8]],
) -> Result<(), Error> {
    let mut effects = Effects::default();
    let source = ends.source.as_deref().filter(|&source| source != to.bytes).map(Key::new);
    let rule = match source {
        Some(source) => rule_for(cx, source, from)?,
        None => None,
    };
    if let (Some(source), Some(rule)) = (source, rule) {
        remove(cx, source, from, &mut effects)?;
        put(cx, source, to, rule, &mut effects)?;
        // A series that is made of another one has no rules.
        effects.propagate(cx, request);
        return Ok(());
    }
    if let Some(source) = source
        && rule_for(cx, source, to)?.is_some()
    {
        // That rule was for the series that has been overwritten.
        remove(cx, source, to, &mut effects)?;
    }
    for rule in &ends.rules {
        let target = Key::new(&rule.target);
        let refers_back = |other: &Series| other.source() == Some(from.bytes);
        if target.bytes != to.bytes && compaction::is_of(cx, target.bytes, refers_back)? {
            put(cx, to, target, rule.clone(), &mut effects)?;
        } else {
            remove(cx, to, target, &mut effects)?;
        }
    }
    effects.propagate(cx, request);
    Ok(())
}

/// Returns the rule of a series for a target.
fn rule_for(cx: &Cx<'_>, source: Key<'_>, target: Key<'_>) -> Result<Option<Rule>, Error> {
    cx.db.look_at(source, |entry| {
        let series = entry?.object::<Module>()?.get::<Series>()?;
        series.rules().iter().find(|rule| *rule.target == *target.bytes).cloned()
    })
}

fn put(
    cx: &mut Cx<'_>,
    source: Key<'_>,
    target: Key<'_>,
    rule: Rule,
    effects: &mut Effects,
) -> Result<(), Error> {
    effects.rule_made(source, target, &rule);
    rules::tie(cx, source, target, rule)?;
    cx.db.changed_silently(source);
    cx.db.changed_silently(target);
    Ok(())
}

fn remove(
    cx: &mut Cx<'_>,
    source: Key<'_>,
    target: Key<'_>,
    effects: &mut Effects,
) -> Result<(), Error> {
    effects.rule_removed(source, target);
    cx.db.changed_silently(source);
    if rules::untie(cx, source, target)? {
        cx.db.changed_silently(target);
    }
    Ok(())
}

/// Has a copy of a series refer to no other: their other ends refer to the original.
pub(crate) fn cut(copy: &mut Entry) {
    if let Some(series) = copy.object_mut::<Module>().and_then(Module::get_mut::<Series>) {
        series.rules_mut().clear();
        series.set_source(None);
    }
}
