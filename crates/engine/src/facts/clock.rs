//! The clock that an engine is given: the time of day, a count of time for durations, and pauses.
//!
//! The engine reads time nowhere else and pauses nowhere else, so a test can give it a
//! [`ManualTime`] and decide what time it is.
//!
//! How long each command took is always counted (INFO commandstats, COMMANDLOG, LATENCY). Two
//! reads of the system's clock a command would cost a tenth of a pipelined GET, so a thread reads
//! a clock once a command, the end of one being the beginning of the next, and reads the
//! processor's time stamp counter where the kernel itself keeps time by it (elsewhere, and where
//! the counter is not known to be steady, the system's monotonic clock). Which source it is, is one
//! comparison a reading; a trait object would be an indirect call a command.
//!
//! Rejected: timing one command in so many (a slow command must not escape COMMANDLOG).
#![allow(unsafe_code)]

use keyspace::Millis;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the counter is compared with the system's clock, once a process: an error of some
/// tens of nanoseconds at either end makes less than a tenth of a thousandth.
const CALIBRATION: Duration = Duration::from_millis(2);
/// Binary places of [`Clock::scale`].
const FRACTION_BITS: u32 = 32;

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns a moment that can only be compared with others. Setting a clock does not change it.
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Returns the system's time of day, for code that has no engine. Inside one it is [`Clock::wall`].
pub fn now() -> Millis {
    Millis(since_epoch().as_millis() as i64)
}

/// Returns the system's time of day in seconds since the epoch of Unix.
pub fn now_s() -> i64 {
    now().0 / 1000
}

/// A reading of a [`Clock`]; means something only next to another one of the same process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(u64);

/// The time of a test, which passes only when the test says so. The time of day and the count of
/// durations advance together.
#[derive(Debug)]
pub struct ManualTime {
    /// Since the epoch of Unix.
    nanoseconds: AtomicU64,
}

impl ManualTime {
    /// Begins at this time of day. It lives as long as the process, as an engine does.
    pub fn starting_at(time: Millis) -> &'static ManualTime {
        let nanoseconds = AtomicU64::new(time.0.max(0) as u64 * 1_000_000);
        Box::leak(Box::new(ManualTime { nanoseconds }))
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.nanoseconds.fetch_add(by.as_nanos() as u64, SeqCst);
    }

    fn nanoseconds(&self) -> u64 {
        self.nanoseconds.load(SeqCst)
    }
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The processor's counter; the time of day is the system's.
    Counter,
    /// The system's clocks.
    System,
    /// A test.
    Manual(&'static ManualTime),
}

/// The clock of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: Source,
    /// Where the system's time is counted from.
    start: Instant,
    /// Nanoseconds a tick, times 2^32.
    scale: u64,
}

impl Clock {
    /// Returns the system's clock, calibrated at the first call.
    pub fn system() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(Clock::calibrate)
    }

    /// Returns a clock that only a test advances.
    pub fn manual(time: &'static ManualTime) -> Clock {
        Clock { source: Source::Manual(time), ..Clock::uncalibrated() }
    }

    fn uncalibrated() -> Clock {
        Clock { source: Source::System, start: Instant::now(), scale: 1 << FRACTION_BITS }
    }

    fn calibrate() -> Clock {
        let system = Clock::uncalibrated();
        if !kernel_trusts_counter() {
            return system;
        }
        let (before, from) = (counter(), Instant::now());
        std::thread::sleep(CALIBRATION);
        let (after, to) = (counter(), Instant::now());
        let nanoseconds = to.duration_since(from).as_nanos();
        match after.checked_sub(before) {
            Some(ticks) if ticks > 0 => {
                let scale = (nanoseconds << FRACTION_BITS) / u128::from(ticks);
                Clock { source: Source::Counter, scale: scale as u64, ..system }
            }
            _ => system,
        }
    }

    /// Reads the clock, for durations.
    #[inline]
    pub fn now(&self) -> Ticks {
        match self.source {
            Source::Counter => Ticks(counter()),
            Source::System => Ticks(self.start.elapsed().as_nanos() as u64),
            Source::Manual(time) => Ticks(time.nanoseconds()),
        }
    }

    /// Nanoseconds from one reading to a later one; 0 if it is not later.
    #[inline]
    pub fn nanoseconds(&self, from: Ticks, to: Ticks) -> u64 {
        let ticks = to.0.saturating_sub(from.0);
        ((u128::from(ticks) * u128::from(self.scale)) >> FRACTION_BITS) as u64
    }

    /// Returns the time since a reading.
    #[inline]
    pub fn elapsed(&self, from: Ticks) -> Duration {
        Duration::from_nanos(self.nanoseconds(from, self.now()))
    }

    /// Returns the time of day since the epoch of Unix.
    pub fn since_epoch(&self) -> Duration {
        match self.source {
            Source::Manual(time) => Duration::from_nanos(time.nanoseconds()),
            Source::Counter | Source::System => since_epoch(),
        }
    }

    /// Returns the time of day.
    #[inline]
    pub fn wall(&self) -> Millis {
        Millis(self.since_epoch().as_millis() as i64)
    }

    /// Returns the time of day in seconds since the epoch of Unix.
    pub fn wall_s(&self) -> i64 {
        self.wall().0 / 1000
    }

    /// Leaves the processor to other threads for so long. A test's time does not pass by itself, so
    /// there the thread only yields.
    pub fn rest(&self, duration: Duration) {
        match self.source {
            Source::Manual(_) => std::thread::yield_now(),
            Source::Counter | Source::System => std::thread::sleep(duration),
        }
    }

    /// Does nothing for so long, as a command may ask for (DEBUG SLEEP): a test's time passes.
    pub fn sleep(&self, duration: Duration) {
        match self.source {
            Source::Manual(time) => time.advance(duration),
            Source::Counter | Source::System => std::thread::sleep(duration),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it only reads.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// Returns whether the kernel keeps time by the counter: then it is steady, and equal on all cores.
fn kernel_trusts_counter() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    // Where the file cannot be read the system's clock serves as well, only slower.
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(clock: Clock) {
        let (before, from) = (Instant::now(), clock.now());
        std::thread::sleep(Duration::from_millis(20));
        let (to, took) = (clock.now(), before.elapsed().as_nanos() as u64);
        let nanoseconds = clock.nanoseconds(from, to);
        // On a busy machine the pause may be longer, so only the lower bound is checked.
        assert!(nanoseconds >= 19_000_000, "{nanoseconds} of {took}");
        assert!(nanoseconds <= took + took / 100, "{nanoseconds} of {took}");
        assert_eq!(clock.nanoseconds(to, from), 0);
    }

    #[test]
    fn ticks_are_nanoseconds() {
        check(Clock::system());
        check(Clock::uncalibrated());
    }

    #[test]
    fn a_manual_clock_stands_still_until_it_is_advanced() {
        let time = ManualTime::starting_at(Millis(1_000));
        let clock = Clock::manual(time);
        let from = clock.now();
        clock.rest(Duration::from_secs(1));
        assert_eq!((clock.wall(), clock.elapsed(from)), (Millis(1_000), Duration::ZERO));
        time.advance(Duration::from_micros(1_500_500));
        assert_eq!(clock.elapsed(from), Duration::from_micros(1_500_500));
        clock.sleep(Duration::from_millis(500));
        assert_eq!((clock.wall(), clock.wall_s()), (Millis(3_000), 3));
    }
}
