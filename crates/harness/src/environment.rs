//! What a run of the tests is told from outside: numbers in the environment.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn parsed<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A whole number, if it is set to one.
pub fn variable(name: &str) -> Option<u64> {
    parsed(name)
}

/// A time in seconds, if it is set to one.
pub fn seconds(name: &str) -> Option<Duration> {
    parsed(name).map(Duration::from_secs_f64)
}

/// A seed that earlier runs have not had: the seconds of the clock.
pub fn new_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs())
}
