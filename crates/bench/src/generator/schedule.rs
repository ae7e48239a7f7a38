//! When the requests of a paced run are due: request `k` at `start + k / rate`. The threads
//! interleave the one schedule, so the rate is the sum's, not each thread's, and no thread needs to
//! ask another.

/// One thread's share of the schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Nanoseconds between two requests of this thread.
    step_ns: f64,
    /// When this thread's first request is due.
    first_ns: f64,
    /// The next request of this thread that has not been sent.
    next: u64,
}

impl Schedule {
    /// Thread `thread` of `threads`, for `rate` requests a second all together from `start_ns` on.
    pub fn new(rate: f64, start_ns: u64, thread: usize, threads: usize) -> Schedule {
        let gap = 1e9 / rate;
        Schedule {
            step_ns: gap * threads as f64,
            first_ns: start_ns as f64 + gap * thread as f64,
            next: 0,
        }
    }

    /// When the next request is due.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        (self.first_ns + self.step_ns * self.next as f64) as u64
    }

    /// Goes on to the next request.
    #[inline]
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// Gives up requests that were due before `since_ns`: for a limit, which is no debt.
    pub fn forgive(&mut self, since_ns: u64) {
        let behind = (since_ns as f64 - self.first_ns) / self.step_ns;
        self.next = self.next.max(behind.max(0.0) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_interleave_one_schedule() {
        let mut due: Vec<u64> = (0..3)
            .flat_map(|thread| {
                let mut schedule = Schedule::new(1000.0, 5_000_000, thread, 3);
                (0..100).map(move |_| {
                    let due = schedule.due_ns();
                    schedule.advance();
                    due
                })
            })
            .collect();
        due.sort_unstable();
        let expected: Vec<u64> = (0..300).map(|k| 5_000_000 + k * 1_000_000).collect();
        assert_eq!(due, expected);
    }

    #[test]
    fn an_hour_does_not_drift() {
        let mut schedule = Schedule::new(333_333.0, 0, 0, 1);
        let count = 333_333 * 3600;
        schedule.next = count;
        let error = schedule.due_ns().abs_diff(3_600_000_000_000);
        assert!(error < 1000, "{error} ns");
    }

    #[test]
    fn a_limit_forgets_what_it_missed() {
        let mut schedule = Schedule::new(1000.0, 0, 0, 1);
        schedule.forgive(50_500_000);
        assert_eq!(schedule.due_ns(), 50_000_000);
        schedule.forgive(10_000_000);
        assert_eq!(schedule.due_ns(), 50_000_000, "never back");
    }
}
