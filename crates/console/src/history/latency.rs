//! Percentiles of latency by group of commands, from the histograms of the server.
//!
//! LATENCY HISTOGRAM counts since the start. What happened between two samples is the difference,
//! of which percentiles are worked out; within a bucket values are taken to be spread evenly.

use resp::Value;
use std::collections::{BTreeMap, HashMap};

/// A group of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Those that read.
    Read,
    /// Those that write.
    Write,
    /// All others.
    Other,
}

/// The groups of commands by name, from their flags.
pub type Groups = HashMap<String, Group>;

/// Reads a reply to COMMAND.
pub fn groups(reply: &Value) -> Groups {
    let group = |row: &Value| {
        let [name, _, flags, ..] = row.items() else { return None };
        let has = |flag: &str| flags.items().iter().any(|other| other.text() == flag);
        let group = match () {
            () if has("write") => Group::Write,
            () if has("readonly") => Group::Read,
            () => Group::Other,
        };
        Some((name.text().to_ascii_lowercase(), group))
    };
    reply.items().iter().filter_map(group).collect()
}

/// Counts by the upper end of their bucket in microseconds.
type Buckets = BTreeMap<u64, f64>;

/// Calls of each group, by how long they took.
#[derive(Clone, Debug, Default)]
pub struct Histograms(BTreeMap<Group, Buckets>);

/// Three percentiles of a group, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct Percentiles {
    /// Half of the calls took less.
    pub p50: f64,
    /// 99 of 100 calls took less.
    pub p99: f64,
    /// 999 of 1000 calls took less.
    pub p999: f64,
}

impl Histograms {
    /// Reads a reply to LATENCY HISTOGRAM.
    pub fn parse(reply: &Value, groups: &Groups) -> Histograms {
        let mut all = Histograms::default();
        for (name, histogram) in reply.pairs() {
            let name = name.text().to_ascii_lowercase();
            let name = name.split('|').next().unwrap_or_default();
            let group = groups.get(name).copied().unwrap_or(Group::Other);
            let buckets = all.0.entry(group).or_default();
            let mut before = 0.0;
            // The counts of the reply include those of lower buckets.
            for (end, count) in
                histogram.get("histogram_usec").map(Value::pairs).unwrap_or_default()
            {
                let count = count.number().unwrap_or(0.0);
                *buckets.entry(end.integer().unwrap_or(0).max(0) as u64).or_default() +=
                    count - before;
                before = count;
            }
        }
        all
    }

    /// What came since an earlier one; all if the counters began anew.
    pub fn since(&self, before: &Histograms) -> Histograms {
        let empty = Buckets::new();
        let difference = |(group, buckets): (&Group, &Buckets)| {
            let old = before.0.get(group).unwrap_or(&empty);
            let rest = |(end, count): (&u64, &f64)| {
                (*end, (count - old.get(end).copied().unwrap_or(0.0)).max(0.0))
            };
            (*group, buckets.iter().map(rest).collect())
        };
        Histograms(self.0.iter().map(difference).collect())
    }

    /// The time in microseconds that this share of the calls of a group did not pass; 0 without
    /// calls.
    pub fn percentile(&self, group: Group, share: f64) -> f64 {
        let Some(buckets) = self.0.get(&group) else { return 0.0 };
        let total: f64 = buckets.values().sum();
        if total <= 0.0 {
            return 0.0;
        }
        let (mut passed, mut start) = (0.0, 0.0);
        for (&end, &count) in buckets {
            let end = end as f64;
            if count > 0.0 && passed + count >= share * total {
                return start + (end - start) * (share * total - passed) / count;
            }
            passed += count;
            start = end;
        }
        start
    }

    /// Three percentiles of a group.
    pub fn percentiles(&self, group: Group) -> Percentiles {
        let at = |share| self.percentile(group, share);
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(counts: &[(i64, i64)]) -> Value {
        let pair = |&(end, count): &(i64, i64)| (Value::Integer(end), Value::Integer(count));
        let histogram = Value::Map(counts.iter().map(pair).collect());
        let text = |text: &str| Value::Bulk(text.into());
        let command = Value::Map(vec![(text("histogram_usec"), histogram)]);
        Value::Map(vec![(text("get"), command)])
    }

    #[test]
    fn percentiles_are_of_what_came_between() {
        let groups = Groups::from([("get".to_owned(), Group::Read)]);
        let before = Histograms::parse(&reply(&[(1, 1000)]), &groups);
        let after = Histograms::parse(&reply(&[(1, 1000), (2, 1000), (4, 1100)]), &groups);
        let between = after.since(&before);
        assert_eq!(between.percentile(Group::Read, 0.5), 3.0);
        assert_eq!(between.percentile(Group::Write, 0.5), 0.0);
        assert_eq!(after.since(&after).percentile(Group::Read, 0.99), 0.0);
        assert!(after.percentile(Group::Read, 0.5) < 1.0);
    }
}
