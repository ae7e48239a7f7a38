//! Waiting for what is bound to come, but not at once.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Looks again and again until it is so.
///
/// # Panics
/// If it never is within this time, with `what` was waited for.
#[track_caller]
pub fn within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(PAUSE);
    }
}
