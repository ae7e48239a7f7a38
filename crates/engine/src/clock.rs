//! The time of day, and a clock cheap enough to be read after every command.
//!
//! How long each command took is always counted (INFO commandstats, COMMANDLOG, LATENCY). Two
//! reads of the system's clock a command would cost a tenth of a pipelined GET, so a thread reads
//! a clock once a command, the end of one being the beginning of the next, and reads the
//! processor's time stamp counter where the kernel itself keeps time by it (elsewhere, and where
//! the counter is not known to be steady, the system's monotonic clock).
//!
//! Rejected: timing one command in so many (a slow command must not escape COMMANDLOG).
#![allow(unsafe_code)]

use keyspace::Millis;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the counter is compared with the system's clock, once a process: an error of some
/// tens of nanoseconds at either end makes less than a tenth of a thousandth.
const CALIBRATION: Duration = Duration::from_millis(2);
/// Binary places of [`Clock::scale`].
const FRACTION_BITS: u32 = 32;

/// The time of day.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Millis(since.map_or(0, |since| since.as_millis() as i64))
}

/// The time of day in seconds since the epoch of Unix.
pub fn now_s() -> i64 {
    now().0 / 1000
}

/// A reading of a [`Clock`]; means something only next to another one of the same process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks(u64);

/// The process's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Where time is counted from if there is no counter.
    start: Instant,
    /// Nanoseconds a tick, times 2^32.
    scale: u64,
    has_counter: bool,
}

impl Clock {
    /// The clock, calibrated at the first call.
    pub fn get() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(Clock::calibrate)
    }

    fn calibrate() -> Clock {
        let start = Instant::now();
        let system = Clock { start, scale: 1 << FRACTION_BITS, has_counter: false };
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
                Clock { start, scale: scale as u64, has_counter: true }
            }
            _ => system,
        }
    }

    /// Reads the clock.
    #[inline]
    pub fn now(&self) -> Ticks {
        if self.has_counter {
            Ticks(counter())
        } else {
            Ticks(self.start.elapsed().as_nanos() as u64)
        }
    }

    /// Nanoseconds from one reading to a later one; 0 if it is not later.
    #[inline]
    pub fn nanoseconds(&self, from: Ticks, to: Ticks) -> u64 {
        let ticks = to.0.saturating_sub(from.0);
        ((u128::from(ticks) * u128::from(self.scale)) >> FRACTION_BITS) as u64
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

/// Whether the kernel keeps time by the counter: then it is steady, and equal on all cores.
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
        // The machine may be busy: only the factor is the clock's business.
        assert!(nanoseconds >= 19_000_000, "{nanoseconds} of {took}");
        assert!(nanoseconds <= took + took / 100, "{nanoseconds} of {took}");
        assert_eq!(clock.nanoseconds(to, from), 0);
    }

    #[test]
    fn ticks_are_nanoseconds() {
        check(Clock::get());
        let system = Clock { scale: 1 << FRACTION_BITS, has_counter: false, ..Clock::get() };
        check(system);
    }
}
