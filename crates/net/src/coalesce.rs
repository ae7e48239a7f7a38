//! Coalescing: when a wait is to be for several arrivals at once.
//!
//! A reactor that is done before its clients have sent more sleeps and wakes for one or two
//! requests at a time, and each reply that it sends alone wakes a client. Waiting a moment for more
//! of them costs both sides fewer wake-ups. It must not cost a client that is alone, or an idle
//! server, anything, so it is tried only while
//!
//! * at least [`FEWEST_CONNECTIONS`] connections have sent something in the last [`WINDOW`]; waited
//!   for are half of them, so that the others' requests are still being made meanwhile;
//! * the thread has had time to spare in that window: else requests are waiting already;
//! * the last wait of this kind was worth it. One that ended with less than a quarter of what it
//!   was for is followed by a rest, which doubles with each failure in a row.
//!
//! Page: `docs/internals/reactor.md`.

use super::rest::{Rest, windows};
use std::time::{Duration, Instant};

/// What is counted is counted for this long.
const WINDOW: Duration = Duration::from_millis(1);
/// Fewer connections than this are not kept waiting.
const FEWEST_CONNECTIONS: u32 = 16;
/// More arrivals than this are not waited for: the gain is in the first dozens.
const MAX_ARRIVALS: u32 = 32;
/// A thread has time to spare if it rests for more than this part of a window.
const SPARE: u32 = 16;
/// The longest rest after failures, in windows.
const LONGEST_REST: u32 = 1024;

/// What a wait is for, if not for the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitLimit {
    /// This many events end the wait.
    pub events: u32,
    /// After this long one event does.
    pub time: Duration,
}

/// The decision for one thread.
#[derive(Debug)]
pub(super) struct Coalescer {
    /// When the window under way began.
    began: Instant,
    /// The thread's CPU time then, if it was looked at.
    used: Option<Duration>,
    /// Tells windows apart; never zero, which is what a new connection has.
    window: u8,
    /// Connections that have sent something in this window, and in the last one.
    connections: u32,
    senders: u32,
    /// Arrivals in this turn.
    arrivals: u32,
    /// What to wait for, by the last window; zero for the first event.
    wanted: u32,
    /// Whether the wait of this turn was for several arrivals.
    waited: bool,
    rest: Rest,
}

impl Coalescer {
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            used: None,
            window: 1,
            connections: 0,
            senders: 0,
            arrivals: 0,
            wanted: 0,
            waited: false,
            rest: Rest::default(),
        }
    }

    /// A connection has sent something; `seen` is the connection's mark.
    #[inline]
    pub fn arrived(&mut self, seen: &mut u8) {
        self.arrivals += 1;
        if *seen != self.window {
            *seen = self.window;
            self.connections += 1;
        }
    }

    /// What the wait that follows is for: to be asked once a turn. `most` bounds its time, zero
    /// for never; `now` may lag by a turn; `cpu_time` is the thread's.
    #[inline]
    pub fn wait_limit(
        &mut self,
        most: Duration,
        now: Instant,
        cpu_time: impl FnOnce() -> Duration,
    ) -> Option<WaitLimit> {
        if self.waited {
            self.judge();
        }
        self.arrivals = 0;
        if now >= self.began + WINDOW {
            self.next_window(now.duration_since(self.began), now, cpu_time);
        }
        self.waited = self.wanted > 0 && self.rest.is_over() && !most.is_zero();
        self.waited.then_some(WaitLimit { events: self.wanted, time: most })
    }

    /// The number of connections that sent something in the last window, in the middle if it was
    /// longer than usual.
    #[inline]
    pub fn senders(&self) -> u32 {
        self.senders
    }

    /// Was the last wait worth it?
    fn judge(&mut self) {
        // Something else ended it, mail from another thread say: that tells nothing.
        if self.arrivals == 0 {
            return;
        }
        if self.arrivals * 4 >= self.wanted {
            self.rest.forget();
        } else {
            self.rest.begin(LONGEST_REST);
        }
    }

    /// `elapsed` is a window at least.
    fn next_window(
        &mut self,
        elapsed: Duration,
        now: Instant,
        cpu_time: impl FnOnce() -> Duration,
    ) {
        let windows = windows(elapsed, WINDOW);
        let connections = self.connections / windows;
        self.senders = connections;
        self.wanted = 0;
        // Looking at the clock of a thread that has little to do would be most of its work.
        let before = self.used.take();
        if connections >= FEWEST_CONNECTIONS {
            let used = cpu_time();
            self.used = Some(used);
            let busy = before.map_or(elapsed, |before| used.saturating_sub(before));
            if elapsed.saturating_sub(busy) > elapsed / SPARE {
                self.wanted = (connections / 2).min(MAX_ARRIVALS);
            }
        }
        self.rest.pass(windows);
        self.connections = 0;
        self.began = now;
        self.window = self.window.checked_add(1).unwrap_or(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    /// A thread whose clock and work are the test's.
    struct Thread {
        coalescer: Coalescer,
        now: Instant,
        used: Duration,
    }

    impl Thread {
        fn new() -> Self {
            let now = Instant::now();
            Self { coalescer: Coalescer::new(now), now, used: Duration::ZERO }
        }

        /// A turn of `micros`, in which each of `seen` sends something, `busy` of it at work.
        fn turn(&mut self, micros: u64, seen: &mut [u8], busy: u64) -> Option<u32> {
            self.now += Duration::from_micros(micros);
            self.used += Duration::from_micros(busy);
            seen.iter_mut().for_each(|seen| self.coalescer.arrived(seen));
            let used = self.used;
            let wait_limit = self.coalescer.wait_limit(LIMIT, self.now, || used);
            assert!(wait_limit.is_none_or(|wait_limit| wait_limit.time == LIMIT));
            wait_limit.map(|wait_limit| wait_limit.events)
        }
    }

    #[test]
    fn half_of_the_busy_connections_are_waited_for() {
        let (mut thread, mut seen) = (Thread::new(), [0; 50]);
        // The first window has no earlier CPU time to compare with.
        assert_eq!(thread.turn(1000, &mut seen, 500), None);
        assert_eq!(thread.turn(1000, &mut seen, 500), Some(25));
        // A connection counts once, however often it sends; and every window anew.
        for _ in 0..9 {
            assert_eq!(thread.turn(100, &mut seen[..20], 50), Some(25));
        }
        assert_eq!(thread.turn(100, &mut seen[..20], 50), Some(10));
        let (mut thread, mut many) = (Thread::new(), [0; 500]);
        thread.turn(1000, &mut many, 500);
        assert_eq!(thread.turn(1000, &mut many, 500), Some(MAX_ARRIVALS));
    }

    #[test]
    fn few_or_slow_connections_do_not_wait() {
        let (mut thread, mut seen) = (Thread::new(), [0; 15]);
        for _ in 0..5 {
            assert_eq!(thread.turn(1000, &mut seen, 500), None);
        }
        // A hundred of them, but in a tenth of a second.
        let (mut thread, mut seen) = (Thread::new(), [0; 100]);
        for _ in 0..5 {
            assert_eq!(thread.turn(100_000, &mut seen, 500), None);
        }
    }

    #[test]
    fn a_thread_without_time_to_spare_does_not_wait() {
        let (mut thread, mut seen) = (Thread::new(), [0; 50]);
        for _ in 0..5 {
            assert_eq!(thread.turn(1000, &mut seen, 990), None);
        }
        assert_eq!(thread.turn(1000, &mut seen, 900), Some(25));
    }

    #[test]
    fn a_wait_that_was_in_vain_is_followed_by_a_rest() {
        let (mut thread, mut seen) = (Thread::new(), [0; 50]);
        thread.turn(1000, &mut seen, 500);
        assert_eq!(thread.turn(1000, &mut seen, 500), Some(25));
        // Six of 25 is too few; the rest ends with the window.
        assert_eq!(thread.turn(50, &mut seen[..6], 10), None);
        assert_eq!(thread.turn(50, &mut seen, 10), None);
        assert_eq!(thread.turn(900, &mut seen, 10), Some(25));
        // In a row, the next one is twice as long.
        assert_eq!(thread.turn(50, &mut seen[..6], 10), None);
        assert_eq!(thread.turn(1000, &mut seen, 10), None);
        assert_eq!(thread.turn(1000, &mut seen, 10), Some(25));
        // A good one makes up for it, and one that other news ended does not count.
        assert_eq!(thread.turn(50, &mut seen[..7], 10), Some(25));
        assert_eq!(thread.turn(50, &mut [], 10), Some(25));
        assert_eq!(thread.turn(50, &mut seen[..1], 10), None);
        assert_eq!(thread.turn(1000, &mut seen, 10), Some(25));
    }

    #[test]
    fn no_time_is_no_waiting() {
        let mut coalescer = Coalescer::new(Instant::now());
        let (mut seen, mut now) = ([0; 50], Instant::now());
        for _ in 0..5 {
            now += WINDOW;
            seen.iter_mut().for_each(|seen| coalescer.arrived(seen));
            assert_eq!(coalescer.wait_limit(Duration::ZERO, now, || Duration::ZERO), None);
        }
    }
}
