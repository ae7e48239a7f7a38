//! Counters: what INFO reports.
//!
//! Global counters are relaxed atomics that only slow paths add to. What every command counts
//! (calls, time, hits) goes to [`ThreadStats`], which only its own thread writes: a load and a
//! store, no shared cache line. Readers sum over the threads.

pub mod commandlog;
pub mod defrag;
pub mod latency;
pub mod powers;
pub mod rates;
pub mod timings;

use powers::{Powers, Spread};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed};

/// A counter.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds, from any thread.
    #[inline]
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Relaxed);
    }
    /// Adds, from the only thread that ever does.
    #[inline]
    pub fn add_own(&self, number: u64) {
        self.0.store(self.0.load(Relaxed) + number, Relaxed);
    }
    /// Returns the count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    /// Sets the count.
    pub fn set(&self, number: u64) {
        self.0.store(number, Relaxed);
    }
}

/// Counters that slow paths add to.
#[derive(Default)]
pub struct Stats {
    /// Keys deleted because their time came.
    pub expired: Counter,
    /// Fields of hashes deleted because their time came.
    pub expired_fields: Counter,
    /// Keys evicted.
    pub evicted: Counter,
    /// Clients evicted for `maxmemory-clients`.
    pub evicted_clients: Counter,
    /// Connections accepted.
    pub connections: Counter,
    /// Connections refused by `maxclients`.
    pub rejected_connections: Counter,
    /// Requests of `shed-users` and `shed-clients` refused because a thread was overloaded.
    pub shed_requests: Counter,
    /// Requests that waited because of `rate-limits`.
    pub limited_requests: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Clients closed because of `client-query-buffer-limit`.
    pub query_buffer_disconnections: Counter,
    /// Clients closed because of `client-output-buffer-limit`.
    pub output_buffer_disconnections: Counter,
    /// Writes that were answered with an error because they were not confirmed in time.
    pub unconfirmed_writes: Counter,
    /// Failed authentications.
    pub acl_denied_auth: Counter,
    /// Requests refused because of the command.
    pub acl_denied_command: Counter,
    /// Because of a key.
    pub acl_denied_key: Counter,
    /// Because of a channel.
    pub acl_denied_channel: Counter,
    /// Because of a database.
    pub acl_denied_database: Counter,
    /// Commands that unblocked or timed out are now running as blocked clients.
    pub blocked_clients: AtomicI64,
    /// Clients whose command was put off by a pause and has not been tried again since.
    pub postponed_clients: AtomicI64,
    /// Milliseconds since the epoch when the statistics were reset.
    pub reset_at_ms: AtomicI64,
    /// When a client that speaks HTTP was last logged.
    pub http_log: resp::http::HttpLog,
    /// Active expiry cycles that ran out of time.
    pub expire_cycles_cut_short: Counter,
    /// Milliseconds spent in active expiry.
    pub expire_cycle_ms: Counter,
    /// Largest input and output seen of a client, in bytes.
    pub largest_query: Counter,
    /// As above.
    pub largest_output: Counter,
}

/// Counters that one thread writes. Those of all threads lie in a row, so each has cache lines of
/// its own.
#[repr(align(128))]
#[derive(Default)]
pub struct ThreadStats {
    /// Commands run.
    pub commands: Counter,
    /// Bytes of the thread's interpreter of scripts.
    pub script_bytes: Counter,
    /// Bytes of the thread's interpreter of functions.
    pub function_bytes: Counter,
    /// Changes that commands made; keys that expire or are evicted are none.
    pub dirty: Counter,
    /// Keys found.
    pub hits: Counter,
    /// Keys not found.
    pub misses: Counter,
    /// Bytes received.
    pub net_in: Counter,
    /// Bytes sent.
    pub net_out: Counter,
    /// Those of them that replicas got.
    pub repl_out: Counter,
    /// Reads from sockets.
    pub reads: Counter,
    /// Writes to sockets.
    pub writes: Counter,
    /// Turns of its reactor.
    pub turns: Counter,
    /// By [`crate::table::Resolved::index`].
    pub by_command: Box<[CommandStats]>,
}

/// Counters of one command on one thread.
#[derive(Default)]
pub struct CommandStats {
    /// Times it ran.
    pub calls: Counter,
    /// Nanoseconds it ran.
    pub nanoseconds: Counter,
    /// Times a gate refused it.
    pub rejected: Counter,
    /// Times it ran and answered with an error.
    pub failed: Counter,
    histograms: AtomicPtr<Histograms>,
}

/// What is kept of each call of a command while `latency-tracking` and `size-tracking` are on.
struct Histograms {
    durations: Histogram,
    requests: Powers,
    replies: Powers,
}

/// How long the requests and replies of a command were, over all threads, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    /// Of its requests.
    pub requests: Spread,
    /// Of its replies.
    pub replies: Spread,
}

impl Sizes {
    /// Returns the sizes of the command of this index; `None` if it did not run.
    pub fn of(threads: &[ThreadStats], index: usize) -> Option<Sizes> {
        let mut sizes = Sizes::default();
        for kept in threads.iter().filter_map(|thread| thread.by_command[index].histograms()) {
            sizes.requests.add(&kept.requests.spread());
            sizes.replies.add(&kept.replies.spread());
        }
        sizes.requests.counts.iter().any(|count| *count > 0).then_some(sizes)
    }
}

/// Buckets of a [`Histogram`]: 16 for each doubling of the duration, up to that of one second.
/// Longer durations count as one second, as they do in Redis.
const BUCKETS: usize = Histogram::bucket_of(1_000_000_000) + 1;

/// How often a command took how long: a logarithmic histogram with an error of 1/16.
pub struct Histogram {
    counts: Box<[Counter]>,
}

impl Histogram {
    const fn bucket_of(nanoseconds: u64) -> usize {
        if nanoseconds < 16 {
            return nanoseconds as usize;
        }
        let exponent = 63 - nanoseconds.leading_zeros() as usize;
        let mantissa = (nanoseconds >> (exponent - 4)) as usize & 15;
        (exponent - 3) * 16 + mantissa
    }

    #[inline]
    fn index(nanoseconds: u64) -> usize {
        Self::bucket_of(nanoseconds).min(BUCKETS - 1)
    }

    /// Returns the longest duration that counts into a bucket, in nanoseconds.
    pub fn upper_bound(index: usize) -> u64 {
        if index < 16 {
            return index as u64;
        }
        let exponent = index / 16 + 3;
        let mantissa = (index % 16) as u64;
        ((16 + mantissa + 1) << (exponent - 4)) - 1
    }

    fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.iter().map(Counter::get)
    }
}

/// How often a command took how long, over all threads.
pub struct Durations {
    counts: Vec<u64>,
    /// How often it ran.
    pub calls: u64,
}

impl Durations {
    /// Returns the durations of the command of this index; `None` if it did not run.
    pub fn of(threads: &[ThreadStats], index: usize) -> Option<Durations> {
        let mut counts = vec![0; BUCKETS];
        for histogram in threads.iter().filter_map(|t| t.by_command[index].histograms()) {
            counts
                .iter_mut()
                .zip(histogram.durations.counts())
                .for_each(|(sum, count)| *sum += count);
        }
        let calls = counts.iter().sum();
        (calls > 0).then_some(Durations { counts, calls })
    }

    /// Returns the duration that this share of the calls did not exceed, in nanoseconds.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = ((self.calls as f64 * percent / 100.0 + 0.5) as u64).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Histogram::upper_bound(bucket.unwrap_or(BUCKETS - 1))
    }

    /// Returns how many calls took at most so many nanoseconds, for 1024, 2048 and so on, without
    /// the steps in which there was no call.
    pub fn cumulative(&self) -> Vec<(u64, u64)> {
        let (mut steps, mut bucket, mut seen, mut limit) = (Vec::new(), 0, 0, 1024);
        while seen < self.calls && bucket < BUCKETS {
            let before = seen;
            while bucket < BUCKETS && Histogram::upper_bound(bucket) < limit {
                seen += self.counts[bucket];
                bucket += 1;
            }
            if seen > before {
                steps.push((limit, seen));
            }
            limit *= 2;
        }
        steps
    }
}

impl CommandStats {
    /// Counts a call; only its thread does.
    #[inline]
    pub fn count(&self, nanoseconds: u64, with_histogram: bool) {
        self.calls.add_own(1);
        self.nanoseconds.add_own(nanoseconds);
        if with_histogram {
            self.own_histograms().durations.counts[Histogram::index(nanoseconds)].add_own(1);
        }
    }

    /// Counts the bytes of a request and its reply; only its thread does.
    pub fn count_sizes(&self, request: usize, reply: usize) {
        let kept = self.own_histograms();
        kept.requests.note_own(request as u64);
        kept.replies.note_own(reply as u64);
    }

    #[inline]
    #[allow(unsafe_code)]
    fn own_histograms(&self) -> &Histograms {
        let mut at = self.histograms.load(Relaxed);
        if at.is_null() {
            let counts = (0..BUCKETS).map(|_| Counter::default()).collect();
            let (requests, replies) = (Powers::default(), Powers::default());
            let kept = Histograms { durations: Histogram { counts }, requests, replies };
            at = Box::into_raw(Box::new(kept));
            self.histograms.store(at, std::sync::atomic::Ordering::Release);
        }
        // SAFETY: set once, by this thread, and freed with `self`.
        unsafe { &*at }
    }

    /// Returns the histograms, if anything was counted.
    #[allow(unsafe_code)]
    fn histograms(&self) -> Option<&Histograms> {
        let at = self.histograms.load(std::sync::atomic::Ordering::Acquire);
        // SAFETY: null or a leaked box that lives as long as `self`.
        unsafe { at.as_ref() }
    }

    /// Forgets everything (CONFIG RESETSTAT). Counts of a command that runs just now may survive.
    pub fn reset(&self) {
        for counter in [&self.calls, &self.nanoseconds, &self.rejected, &self.failed] {
            counter.set(0);
        }
        if let Some(kept) = self.histograms() {
            kept.durations.counts.iter().for_each(|count| count.set(0));
            kept.requests.reset();
            kept.replies.reset();
        }
    }
}

impl Drop for CommandStats {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let at = *self.histograms.get_mut();
        if !at.is_null() {
            // SAFETY: made by `Box::into_raw` in `own_histograms`, freed once.
            drop(unsafe { Box::from_raw(at) });
        }
    }
}

impl ThreadStats {
    /// Counters for so many commands.
    pub fn new(commands: usize) -> ThreadStats {
        ThreadStats {
            by_command: (0..commands).map(|_| CommandStats::default()).collect(),
            ..ThreadStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_are_added_up() {
        let threads = [ThreadStats::new(1), ThreadStats::new(1)];
        assert!(Durations::of(&threads, 0).is_none());
        for (thread, nanoseconds) in [(0, 1000), (0, 5000), (1, 1000), (1, 6000), (1, 70_000)] {
            threads[thread].by_command[0].count(nanoseconds, true);
            threads[thread].by_command[0].count_sizes(30, nanoseconds as usize);
        }
        let sizes = Sizes::of(&threads, 0).unwrap();
        assert_eq!((sizes.requests.sum, sizes.requests.counts[4]), (150, 5));
        assert_eq!((sizes.replies.counts[9], sizes.replies.counts[16]), (2, 1));
        let durations = Durations::of(&threads, 0).unwrap();
        assert_eq!(durations.calls, 5);
        assert_eq!(durations.cumulative(), [(1024, 2), (8192, 4), (131_072, 5)]);
        assert!((1000..1064).contains(&durations.percentile(0.0)));
        assert!((5000..5313).contains(&durations.percentile(50.0)));
        assert!((70_000..74_375).contains(&durations.percentile(100.0)));
    }

    #[test]
    fn a_duration_lies_within_its_bucket() {
        for nanoseconds in (0..100_000).chain([1 << 29, 999_999_999, 1_000_000_000]) {
            let index = Histogram::index(nanoseconds);
            assert!(nanoseconds <= Histogram::upper_bound(index), "{nanoseconds}");
            assert!(index == 0 || nanoseconds > Histogram::upper_bound(index - 1), "{nanoseconds}");
        }
        assert_eq!(Histogram::index(3 << 35), Histogram::index(1_000_000_000));
    }
}
