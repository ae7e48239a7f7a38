//! Reading a series: the samples of a time, filtered, reduced by buckets.

use crate::aggregate::{Aggregator, Around, Reduction};
use crate::buckets::Buckets;
use crate::{Sample, Series};
use std::ops::ControlFlow;

/// More rows than this are refused: empty buckets cost nothing to ask for.
pub const MAX_ROWS: usize = 1 << 24;

/// Which time of a bucket its row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// When it begins.
    Start,
    /// When it ends.
    End,
    /// The middle.
    Mid,
}

/// How samples are reduced by buckets.
#[derive(Clone, Debug)]
pub struct Aggregation {
    /// What each bucket is reduced to: a value each.
    pub aggregators: Vec<Aggregator>,
    /// The buckets.
    pub buckets: Buckets,
    /// The time of rows.
    pub stamp: Stamp,
    /// Buckets without samples have rows, too.
    pub empty: bool,
}

/// What is read.
#[derive(Clone, Debug)]
pub struct Query {
    /// The first time.
    pub from: u64,
    /// The last time.
    pub to: u64,
    /// The only times, in ascending order.
    pub times: Option<Vec<u64>>,
    /// The least and the largest value.
    pub values: Option<(f64, f64)>,
    /// How samples are reduced.
    pub aggregation: Option<Aggregation>,
    /// The most rows.
    pub count: Option<usize>,
    /// The latest first.
    pub is_reverse: bool,
}

/// There are more rows than [`MAX_ROWS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// Times, and so many values of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Values of a row.
    pub width: usize,
    times: Vec<u64>,
    values: Vec<f64>,
}

impl Rows {
    /// Returns no rows, of so many values each.
    pub fn new(width: usize) -> Rows {
        Rows { width, times: Vec::new(), values: Vec::new() }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Adds a row.
    pub fn push(&mut self, time: u64, values: impl IntoIterator<Item = f64>) {
        self.times.push(time);
        self.values.extend(values);
    }

    /// Returns the rows in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &[f64])> + '_ {
        self.times.iter().copied().zip(self.values.chunks(self.width.max(1)))
    }

    fn reverse(&mut self) {
        let mut reversed = Rows::new(self.width);
        self.iter().rev().for_each(|(time, row)| reversed.push(time, row.iter().copied()));
        *self = reversed;
    }

    /// Leaves the first rows.
    pub fn truncate(&mut self, rows: usize) {
        self.times.truncate(rows);
        self.values.truncate(rows.saturating_mul(self.width));
    }
}

impl Query {
    /// Returns whether a sample is among those asked for.
    fn takes(&self, sample: Sample) -> bool {
        self.times.as_ref().is_none_or(|times| times.binary_search(&sample.time).is_ok())
            && self.values.is_none_or(|(least, most)| (least..=most).contains(&sample.value))
    }

    /// Returns the rows of a series. `latest` is the sample of its open bucket, if it is made of
    /// another series and this is asked for.
    ///
    /// # Errors
    /// There are too many.
    pub fn run(&self, series: &Series, latest: Option<Sample>) -> Result<Rows, TooMany> {
        let latest = latest.filter(|it| (self.from..=self.to).contains(&it.time));
        match &self.aggregation {
            None => Ok(self.samples(series, latest)),
            Some(aggregation) => self.reduce(series, latest, aggregation),
        }
    }

    /// Returns the last time of the series' own samples that are visited.
    fn end(&self, latest: Option<Sample>) -> Option<u64> {
        match latest {
            Some(sample) => sample.time.checked_sub(1).map(|before| before.min(self.to)),
            None => Some(self.to),
        }
    }

    fn samples(&self, series: &Series, latest: Option<Sample>) -> Rows {
        let limit = self.count.unwrap_or(usize::MAX);
        let mut rows = Rows::new(1);
        let mut take = |sample: Sample| {
            if rows.len() < limit && self.takes(sample) {
                rows.push(sample.time, [sample.value]);
            }
            rows.len() < limit
        };
        if self.is_reverse {
            if let Some(sample) = latest {
                take(sample);
            }
            if let Some(end) = self.end(latest) {
                series.visit_reverse(self.from, end, take);
            }
        } else {
            if let Some(end) = self.end(latest) {
                series.visit(self.from, end, &mut take);
            }
            if let Some(sample) = latest {
                take(sample);
            }
        }
        rows
    }

    fn reduce(
        &self,
        series: &Series,
        latest: Option<Sample>,
        aggregation: &Aggregation,
    ) -> Result<Rows, TooMany> {
        let last = latest.or(series.last());
        let (Some(first), Some(last)) = (series.first().or(latest), last) else {
            return Ok(Rows::new(aggregation.aggregators.len()));
        };
        let limit = self.count.filter(|_| !self.is_reverse).unwrap_or(usize::MAX);
        let mut reducer = Reducer::new(self, series, aggregation, limit);
        let (begin, end) = (self.from.max(first.time), self.to.min(last.time));
        if begin <= end && reducer.fills_ends {
            reducer.next = Some(aggregation.buckets.raw_start(begin));
        }
        let mut take = |sample: Sample| match self.takes(sample) {
            true => reducer.add(sample).is_continue(),
            false => true,
        };
        if let Some(end) = self.end(latest) {
            series.visit(self.from, end, &mut take);
        }
        if let Some(sample) = latest {
            take(sample);
        }
        reducer.finish(end);
        let mut rows = reducer.rows;
        if rows.len() > MAX_ROWS {
            return Err(TooMany);
        }
        if self.is_reverse {
            rows.reverse();
            rows.truncate(self.count.unwrap_or(usize::MAX));
        }
        Ok(rows)
    }
}

/// What reduces samples to rows.
struct Reducer<'q> {
    query: &'q Query,
    series: &'q Series,
    aggregation: &'q Aggregation,
    limit: usize,
    /// Whether buckets before the first sample and behind the last one have rows. They have if they
    /// are asked for and have a weighted mean, which follows from the samples around.
    fills_ends: bool,
    /// The bucket that samples are added to: when it begins.
    open: Option<i128>,
    /// The first time that is not in the open bucket; 0 without one.
    open_until: u64,
    reductions: Vec<Reduction>,
    /// The bucket of the next row, if empty ones have rows.
    next: Option<i128>,
    /// The last number that was added.
    number: Option<Sample>,
    rows: Rows,
    needs_around: bool,
    /// The last number before the open bucket.
    before: Option<Sample>,
}

impl<'q> Reducer<'q> {
    fn new(
        query: &'q Query,
        series: &'q Series,
        aggregation: &'q Aggregation,
        limit: usize,
    ) -> Reducer<'q> {
        let needs = |it: &Aggregator| matches!(it, Aggregator::Twa | Aggregator::Last);
        let needs_around = aggregation.aggregators.iter().any(needs);
        let fills_ends = aggregation.empty && aggregation.aggregators.contains(&Aggregator::Twa);
        let number = if needs_around { series.number_before(query.from) } else { None };
        Reducer {
            query,
            series,
            aggregation,
            limit,
            fills_ends,
            open: None,
            open_until: 0,
            reductions: aggregation.aggregators.iter().map(|&it| Reduction::new(it)).collect(),
            next: None,
            number,
            rows: Rows::new(aggregation.aggregators.len()),
            needs_around,
            before: number,
        }
    }

    #[inline]
    fn add(&mut self, sample: Sample) -> ControlFlow<()> {
        if sample.time >= self.open_until {
            self.close(Some(sample));
            let start = self.aggregation.buckets.raw_start(sample.time);
            self.fill(start, Some(sample));
            if self.rows.len() >= self.limit.min(MAX_ROWS + 1) {
                return ControlFlow::Break(());
            }
            self.open = Some(start);
            let end = start + i128::from(self.aggregation.buckets.duration);
            // Times are below 2^63, so a bucket that ends later has no end.
            self.open_until = u64::try_from(end).unwrap_or(u64::MAX);
            self.before = self.number;
        }
        self.reductions.iter_mut().for_each(|reduction| reduction.add(sample));
        if !sample.value.is_nan() {
            self.number = Some(sample);
        }
        ControlFlow::Continue(())
    }

    /// Makes the open bucket a row. `after` is the first sample behind it.
    fn close(&mut self, after: Option<Sample>) {
        let Some(start) = self.open.take() else { return };
        let is_silent = self.reductions.iter().all(Reduction::is_empty);
        if is_silent && !self.aggregation.empty {
            self.clear();
            return;
        }
        self.row(start, self.before, after);
        self.clear();
    }

    fn clear(&mut self) {
        for (reduction, &aggregator) in
            self.reductions.iter_mut().zip(&self.aggregation.aggregators)
        {
            *reduction = Reduction::new(aggregator);
        }
    }

    fn row(&mut self, start: i128, before: Option<Sample>, after: Option<Sample>) {
        if self.rows.len() >= self.limit {
            return;
        }
        let duration = i128::from(self.aggregation.buckets.duration);
        let end = start + duration;
        let clip =
            |time: i128| time.clamp(i128::from(self.query.from), i128::from(self.query.to)) as u64;
        let around = Around { before, after, begin: clip(start), end: clip(end) };
        let time = match self.aggregation.stamp {
            Stamp::Start => start,
            Stamp::End => end,
            Stamp::Mid => start + duration / 2,
        };
        let values: Vec<f64> = self.reductions.iter().map(|it| it.value(&around)).collect();
        self.rows.push(time.max(0) as u64, values);
        self.next = Some(end);
    }

    /// Makes rows of empty buckets up to one that begins at `until`.
    fn fill(&mut self, until: i128, after: Option<Sample>) {
        if !self.aggregation.empty {
            return;
        }
        while let Some(start) = self.next.filter(|&start| start < until) {
            if self.rows.len() >= self.limit.min(MAX_ROWS + 1) {
                return;
            }
            self.row(start, self.number, after);
        }
    }

    /// Ends the rows; `last` is the last time that has any.
    fn finish(&mut self, last: u64) {
        if self.open.is_none() && !self.fills_ends {
            return;
        }
        let after = if self.needs_around { self.series.number_after(self.query.to) } else { None };
        self.close(after);
        if !self.fills_ends {
            return;
        }
        let buckets = self.aggregation.buckets;
        let end = buckets.raw_start(last) + i128::from(buckets.duration);
        self.fill(end, after);
    }
}

/// Returns the rows of several series of one value each, reduced to one value for each time.
pub fn group(of: &[Rows], reducer: Aggregator, is_reverse: bool) -> Rows {
    let mut all: Vec<(u64, f64)> = Vec::with_capacity(of.iter().map(Rows::len).sum());
    for rows in of {
        all.extend(rows.iter().map(|(time, row)| (time, row[0])));
    }
    all.sort_by_key(|&(time, _)| time);
    let mut grouped = Rows::new(1);
    for run in all.chunk_by(|a, b| a.0 == b.0) {
        let mut reduction = Reduction::new(reducer);
        run.iter().for_each(|&(time, value)| reduction.add(Sample { time, value }));
        grouped.push(run[0].0, [reduction.value(&Around::default())]);
    }
    if is_reverse {
        grouped.reverse();
    }
    grouped
}

/// Returns the rows of several series side by side, a row for each time of any of them.
pub fn join(of: &[Rows], is_reverse: bool) -> Rows {
    let width = of.iter().map(|rows| rows.width).sum();
    let mut times: Vec<u64> = of.iter().flat_map(|rows| rows.times.iter().copied()).collect();
    times.sort_unstable();
    times.dedup();
    let mut values = vec![f64::NAN; times.len() * width];
    let mut column = 0;
    for rows in of {
        for (time, row) in rows.iter() {
            if let Ok(at) = times.binary_search(&time) {
                values[at * width + column..][..row.len()].copy_from_slice(row);
            }
        }
        column += rows.width;
    }
    let mut joined = Rows { width, times, values };
    if is_reverse {
        joined.reverse();
    }
    joined
}
