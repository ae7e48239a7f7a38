//! What the server did: samples of the last day in bounded memory.
//!
//! Three rings of fixed size, from fine to coarse. Each second a sample enters the finest; what a
//! coarser ring keeps is folded from the samples since its last one. A sample is a number for each
//! of [`COLUMNS`].

mod columns;
mod latency;
mod ring;

pub use columns::{COLUMNS, Rates};
pub use latency::{Group, Groups, Histograms, Percentiles, groups};
pub use ring::{Ring, Sample};

use std::sync::Mutex;
use structs::sync::lock;

/// Seconds between the samples of a ring, and how many it keeps: a quarter of an hour, two hours, a
/// day.
const RINGS: [(u64, usize); 3] = [(1, 900), (5, 1440), (60, 1440)];

/// All rings.
pub struct History(Mutex<[Ring; 3]>);

impl Default for History {
    fn default() -> History {
        History(Mutex::new(RINGS.map(|(step, len)| Ring::new(step, len))))
    }
}

impl History {
    /// Adds the sample of a second.
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
