//! How long an fsync waits for company (`appendfsync always`).
//!
//! Beside its time an fsync costs two changes of thread, for one client or for many. Clients whose
//! replies have just been sent will write again in a moment, and if the next fsync begins with the first
//! of them, the others wait for the one after: many fsyncs for few requests each. So it begins when
//! half as many connections wait as waited when the last ones ended, and after as long as an fsync
//! takes in any case: while one half is on its way to the disk, the other half is served. If it
//! waited for all of them, the processors would have nothing to do meanwhile. No client waits for more
//! than twice what the disk takes, and a client that is alone for no longer than that.

use std::time::Duration;

/// The number of fsyncs whose company is remembered.
const REMEMBERED: usize = 8;
/// A disk that is slower gathers company by itself.
const LONGEST: Duration = Duration::from_millis(1);

/// What is known of the last fsyncs. Connections are counted as they begin to wait: `arrivals` is
/// the number of times that this has happened since the start.
#[derive(Debug, Default)]
pub struct Gathering {
    /// Arrivals when the last two fsyncs began.
    last_began: u64,
    one_before_began: u64,
    /// How many connections waited when each of the last fsyncs ended.
    waiting: [u64; REMEMBERED],
    next: usize,
    took: Duration,
}

impl Gathering {
    /// An fsync begins.
    pub fn begins(&mut self, arrivals: u64) {
        self.one_before_began = std::mem::replace(&mut self.last_began, arrivals);
    }

    /// It has ended, and its end was not reported so far.
    pub fn ends(&mut self, arrivals: u64, took: Duration) {
        // Drop arrivals older than two batches.
        self.waiting[self.next] = arrivals.saturating_sub(self.one_before_began);
        self.next = (self.next + 1) % REMEMBERED;
        self.took = took;
    }

    /// The number of arrivals at which there is company enough.
    pub fn complete_at(&self) -> u64 {
        self.last_began + self.most_waiting().div_ceil(2)
    }

    /// Whether no more than one connection has waited at a time.
    pub fn is_alone(&self) -> bool {
        self.most_waiting() <= 1
    }

    fn most_waiting(&self) -> u64 {
        self.waiting.iter().max().copied().unwrap_or(0)
    }

    /// How long company is waited for.
    pub fn patience(&self) -> Duration {
        self.took.min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_client_waits_for_nobody() {
        let mut gathering = Gathering::default();
        for arrivals in 1..20 {
            assert!(arrivals >= gathering.complete_at(), "{gathering:?}");
            gathering.begins(arrivals);
            gathering.ends(arrivals, MS);
        }
    }

    #[test]
    fn half_of_those_who_wait_are_company_enough() {
        let mut gathering = Gathering::default();
        gathering.begins(30);
        // 20 more have come meanwhile.
        gathering.ends(50, MS);
        assert_eq!(gathering.complete_at(), 55);
        gathering.begins(55);
        // Of the released clients 25 came again, and 10 while the 25 were on their way.
        gathering.ends(65, MS);
        assert_eq!(gathering.complete_at(), 80);
    }

    #[test]
    fn those_who_have_left_are_forgotten() {
        let mut gathering = Gathering::default();
        gathering.begins(50);
        gathering.ends(50, MS);
        assert_eq!(gathering.complete_at(), 75);
        let mut arrivals = 50;
        for _ in 0..REMEMBERED {
            arrivals += 1;
            gathering.begins(arrivals);
            gathering.ends(arrivals, MS);
        }
        assert!(gathering.complete_at() <= arrivals + 2, "{gathering:?}");
    }

    #[test]
    fn patience_ends() {
        let mut gathering = Gathering::default();
        gathering.ends(0, MS / 4);
        assert_eq!(gathering.patience(), MS / 4);
        gathering.ends(0, MS * 50);
        assert_eq!(gathering.patience(), LONGEST);
    }
}
