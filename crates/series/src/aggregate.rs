//! What a bucket of samples is reduced to.
//!
//! Values that are no number (NaN) are left out, except by the two that count them. Variances are
//! computed by differences to the mean so far (Welford), so they stay right for large values.

use crate::Sample;

/// How samples are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of requests")]
pub enum Aggregator {
    Avg,
    Sum,
    Min,
    Max,
    Range,
    Count,
    CountNan,
    CountAll,
    First,
    Last,
    StdP,
    StdS,
    VarP,
    VarS,
    Twa,
}

/// The aggregators and their names, in the order of the numbers that files have.
static NAMES: [(Aggregator, &str); 15] = [
    (Aggregator::Avg, "avg"),
    (Aggregator::Sum, "sum"),
    (Aggregator::Min, "min"),
    (Aggregator::Max, "max"),
    (Aggregator::Range, "range"),
    (Aggregator::Count, "count"),
    (Aggregator::First, "first"),
    (Aggregator::Last, "last"),
    (Aggregator::StdP, "std.p"),
    (Aggregator::StdS, "std.s"),
    (Aggregator::VarP, "var.p"),
    (Aggregator::VarS, "var.s"),
    (Aggregator::Twa, "twa"),
    (Aggregator::CountNan, "countnan"),
    (Aggregator::CountAll, "countall"),
];

impl Aggregator {
    /// Returns the aggregator of a name, in any case.
    pub fn named(name: &[u8]) -> Option<Aggregator> {
        let is_it = |of: &&(Aggregator, &str)| of.1.as_bytes().eq_ignore_ascii_case(name);
        NAMES.iter().find(is_it).map(|&(aggregator, _)| aggregator)
    }

    /// Returns the name, in lower case.
    pub fn name(self) -> &'static str {
        NAMES[self.number()].1
    }

    /// Returns the number that files have.
    pub(crate) fn number(self) -> usize {
        NAMES.iter().position(|&(aggregator, _)| aggregator == self).unwrap_or(0)
    }

    /// Returns the aggregator of a number in a file.
    pub(crate) fn numbered(number: u64) -> Option<Aggregator> {
        NAMES.get(usize::try_from(number).ok()?).map(|&(aggregator, _)| aggregator)
    }

    /// Returns whether series of one time can be reduced by it (GROUPBY).
    pub fn reduces(self) -> bool {
        !matches!(self, Aggregator::First | Aggregator::Last | Aggregator::Twa)
    }
}

/// The samples around a bucket, and the part of time that it is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around {
    /// The last number before the bucket.
    pub before: Option<Sample>,
    /// The first sample behind it.
    pub after: Option<Sample>,
    /// When the time begins that counts.
    pub begin: u64,
    /// When it ends.
    pub end: u64,
}

/// A bucket that is being reduced.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    aggregator: Aggregator,
    /// Numbers, and values that are none.
    count: u64,
    nans: u64,
    /// The sum, the least, the first, the mean, the area, …
    a: f64,
    /// The largest, the sum of squares of differences, …
    b: f64,
    first: Sample,
    last: Sample,
}

const NONE: Sample = Sample { time: 0, value: f64::NAN };

impl Reduction {
    /// Returns an empty bucket.
    pub fn new(aggregator: Aggregator) -> Reduction {
        Reduction { aggregator, count: 0, nans: 0, a: 0.0, b: 0.0, first: NONE, last: NONE }
    }

    /// Adds a sample.
    #[inline]
    pub fn add(&mut self, sample: Sample) {
        let value = sample.value;
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        let is_first = self.count == 0;
        self.count += 1;
        match self.aggregator {
            Aggregator::Avg | Aggregator::Sum => self.a += value,
            Aggregator::Min if is_first || value < self.a => self.a = value,
            Aggregator::Max if is_first || value > self.a => self.a = value,
            Aggregator::Range => {
                self.a = if is_first { value } else { self.a.min(value) };
                self.b = if is_first { value } else { self.b.max(value) };
            }
            Aggregator::First if is_first => self.a = value,
            Aggregator::Last => self.a = value,
            Aggregator::StdP | Aggregator::StdS | Aggregator::VarP | Aggregator::VarS => {
                let difference = value - self.a;
                self.a += difference / self.count as f64;
                self.b += difference * (value - self.a);
            }
            Aggregator::Twa => {
                if is_first {
                    self.first = sample;
                } else {
                    self.a += area(self.last, sample);
                }
                self.last = sample;
            }
            _ => {}
        }
    }

    /// Returns whether it has nothing to say: no number was added.
    pub fn is_empty(&self) -> bool {
        match self.aggregator {
            Aggregator::CountNan | Aggregator::CountAll => self.count + self.nans == 0,
            _ => self.count == 0,
        }
    }

    /// Returns what the bucket is reduced to.
    pub fn value(&self, around: &Around) -> f64 {
        let count = self.count as f64;
        match self.aggregator {
            Aggregator::Count => count,
            Aggregator::CountNan => self.nans as f64,
            Aggregator::CountAll => (self.count + self.nans) as f64,
            Aggregator::Sum => self.a,
            Aggregator::Last if self.count == 0 => around.before.unwrap_or(NONE).value,
            Aggregator::Twa => self.time_weighted(around),
            _ if self.count == 0 => f64::NAN,
            Aggregator::Avg => self.a / count,
            Aggregator::Min | Aggregator::Max | Aggregator::First | Aggregator::Last => self.a,
            Aggregator::Range => self.b - self.a,
            Aggregator::VarP => self.b / count,
            Aggregator::StdP => (self.b / count).sqrt(),
            Aggregator::VarS | Aggregator::StdS if self.count == 1 => 0.0,
            Aggregator::VarS => self.b / (count - 1.0),
            Aggregator::StdS => (self.b / (count - 1.0)).sqrt(),
        }
    }

    /// Returns the mean over the time of the bucket. Between samples, the value changes evenly;
    /// before the first and behind the last sample of the series there is none.
    fn time_weighted(&self, around: &Around) -> f64 {
        if self.count == 0 {
            let (Some(before), Some(after)) = (around.before, around.after) else {
                return f64::NAN;
            };
            let at_ends =
                [between(before, after, around.begin), between(before, after, around.end)];
            return (at_ends[0].value + at_ends[1].value) / 2.0;
        }
        let (mut sum, mut begin, mut end) = (self.a, self.first.time, self.last.time);
        if let Some(before) = around.before
            && around.begin < begin
        {
            sum += area(between(before, self.first, around.begin), self.first);
            begin = around.begin;
        }
        if let Some(after) = around.after
            && around.end > end
        {
            sum += area(self.last, between(self.last, after, around.end));
            end = around.end;
        }
        if begin == end { self.first.value } else { sum / (end - begin) as f64 }
    }
}

/// Returns the area below two samples.
fn area(from: Sample, to: Sample) -> f64 {
    (to.time - from.time) as f64 * (from.value + to.value) / 2.0
}

/// Returns the sample at a time between two.
fn between(from: Sample, to: Sample, time: u64) -> Sample {
    let time = time.clamp(from.time, to.time);
    let part = (time - from.time) as f64 / (to.time - from.time).max(1) as f64;
    Sample { time, value: from.value + (to.value - from.value) * part }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce(aggregator: Aggregator, values: &[f64]) -> f64 {
        let mut reduction = Reduction::new(aggregator);
        for (time, &value) in values.iter().enumerate() {
            reduction.add(Sample { time: time as u64, value });
        }
        reduction.value(&Around::default())
    }

    #[test]
    fn each_name_has_its_result() {
        let values = [2.0, 4.0, f64::NAN, 9.0];
        for (name, expected) in [
            ("AVG", 5.0),
            ("sum", 15.0),
            ("min", 2.0),
            ("max", 9.0),
            ("range", 7.0),
            ("count", 3.0),
            ("countNaN", 1.0),
            ("countAll", 4.0),
            ("first", 2.0),
            ("last", 9.0),
            ("var.s", 13.0),
            ("var.p", 26.0 / 3.0),
        ] {
            let aggregator = Aggregator::named(name.as_bytes()).expect("a name");
            assert_eq!(reduce(aggregator, &values), expected, "{name}");
            assert_eq!(Aggregator::numbered(aggregator.number() as u64), Some(aggregator));
        }
    }

    #[test]
    fn variance_is_stable() {
        let values = [1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0];
        assert_eq!(reduce(Aggregator::VarS, &values), 30.0);
    }
}
