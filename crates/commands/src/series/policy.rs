//! `ts-compaction-policy`: series that requests create get rules, and the series that these make.
//!
//! They are named after their source: `temperature_MAX_60000`. A key that is there is left alone,
//! and its rule left out; so is one that would be in another slot.

use super::compaction::Effects;
use super::create::CREATED;
use super::options::{configured, creation};
use super::rules;
use crate::typed;
use config::{CompactionRule, SeriesEncoding, parse_compaction};
use engine::{Cx, Error, Key};
use series::aggregate::Aggregator;
use series::buckets::Buckets;
use series::{Encoding, Rule, Series, Settings};
use structs::labels::Labels;

/// A rule of the policy, and the key of the series that it makes.
pub(super) struct Planned {
    rule: CompactionRule,
    target: Vec<u8>,
}

/// Returns the rules of a series that is about to be created, and holds their keys.
///
/// # Errors
/// One cannot be had now.
pub(super) fn rules(cx: &mut Cx<'_>, key: Key<'_>) -> Result<Vec<Planned>, Error> {
    let policy = cx.engine.config.ts_compaction_policy();
    if policy.is_empty() || cx.db.repeats_history() {
        return Ok(Vec::new());
    }
    let mut planned: Vec<Planned> = Vec::new();
    for rule in parse_compaction(&policy).unwrap_or_default() {
        let target = name(key, &rule);
        let is_new = planned.iter().all(|other| other.target != target);
        if is_new && cx.slot_of(Key::new(&target)) == cx.slot_of(key) {
            planned.push(Planned { rule, target });
        }
    }
    for planned in &planned {
        cx.db.hold_also(Key::new(&planned.target))?;
    }
    planned.retain(|planned| cx.db.lookup_write(Key::new(&planned.target)).is_none());
    Ok(planned)
}

/// Returns the name of the series of a rule.
fn name(key: Key<'_>, rule: &CompactionRule) -> Vec<u8> {
    let mut name = key.bytes.to_vec();
    let aggregator = rule.aggregator.to_uppercase();
    name.extend(format!("_{aggregator}_{}", rule.bucket).bytes());
    if rule.align > 0 {
        name.extend(format!("_{}", rule.align).bytes());
    }
    name
}

/// Makes the series of a rule, and the rule.
pub(super) fn make(
    cx: &mut Cx<'_>,
    source: Key<'_>,
    labels: &Labels,
    Planned { rule, target }: Planned,
    effects: &mut Effects,
) -> Result<(), Error> {
    let key = Key::new(&target);
    let config = &cx.engine.config;
    let settings = Settings {
        retention: rule.retention,
        encoding: match config.ts_encoding() {
            SeriesEncoding::Compressed => Encoding::Compressed,
            SeriesEncoding::Uncompressed => Encoding::Uncompressed,
        },
        ..configured(config)
    };
    let series = Series::new(settings, labels_of(labels, &rule));
    let words = creation(key, &series);
    effects.command(&words.iter().map(|word| &**word).collect::<Vec<_>>());
    typed::create(&mut cx.db, key, series);
    let aggregator = Aggregator::named(rule.aggregator.as_bytes()).unwrap_or(Aggregator::Avg);
    let buckets = Buckets { duration: rule.bucket, align: rule.align };
    let rule = Rule { target: key.bytes.into(), aggregator, buckets, after: None };
    effects.rule_made(source, key, &rule);
    rules::tie(cx, source, key, rule)?;
    cx.db.changed(key, CREATED);
    Ok(())
}

/// Returns the labels of the source, and what the rule is.
fn labels_of(labels: &Labels, rule: &CompactionRule) -> Labels {
    let own =
        [("aggregation", rule.aggregator.to_uppercase()), ("time_bucket", rule.bucket.to_string())];
    let own = own.map(|(name, value)| (name.as_bytes().into(), value.into_bytes().into()));
    let of_source = labels.iter().map(|(name, value)| (name.into(), value.into()));
    Labels::new(of_source.chain(own).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_has_the_aggregators_of_series() {
        for name in config::AGGREGATORS {
            let aggregator = Aggregator::named(name.as_bytes()).map(Aggregator::name);
            assert_eq!(aggregator, Some(name));
        }
    }
}
