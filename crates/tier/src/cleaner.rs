//! Cleaning: what is left of a segment is moved to another, from flash to flash.
//!
//! The segment is chosen by cost and benefit, as log-structured file systems do: the space won, times
//! the age, by what has to be read and written for it. A segment that loses its values quickly is worth
//! waiting for; an old one is not. What was moved is old, so it goes to segments of its own.

use crate::disk::{Operation, Work};
use crate::location::{Location, UNIT};
use crate::record::{self, HEADER, Record};
use crate::segments::{Segment, State};
use crate::slot::Slot;
use crate::tier::Tier;
use crate::writer::Refused;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use structs::aligned::{ALIGNMENT, AlignedBytes};
use structs::sync::lock;

/// Bytes of a segment that are read at a time.
const WINDOW: usize = 1 << 20;
/// A segment with more than so many thousandths of its bytes in use is not worth it.
const TOO_FULL: u64 = 980;
/// How long to wait for the disk at a stretch, and how often, before a segment is given up.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES: u32 = 400;
/// Times that a read is begun again of which the disk gave less than all.
const SHORT_READS: u32 = 3;

/// The keepers of locations.
pub trait Owners {
    /// If an entry with this hash refers to `from`, appends the value anew by calling `append`, and has
    /// the entry refer to that place instead.
    fn relocate(
        &self,
        hash: u64,
        from: Location,
        append: &mut dyn FnMut() -> Result<Location, Refused>,
    ) -> Relocation;

    /// Whether space can be used again that nothing refers to any more: a snapshot may still need it.
    fn may_reuse(&self) -> bool;
}

/// What became of a value that is to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocation {
    /// The entry refers to another place.
    Moved,
    /// No entry refers to it.
    Gone,
    /// The entry cannot be changed now.
    Held,
    /// The value was not taken in.
    Refused(Refused),
}

/// A part of a segment in memory.
struct Window {
    segment: u32,
    /// Bytes of the segment that were written.
    end: u32,
    start: u32,
    bytes: AlignedBytes,
    len: usize,
}

impl Window {
    /// So many bytes from this place on, read if need be.
    fn at(&mut self, tier: &Tier, offset: u32, len: usize) -> io::Result<&[u8]> {
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
    /// The segment that is best cleaned now.
    pub(crate) fn choose_victim(&self) -> Option<u32> {
        let now = self.sealed.load(Relaxed);
        let score = |segment: &Segment| {
            let live = segment.live.load(Acquire);
            let is_stuck = segment.stuck_at.load(Relaxed) == live + 1;
            if segment.state() != State::Sealed || is_stuck {
                return None;
            }
            let memory = lock(&segment.memory);
            let size = self.settings.segment_bytes;
            if !memory.is_on_disk() || live * 1000 > size * TOO_FULL {
                return None;
            }
            let age = now.saturating_sub(segment.sealed_at.load(Relaxed));
            let age = u128::from(age);
            // (1 - u) × age / (1 + u), as a number that is larger for a better victim.
            Some((u128::from(size - live.min(size)) * age * 1000) / u128::from(size + live))
        };
        let scored = self
            .segments
            .iter()
            .filter_map(|(number, segment)| score(segment).map(|score| (score, number)));
        scored.max().map(|(_, number)| number)
    }

    /// Moves away what is referred to of a segment. What cannot be moved stays where it is: the segment
    /// is used again when that has gone by itself.
    pub(crate) fn clean(self: &Arc<Self>, number: u32, owners: &dyn Owners) {
        let segment = self.segments.get(number);
        // A failing read does not end cleaning: the values stay in place, and readers meet the error.
        let _ = self.move_values(number, segment, owners);
        let live = segment.live.load(Acquire);
        if live == 0 {
            self.counters.segments_cleaned.fetch_add(1, Relaxed);
        }
        segment.stuck_at.store(live + 1, Relaxed);
    }

    fn move_values(
        self: &Arc<Self>,
        number: u32,
        segment: &Segment,
        owners: &dyn Owners,
    ) -> io::Result<()> {
        let end = lock(&segment.memory).end;
        let generation = segment.generation.load(Relaxed);
        let bytes = AlignedBytes::new(0);
        let mut window = Window { segment: number, end, start: 0, bytes, len: 0 };
        let mut at = 0;
        while at < end && segment.live.load(Acquire) > 0 {
            // Behind the last record of a piece, and behind damage, goes on where a piece can begin.
            let next_piece = (at + 1).next_multiple_of(ALIGNMENT as u32);
            let found = record::location_at(window.at(self, at, UNIT)?);
            let Some(location) = found.filter(|it| is_here(*it, number, at, end)) else {
                at = next_piece;
                continue;
            };
            let bytes = window.at(self, at, location.len())?;
            let Ok(record) = record::parse(bytes, location, generation) else {
                at = next_piece;
                continue;
            };
            at += location.len() as u32;
            let hash = self.alias(location).unwrap_or(record.hash);
            if !self.move_value(location, Record { hash, ..record }, owners) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether it makes sense to go on.
    fn move_value(
        self: &Arc<Self>,
        location: Location,
        record: Record<'_>,
        owners: &dyn Owners,
    ) -> bool {
        for _ in 0..PAUSES {
            let mut append = || self.append_survivor(record);
            match owners.relocate(record.hash, location, &mut append) {
                Relocation::Moved => {
                    self.forget_alias(location);
                    self.discard(location);
                    return true;
                }
                Relocation::Gone | Relocation::Held => return true,
                Relocation::Refused(Refused::Busy) if self.failing.load(Relaxed) == 0 => {
                    if !self.disk.poll() {
                        self.wait(PAUSE);
                    }
                }
                Relocation::Refused(_) => return false,
            }
        }
        false
    }

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
            let slot = Slot::new();
            let told = Arc::clone(&slot);
            let done = Box::new(move |work, result| told.set((work, result)));
            self.disk.submit(vec![Operation { segment, offset, len, work, done }]);
            let (back, read) = slot.wait(&*self.disk);
            match back {
                Work::Read(bytes) if read? == len => return Ok(bytes),
                other => work = other,
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Whether a header can be that of a record which begins here.
fn is_here(location: Location, segment: u32, offset: u32, end: u32) -> bool {
    location.segment() == segment
        && location.offset() == offset
        && location.len() >= HEADER
        && offset as usize + location.len() <= end as usize
}
