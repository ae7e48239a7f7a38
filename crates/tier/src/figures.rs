//! The tier's counters and figures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Number of buckets for read latencies. The buckets are powers of two of microseconds.
pub(crate) const BUCKETS: usize = 32;

#[derive(Default)]
pub(crate) struct Counters {
    pub values: AtomicU64,
    pub live_bytes: AtomicU64,
    pub appended: AtomicU64,
    pub appended_bytes: AtomicU64,
    pub rewritten: AtomicU64,
    pub rewritten_bytes: AtomicU64,
    pub disk_write_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub reads_from_memory: AtomicU64,
    pub reads_in_flight: AtomicU64,
    pub read_bytes: AtomicU64,
    pub scanned_bytes: AtomicU64,
    pub read_errors: AtomicU64,
    pub checksum_errors: AtomicU64,
    pub write_errors: AtomicU64,
    pub segments_cleaned: AtomicU64,
    /// The sum over all reads of the disk.
    latency_us: AtomicU64,
    latencies: [AtomicU64; BUCKETS],
}

impl Counters {
    pub fn note_latency(&self, took: Duration) {
        let us = took.as_micros().max(1) as u64;
        self.latency_us.fetch_add(us, Relaxed);
        self.latencies[(us.ilog2() as usize).min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// Returns the sum of the latencies of all reads of the disk, in microseconds.
    pub fn total_latency_us(&self) -> u64 {
        self.latency_us.load(Relaxed)
    }

    /// Returns how many reads began with which power of two of microseconds.
    pub fn latencies(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.latencies[bucket].load(Relaxed))
    }

    /// Returns the latency in microseconds below which `per_mille` of a thousand reads were: the
    /// upper end of its bucket, or 0 without reads.
    pub fn latency_us(&self, per_mille: u64) -> u64 {
        let counts = self.latencies();
        let wanted = (counts.iter().sum::<u64>() * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return 2 << bucket;
            }
        }
        0
    }
}

/// A snapshot of the figures. Bytes are those of whole records, with header and padding.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Values with references.
    pub values: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Values appended, without moved ones.
    pub appended: u64,
    /// Their bytes.
    pub appended_bytes: u64,
    /// Values moved from one segment to another.
    pub rewritten: u64,
    /// Their bytes.
    pub rewritten_bytes: u64,
    /// Bytes written to the disk.
    pub disk_write_bytes: u64,
    /// Values read from the disk or from memory.
    pub reads: u64,
    /// Of these, values that were still in memory.
    pub reads_from_memory: u64,
    /// Reads of the disk in progress.
    pub reads_in_flight: u64,
    /// Bytes read from the disk for single values.
    pub read_bytes: u64,
    /// Bytes read by snapshots and cleaning, in large pieces.
    pub scanned_bytes: u64,
    /// Values that could not be read.
    pub read_errors: u64,
    /// Of these, values that were damaged.
    pub checksum_errors: u64,
    /// Failed writes. Each is tried again.
    pub write_errors: u64,
    /// Failed writes that wait for another try.
    pub writes_failing: u64,
    /// Segments that cleaning has emptied.
    pub segments_cleaned: u64,
    /// Segments that exist.
    pub segments: u64,
    /// Of these, segments that hold no records.
    pub segments_free: u64,
    /// Segments that only hold records which a snapshot or a read still needs.
    pub segments_pinned: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Memory of pieces that are not on the disk yet, in bytes.
    pub buffer_bytes: u64,
    /// The sum of the disk's read latencies, in microseconds.
    pub read_us: u64,
    /// The median latency of the disk's reads, in microseconds.
    pub read_p50_us: u64,
    /// The 99th percentile, in microseconds.
    pub read_p99_us: u64,
    /// The 99.9th percentile, in microseconds.
    pub read_p999_us: u64,
    /// Whether nothing more can be appended.
    pub is_full: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_upper_ends_of_buckets() {
        let counters = Counters::default();
        assert_eq!(counters.latency_us(500), 0);
        for _ in 0..98 {
            counters.note_latency(Duration::from_micros(100));
        }
        counters.note_latency(Duration::from_micros(3000));
        counters.note_latency(Duration::ZERO);
        assert_eq!(counters.latency_us(500), 128);
        assert_eq!(counters.latency_us(999), 4096);
        assert_eq!(counters.total_latency_us(), 98 * 100 + 3000 + 1);
    }
}
