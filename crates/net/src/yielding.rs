//! Yielding: when a reactor that wakes does not preempt the thread that has the processor.
//!
//! With `appendfsync always` one thread sends the replies of all that a force of the log has made
//! safe. Each of them has a client send its next request, and where processors are scarce the
//! reactor that this is for wakes and takes the processor from the very thread that is sending: two
//! changes of thread for one request, which cannot be safe before the next force anyway. A
//! thread whose policy is `SCHED_BATCH` preempts no other when it wakes. So a reactor has it while
//!
//! * replies are held at the gate `Released`;
//! * at least [`FEWEST_CONNECTIONS`] connections keep sending: of a few, each is waited for;
//! * it does not wait long for its processor. Beside a program that computes, each wait would last
//!   for milliseconds. So a window in which the waits were longer than [`LONGEST_WAIT`] on average
//!   is followed by a rest, which doubles with each of them and is halved by each good one.
//!
//! Page: `docs/internals/reactor.md`.

use super::rest::{Rest, windows};
use super::sys;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// What is decided holds for this long.
const WINDOW: Duration = Duration::from_millis(10);
/// With fewer connections that keep sending a reactor does not give way.
const FEWEST_CONNECTIONS: u32 = 8;
/// Waits for a processor that are longer on average are too long.
const LONGEST_WAIT: Duration = Duration::from_micros(250);
/// The longest rest, in windows.
const LONGEST_REST: u32 = 128;

/// How often a thread has been given a processor, and how long it has waited for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Waits {
    pub count: u64,
    pub time: Duration,
}

/// The decision for one thread.
#[derive(Debug)]
pub(super) struct Yielding {
    /// When the window under way began.
    began: Instant,
    /// What the thread had waited then; none while it does not give way.
    before: Option<Waits>,
    rest: Rest,
}

impl Yielding {
    pub fn new(now: Instant) -> Self {
        Self { began: now, before: None, rest: Rest::default() }
    }

    /// Says whether the thread is to give way from now on, if that changes: to be asked once a
    /// turn. `senders` is the number of connections that keep sending, `waits` the thread's; if
    /// they cannot be told, it does not.
    #[inline]
    pub fn decide(
        &mut self,
        now: Instant,
        holds: bool,
        senders: u32,
        waits: impl FnOnce() -> Option<Waits>,
    ) -> Option<bool> {
        if now < self.began + WINDOW {
            return None;
        }
        let elapsed = now.duration_since(self.began);
        self.began = now;
        self.rest.pass(windows(elapsed, WINDOW));
        let is_wanted = holds && senders >= FEWEST_CONNECTIONS;
        let before = self.before.take();
        if before.is_some() || (is_wanted && self.rest.is_over()) {
            let waits = waits();
            if let (Some(before), Some(waits)) = (before, waits) {
                self.judge(before, waits);
            }
            self.before = waits.filter(|_| is_wanted && self.rest.is_over());
        }
        (before.is_some() != self.before.is_some()).then_some(self.before.is_some())
    }

    /// Did giving way cost too much?
    fn judge(&mut self, before: Waits, now: Waits) {
        let count = now.count.saturating_sub(before.count);
        let time = now.time.saturating_sub(before.time);
        if count == 0 {
            return;
        }
        if time.as_nanos() > LONGEST_WAIT.as_nanos() * u128::from(count) {
            self.rest.begin(LONGEST_REST);
        } else {
            self.rest.shorten();
        }
    }
}

/// The calling thread's policy and waits.
#[derive(Debug)]
pub(super) struct Scheduling {
    statistics: File,
}

impl Scheduling {
    /// None where it cannot be told how long the thread waits, or where it was given a
    /// policy already.
    pub fn of_this_thread() -> Option<Self> {
        if !sys::is_scheduled_normally() {
            return None;
        }
        let statistics = File::open("/proc/thread-self/schedstat").ok()?;
        let scheduling = Self { statistics };
        scheduling.waits()?;
        Some(scheduling)
    }

    /// The kernel's figures: time with a processor, time waited for one (both in nanoseconds), and
    /// how often it got one (proc(5), `/proc/pid/schedstat`).
    pub fn waits(&self) -> Option<Waits> {
        let mut room = [0; 80];
        let len = self.statistics.read_at(&mut room, 0).ok()?;
        let mut fields = std::str::from_utf8(&room[..len]).ok()?.split_ascii_whitespace();
        let mut next = || fields.next()?.parse().ok();
        let _with_processor: u64 = next()?;
        let (time, count) = (Duration::from_nanos(next()?), next()?);
        Some(Waits { count, time })
    }

    /// Has the calling thread, which is the one this was made on, give way or not.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn give_way(&self, gives_way: bool) -> io::Result<()> {
        sys::schedule_as_batch(gives_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread whose clock and waits are the test's.
    struct Thread {
        yielding: Yielding,
        now: Instant,
        waits: Waits,
    }

    impl Thread {
        fn new() -> Self {
            let now = Instant::now();
            Self { yielding: Yielding::new(now), now, waits: Waits::default() }
        }

        /// A window with 50 waits of so many microseconds.
        fn window(&mut self, senders: u32, micros: u64) -> Option<bool> {
            self.now += WINDOW;
            self.waits.count += 50;
            self.waits.time += Duration::from_micros(50 * micros);
            let waits = self.waits;
            self.yielding.decide(self.now, true, senders, || Some(waits))
        }
    }

    #[test]
    fn it_gives_way_while_many_wait_for_the_disk() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(7, 10), None, "few");
        assert_eq!(thread.window(8, 10), Some(true));
        assert_eq!(thread.window(8, 250), None, "goes on");
        assert_eq!(thread.window(7, 10), Some(false));
        assert_eq!(thread.window(50, 10), Some(true));
        thread.now += WINDOW;
        let without_disk = thread.yielding.decide(thread.now, false, 50, || Some(thread.waits));
        assert_eq!(without_disk, Some(false));
        let soon = thread.yielding.decide(thread.now, true, 50, || unreachable!());
        assert_eq!(soon, None, "not before the window is over");
        assert_eq!(thread.window(50, 10), Some(true));
        thread.now += WINDOW;
        let unknown = thread.yielding.decide(thread.now, true, 50, || None);
        assert_eq!(unknown, Some(false));
    }

    #[test]
    fn long_waits_are_followed_by_rests_that_double() {
        let mut thread = Thread::new();
        let mut rests = Vec::new();
        for _ in 0..9 {
            let mut rest = 0;
            while thread.window(50, 10).is_none() {
                rest += 1;
            }
            rests.push(rest);
            assert_eq!(thread.window(50, 251), Some(false));
        }
        assert_eq!(rests, [0, 0, 1, 3, 7, 15, 31, 63, 127]);
        // It is never longer, and good windows make up for it.
        while thread.window(50, 10).is_none() {}
        assert_eq!(thread.yielding.rest.last, LONGEST_REST);
        for _ in 0..8 {
            assert_eq!(thread.window(50, 250), None);
        }
        assert_eq!(thread.window(50, 1000), Some(false));
        assert_eq!(thread.window(50, 10), Some(true));
    }

    #[test]
    fn a_window_without_waits_tells_nothing() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(50, 10), Some(true));
        thread.now += WINDOW;
        assert_eq!(thread.yielding.decide(thread.now, true, 50, || Some(thread.waits)), None);
        assert_eq!(thread.yielding.rest.last, 0);
    }

    #[test]
    fn the_kernel_says_how_long_a_thread_waits_and_takes_its_policy() {
        let scheduling = Scheduling::of_this_thread().expect("Linux has it");
        let before = scheduling.waits().unwrap();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = scheduling.waits().unwrap();
        assert!(after.count >= before.count + 3, "{before:?} {after:?}");
        scheduling.give_way(true).unwrap();
        assert!(!sys::is_scheduled_normally());
        scheduling.give_way(false).unwrap();
        assert!(sys::is_scheduled_normally());
    }
}
