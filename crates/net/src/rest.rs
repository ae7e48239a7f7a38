//! Resting from what did not pay, in windows of time.

use std::time::Duration;

/// How many windows of this length have passed, at most as many as fit.
pub(super) fn windows(elapsed: Duration, window: Duration) -> u32 {
    (elapsed.as_nanos() / window.as_nanos()).min(u128::from(u32::MAX)) as u32
}

/// A rest that is twice as long with every failure in a row.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Windows still to rest.
    left: u32,
    /// How many it was the last time.
    pub last: u32,
}

impl Rest {
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// So many windows have passed.
    pub fn pass(&mut self, windows: u32) {
        self.left = self.left.saturating_sub(windows);
    }

    /// It did not pay: rests, `longest` windows at most.
    pub fn begin(&mut self, longest: u32) {
        self.last = (self.last * 2).clamp(1, longest);
        self.left = self.last;
    }

    /// It paid: the next rest is half as long.
    pub fn shorten(&mut self) {
        self.last /= 2;
    }

    /// It paid: the next rest is a short one again.
    pub fn forget(&mut self) {
        self.last = 0;
    }
}
