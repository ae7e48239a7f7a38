//! What the server did: samples of the last day in bounded memory.
//!
//! Rings of fixed size, from fine to coarse. Each sample enters the finest; what a coarser ring
//! keeps is folded from the samples since its last one. Of a server, a sample is a number for each
//! of [`COLUMNS`].

mod columns;
mod latency;
mod ring;

pub use columns::{COLUMNS, Fold, Rates};
pub use latency::{Group, Groups, Histograms, Percentiles, groups};
pub use ring::{Ring, Sample};

use schemars::JsonSchema;
use serde::Serialize;
use std::sync::{Arc, Mutex};
use structs::sync::lock;

/// Seconds between the samples of a ring of a server's history, and how many it keeps: a quarter of
/// an hour, two hours, a day.
const RINGS: [(u64, usize); 3] = [(1, 900), (5, 1440), (60, 1440)];

/// Samples at equal distances, as an answer has them.
#[derive(Serialize, JsonSchema)]
pub struct Samples {
    /// Seconds between samples.
    step: u64,
    /// The names of the columns.
    columns: Vec<&'static str>,
    /// The units of the columns.
    units: Vec<&'static str>,
    /// Seconds since 1970, one for each sample.
    at: Vec<u64>,
    /// One for each sample: a value for each column.
    rows: Vec<Vec<f32>>,
}

/// All rings.
pub struct History(Mutex<Vec<Ring>>);

impl Default for History {
    fn default() -> History {
        History::new(COLUMNS.iter().map(|column| column.fold).collect(), &RINGS)
    }
}

impl History {
    /// For samples whose columns are joined so. A ring is the seconds between its samples, and how
    /// many it keeps; the finest is the first.
    pub fn new(folds: Arc<[Fold]>, rings: &[(u64, usize)]) -> History {
        let ring = |&(step, len): &(u64, usize)| Ring::new(step, len, &folds);
        History(Mutex::new(rings.iter().map(ring).collect()))
    }

    /// The samples of a window for an answer. `columns` are their names and units.
    pub fn answer(
        &self,
        seconds: u64,
        now: u64,
        columns: impl Iterator<Item = (&'static str, &'static str)>,
    ) -> Samples {
        let (step, samples) = self.window(seconds, now);
        let (columns, units) = columns.unzip();
        Samples {
            step,
            columns,
            units,
            at: samples.iter().map(|sample| sample.at).collect(),
            rows: samples.into_iter().map(|sample| sample.values).collect(),
        }
    }

    /// Adds a sample.
    pub fn add(&self, sample: &Sample) {
        for ring in &mut *lock(&self.0) {
            ring.add(sample);
        }
    }

    /// The samples of the last so many seconds, from the finest ring that reaches as far back, and
    /// the seconds between them.
    pub fn window(&self, seconds: u64, now: u64) -> (u64, Vec<Sample>) {
        let rings = lock(&self.0);
        let reaches = |ring: &&Ring| ring.reach() >= seconds;
        let ring = rings.iter().find(reaches).unwrap_or(&rings[rings.len() - 1]);
        (ring.step(), ring.since(now.saturating_sub(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_takes_less_than_a_megabyte() {
        let samples: usize = RINGS.iter().map(|(_, len)| len).sum();
        assert!(samples * (size_of::<Sample>() + 4 * COLUMNS.len()) < 1 << 20);
        assert!(RINGS.iter().any(|(step, len)| step * *len as u64 >= 86_400));
    }

    #[test]
    fn a_window_is_of_the_finest_ring_that_reaches() {
        let history = History::default();
        for at in 0..10_000 {
            history.add(&Sample { at, values: vec![at as f32; COLUMNS.len()] });
        }
        let (step, samples) = history.window(60, 9_999);
        assert_eq!((step, samples.len()), (1, 60));
        let (step, samples) = history.window(3_600, 9_999);
        assert_eq!((step, samples.len()), (5, 720));
        assert_eq!(history.window(86_400, 9_999).0, 60);
        assert_eq!(history.window(1_000_000, 9_999).0, 60);
    }
}
