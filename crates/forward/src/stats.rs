//! Figures of pools and servers. Each thread counts for itself; a report adds them up.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A figure that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds. Only the thread that owns the figure may call this.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Subtracts. Only the thread that owns the figure may call this.
    pub fn sub(&self, less: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(less), Relaxed);
    }

    /// Returns the figure.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The upper ends of the classes of times, in microseconds.
pub const TIMES: [u64; 16] = [
    100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// How long replies took, in classes.
#[derive(Debug, Default)]
pub struct Times {
    /// Replies of each class; the last is without an upper end.
    pub counts: [Count; TIMES.len() + 1],
    /// Microseconds, of all.
    pub sum: Count,
}

impl Times {
    /// Records so many replies that took so long.
    #[inline]
    pub fn add(&self, time: Duration, replies: u64) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[TIMES.partition_point(|end| *end < micros)].add(replies);
        self.sum.add(micros.saturating_mul(replies));
    }
}

/// The keys that are asked for most, of those that were sampled.
#[derive(Debug, Default)]
pub struct HotKeys {
    counts: Vec<(Vec<u8>, u64)>,
    seen: u64,
}

/// How many keys are counted at a time.
const MAX_KEYS: usize = 64;
/// After so many samples all counts are halved, so that old samples count less.
const HALF_LIFE: u64 = 1 << 14;
/// Bytes of a key that are kept.
const KEY_BYTES: usize = 128;

impl HotKeys {
    /// Records a sampled key. When [`MAX_KEYS`] are counted already, it replaces the rarest and
    /// takes over its count.
    pub fn add(&mut self, key: &[u8]) {
        let key = &key[..key.len().min(KEY_BYTES)];
        self.seen += 1;
        if self.seen.is_multiple_of(HALF_LIFE) {
            self.counts.iter_mut().for_each(|known| known.1 /= 2);
        }
        if let Some(known) = self.counts.iter_mut().find(|known| known.0 == key) {
            known.1 += 1;
        } else if self.counts.len() < MAX_KEYS {
            self.counts.push((key.to_vec(), 1));
        } else if let Some(rarest) = self.counts.iter_mut().min_by_key(|known| known.1) {
            *rarest = (key.to_vec(), rarest.1 + 1);
        }
    }

    /// Returns the keys and how often each was sampled.
    pub fn counts(&self) -> &[(Vec<u8>, u64)] {
        &self.counts
    }
}

/// One thread's figures of one pool.
#[derive(Clone, Debug, Default)]
pub struct PoolStats {
    own: Arc<PoolCounts>,
    /// The figures of its servers, by the servers' numbers. They take memory from the first on.
    servers: Vec<OnceLock<Arc<ServerStats>>>,
}

impl Deref for PoolStats {
    type Target = PoolCounts;

    fn deref(&self) -> &PoolCounts {
        &self.own
    }
}

impl PoolStats {
    /// Makes figures for a pool of at most so many servers.
    pub fn new(servers: usize) -> PoolStats {
        let servers = (0..servers).map(|_| OnceLock::new()).collect();
        PoolStats { own: Arc::default(), servers }
    }

    /// Returns the figures of one server.
    ///
    /// # Panics
    /// When the pool cannot have a server of this number.
    #[inline]
    pub fn of(&self, server: usize) -> &ServerStats {
        self.servers[server].get_or_init(Arc::default)
    }

    /// Returns the same figures for a pool in which servers have other numbers. `before` has the
    /// number that each server had until now.
    pub fn renumbered(&self, before: &[Option<usize>]) -> PoolStats {
        let known = |at: Option<usize>| {
            let stats = self.servers.get(at?)?;
            // Threads that have not heard of the change go on to count there.
            Some(OnceLock::from(stats.get_or_init(Arc::default).clone()))
        };
        let servers = before.iter().map(|&at| known(at).unwrap_or_default()).collect();
        PoolStats { own: self.own.clone(), servers }
    }
}

/// One thread's figures of a pool itself, without those of its servers.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "named as in Twemproxy's statistics")]
pub struct PoolCounts {
    pub client_eof: Count,
    pub client_err: Count,
    pub client_connections: Count,
    pub accepted: Count,
    pub server_ejects: Count,
    pub forward_error: Count,
    pub fragments: Count,
    pub hot: Mutex<HotKeys>,
}

/// One thread's figures of one server.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "named as in Twemproxy's statistics")]
pub struct ServerStats {
    pub server_eof: Count,
    pub server_err: Count,
    pub server_timedout: Count,
    pub server_connections: Count,
    pub requests: Count,
    pub request_bytes: Count,
    pub responses: Count,
    pub response_bytes: Count,
    /// What requests without a reply take.
    pub queue_bytes: Count,
    /// Requests that were refused because too much waited.
    pub refused: Count,
    /// Requests that ended with their connection.
    pub lost: Count,
    /// Replies of more than 64 KiB.
    pub large_responses: Count,
    pub times: Times,
}

/// A reply of more bytes is a large one.
pub const LARGE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_often_stay() {
        let mut hot = HotKeys::default();
        for n in 0..10_000 {
            hot.add(b"often");
            hot.add(format!("rare{n}").as_bytes());
        }
        let most = hot.counts().iter().max_by_key(|known| known.1).expect("there are some");
        assert_eq!(most.0, b"often");
        assert!(hot.counts().len() <= MAX_KEYS);
    }

    #[test]
    fn times_fall_into_their_classes() {
        let times = Times::default();
        times.add(Duration::from_micros(100), 2);
        times.add(Duration::from_micros(101), 3);
        times.add(Duration::from_secs(60), 1);
        let counts: Vec<u64> = times.counts.iter().map(Count::get).collect();
        assert_eq!((counts[0], counts[1], counts[TIMES.len()]), (2, 3, 1));
        assert_eq!(times.sum.get(), 200 + 303 + 60_000_000);
    }
}
