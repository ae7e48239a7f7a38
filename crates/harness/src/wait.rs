//! Waiting for what is bound to come, but not at once.

use crate::client::{Client, patience};
use crate::info::fields;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Sets a flag when it goes out of scope, also by a panic: threads that run until the flag is set
/// would keep a scope of threads from ending.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Between the first looks, and between those that have taken long to be true: a look may connect
/// to several servers, and tests that wait side by side must leave the machine to what they wait
/// for.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];

/// Looks again and again until it is so.
///
/// # Panics
/// If it never is, with `what` was waited for: after several times the patience with one reply, a
/// minute by default.
#[track_caller]
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    eventually_within(6 * patience(), what, is_so);
}

/// The same with this patience.
///
/// # Panics
/// If it never is.
#[track_caller]
pub fn eventually_within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < patience, "never: {what}");
        thread::sleep((begin.elapsed() / 10).clamp(PAUSES[0], PAUSES[1]));
    }
}

/// Waits until no rewrite of the log is under way or about to begin.
#[track_caller]
pub fn until_not_rewriting(client: &mut Client) {
    eventually("no rewrite", || {
        fields(client, ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]) == ["0", "0"]
    });
}
