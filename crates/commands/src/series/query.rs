//! The words of queries: times, filters of samples, buckets, filters of labels.

use super::whole;
use engine::{Args, Error};
use series::aggregate::Aggregator;
use series::buckets::Buckets;
use series::range::{Aggregation, Query, Stamp};
use std::ops::Range;
use structs::labels::{Filter, Test};
use structs::numbers::parse_f64;

pub(super) const BAD_AGGREGATOR: Error = Error::text("ERR TSDB: Unknown aggregation type");
/// The error of a query whose rows are too many.
pub(super) const TOO_MANY: Error =
    Error::text("ERR TSDB: the query has too many buckets; take longer ones or a shorter time");

/// Which end of a time a word is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    From,
    To,
}

/// Returns a word as one end of a time.
pub(super) fn bound(word: &[u8], bound: Bound) -> Result<u64, Error> {
    match (word, bound) {
        (b"-", _) => Ok(0),
        (b"+", _) => Ok(i64::MAX as u64),
        (_, Bound::From) => whole(word).ok_or(Error::text("ERR TSDB: wrong fromTimestamp")),
        (_, Bound::To) => whole(word).ok_or(Error::text("ERR TSDB: wrong toTimestamp")),
    }
}

/// Returns a word as the duration of buckets.
pub(super) fn duration(word: &[u8]) -> Result<u64, Error> {
    let duration = whole(word).ok_or(Error::text("ERR TSDB: Couldn't parse bucketDuration"))?;
    let zero = Error::text("ERR TSDB: bucketDuration must be greater than zero");
    if duration == 0 { Err(zero) } else { Ok(duration) }
}

/// Returns a word as aggregators, which commas separate.
fn aggregators(word: &[u8]) -> Result<Vec<Aggregator>, Error> {
    let named = |name| Aggregator::named(name).ok_or(BAD_AGGREGATOR);
    word.split(|&byte| byte == b',').map(named).collect()
}

/// Which labels replies have.
pub(super) enum Shown {
    None,
    All,
    Selected(Vec<Box<[u8]>>),
}

impl Shown {
    /// Takes what a request says.
    ///
    /// # Errors
    /// It names no label, or says both.
    pub(super) fn set(&mut self, shown: Shown) -> Result<(), Error> {
        match (&*self, &shown) {
            (_, Shown::Selected(labels)) if labels.is_empty() => {
                Err(Error::text("ERR TSDB: SELECT_LABELS should have at least 1 parameter"))
            }
            (Shown::All, Shown::Selected(_)) | (Shown::Selected(_), Shown::All) => {
                Err(Error::text("ERR TSDB: cannot accept WITHLABELS and SELECT_LABELS together"))
            }
            _ => {
                *self = shown;
                Ok(())
            }
        }
    }
}

/// How series are put into groups.
pub(super) struct Grouping {
    pub label: Box<[u8]>,
    pub reducer: Aggregator,
}

/// What a request reads.
pub(super) struct QueryOptions {
    pub query: Query,
    /// The aggregators of each key, of TS.NRANGE.
    pub of_keys: Vec<Vec<Aggregator>>,
    pub latest: bool,
    /// Series without rows are left out.
    pub excludes_empty: bool,
    pub shown: Shown,
    pub filters: Option<Vec<Filter>>,
    pub grouping: Option<Grouping>,
    /// The words that say how the reply looks: labels, groups, their number of rows.
    pub of_reply: Vec<Range<usize>>,
}

/// The words that end a list.
const KEYWORDS: [&str; 15] = [
    "excludeempty",
    "latest",
    "filter_by_ts",
    "filter_by_value",
    "withlabels",
    "selected_labels",
    "count",
    "align",
    "aggregation",
    "buckettimestamp",
    "empty",
    "filter",
    "groupby",
    "reduce",
    "values",
];

/// Returns where a list of words ends that begins at a place.
pub(super) fn end_of_list(args: Args<'_>, from: usize) -> usize {
    let is_end = |&at: &usize| KEYWORDS.iter().any(|keyword| args.is(at, keyword));
    (from..args.len()).find(is_end).unwrap_or(args.len())
}

/// Reads a query.
struct Parser<'a> {
    args: Args<'a>,
    at: usize,
    /// So many aggregations are named, one a key.
    keys: usize,
    align: Option<&'a [u8]>,
    aggregation: Option<Aggregation>,
    stamp: Option<Stamp>,
    empty: bool,
    options: QueryOptions,
}

/// Reads the words from the first time on. `keys` is the number of aggregations.
pub(super) fn parse(
    args: Args<'_>,
    at: usize,
    is_reverse: bool,
    keys: usize,
) -> Result<QueryOptions, Error> {
    let (Some(from), Some(to)) = (args.get(at), args.get(at + 1)) else {
        return Err(Error::Syntax);
    };
    let query = Query {
        from: bound(from, Bound::From)?,
        to: bound(to, Bound::To)?,
        times: None,
        values: None,
        aggregation: None,
        count: None,
        is_reverse,
    };
    let options = QueryOptions {
        query,
        of_keys: Vec::new(),
        latest: false,
        excludes_empty: false,
        shown: Shown::None,
        filters: None,
        grouping: None,
        of_reply: Vec::new(),
    };
    let mut parser = Parser {
        args,
        at: at + 2,
        keys,
        align: None,
        aggregation: None,
        stamp: None,
        empty: false,
        options,
    };
    while parser.at < args.len() {
        parser.take()?;
    }
    parser.finish(from, to)
}

impl<'a> Parser<'a> {
    fn word(&mut self) -> Option<&'a [u8]> {
        let word = self.args.get(self.at);
        self.at += 1;
        word
    }

    fn take(&mut self) -> Result<(), Error> {
        let at = self.at;
        let is = |keyword| self.args.is(at, keyword);
        self.at += 1;
        let is_of_reply = ["withlabels", "selected_labels", "count", "groupby"].into_iter().any(is);
        match () {
            () if is("latest") => self.options.latest = true,
            () if is("excludeempty") => self.options.excludes_empty = true,
            () if is("empty") => self.empty = true,
            () if is("withlabels") => self.options.shown.set(Shown::All)?,
            () if is("filter_by_ts") => self.take_times()?,
            () if is("filter_by_value") => self.take_values()?,
            () if is("count") => {
                let count = self.word().and_then(whole).filter(|&count| count > 0);
                let count = count.ok_or(Error::text("ERR TSDB: Couldn't parse COUNT"))?;
                self.options.query.count = Some(usize::try_from(count).unwrap_or(usize::MAX));
            }
            () if is("align") => {
                let unreadable = Error::text("ERR TSDB: Couldn't parse ALIGN");
                self.align = Some(self.word().ok_or(unreadable)?);
            }
            () if is("aggregation") => self.take_aggregation()?,
            () if is("buckettimestamp") => self.take_stamp()?,
            () if is("selected_labels") => {
                let end = end_of_list(self.args, self.at);
                let labels = self.args.words()[self.at..end].iter();
                self.options.shown.set(Shown::Selected(labels.map(|&it| it.into()).collect()))?;
                self.at = end;
            }
            () if is("filter") => {
                let end = end_of_list(self.args, self.at);
                self.options.filters = Some(filters(&self.args.words()[self.at..end])?);
                self.at = end;
            }
            () if is("groupby") => self.take_grouping()?,
            () => return Err(Error::Syntax),
        }
        if is_of_reply {
            self.options.of_reply.push(at..self.at);
        }
        Ok(())
    }

    fn take_times(&mut self) -> Result<(), Error> {
        let mut times = Vec::new();
        while let Some(time) = self.args.get(self.at).and_then(whole) {
            times.push(time);
            self.at += 1;
        }
        if times.is_empty() {
            return Err(Error::text("ERR TSDB: FILTER_BY_TS one or more arguments are missing"));
        }
        times.sort_unstable();
        self.options.query.times = Some(times);
        Ok(())
    }

    fn take_values(&mut self) -> Result<(), Error> {
        let mut number = |what: &'static str| {
            self.word().and_then(parse_f64).filter(|it| !it.is_nan()).ok_or(Error::text(what))
        };
        let least = number("ERR TSDB: Couldn't parse MIN")?;
        let most = number("ERR TSDB: Couldn't parse MAX")?;
        self.options.query.values = Some((least, most));
        Ok(())
    }

    fn take_aggregation(&mut self) -> Result<(), Error> {
        let unreadable = Error::text("ERR TSDB: Couldn't parse AGGREGATION");
        for _ in 0..self.keys {
            let word = self.word().ok_or(unreadable.clone())?;
            self.options.of_keys.push(aggregators(word)?);
        }
        let duration = duration(self.word().ok_or(unreadable)?)?;
        self.aggregation = Some(Aggregation {
            aggregators: self.options.of_keys[0].clone(),
            buckets: Buckets { duration, align: 0 },
            stamp: Stamp::Start,
            empty: false,
        });
        Ok(())
    }

    fn take_stamp(&mut self) -> Result<(), Error> {
        let word = self.word().unwrap_or_default();
        let is = |names: [&[u8]; 2]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
        self.stamp = Some(match () {
            () if is([b"start", b"-"]) => Stamp::Start,
            () if is([b"end", b"+"]) => Stamp::End,
            () if is([b"mid", b"~"]) => Stamp::Mid,
            () => return Err(Error::text("ERR TSDB: unknown BUCKETTIMESTAMP parameter")),
        });
        Ok(())
    }

    fn take_grouping(&mut self) -> Result<(), Error> {
        let unreadable = Error::text("ERR TSDB: missing labels for GROUPBY");
        let label = self.word().ok_or(unreadable)?;
        let reduce = self.word().unwrap_or_default();
        if !reduce.eq_ignore_ascii_case(b"reduce") {
            return Err(Error::text("ERR TSDB: missing REDUCE"));
        }
        let reducer = Aggregator::named(self.word().unwrap_or_default())
            .filter(|reducer| reducer.reduces())
            .ok_or(Error::text("ERR TSDB: Invalid reducer type"))?;
        self.options.grouping = Some(Grouping { label: label.into(), reducer });
        Ok(())
    }

    fn finish(mut self, from: &[u8], to: &[u8]) -> Result<QueryOptions, Error> {
        let Some(mut aggregation) = self.aggregation else {
            if self.align.is_some() {
                return Err(Error::text(
                    "ERR TSDB: ALIGN parameter can only be used with AGGREGATION",
                ));
            }
            if self.empty || self.stamp.is_some() {
                return Err(Error::text(
                    "ERR TSDB: EMPTY and BUCKETTIMESTAMP can only be used with AGGREGATION",
                ));
            }
            return Ok(self.options);
        };
        let query = &mut self.options.query;
        aggregation.empty = self.empty;
        aggregation.stamp = self.stamp.unwrap_or(Stamp::Start);
        aggregation.buckets.align = match self.align {
            None => 0,
            Some(word) if word == b"-" || word.eq_ignore_ascii_case(b"start") => {
                if from == b"-" {
                    return Err(Error::text(
                        "ERR TSDB: start alignment can only be used with explicit start timestamp",
                    ));
                }
                query.from
            }
            Some(word) if word == b"+" || word.eq_ignore_ascii_case(b"end") => {
                if to == b"+" {
                    return Err(Error::text(
                        "ERR TSDB: end alignment can only be used with explicit end timestamp",
                    ));
                }
                query.to
            }
            Some(word) => whole(word).ok_or(Error::text("ERR TSDB: unknown ALIGN parameter"))?,
        };
        query.aggregation = Some(aggregation);
        Ok(self.options)
    }
}

/// Reads filters of labels.
///
/// # Errors
/// One is none.
pub(super) fn filters(words: &[&[u8]]) -> Result<Vec<Filter>, Error> {
    words.iter().map(|word| filter(word)).collect()
}

/// Reads `label=value`, `label=(value,…)`, `label=`, and the same with `!=`. Values may be quoted.
fn filter(word: &[u8]) -> Result<Filter, Error> {
    let unreadable = Error::text("ERR TSDB: failed parsing labels");
    let at = word.iter().position(|&byte| byte == b'=').ok_or(unreadable.clone())?;
    let (name, value) = (&word[..at], &word[at + 1..]);
    let (name, is_not) = match name.strip_suffix(b"!") {
        Some(name) => (name, true),
        None => (name, false),
    };
    if name.is_empty() {
        return Err(unreadable);
    }
    let value = unquoted(value);
    let values: Vec<Box<[u8]>> = match value.strip_prefix(b"(") {
        None if value.is_empty() => Vec::new(),
        None => vec![value.into()],
        Some(list) => {
            let list = list.strip_suffix(b")").ok_or(unreadable.clone())?;
            let values = list.split(|&byte| byte == b',').map(|it| unquoted(it.trim_ascii()));
            let values: Vec<Box<[u8]>> = values.map(Box::from).collect();
            if values.iter().any(|value| value.is_empty()) {
                return Err(unreadable);
            }
            values
        }
    };
    let test = if is_not { Test::IsNot(values) } else { Test::Is(values) };
    Ok(Filter { name: name.into(), test })
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read() {
        let values = |of: &[&str]| of.iter().map(|it| it.as_bytes().into()).collect::<Vec<_>>();
        for (word, name, test) in [
            ("a=1", "a", Test::Is(values(&["1"]))),
            ("a!=1", "a", Test::IsNot(values(&["1"]))),
            ("a=", "a", Test::Is(Vec::new())),
            ("a!=", "a", Test::IsNot(Vec::new())),
            ("a=(x,y y)", "a", Test::Is(values(&["x", "y y"]))),
            ("a='(x,z)'", "a", Test::Is(values(&["x", "z"]))),
            ("a=\"b=c\"", "a", Test::Is(values(&["b=c"]))),
        ] {
            let filter = filter(word.as_bytes()).expect(word);
            assert_eq!((&*filter.name, filter.test), (name.as_bytes(), test), "{word}");
        }
        for word in ["a", "=b", "!=b", "a=(b", "a=(,)"] {
            assert!(filter(word.as_bytes()).is_err(), "{word}");
        }
    }
}
