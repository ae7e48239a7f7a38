//! Waiting for another thread that needs only a moment.
//!
//! It is asked again at once for a while, then between offers of the core, which it may need, then
//! after short sleeps: if it has lost its core in the middle, offers do not always bring it back.

use std::time::Duration;

/// Attempts before a waiting thread lets others run, and before it sleeps between attempts.
const SPINS: u32 = 100;
const YIELDS: u32 = 1000;
const REST: Duration = Duration::from_micros(50);

/// The pauses between attempts.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// Pauses after an attempt that has failed.
    #[inline]
    pub fn pause(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 < SPINS {
            std::hint::spin_loop();
        } else if self.0 < YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(REST);
        }
    }
}

/// Pauses until `is_done` says yes.
#[inline]
pub fn wait_until(mut is_done: impl FnMut() -> bool) {
    let mut backoff = Backoff::default();
    while !is_done() {
        backoff.pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_sleeps() {
        let mut attempts = 0;
        let began = std::time::Instant::now();
        wait_until(|| {
            attempts += 1;
            attempts > YIELDS + 4
        });
        assert!(began.elapsed() >= REST * 4);
    }
}
