//! A lock of one byte, for data that is locked for fractions of a microsecond.
//!
//! If a reactor finds it locked, it tries a few times and then does other work. Only background
//! threads wait, and they can try again a little later. There are no sleepers to wake, so unlocking
//! is a plain store. A pipelined command locks and unlocks once, and a second atomic instruction
//! would cost a fiftieth of the command.

use std::sync::atomic::{AtomicBool, Ordering::*};
use structs::backoff::wait_until;
use structs::reactor::check_wait;

/// The lock.
#[derive(Debug, Default)]
pub(crate) struct ByteLock(AtomicBool);

impl ByteLock {
    /// Locks if the lock is free. Returns whether it did.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Only read it while it is locked, so that its cache line stays with the holder.
        !self.0.load(Relaxed) && !self.0.swap(true, Acquire)
    }

    /// Locks, and waits as long as necessary. Not for reactors.
    pub fn lock(&self) {
        check_wait("a stripe");
        wait_until(|| self.try_lock());
    }

    /// Unlocks. The caller holds the lock.
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
