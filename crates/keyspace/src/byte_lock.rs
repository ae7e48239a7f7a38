//! A lock of one byte, for data that is held for fractions of a microsecond.
//!
//! A reactor that finds it taken tries a few times and then does something else. Only background
//! threads wait, and they can look again a little later. Without
//! sleepers to wake, unlocking is a plain store: a pipelined command locks and unlocks once, and
//! a second locked instruction would be a fiftieth of all it costs.

use std::sync::atomic::{AtomicBool, Ordering::*};
use structs::backoff::wait_until;
use structs::reactor::check_wait;

/// The lock.
#[derive(Debug, Default)]
pub(crate) struct ByteLock(AtomicBool);

impl ByteLock {
    /// Locks if the lock is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Only looked at while it is taken: its cache line stays where it is.
        !self.0.load(Relaxed) && !self.0.swap(true, Acquire)
    }

    /// Locks, however long that takes; not on a reactor.
    pub fn lock(&self) {
        check_wait("a stripe");
        wait_until(|| self.try_lock());
    }

    /// Unlocks; the caller holds the lock.
    #[inline]
    pub fn unlock(&self) {
        debug_assert!(self.0.load(Relaxed), "unlocked a lock that nobody held");
        self.0.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_at_a_time() {
        let (lock, sum) = (ByteLock::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lock, sum) = (&lock, &sum);
                scope.spawn(move || {
                    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
                        if thread == 0 || !lock.try_lock() {
                            lock.lock();
                        }
                        // Loses additions unless the lock keeps the others out.
                        sum.store(sum.load(Relaxed) + 1, Relaxed);
                        lock.unlock();
                    }
                });
            }
        });
        assert_eq!(sum.load(Relaxed), if cfg!(miri) { 80 } else { 80_000 });
        assert!(lock.try_lock());
        assert!(!lock.try_lock());
    }
}
