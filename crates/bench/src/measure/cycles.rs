//! Counts the processor cycles that processes use, in user space and in the kernel.
//!
//! The kernel counts each thread (`perf_event_open`) and the threads that it starts from then on. A
//! processor has few counters: where programs share them each runs part of the time, and a count is
//! extrapolated from that part.

use crate::generator::os;
use std::fs::{self, File};
use std::io::{self, Read};

/// The type and the number of the event "cycles" in `linux/perf_event.h`.
const CYCLES: (u32, u64) = (0, 0);

/// The share of the time that threads ran, in which no cycle of theirs was counted, from which on a
/// count says nothing.
const MAX_UNCOUNTED: f64 = 0.01;

/// The cycles of some processes since they began to be counted.
pub struct Counter {
    events: Vec<File>,
    /// Whether the kernel's work for them is included.
    with_kernel: bool,
    /// Nanoseconds that the threads had run by the last reading, and those of them that ran without
    /// being counted at any time.
    ran_ns: u64,
    uncounted_ns: u64,
}

/// What a run used of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cycles {
    /// A count, and whether it includes the kernel's work.
    Counted { cycles: u64, with_kernel: bool },
    /// Why there is none.
    Uncounted(String),
}

impl Cycles {
    /// Adds those of another run. What was not counted once is not counted at all.
    pub fn merge(&mut self, other: &Cycles) {
        match (&mut *self, other) {
            (
                Cycles::Counted { cycles, with_kernel },
                Cycles::Counted { cycles: more, with_kernel: theirs },
            ) => {
                *cycles += more;
                *with_kernel &= theirs;
            }
            (Cycles::Counted { .. }, Cycles::Uncounted(_)) => *self = other.clone(),
            (Cycles::Uncounted(_), _) => {}
        }
    }
}

impl Counter {
    /// Begins to count the cycles of processes. An error says why that is impossible.
    pub fn new(pids: &[u32]) -> Result<Counter, String> {
        let everything = Counter::open(pids, CYCLES, false);
        everything.or_else(|_| Counter::open(pids, CYCLES, true)).map_err(|error| explain(&error))
    }

    fn open(pids: &[u32], event: (u32, u64), user_only: bool) -> io::Result<Counter> {
        let mut events = Vec::new();
        for pid in pids {
            for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
                let name = entry?.file_name();
                let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                match os::count_event(event, thread, user_only) {
                    Ok(event) => events.push(event),
                    // It has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Counter { events, with_kernel: !user_only, ran_ns: 0, uncounted_ns: 0 })
    }

    /// Returns the count up to now.
    pub fn read(&mut self) -> io::Result<u64> {
        let mut sum = 0;
        (self.ran_ns, self.uncounted_ns) = (0, 0);
        for event in &mut self.events {
            // The count, and for how many nanoseconds it was wanted and ran.
            let mut words = [0; 24];
            event.read_exact(&mut words)?;
            let word = |at: usize| words[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
            let (count, wanted_ns, counted_ns) = (word(0), word(8), word(16));
            self.ran_ns += wanted_ns;
            // A thread that runs uses cycles: a count of none is no count.
            self.uncounted_ns += if counted_ns == 0 || count == 0 { wanted_ns } else { 0 };
            sum += extrapolated(count, wanted_ns, counted_ns);
        }
        Ok(sum)
    }

    /// Returns what a run used: the difference of two readings, the second of which was the last.
    pub fn outcome(&self, used: u64) -> Cycles {
        match uncounted(used, self.ran_ns, self.uncounted_ns) {
            Some(why) => Cycles::Uncounted(why),
            None => Cycles::Counted { cycles: used, with_kernel: self.with_kernel },
        }
    }
}

/// Returns why a count cannot be used, if that is so.
fn uncounted(used: u64, ran_ns: u64, uncounted_ns: u64) -> Option<String> {
    if used > 0 && uncounted_ns as f64 <= ran_ns as f64 * MAX_UNCOUNTED {
        return None;
    }
    Some(if ran_ns == 0 {
        "the server's threads have not run".into()
    } else if uncounted_ns == 0 {
        "the kernel has counted none in the run".into()
    } else {
        let share = uncounted_ns as f64 / ran_ns as f64;
        format!(
            "the kernel has not counted in {:.0} % of the time that the server's threads ran: \
             other programs, or its own watchdog (kernel.nmi_watchdog), use the processor's \
             counters",
            100.0 * share
        )
    })
}

/// Returns a count for the whole time from one for a part of it.
fn extrapolated(count: u64, wanted_ns: u64, counted_ns: u64) -> u64 {
    match counted_ns {
        0 => 0,
        counted if counted >= wanted_ns => count,
        counted => (u128::from(count) * u128::from(wanted_ns) / u128::from(counted)) as u64,
    }
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "this processor, or the virtual machine, has no counter for them".into()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel forbids it; run as root, or set kernel.perf_event_paranoid to 1".into()
        }
        Some(libc::ENOSYS) => "the kernel has no perf_event_open".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::{Duration, Instant};

    /// CPU time in nanoseconds, which every kernel counts, whatever the processor.
    const CPU_TIME: (u32, u64) = (1, 1);

    fn compute(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn threads_that_are_there_and_later_ones_are_counted() {
        // Some sandboxes refuse the call itself: then there is nothing to test but the reason.
        let counter = Counter::open(&[std::process::id()], CPU_TIME, true);
        let mut counter = match counter {
            Ok(counter) => counter,
            Err(error) => return assert!(!explain(&error).is_empty(), "{error}"),
        };
        let before = counter.read().unwrap();
        compute(Duration::from_millis(50));
        let alone = counter.read().unwrap() - before;
        assert!(alone > 5_000_000, "{alone}");
        thread::spawn(|| compute(Duration::from_millis(50))).join().unwrap();
        assert!(counter.read().unwrap() > before + alone + 5_000_000);
    }

    #[test]
    fn a_processor_without_a_counter_is_a_reason() {
        match Counter::new(&[std::process::id()]) {
            Ok(mut counter) => {
                compute(Duration::from_millis(20));
                assert!(counter.read().unwrap() > 1000);
            }
            Err(why) => assert!(!why.is_empty()),
        }
        assert!(explain(&io::Error::from_raw_os_error(libc::EACCES)).contains("paranoid"));
        assert!(explain(&io::Error::from_raw_os_error(libc::ENOENT)).contains("virtual machine"));
    }

    #[test]
    fn a_count_of_half_the_time_is_doubled() {
        assert_eq!(extrapolated(100, 10, 10), 100);
        assert_eq!(extrapolated(100, 10, 5), 200);
        assert_eq!(extrapolated(0, 10, 0), 0);
        assert_eq!(extrapolated(u64::MAX / 2, 10, 5), u64::MAX - 1);
    }

    #[test]
    fn no_count_is_not_a_count_of_none() {
        assert_eq!(uncounted(500, 1000, 0), None);
        assert_eq!(uncounted(500, 1000, 10), None, "a thread that has hardly run");
        let why = uncounted(500, 1000, 300).expect("a third of the work is missing");
        assert!(why.contains("30 %"), "{why}");
        assert!(uncounted(0, 1000, 1000).is_some_and(|why| why.contains("100 %")));
        assert!(uncounted(0, 0, 0).is_some_and(|why| why.contains("not run")));
        assert!(uncounted(0, 1000, 0).is_some(), "all counts are from before the run");
        let counter = |uncounted_ns| Counter {
            events: Vec::new(),
            with_kernel: true,
            ran_ns: 1000,
            uncounted_ns,
        };
        assert_eq!(counter(0).outcome(7), Cycles::Counted { cycles: 7, with_kernel: true });
        assert!(matches!(counter(1000).outcome(0), Cycles::Uncounted(_)));
    }

    #[test]
    fn runs_are_added_and_a_run_without_a_count_leaves_none() {
        let counted = |cycles, with_kernel| Cycles::Counted { cycles, with_kernel };
        let mut sum = counted(5, true);
        sum.merge(&counted(7, false));
        assert_eq!(sum, counted(12, false));
        sum.merge(&Cycles::Uncounted("no".into()));
        sum.merge(&counted(1, true));
        assert_eq!(sum, Cycles::Uncounted("no".into()));
    }
}
