//! Rules tried on keys: which rule matches, the tag, the slot, the shard, and how keys spread over
//! shards.

use crate::settings::Wrong;
use crate::site::{Database, Placed};
use crate::talk;
use cluster::hashing::Hashing;
use cluster::slots::COUNT;
use cluster::topology::Topology;
use cluster::view::View;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most keys of one trial.
const MAX_KEYS: usize = 100_000;

/// Keys that are taken from a database.
const SAMPLE: usize = 1000;

/// How long a database may take to name some of its keys.
const LIMIT: Duration = Duration::from_secs(10);

/// Rules, and keys to try them on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// The rules; none is the standard rule.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Keys.
    #[serde(default)]
    pub keys: Vec<String>,
    /// A database, of which some keys are taken, too, and whose shards are meant.
    #[serde(default)]
    pub database: Option<String>,
    /// How many shards there would be, without a database.
    #[serde(default)]
    pub shards: Option<usize>,
}

/// What became of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TriedKey {
    /// The key; bytes that are no text are shown as such.
    pub key: String,
    /// The rule that matches, counted from 1; 0 is the standard rule. None: the key is refused.
    pub rule: Option<usize>,
    /// The part of it that decides.
    pub tag: Option<String>,
    /// Its slot.
    pub slot: Option<u16>,
    /// Its shard, counted from 1.
    pub shard: Option<usize>,
}

/// The part of the keys that a shard gets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The shard, counted from 1.
    pub shard: usize,
    /// How many keys.
    pub keys: usize,
    /// Of a hundred.
    pub percent: f64,
}

/// What came of a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// The keys.
    pub keys: Vec<TriedKey>,
    /// How they spread.
    pub parts: Vec<Part>,
    /// Keys that no rule matches.
    pub unmatched: usize,
    /// Different tags among the keys. Keys of one tag are always on one shard.
    pub tags: usize,
    /// The share of the greatest shard by that of the mean; 1 is even, 0 if no key has a slot.
    pub skew: f64,
}

/// Tries rules on the keys of a trial and those of a sample.
///
/// # Errors
/// The rules, or the numbers of keys or shards, are not possible.
pub fn attempt(
    trial: &Trial,
    sample: &[Vec<u8>],
    topology: Option<&Topology>,
) -> Result<Tried, Wrong> {
    let hashing = Hashing::new(&trial.rules).map_err(|flaw| Wrong(flaw.to_string()))?;
    if trial.keys.len() > MAX_KEYS {
        return Err(Wrong(format!("{} keys are more than {MAX_KEYS}", trial.keys.len())));
    }
    let shards = match topology {
        Some(topology) => topology.shards.len(),
        None => trial.shards.unwrap_or(3),
    };
    if !(1..=usize::from(COUNT)).contains(&shards) {
        return Err(Wrong(format!("a database has 1 to {COUNT} shards")));
    }
    let shard_of = |slot: u16| match topology {
        Some(topology) => {
            topology.shards.iter().position(|shard| shard.slots.contains(slot)).map(|at| at + 1)
        }
        // As create-db gives slots to shards.
        None => {
            let begin = |shard: usize| usize::from(COUNT) * shard / shards;
            (0..shards).rev().find(|&shard| begin(shard) <= usize::from(slot)).map(|at| at + 1)
        }
    };
    let keys: Vec<TriedKey> = trial
        .keys
        .iter()
        .map(String::as_bytes)
        .chain(sample.iter().map(Vec::as_slice))
        .map(|key| {
            let found = hashing.explain(key);
            let slot = found.and_then(|_| hashing.slot(key));
            TriedKey {
                key: String::from_utf8_lossy(key).into_owned(),
                rule: found.map(|(rule, _)| rule),
                tag: found.map(|(_, tag)| String::from_utf8_lossy(tag).into_owned()),
                slot,
                shard: slot.and_then(shard_of),
            }
        })
        .collect();
    let mut counts = vec![0_usize; shards];
    keys.iter().filter_map(|key| key.shard).for_each(|shard| counts[shard - 1] += 1);
    let placed: usize = counts.iter().sum();
    let share = |count: usize| if placed == 0 { 0.0 } else { count as f64 / placed as f64 };
    let part = |(at, &count): (usize, &usize)| Part {
        shard: at + 1,
        keys: count,
        percent: (share(count) * 1000.0).round() / 10.0,
    };
    let mut tags: Vec<&String> = keys.iter().filter_map(|key| key.tag.as_ref()).collect();
    tags.sort_unstable();
    tags.dedup();
    let most = counts.iter().copied().max().unwrap_or(0);
    Ok(Tried {
        parts: counts.iter().enumerate().map(part).collect(),
        unmatched: keys.iter().filter(|key| key.rule.is_none()).count(),
        tags: tags.len(),
        skew: (share(most) * shards as f64 * 100.0).round() / 100.0,
        keys,
    })
}

/// Takes some keys of a database, at random.
///
/// # Errors
/// A primary of it does not answer.
pub fn sample(database: &Database, view: Option<&View>) -> Result<Vec<Vec<u8>>, Wrong> {
    let unnamed = |why: &str| Wrong(format!("the database names no keys: {why}"));
    let primaries: Vec<&Placed> =
        view.into_iter().flat_map(|view| database.primaries(&view.topology.value)).collect();
    // What each has for itself: of all of them together, the largest would have no greater part.
    let ask = |placed: &Placed, command: &[&str], times: usize| -> Result<Vec<Value>, Wrong> {
        let questions: Vec<&[&str]> =
            [talk::AS_COPY].into_iter().chain(std::iter::repeat_n(command, times)).collect();
        let place = (&*placed.host, placed.port);
        let mut answers = talk::ask_whole(place, database.login(), &questions, LIMIT)
            .map_err(|error| unnamed(&error.to_string()))?;
        Ok(answers.split_off(1))
    };
    let mut counts = Vec::new();
    for placed in &primaries {
        let count = ask(placed, &["DBSIZE"], 1)?.pop().and_then(|count| count.integer());
        counts.push(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0));
    }
    let all = counts.iter().fold(0_usize, |sum, count| sum.saturating_add(*count)).max(1);
    let mut keys = Vec::new();
    for (placed, count) in primaries.into_iter().zip(counts) {
        let named = ask(placed, &["RANDOMKEY"], SAMPLE.saturating_mul(count).div_ceil(all))?;
        keys.extend(named.iter().filter_map(Value::bytes).map(<[u8]>::to_vec));
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_shows_where_keys_go() {
        let rules = vec!["user:(?<tag>[0-9]+)".to_owned()];
        let keys = ["user:1:a", "user:1:b", "user:2:a", "other"].map(str::to_owned).to_vec();
        let trial = Trial { rules, keys, shards: Some(2), ..Trial::default() };
        let tried = attempt(&trial, &[], None).expect("it can be tried");
        assert_eq!((tried.unmatched, tried.tags), (1, 2));
        assert_eq!(tried.keys[0].tag.as_deref(), Some("1"));
        assert_eq!(
            (tried.keys[0].slot, tried.keys[0].shard),
            (tried.keys[1].slot, tried.keys[1].shard)
        );
        assert_eq!((tried.keys[3].rule, tried.keys[3].shard), (None, None));
        assert_eq!(tried.parts.iter().map(|part| part.keys).sum::<usize>(), 3);
        let standard = attempt(&Trial { keys: trial.keys, ..Trial::default() }, &[], None);
        let standard = standard.expect("the standard rule is one");
        assert_eq!(
            (standard.unmatched, standard.keys[3].rule, standard.parts.len()),
            (0, Some(0), 3)
        );
    }

    #[test]
    fn keys_that_are_no_text_are_tried_as_they_are() {
        let key = b"\xff\xfe".to_vec();
        let slot = structs::crc16::key_slot(&key);
        let tried = attempt(&Trial::default(), &[key], None).expect("it can be tried");
        assert_eq!((&*tried.keys[0].key, tried.keys[0].slot), ("\u{fffd}\u{fffd}", Some(slot)));
    }

    #[test]
    fn what_cannot_be_tried_is_refused() {
        let trial = |rule: &str, shards| Trial {
            rules: vec![rule.to_owned()],
            shards: Some(shards),
            ..Trial::default()
        };
        let why = |trial| attempt(&trial, &[], None).expect_err("it is wrong").0;
        assert!(why(trial("(", 2)).contains("no regular expression"));
        assert!(why(trial("(?<tag>.*)", 0)).contains("1 to 16384 shards"));
    }
}
