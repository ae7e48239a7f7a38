//! Which bytes of the journal are kept for readers that come back, and for how long.
//!
//! A reader that was connected asks for the bytes from its last position on (partial
//! resynchronisation). So the last `repl-backlog-size` bytes are kept, whether anything reads them
//! or not, until no replica was there for `repl-backlog-ttl` seconds.

use keyspace::Millis;

/// Decides when bytes need not be kept any more.
#[derive(Debug, Default)]
pub struct BacklogExpiry {
    without_replicas_since: Option<Millis>,
}

impl BacklogExpiry {
    /// Returns whether there has been no replica for `ttl_s` seconds. Called from time to time. A
    /// `ttl_s` of 0 keeps bytes for ever.
    pub fn is_due(&mut self, now: Millis, replicas: usize, ttl_s: u64) -> bool {
        if replicas > 0 {
            self.without_replicas_since = None;
            return false;
        }
        let since = *self.without_replicas_since.get_or_insert(now);
        let ttl_ms = i64::try_from(ttl_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        ttl_ms > 0 && now.0.saturating_sub(since.0) >= ttl_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_expire_when_no_replica_was_there_for_long_enough() {
        let mut expiry = BacklogExpiry::default();
        let mut at = |ms: i64, replicas| expiry.is_due(Millis(ms), replicas, 2);
        assert!(!at(0, 0) && !at(1999, 0));
        assert!(at(2000, 0) && at(2500, 0));
        assert!(!at(3000, 1));
        assert!(!at(3500, 0) && !at(5499, 0));
        assert!(at(5500, 0));
        assert!(!expiry.is_due(Millis(i64::MAX), 0, 0));
    }
}
