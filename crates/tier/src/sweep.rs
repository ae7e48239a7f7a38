//! Reads the marked records of a segment in the order in which they lie there. Each part of the
//! segment is read once, in large reads.
//!
//! Marks may be cleared during a sweep, and set in segments to which records are appended. Parts
//! that are not on the disk yet are copied from memory.

use crate::location::Location;
use crate::marks::GRAIN;
use crate::reader::ReadError;
use crate::record::{self, HEADER};
use crate::segments::{Segment, SegmentState};
use crate::tier::Tier;
use crate::window::Window;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use structs::sync::lock;

/// A thread's progress through a segment. The segment is not reused meanwhile.
pub struct Sweep {
    tier: Arc<Tier>,
    window: Window,
    /// The next grain to check.
    next: u32,
    /// A record that is not on the disk yet.
    copy: Vec<u8>,
}

/// A record that is marked, or was marked just before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swept<'s> {
    /// The record's place.
    pub location: Location,
    /// The hash of its key.
    pub hash: u64,
    /// The value.
    pub payload: &'s [u8],
}

impl Tier {
    /// Begins to read the marked records of a segment that no other thread reads. Returns `None` if
    /// there is none.
    pub fn sweep(self: &Arc<Self>) -> Option<Sweep> {
        let is_free = |segment: &Segment| {
            segment.needs.marked() > 0 && !segment.needs.is_swept.swap(true, AcqRel)
        };
        let (number, segment) = self.segments.iter().find(|(_, segment)| is_free(segment))?;
        segment.readers.fetch_add(1, AcqRel);
        let window = Window::new(number, 0);
        Some(Sweep { tier: Arc::clone(self), window, next: 0, copy: Vec::new() })
    }
}

impl Sweep {
    /// Returns the next marked record. Waits for the disk.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn next_marked(&mut self) -> Result<Option<Swept<'_>>, ReadError> {
        let tier = Arc::clone(&self.tier);
        let segment = tier.segments.get(self.window.segment);
        loop {
            let Some(grain) = segment.needs.next(self.next) else { return Ok(None) };
            self.next = grain + 1;
            // If the mark has been cleared meanwhile, there may be anything in this place.
            match self.find(&tier, segment, grain) {
                Ok(found) => return Ok(Some(self.swept(&tier, found))),
                Err(_) if segment.needs.next(grain) != Some(grain) => {}
                Err(error) => return Err(tier.count_failure(error)),
            }
        }
    }

    fn swept(&self, tier: &Tier, (location, in_copy): (Location, bool)) -> Swept<'_> {
        let bytes = if in_copy { &self.copy[..] } else { self.window.cached(location) };
        let generation = tier.segments.get(location.segment()).generation.load(Relaxed);
        let record = record::parse(bytes, location, generation).expect("it was looked at just now");
        let hash = tier.alias(location).unwrap_or(record.hash);
        Swept { location, hash, payload: record.payload }
    }

    /// Returns the location of the record that begins in a grain, and whether it is in `copy`.
    fn find(
        &mut self,
        tier: &Tier,
        segment: &Segment,
        grain: u32,
    ) -> Result<(Location, bool), ReadError> {
        let mut failure = ReadError::Damaged;
        // The window may be older than the record, so after a failure the disk is read again.
        for is_fresh in [false, true] {
            if is_fresh {
                self.window.forget();
            }
            for offset in [grain * GRAIN, grain * GRAIN + GRAIN / 2] {
                match self.find_at(tier, segment, offset) {
                    Ok(found) => return Ok(found),
                    Err(error) => failure = error,
                }
            }
        }
        Err(failure)
    }

    fn find_at(
        &mut self,
        tier: &Tier,
        segment: &Segment,
        offset: u32,
    ) -> Result<(Location, bool), ReadError> {
        let generation = segment.generation.load(Relaxed);
        let number = self.window.segment;
        let is_here = |location: &Location| {
            (location.segment(), location.offset()) == (number, offset)
                && location.len() >= HEADER
                && u64::from(offset) + location.len() as u64 <= tier.settings.segment_bytes
        };
        let located =
            |bytes: &[u8]| record::location_at(bytes).filter(&is_here).ok_or(ReadError::Damaged);
        let memory = lock(&segment.memory);
        if let Some(header) = memory.copy(offset, HEADER) {
            let location = located(&header)?;
            let copy = memory.copy(offset, location.len()).ok_or(ReadError::Damaged)?;
            record::parse(&copy, location, generation).map_err(|_| ReadError::Damaged)?;
            drop(memory);
            self.copy = copy;
            return Ok((location, true));
        }
        let end = memory.end;
        drop(memory);
        if segment.state() == SegmentState::Free || offset as usize + HEADER > end as usize {
            return Err(ReadError::Damaged);
        }
        self.window.end = end;
        let disk = |error: std::io::Error| ReadError::Disk(error.to_string());
        let location = located(self.window.at(tier, offset, HEADER).map_err(disk)?)?;
        if offset as usize + location.len() > end as usize {
            return Err(ReadError::Damaged);
        }
        let bytes = self.window.at(tier, offset, location.len()).map_err(disk)?;
        record::parse(bytes, location, generation).map_err(|_| ReadError::Damaged)?;
        Ok((location, false))
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        let segment = self.tier.segments.get(self.window.segment);
        segment.needs.is_swept.store(false, Release);
        segment.readers.fetch_sub(1, AcqRel);
        self.tier.wake();
    }
}
