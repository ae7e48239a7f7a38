//! What keys take and when they expire: sums by the part of a name up to a separator, and by the
//! time that is left.
//!
//! Memory is bounded: at most [`MAX_GROUPS`] prefixes are told apart, the keys of later ones are
//! one group, and so are those of prefixes longer than [`MAX_NAME`].

use crate::blob::Blob;
use crate::link::Words;
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// Prefixes that are told apart.
const MAX_GROUPS: usize = 10_000;
/// Bytes of a prefix that is told apart.
const MAX_NAME: usize = 4 << 10;
/// Prefixes that are shown.
const MAX_SHOWN: usize = 100;

/// The ends of the spans of expiry, in seconds: keys of a span expire before its end.
const SPANS: [u64; 8] =
    [60, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400, u64::MAX];

/// How many keys there are of a kind, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sum {
    /// Keys.
    pub keys: u64,
    /// Bytes of their memory.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.keys += 1;
        self.bytes += bytes;
    }
}

/// Keys whose names begin alike.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Group {
    /// What they begin with, the separator included; a whole name if it has none.
    prefix: Blob,
    /// Whether other names may follow: the prefix ends with the separator.
    is_open: bool,
    #[serde(flatten)]
    sum: Sum,
    /// Keys of these that expire.
    expiring: u64,
}

/// Keys that expire within a span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Span {
    /// The end of the span in seconds from now; none: later than all others.
    until_s: Option<u64>,
    #[serde(flatten)]
    sum: Sum,
}

/// What an analysis has found so far.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Found {
    /// All keys.
    all: Sum,
    /// The prefixes with the most bytes, the most first.
    groups: Vec<Group>,
    /// Keys of prefixes that are not among these.
    others: Sum,
    /// Keys by the time that they still have.
    spans: Vec<Span>,
    /// Keys that stay.
    staying: Sum,
    /// Keys that the server gave no answer for. They are in none of the sums.
    skipped: u64,
}

/// Returns whether a reply means that no key can be looked at.
fn ends_all(error: &str) -> bool {
    ["NOPERM", "NOAUTH", "ERR unknown "].iter().any(|start| error.starts_with(start))
}

#[derive(Default)]
struct Counted {
    sum: Sum,
    expiring: u64,
    is_open: bool,
}

/// An analysis at work.
pub struct Analysis {
    /// Names begin with it.
    prefix: Vec<u8>,
    /// What a prefix ends with.
    separator: Vec<u8>,
    all: Sum,
    groups: HashMap<Vec<u8>, Counted>,
    others: Sum,
    spans: [Sum; SPANS.len()],
    staying: Sum,
    skipped: u64,
}

impl Analysis {
    /// Of keys that begin with `prefix`.
    pub fn new(prefix: &[u8], separator: &[u8]) -> Analysis {
        Analysis {
            prefix: prefix.to_vec(),
            separator: separator.to_vec(),
            all: Sum::default(),
            groups: HashMap::new(),
            others: Sum::default(),
            spans: [Sum::default(); SPANS.len()],
            staying: Sum::default(),
            skipped: 0,
        }
    }

    /// The requests whose replies [`Analysis::take`] wants.
    pub fn requests(keys: &[&[u8]]) -> Vec<Words> {
        let of = |key: &&[u8]| [words!["MEMORY", "USAGE", *key], words!["PTTL", *key]];
        keys.iter().flat_map(of).collect()
    }

    /// Adds keys, with two replies for each. A key that is refused, since its slot moves, is
    /// skipped.
    ///
    /// # Errors
    /// The user may not ask for them, or the server does not know the commands.
    pub fn take(&mut self, keys: &[&[u8]], replies: &[Value]) -> Result<(), String> {
        for (key, pair) in keys.iter().zip(replies.chunks_exact(2)) {
            if let Some(error) = pair.iter().find_map(Value::error) {
                if ends_all(&error) {
                    return Err(error.into_owned());
                }
                self.skipped += 1;
                continue;
            }
            let [memory, left] = [0, 1].map(|at| pair[at].integer());
            // A key that is gone meanwhile has no memory, and -2 for a time.
            if let (Some(memory), Some(left)) = (memory, left.filter(|left| *left >= -1)) {
                self.add(key, memory.max(0) as u64, u64::try_from(left).ok());
            }
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], bytes: u64, left_ms: Option<u64>) {
        self.all.add(bytes);
        match left_ms {
            Some(left) => {
                let at = SPANS.iter().position(|end| left / 1000 < *end);
                self.spans[at.unwrap_or(SPANS.len() - 1)].add(bytes);
            }
            None => self.staying.add(bytes),
        }
        let (name, is_open) = self.group_of(key);
        let is_full = self.groups.len() >= MAX_GROUPS;
        if name.len() > MAX_NAME || is_full && !self.groups.contains_key(name) {
            self.others.add(bytes);
            return;
        }
        let group = self.groups.entry(name.to_vec()).or_default();
        group.is_open = is_open;
        group.sum.add(bytes);
        group.expiring += u64::from(left_ms.is_some());
    }

    /// The group of a key, and whether it can have other keys.
    fn group_of<'a>(&self, key: &'a [u8]) -> (&'a [u8], bool) {
        let (from, len) = (self.prefix.len(), self.separator.len());
        let rest = key.get(from..).unwrap_or_default();
        let at = rest.windows(len.max(1)).position(|part| part == self.separator);
        at.map_or((key, false), |at| (&key[..from + at + len], true))
    }

    /// What there is so far.
    pub fn found(&self) -> Found {
        let mut groups: Vec<(&Vec<u8>, &Counted)> = self.groups.iter().collect();
        groups.sort_by(|(a, one), (b, other)| {
            other.sum.bytes.cmp(&one.sum.bytes).then_with(|| a.cmp(b))
        });
        let mut others = self.others;
        for (_, rest) in groups.drain(groups.len().min(MAX_SHOWN)..) {
            others.keys += rest.sum.keys;
            others.bytes += rest.sum.bytes;
        }
        let group = |(prefix, counted): (&Vec<u8>, &Counted)| Group {
            prefix: Blob::from(prefix.as_slice()),
            is_open: counted.is_open,
            sum: counted.sum,
            expiring: counted.expiring,
        };
        let span = |(&end, &sum): (&u64, &Sum)| Span {
            until_s: Some(end).filter(|end| *end != u64::MAX),
            sum,
        };
        Found {
            all: self.all,
            groups: groups.into_iter().map(group).collect(),
            others,
            spans: SPANS.iter().zip(&self.spans).map(span).collect(),
            staying: self.staying,
            skipped: self.skipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: i64) -> Value {
        Value::Integer(value)
    }

    #[test]
    fn keys_are_summed_by_prefix_and_by_the_time_that_is_left() {
        let mut analysis = Analysis::new(b"", b":");
        let keys: [&[u8]; 4] = [b"user:1", b"user:2", b"alone", b"gone"];
        let replies = [100, -1, 50, 59_999, 7, 60_000, 0, -2].map(number);
        analysis.take(&keys, &replies).unwrap();
        let found = analysis.found();
        assert_eq!(found.all, Sum { keys: 3, bytes: 157 });
        let groups: Vec<_> =
            found.groups.iter().map(|it| (&*it.prefix.bytes, it.sum, it.expiring)).collect();
        assert_eq!(
            groups,
            [
                (&b"user:"[..], Sum { keys: 2, bytes: 150 }, 1),
                (b"alone", Sum { keys: 1, bytes: 7 }, 1)
            ]
        );
        assert_eq!(found.spans[0], Span { until_s: Some(60), sum: Sum { keys: 1, bytes: 50 } });
        assert_eq!(found.spans[1].sum, Sum { keys: 1, bytes: 7 });
        assert_eq!(found.spans.last().and_then(|span| span.until_s), None);
        assert_eq!(found.staying, Sum { keys: 1, bytes: 100 });
    }

    #[test]
    fn groups_below_a_prefix_are_told_apart() {
        let mut analysis = Analysis::new(b"a:", b":");
        for key in [&b"a:b:1"[..], b"a:b:2", b"a:c", b"a:"] {
            analysis.add(key, 1, None);
        }
        let found = analysis.found();
        let names: Vec<_> = found.groups.iter().map(|it| (&*it.prefix.bytes, it.is_open)).collect();
        assert_eq!(names, [(&b"a:b:"[..], true), (b"a:", false), (b"a:c", false)]);
    }

    #[test]
    fn prefixes_without_end_take_bounded_memory() {
        let mut analysis = Analysis::new(b"", b":");
        for number in 0..2 * MAX_GROUPS {
            analysis.add(format!("key-{number}").as_bytes(), 10, None);
        }
        let found = analysis.found();
        assert_eq!(analysis.groups.len(), MAX_GROUPS);
        assert_eq!(found.groups.len(), MAX_SHOWN);
        let keys = 2 * MAX_GROUPS as u64;
        assert_eq!(found.others.keys, keys - MAX_SHOWN as u64);
        assert_eq!(found.all, Sum { keys, bytes: 10 * keys });
    }

    #[test]
    fn long_names_are_not_kept() {
        let mut analysis = Analysis::new(b"", b":");
        let name = |len| vec![b'a'; len];
        analysis.add(&name(MAX_NAME), 1, None);
        analysis.add(&name(MAX_NAME + 1), 2, None);
        analysis.add(&[&b"b:"[..], &name(2 * MAX_NAME)].concat(), 4, None);
        let found = analysis.found();
        assert_eq!(found.others, Sum { keys: 1, bytes: 2 });
        assert_eq!(found.groups.len(), 2, "what a long name begins with may be short");
        assert_eq!(found.all, Sum { keys: 3, bytes: 7 });
    }

    #[test]
    fn a_refusal_ends_it() {
        for text in ["NOPERM no", "NOAUTH no", "ERR unknown command 'MEMORY'"] {
            let mut analysis = Analysis::new(b"", b":");
            let refused = Value::Error(text.into());
            let failed = analysis.take(&[b"a"], &[refused, number(1)]);
            assert_eq!(failed, Err(text.to_owned()));
        }
    }

    #[test]
    fn keys_that_move_are_skipped() {
        let mut analysis = Analysis::new(b"", b":");
        for text in ["MOVED 1 a:1", "ASK 1 a:1", "TRYAGAIN later"] {
            let refused = || Value::Error(text.into());
            let replies = [refused(), refused(), number(5), number(-1), number(5), refused()];
            assert_eq!(analysis.take(&[b"a", b"b", b"c"], &replies), Ok(()));
        }
        let found = analysis.found();
        assert_eq!((found.all, found.skipped), (Sum { keys: 3, bytes: 15 }, 6));
    }
}
