//! A part of a segment in memory. Segments are read from beginning to end in large reads.

use crate::disk::{Operation, Work};
use crate::location::Location;
use crate::one_shot::OneShot;
use crate::tier::Tier;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use structs::aligned::{ALIGNMENT, AlignedBytes};

/// Number of bytes of a segment that are read at a time.
pub(crate) const WINDOW: usize = 1 << 20;
/// Number of times that a read is repeated if the disk returned fewer bytes than requested.
const SHORT_READS: u32 = 3;

/// A part of a segment in memory.
pub(crate) struct Window {
    pub segment: u32,
    /// Number of bytes of the segment that were written.
    pub end: u32,
    start: u32,
    bytes: AlignedBytes,
    len: usize,
}

impl Window {
    /// Creates an empty window of a segment of which `end` bytes were written.
    pub fn new(segment: u32, end: u32) -> Window {
        Window { segment, end, start: 0, bytes: AlignedBytes::new(0), len: 0 }
    }

    /// Empties the window, so that the disk is read again.
    pub fn forget(&mut self) {
        self.len = 0;
    }

    /// Returns the record that the last [`Window::at`] returned.
    pub fn cached(&self, location: Location) -> &[u8] {
        let at = (location.offset() - self.start) as usize;
        &self.bytes[at..at + location.len()]
    }

    /// Returns `len` bytes at `offset`. Reads them if necessary.
    pub fn at(&mut self, tier: &Tier, offset: u32, len: usize) -> io::Result<&[u8]> {
        let is_inside = offset >= self.start && (offset - self.start) as usize + len <= self.len;
        if !is_inside {
            let start = offset / ALIGNMENT as u32 * ALIGNMENT as u32;
            let needed = ((offset - start) as usize + len).next_multiple_of(ALIGNMENT);
            let size = needed.max(WINDOW).min((self.end - start) as usize);
            if self.bytes.len() < size {
                self.bytes = AlignedBytes::new(size);
            }
            self.len = 0;
            let bytes = std::mem::replace(&mut self.bytes, AlignedBytes::new(0));
            self.bytes = tier.read_range(self.segment, start, size, bytes)?;
            (self.start, self.len) = (start, size);
        }
        let at = (offset - self.start) as usize;
        self.bytes.get(at..at + len).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Tier {
    /// Reads a part of a segment and waits for it.
    fn read_range(
        &self,
        segment: u32,
        offset: u32,
        len: usize,
        bytes: AlignedBytes,
    ) -> io::Result<AlignedBytes> {
        let mut work = Work::Read(bytes);
        for _ in 0..=SHORT_READS {
            let slot = OneShot::new();
            let told = Arc::clone(&slot);
            let done = Box::new(move |work, result| told.set((work, result)));
            self.disk.submit(vec![Operation { segment, offset, len, work, done }]);
            let (back, read) = slot.wait(&*self.disk);
            match back {
                Work::Read(bytes) if read? == len => {
                    self.counters.scanned_bytes.fetch_add(len as u64, Relaxed);
                    return Ok(bytes);
                }
                other => work = other,
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
