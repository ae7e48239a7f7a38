//! When the append-only log is rewritten by itself, and how long to wait when that fails.

/// Failures in a row from which on retrying slows down.
const MAX_FAILURES: u64 = 3;
/// The longest wait between two attempts, in minutes.
const MAX_MINUTES: i64 = 60;

/// Returns whether the log has grown enough since its base was written.
///
/// `current` and `base` are bytes; `percentage` 0 never rewrites.
pub fn has_grown(current: u64, base: u64, percentage: u32, min_size: u64) -> bool {
    if percentage == 0 || current <= min_size {
        return false;
    }
    let growth = u128::from(current) * 100 / u128::from(base.max(1));
    growth >= 100 + u128::from(percentage)
}

/// Slows down the attempts of a rewrite that fails again and again: after the third failure it
/// waits a minute, then two, four … up to an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    minutes: i64,
    not_before_s: i64,
}

/// What [`Backoff::ask`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Go ahead.
    Now,
    /// Not yet. The first time after a failure it says how many minutes this will take.
    Wait {
        /// For the log.
        minutes: Option<i64>,
    },
}

impl Backoff {
    /// Returns whether an attempt may begin now (seconds since the epoch), after so many failures
    /// in a row. An attempt that a person asks for need not wait. When the failures are forgotten,
    /// so are the waits.
    pub fn ask(&mut self, failures: u64, now_s: i64) -> Answer {
        if failures < MAX_FAILURES {
            *self = Backoff::default();
            return Answer::Now;
        }
        if self.not_before_s != 0 {
            if now_s < self.not_before_s {
                return Answer::Wait { minutes: None };
            }
            self.not_before_s = 0;
            return Answer::Now;
        }
        self.minutes = (self.minutes * 2).clamp(1, MAX_MINUTES);
        self.not_before_s = now_s + self.minutes * 60;
        Answer::Wait { minutes: Some(self.minutes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_of_the_base() {
        assert!(!has_grown(1 << 30, 1, 0, 0), "0 never rewrites");
        assert!(!has_grown(64, 1, 100, 64), "not above the smallest size");
        assert!(has_grown(65, 1, 100, 64));
        assert!(has_grown(200, 100, 100, 64));
        assert!(!has_grown(199, 100, 100, 64));
        assert!(has_grown(65, 0, 100, 64), "an empty base counts as one byte");
        assert!(has_grown(u64::MAX, 1, u32::MAX, 0));
    }

    #[test]
    fn repeated_failures_wait_longer_and_longer() {
        let mut backoff = Backoff::default();
        for failures in 0..3 {
            assert_eq!(backoff.ask(failures, 0), Answer::Now);
        }
        let mut now = 1000;
        for (failures, minutes) in (3..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
            assert_eq!(backoff.ask(failures, now), Answer::Wait { minutes: Some(minutes) });
            let nearly = now + minutes * 60 - 1;
            assert_eq!(backoff.ask(failures, nearly), Answer::Wait { minutes: None });
            now += minutes * 60;
            assert_eq!(backoff.ask(failures, now), Answer::Now);
        }
        assert_eq!(backoff.ask(0, now), Answer::Now);
        assert_eq!(backoff, Backoff::default());
    }
}
