//! Reads values: many at once without waiting, or one with waiting.

use crate::disk::{Operation, Work};
use crate::location::Location;
use crate::one_shot::OneShot;
use crate::record::{self, Damage};
use crate::tier::Tier;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use structs::aligned::{ALIGNMENT, AlignedBytes};
use structs::sync::lock;

/// Number of times that a read is repeated if the disk returned fewer bytes than requested.
const SHORT_READS: u32 = 3;

/// Why a value could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// An error of the disk.
    Disk(String),
    /// The bytes are not those that were written.
    Damaged,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Disk(why) => write!(f, "{why}"),
            ReadError::Damaged => write!(f, "wrong checksum"),
        }
    }
}

/// A value as it was appended, or an error.
pub type Payload = Result<Vec<u8>, ReadError>;

/// Receives payloads in the order in which they were requested.
pub type Fetched = Box<dyn FnOnce(Vec<Payload>) + Send>;

/// Values that are read together.
struct Batch {
    results: Mutex<Vec<Option<Payload>>>,
    missing: AtomicUsize,
    done: Mutex<Option<Fetched>>,
}

impl Batch {
    fn set(&self, at: usize, result: Result<Vec<u8>, ReadError>) {
        lock(&self.results)[at] = Some(result);
        self.complete(1);
    }

    fn complete(&self, count: usize) {
        if self.missing.fetch_sub(count, AcqRel) > count {
            return;
        }
        let results = std::mem::take(&mut *lock(&self.results));
        let results = results.into_iter().map(|result| result.expect("none is missing"));
        let done = lock(&self.done).take().expect("it is completed once");
        done(results.collect());
    }
}

impl Tier {
    /// Reads several values at once. `done` is called once: by another thread, or before this
    /// returns if all are in memory. The caller keeps each value referenced or pinned until this
    /// returns.
    pub fn fetch(self: &Arc<Self>, wanted: &[Location], done: Fetched) {
        let batch = Arc::new(Batch {
            results: Mutex::new(vec![None; wanted.len()]),
            // One more, so that it is not complete before this function ends.
            missing: AtomicUsize::new(wanted.len() + 1),
            done: Mutex::new(Some(done)),
        });
        let mut operations = Vec::new();
        for (at, &location) in wanted.iter().enumerate() {
            match self.read_from_memory(location) {
                Some(result) => batch.set(at, result),
                None => {
                    let batch = Arc::clone(&batch);
                    let done = Box::new(move |result| batch.set(at, result));
                    operations.push(self.read_operation(location, SHORT_READS, done));
                }
            }
        }
        if !operations.is_empty() {
            self.disk.submit(operations);
        }
        batch.complete(1);
    }

    /// Reads a value and waits for it. The value is referenced or pinned.
    ///
    /// # Errors
    /// The value cannot be read.
    pub fn read(self: &Arc<Self>, location: Location) -> Result<Vec<u8>, ReadError> {
        let slot = OneShot::new();
        let told = Arc::clone(&slot);
        self.fetch(&[location], Box::new(move |results| told.set(results)));
        let result = slot.wait(&*self.disk).pop();
        result.expect("there is a result for each value that was asked for")
    }

    fn read_from_memory(&self, location: Location) -> Option<Result<Vec<u8>, ReadError>> {
        let segment = self.segments.get(location.segment());
        let bytes = lock(&segment.memory).copy(location.offset(), location.len())?;
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.reads_from_memory.fetch_add(1, Relaxed);
        Some(self.payload(&bytes, location))
    }

    fn payload(&self, bytes: &[u8], location: Location) -> Result<Vec<u8>, ReadError> {
        let generation = self.segments.get(location.segment()).generation.load(Relaxed);
        match record::parse(bytes, location, generation) {
            Ok(record) => Ok(record.payload.to_vec()),
            Err(Damage::NotTheRecord | Damage::Checksum) => {
                Err(self.count_failure(ReadError::Damaged))
            }
        }
    }

    fn read_operation(
        self: &Arc<Self>,
        location: Location,
        tries: u32,
        done: Box<dyn FnOnce(Result<Vec<u8>, ReadError>) + Send>,
    ) -> Operation {
        let segment = location.segment();
        self.segments.get(segment).readers.fetch_add(1, AcqRel);
        self.counters.reads_in_flight.fetch_add(1, Relaxed);
        let offset = location.offset() / ALIGNMENT as u32 * ALIGNMENT as u32;
        let begin = (location.offset() - offset) as usize;
        let len = (begin + location.len()).next_multiple_of(ALIGNMENT);
        let (tier, started) = (Arc::clone(self), Instant::now());
        let arrived = move |work: Work, result: io::Result<usize>| {
            let Work::Read(bytes) = work else { unreachable!("a read gives back what it read") };
            let counters = &tier.counters;
            counters.note_latency(started.elapsed());
            let needed = begin + location.len();
            let is_short = result.as_ref().is_ok_and(|&read| read < needed);
            if is_short && tries > 0 {
                let again = tier.read_operation(location, tries - 1, done);
                tier.disk.submit(vec![again]);
                return tier.end_read(segment);
            }
            counters.reads.fetch_add(1, Relaxed);
            counters.read_bytes.fetch_add(len as u64, Relaxed);
            let result = match result {
                Ok(_) if !is_short => tier.payload(&bytes[begin..needed], location),
                Ok(_) => tier.unreadable("the disk gives less than was written"),
                Err(error) => tier.unreadable(&error.to_string()),
            };
            tier.end_read(segment);
            done(result);
        };
        let work = Work::Read(AlignedBytes::new(len));
        Operation { segment, offset, len, work, done: Box::new(arrived) }
    }

    fn end_read(&self, segment: u32) {
        self.counters.reads_in_flight.fetch_sub(1, Relaxed);
        self.segments.get(segment).readers.fetch_sub(1, AcqRel);
    }

    /// Counts a value that could not be read. Returns the error.
    pub(crate) fn count_failure(&self, error: ReadError) -> ReadError {
        self.counters.read_errors.fetch_add(1, Relaxed);
        let is_damaged = u64::from(error == ReadError::Damaged);
        self.counters.checksum_errors.fetch_add(is_damaged, Relaxed);
        error
    }

    fn unreadable(&self, why: &str) -> Result<Vec<u8>, ReadError> {
        Err(self.count_failure(ReadError::Disk(why.to_owned())))
    }
}
