//! Buckets: parts of time of one duration.

/// Parts of time of one duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Milliseconds of each, more than 0.
    pub duration: u64,
    /// A time at which one begins.
    pub align: u64,
}

impl Buckets {
    /// Returns when the bucket of a time begins; the first may begin before time 0.
    pub(crate) fn raw_start(self, time: u64) -> i128 {
        let (time, align) = (i128::from(time), i128::from(self.align));
        time - (time - align).rem_euclid(i128::from(self.duration.max(1)))
    }

    /// Returns when the bucket of a time begins, at least 0.
    pub fn start(self, time: u64) -> u64 {
        self.raw_start(time).max(0) as u64
    }

    /// Returns when the bucket of a time begins and when the next one does.
    pub fn of(self, time: u64) -> (u64, u64) {
        let start = self.raw_start(time);
        let end = start + i128::from(self.duration.max(1));
        (start.max(0) as u64, end as u64)
    }
}
