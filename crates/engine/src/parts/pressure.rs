//! What is known of memory above its limit: the last search in vain, and how long it has lasted.

use crate::clock::{Clock, Ticks};
use config::MaxmemoryPolicy;
use keyspace::Millis;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How long a search that found nothing is remembered at most: what was locked then may be free.
const REMEMBERED_MS: i64 = 100;

/// The last search in vain. Where nothing can be evicted every write is refused, and to find that
/// out each time takes a look at every stripe.
#[derive(Default)]
pub struct InVain {
    /// Changes there had been, plus one: with the next there may be something.
    changes: AtomicU64,
    /// When it is forgotten, and the policy it is about.
    until_ms: AtomicI64,
    policy: AtomicUsize,
}

impl InVain {
    /// Nothing was found, after so many changes.
    pub(crate) fn note(&self, now: Millis, changes: u64, policy: MaxmemoryPolicy) {
        self.policy.store(policy as usize, Relaxed);
        self.until_ms.store(now.0 + REMEMBERED_MS, Relaxed);
        self.changes.store(changes + 1, Relaxed);
    }

    /// Whether nothing would be found now, either.
    pub(crate) fn holds(&self, now: Millis, changes: u64, policy: MaxmemoryPolicy) -> bool {
        now.0 < self.until_ms.load(Relaxed)
            && self.policy.load(Relaxed) == policy as usize
            && self.changes.load(Relaxed) == changes + 1
    }
}

/// Since when memory has been above the limit although room was to be made, and how long it was
/// before. It begins with the first attempt that fails and ends when an attempt finds or makes
/// room, or at the next look that housekeeping takes.
#[derive(Default)]
pub struct OverLimit {
    /// Microseconds by the engine's clock; 0 if memory is not above the limit.
    since_us: AtomicU64,
    /// Microseconds of the times that are over.
    past_us: AtomicU64,
}

fn now_us(clock: &Clock) -> u64 {
    clock.elapsed(Ticks::default()).as_micros() as u64
}

/// For how long what began then has lasted; 0 is for what has not begun.
fn lasted_us(since_us: u64, now_us: u64) -> u64 {
    if since_us == 0 { 0 } else { now_us.saturating_sub(since_us) }
}

impl OverLimit {
    fn begin(&self, now_us: u64) {
        if self.since_us.load(Relaxed) == 0 {
            // It has begun already if another thread was quicker.
            let _ = self.since_us.compare_exchange(0, now_us.max(1), Relaxed, Relaxed);
        }
    }

    fn end(&self, now_us: u64) {
        if self.since_us.load(Relaxed) != 0 {
            let since_us = self.since_us.swap(0, Relaxed);
            self.past_us.fetch_add(lasted_us(since_us, now_us), Relaxed);
        }
    }

    /// Notes how an attempt to make room has ended.
    pub(crate) fn note(&self, has_room: bool, clock: &Clock) {
        let note = if has_room { OverLimit::end } else { OverLimit::begin };
        note(self, now_us(clock));
    }

    fn figures_us(&self, now_us: u64) -> (u64, u64) {
        let current_us = lasted_us(self.since_us.load(Relaxed), now_us);
        (self.past_us.load(Relaxed) + current_us, current_us)
    }

    /// For how many milliseconds memory has been above the limit: of all times, and now.
    pub fn milliseconds(&self, clock: &Clock) -> (u64, u64) {
        let (total_us, current_us) = self.figures_us(now_us(clock));
        (total_us / 1000, current_us / 1000)
    }

    /// Forgets everything (CONFIG RESETSTAT); what goes on begins anew.
    pub fn reset(&self) {
        self.since_us.store(0, Relaxed);
        self.past_us.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_above_the_limit_add_up() {
        let over = OverLimit::default();
        over.end(50);
        assert_eq!(over.figures_us(50), (0, 0));
        over.begin(100);
        over.begin(150);
        assert_eq!(over.figures_us(400), (300, 300));
        over.end(500);
        over.end(600);
        assert_eq!(over.figures_us(700), (400, 0));
        over.begin(1000);
        assert_eq!(over.figures_us(1100), (500, 100));
        over.reset();
        assert_eq!(over.figures_us(1200), (0, 0));
    }
}
