//! The soft limit of the replica class of `client-output-buffer-limit`: how many bytes a replica
//! may lack for how long.

use keyspace::Millis;

/// What a replica may lack for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoftLimit {
    /// Bytes; 0 for no limit.
    pub bytes: u64,
    /// For so long; 0 for no limit.
    pub seconds: u64,
    /// Bytes that are kept in any case. A replica that lacks fewer costs no memory.
    pub backlog: u64,
}

impl SoftLimit {
    /// Returns whether so much is too much, if it lasts.
    pub fn is_exceeded(&self, lag: u64) -> bool {
        self.bytes > 0 && self.seconds > 0 && lag > self.bytes.max(self.backlog)
    }
}

/// Since when a replica has lacked too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Behind {
    since: Option<Millis>,
}

impl Behind {
    /// Notes how many bytes a replica lacks now. Returns whether it has lacked too many for too
    /// long.
    pub fn is_over(&mut self, limit: &SoftLimit, lag: u64, now: Millis) -> bool {
        if !limit.is_exceeded(lag) {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let most_ms = i64::try_from(limit.seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        now.0 - since.0 > most_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: SoftLimit = SoftLimit { bytes: 100, seconds: 2, backlog: 50 };

    #[test]
    fn it_takes_more_than_the_limit_for_its_whole_time() {
        let mut behind = Behind::default();
        assert!(!behind.is_over(&LIMIT, 101, Millis(0)));
        assert!(!behind.is_over(&LIMIT, 900, Millis(2000)));
        assert!(behind.is_over(&LIMIT, 101, Millis(2001)));
        assert!(!behind.is_over(&LIMIT, 100, Millis(2002)), "it has caught up a little");
        assert!(!behind.is_over(&LIMIT, 101, Millis(2003)), "the time begins anew");
        assert!(!behind.is_over(&LIMIT, 101, Millis(4003)));
        assert!(behind.is_over(&LIMIT, 101, Millis(4004)));
    }

    #[test]
    fn what_is_kept_anyway_and_no_limit_are_never_too_much() {
        for limit in [
            SoftLimit { backlog: 5000, ..LIMIT },
            SoftLimit { bytes: 0, ..LIMIT },
            SoftLimit { seconds: 0, ..LIMIT },
        ] {
            let mut behind = Behind::default();
            assert!(!behind.is_over(&limit, 5000, Millis(0)));
            assert!(!behind.is_over(&limit, 5000, Millis(i64::MAX)), "{limit:?}");
        }
    }
}
