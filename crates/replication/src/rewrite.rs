//! When the append-only log is rewritten by itself, and how long to wait when that fails.

/// Failures in a row from which on retrying slows down.
const PATIENCE: u32 = 3;
/// The longest wait between two attempts, in minutes.
const MOST_MINUTES: i64 = 60;

/// Whether the log has grown enough since its base was written.
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
    failures: u32,
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
    /// A rewrite has ended.
    pub fn finished(&mut self, is_ok: bool) {
        if is_ok {
            *self = Backoff::default();
        } else {
            self.failures += 1;
        }
    }

    /// May an attempt begin now (seconds since the epoch)? Those that a person asks for need not
    /// wait.
    pub fn ask(&mut self, now_s: i64) -> Answer {
        if self.failures < PATIENCE {
            return Answer::Now;
        }
        if self.not_before_s != 0 {
            if now_s < self.not_before_s {
                return Answer::Wait { minutes: None };
            }
            self.not_before_s = 0;
            return Answer::Now;
        }
        self.minutes = (self.minutes * 2).clamp(1, MOST_MINUTES);
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
        for _ in 0..2 {
            backoff.finished(false);
            assert_eq!(backoff.ask(0), Answer::Now);
        }
        let mut now = 1000;
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            backoff.finished(false);
            assert_eq!(backoff.ask(now), Answer::Wait { minutes: Some(minutes) });
            assert_eq!(backoff.ask(now + minutes * 60 - 1), Answer::Wait { minutes: None });
            now += minutes * 60;
            assert_eq!(backoff.ask(now), Answer::Now);
        }
        backoff.finished(true);
        assert_eq!(backoff, Backoff::default());
    }
}
