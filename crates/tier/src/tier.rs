//! The tier as a whole: its settings, the state that its parts share, and the supply of free
//! segments.

use crate::backlog::{Backlog, Told};
use crate::cleaner::Owners;
use crate::disk::Disk;
use crate::figures::{BUCKETS, Counters, Figures};
use crate::location::{Location, MAX_SEGMENT_BYTES};
use crate::record::HEADER;
use crate::segments::{SegmentState, Segments};
use crate::writer::{Failed, PIECE};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use structs::aligned::{ALIGNMENT, AlignedBytes};
use structs::sync::{lock, wait_timeout};

/// Number of free segments that only the cleaner may use.
pub(crate) const SPARE: usize = 2;
/// Number of free segments that are created in addition, as long as the tier may grow. Writers use
/// them while more files are created.
const MADE_AHEAD: usize = 4;
/// The same if the tier may not grow. Each such segment has to be cleaned, and is no longer
/// available to cleaning as a source.
const CLEANED_AHEAD: usize = 1;
/// Number of free segments beyond which files are removed.
const MAX_FREE: usize = SPARE + MADE_AHEAD + 2;
/// Number of segments up to which half-empty ones do not count as waste.
const FEW_SEGMENTS: u64 = 8;

/// Number of rounds of maintenance after which a segment that could not be emptied is tried again.
const STUCK_ROUNDS: u64 = 64;

/// The settings of a tier.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Size of a segment in bytes: 1 to 64 MiB, a multiple of 4096.
    pub segment_bytes: u64,
    /// Greatest size of all segments together in bytes. 0 means as much as the disk has.
    pub max_bytes: u64,
    /// Greatest memory of pieces that are not on the disk yet, in bytes.
    pub buffer_bytes: u64,
    /// Number of segments to which new values are appended at a time.
    pub streams: usize,
}

/// Why settings are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// The size of a segment is not allowed.
    SegmentBytes,
    /// The tier needs at least this many bytes.
    TooSmall(u64),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::SegmentBytes => write!(f, "a segment has 1 to 64 MiB"),
            SettingsError::TooSmall(bytes) => write!(f, "the tier needs {bytes} bytes at least"),
        }
    }
}

/// The tier. The crate's documentation describes it.
pub struct Tier {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) settings: Settings,
    max_bytes: AtomicU64,
    pub(crate) segments: Segments,
    /// Segments in state `Free`.
    pub(crate) free: Mutex<VecDeque<u32>>,
    absent: Mutex<Vec<u32>>,
    /// Number of segments that have a file.
    existing: AtomicU64,
    /// The open segments. The last one is for moved values.
    pub(crate) streams: Box<[Mutex<Option<u32>>]>,
    /// Number of segments that were ever sealed.
    pub(crate) sealed: AtomicU64,
    /// The present hashes of values whose key was renamed after they were written.
    aliases: Mutex<HashMap<Location, u64>>,
    alias_count: AtomicUsize,
    /// Number of calls of `maintain`.
    rounds: AtomicU64,
    pub(crate) failed: Mutex<Vec<Failed>>,
    /// Number of failed writes.
    pub(crate) failing: AtomicUsize,
    pub(crate) is_full: AtomicBool,
    pub(crate) pieces: Mutex<Vec<AlignedBytes>>,
    /// Bytes of all pieces in memory.
    pub(crate) buffered: AtomicU64,
    /// The bytes being written, and the appends that wait for them.
    pub(crate) backlog: Backlog,
    /// Whether the cleaner waits for a write to end.
    pub(crate) cleaner_waits: AtomicBool,
    pub(crate) counters: Counters,
    is_awake: Mutex<bool>,
    woken: Condvar,
}

impl Tier {
    /// Creates a tier without segments. The first call of [`Tier::maintain`] creates some.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn new(disk: Arc<dyn Disk>, settings: Settings) -> Result<Arc<Tier>, SettingsError> {
        let segment = settings.segment_bytes;
        if !(1 << 20..=MAX_SEGMENT_BYTES).contains(&segment)
            || !segment.is_multiple_of(ALIGNMENT as u64)
        {
            return Err(SettingsError::SegmentBytes);
        }
        let streams = settings.streams.max(1);
        Tier::check_max(settings, settings.max_bytes)?;
        Ok(Arc::new(Tier {
            disk,
            max_bytes: AtomicU64::new(settings.max_bytes),
            settings,
            segments: Segments::new(),
            free: Mutex::default(),
            absent: Mutex::default(),
            existing: AtomicU64::new(0),
            streams: (0..=streams).map(|_| Mutex::default()).collect(),
            sealed: AtomicU64::new(0),
            aliases: Mutex::default(),
            alias_count: AtomicUsize::new(0),
            rounds: AtomicU64::new(0),
            failed: Mutex::default(),
            failing: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            pieces: Mutex::default(),
            buffered: AtomicU64::new(0),
            backlog: Backlog::new(),
            cleaner_waits: AtomicBool::new(false),
            counters: Counters::default(),
            is_awake: Mutex::default(),
            woken: Condvar::new(),
        }))
    }

    fn check_max(settings: Settings, max_bytes: u64) -> Result<(), SettingsError> {
        // One for each stream, those of the cleaner, and one to clean.
        let least =
            (settings.streams.max(1) + 2 + SPARE + CLEANED_AHEAD) as u64 * settings.segment_bytes;
        if max_bytes > 0 && max_bytes < least {
            return Err(SettingsError::TooSmall(least));
        }
        Ok(())
    }

    /// Changes the greatest size of all segments together, in bytes. 0 means as much as the disk
    /// has. If there are more segments, files are removed as they become empty.
    ///
    /// # Errors
    /// The size is too small.
    pub fn set_max_bytes(&self, max_bytes: u64) -> Result<(), SettingsError> {
        Tier::check_max(self.settings, max_bytes)?;
        self.max_bytes.store(max_bytes, Relaxed);
        self.wake();
        Ok(())
    }

    /// Sets the function to call after an append was refused as busy: when values are accepted
    /// again, or when the tier is full. Called once. The function must not wait.
    pub fn on_room(&self, told: Told) {
        self.backlog.set_told(told);
    }

    /// Returns the length of the longest payload that [`Tier::append`] accepts, in bytes.
    pub fn max_payload(&self) -> usize {
        self.max_record() - HEADER
    }

    pub(crate) fn max_record(&self) -> usize {
        self.settings.segment_bytes as usize / 2
    }

    /// Returns the wanted number of free segments.
    pub(crate) fn wanted_free(&self) -> usize {
        SPARE + if self.may_grow() { MADE_AHEAD } else { CLEANED_AHEAD }
    }

    /// Returns whether another segment may be created.
    fn may_grow(&self) -> bool {
        let max = self.max_bytes.load(Relaxed);
        max == 0 || (self.existing.load(Relaxed) + 1) * self.settings.segment_bytes <= max
    }

    /// Releases a value that is no longer referenced. Does not wait.
    pub fn release(&self, location: Location) {
        self.forget_alias(location);
        self.counters.values.fetch_sub(1, Relaxed);
        self.discard(location);
    }

    /// Records that a record is not needed any more.
    pub(crate) fn discard(&self, location: Location) {
        let (segment, len) = (self.segments.get(location.segment()), location.len() as u64);
        self.counters.live_bytes.fetch_sub(len, Relaxed);
        let before = segment.live.fetch_sub(len, AcqRel);
        assert!(before >= len, "a value was released twice");
        if before == len && segment.state() == SegmentState::Sealed {
            self.wake();
        }
    }

    /// Records the new hash of a value whose key was renamed.
    pub fn rename(&self, location: Location, hash: u64) {
        self.segments.get(location.segment()).stuck_at.store(0, Relaxed);
        let mut aliases = lock(&self.aliases);
        aliases.insert(location, hash);
        self.alias_count.store(aliases.len(), Release);
    }

    pub(crate) fn alias(&self, location: Location) -> Option<u64> {
        if self.alias_count.load(Acquire) == 0 {
            return None;
        }
        lock(&self.aliases).get(&location).copied()
    }

    pub(crate) fn forget_alias(&self, location: Location) {
        if self.alias_count.load(Acquire) > 0 {
            let mut aliases = lock(&self.aliases);
            aliases.remove(&location);
            self.alias_count.store(aliases.len(), Release);
            if aliases.is_empty() {
                aliases.shrink_to_fit();
            }
        }
    }

    /// Wakes the thread in [`Tier::wait`].
    pub fn wake(&self) {
        *lock(&self.is_awake) = true;
        self.woken.notify_all();
    }

    /// Waits until [`Tier::maintain`] may have work, for `timeout` at most.
    pub fn wait(&self, timeout: Duration) {
        let guard = lock(&self.is_awake);
        *wait_timeout(&self.woken, guard, timeout, |is_awake| !*is_awake) = false;
    }

    /// Keeps enough segments free: reuses empty ones, creates new ones, and moves values out of
    /// those that are nearly empty. Waits for the disk. Only one thread may call it at a time.
    pub fn maintain(self: &Arc<Self>, owners: &dyn Owners) {
        self.write_again();
        self.forget_stuck();
        self.seal_dead();
        self.collect();
        let is_full = self.clean_as_needed(owners) && lock(&self.free).len() <= SPARE;
        if is_full && !self.is_full.swap(true, Relaxed) {
            // Waiting is of no use, so notify the waiters.
            self.backlog.tell();
        }
        self.is_full.store(is_full, Relaxed);
    }

    /// Moves values until enough segments are free and at most half of the bytes is waste. Returns
    /// whether free segments are short and no more can be had. Segments that writers have taken
    /// during the call do not count as short, because more can be provided.
    fn clean_as_needed(self: &Arc<Self>, owners: &dyn Owners) -> bool {
        loop {
            let is_short = !self.provide();
            if !is_short && !self.is_mostly_waste() {
                return false;
            }
            let Some(victim) = self.choose_victim() else { return is_short };
            if !is_short && self.segments.get(victim).needs.marked() > 0 {
                return false;
            }
            if !self.clean(victim, owners) {
                return false;
            }
            self.collect();
        }
    }

    /// Regularly allows segments to be cleaned again that could not be emptied.
    fn forget_stuck(&self) {
        if self.rounds.fetch_add(1, Relaxed).is_multiple_of(STUCK_ROUNDS) {
            self.segments.iter().for_each(|(_, segment)| segment.stuck_at.store(0, Relaxed));
        }
    }

    /// Seals open segments without referenced records, so that they can be reused. Otherwise a
    /// stream without appends would keep its segment for ever, and in a small tier most segments
    /// belong to streams.
    fn seal_dead(self: &Arc<Self>) {
        for stream in &self.streams {
            let mut stream = lock(stream);
            let Some(number) = *stream else { continue };
            let segment = self.segments.get(number);
            let mut memory = lock(&segment.memory);
            let is_used =
                memory.end > 0 || memory.open.as_ref().is_some_and(|open| open.filled > 0);
            if !is_used || segment.live.load(Acquire) > 0 {
                continue;
            }
            // Readers may still need the piece, so it is written.
            self.write_open(number, &mut memory);
            segment.sealed_at.store(self.sealed.fetch_add(1, Relaxed), Relaxed);
            segment.stuck_at.store(0, Relaxed);
            segment.set_state(SegmentState::Sealed);
            *stream = None;
        }
    }

    /// Frees segments without referenced records.
    fn collect(&self) {
        for (number, segment) in self.segments.iter() {
            if segment.state() == SegmentState::Sealed
                && segment.live.load(Acquire) == 0
                && lock(&segment.memory).is_on_disk()
            {
                segment.set_state(SegmentState::Emptied);
            }
            // Check after the state: a place is only pinned or read while an entry refers to it.
            if segment.state() == SegmentState::Emptied
                && segment.readers.load(Acquire) == 0
                && !segment.needs.is_pinned()
            {
                self.free_segment(number);
            }
        }
    }

    fn free_segment(&self, number: u32) {
        let segment = self.segments.get(number);
        segment.generation.fetch_add(1, AcqRel);
        lock(&segment.memory).end = 0;
        let free = lock(&self.free).len();
        let surplus = free >= MAX_FREE || (self.is_too_large() && free > SPARE);
        if surplus && self.disk.remove(number).is_ok() {
            segment.set_state(SegmentState::Absent);
            self.existing.fetch_sub(1, Relaxed);
            lock(&self.absent).push(number);
        } else {
            self.add_free(number);
        }
    }

    fn is_too_large(&self) -> bool {
        let max = self.max_bytes.load(Relaxed);
        max > 0 && self.existing.load(Relaxed) * self.settings.segment_bytes > max
    }

    /// Creates segments until enough are free. Returns `false` if they are not and no more can be
    /// created.
    fn provide(&self) -> bool {
        while lock(&self.free).len() < self.wanted_free() {
            if !self.may_grow() || self.make_segment().is_none() {
                // If the disk is full, the number that cleaning would provide is enough.
                return lock(&self.free).len() >= SPARE + CLEANED_AHEAD;
            }
        }
        true
    }

    /// Creates a segment. If that fails, the disk is probably full, and the next round tries again.
    fn make_segment(&self) -> Option<()> {
        let absent = lock(&self.absent).pop();
        let number = absent.or_else(|| self.segments.add())?;
        if self.disk.create(number, self.settings.segment_bytes).is_err() {
            lock(&self.absent).push(number);
            return None;
        }
        self.existing.fetch_add(1, Relaxed);
        self.add_free(number);
        Some(())
    }

    fn add_free(&self, number: u32) {
        self.segments.get(number).set_state(SegmentState::Free);
        lock(&self.free).push_back(number);
        self.backlog.tell();
    }

    /// Returns whether more than half of the bytes of segments in use is waste.
    fn is_mostly_waste(&self) -> bool {
        let free = lock(&self.free).len() as u64;
        let used = self.existing.load(Relaxed).saturating_sub(free);
        let live = self.counters.live_bytes.load(Relaxed);
        used > FEW_SEGMENTS && live < used * self.settings.segment_bytes / 2
    }

    /// Returns whether values are refused until some are released.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Returns how many reads of the disk began with which power of two of microseconds: place N
    /// has those of 2^N to 2^(N+1).
    pub fn read_latencies(&self) -> [u64; BUCKETS] {
        self.counters.latencies()
    }

    /// Returns the present counts and sizes.
    pub fn figures(&self) -> Figures {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let emptied =
            self.segments.iter().filter(|(_, segment)| segment.state() == SegmentState::Emptied);
        Figures {
            values: get(&counters.values),
            live_bytes: get(&counters.live_bytes),
            appended: get(&counters.appended),
            appended_bytes: get(&counters.appended_bytes),
            rewritten: get(&counters.rewritten),
            rewritten_bytes: get(&counters.rewritten_bytes),
            disk_write_bytes: get(&counters.disk_write_bytes),
            reads: get(&counters.reads),
            reads_from_memory: get(&counters.reads_from_memory),
            reads_in_flight: get(&counters.reads_in_flight),
            read_bytes: get(&counters.read_bytes),
            scanned_bytes: get(&counters.scanned_bytes),
            read_errors: get(&counters.read_errors),
            checksum_errors: get(&counters.checksum_errors),
            write_errors: get(&counters.write_errors),
            writes_failing: self.failing.load(Relaxed) as u64,
            segments_cleaned: get(&counters.segments_cleaned),
            segments: get(&self.existing),
            segments_free: lock(&self.free).len() as u64,
            segments_pinned: emptied.count() as u64,
            segment_bytes: self.settings.segment_bytes,
            buffer_bytes: get(&self.buffered) + (lock(&self.pieces).len() * PIECE) as u64,
            read_us: counters.total_latency_us(),
            read_p50_us: counters.latency_us(500),
            read_p99_us: counters.latency_us(990),
            read_p999_us: counters.latency_us(999),
            is_full: self.is_full.load(Relaxed),
        }
    }
}
