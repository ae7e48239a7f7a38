//! Cleaning: moves the remaining records of a segment to another one, from flash to flash.
//!
//! The segment is chosen by cost and benefit, as in log-structured file systems: the space gained,
//! times the age, divided by the bytes to read and write. A segment that loses its values quickly
//! is worth waiting for. An old one is not. Moved records are old, so they go to segments of their
//! own.

use crate::location::{Location, UNIT};
use crate::record::{self, HEADER, Record};
use crate::segments::{Segment, SegmentState};
use crate::tier::Tier;
use crate::window::Window;
use crate::writer::Refused;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use structs::aligned::ALIGNMENT;
use structs::sync::lock;

/// A segment with more than this many thousandths of its bytes in use is not worth cleaning.
const TOO_FULL: u64 = 980;
/// Length of one wait for the disk, and number of waits before a segment is given up.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES: u32 = 400;

/// Changes the entries that hold locations.
pub trait Owners {
    /// Moves a value. If an entry with this hash refers to `from`, appends the value again with
    /// `append` and makes the entry refer to the new location.
    fn relocate(
        &self,
        hash: u64,
        from: Location,
        append: &mut dyn FnMut() -> Result<Location, Refused>,
    ) -> Relocation;
}

/// The result of an attempt to move a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocation {
    /// The entry refers to the new location.
    Moved,
    /// No entry refers to the value.
    Gone,
    /// The entry cannot be changed now.
    Held,
    /// Entries cannot be accessed within the time that the cleaner may wait. New segments may be
    /// needed meanwhile.
    Later,
    /// The tier refused the value.
    Refused(Refused),
}

/// Whether cleaning a segment continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moving {
    On,
    /// Cleaning is over: more values cannot be moved.
    Over,
    /// Cleaning continues later.
    Later,
}

impl Tier {
    /// Returns the segment that is best cleaned now. If a snapshot is going to read a segment, its
    /// values have to be read once more after they have moved, so they count twice.
    pub(crate) fn choose_victim(&self) -> Option<u32> {
        let now = self.sealed.load(Relaxed);
        let score = |segment: &Segment| {
            let live = segment.live.load(Acquire);
            let is_stuck = segment.stuck_at.load(Relaxed) == live + 1;
            if segment.state() != SegmentState::Sealed || is_stuck {
                return None;
            }
            let memory = lock(&segment.memory);
            let size = self.settings.segment_bytes;
            if !memory.is_on_disk() || live * 1000 > size * TOO_FULL {
                return None;
            }
            let age = now.saturating_sub(segment.sealed_at.load(Relaxed));
            let age = u128::from(age);
            let moved = if segment.needs.marked() > 0 { 2 * live } else { live };
            // (1 - u) × age / (1 + u), scaled to an integer. A larger number is a better victim.
            Some(u128::from(size - live.min(size)) * age * 1000 / u128::from(size + moved))
        };
        let scored = self
            .segments
            .iter()
            .filter_map(|(number, segment)| score(segment).map(|score| (score, number)));
        scored.max().map(|(_, number)| number)
    }

    /// Moves all referenced values out of a segment. Values that cannot be moved stay in place, and
    /// the segment is reused when they have been released. Returns `false` if cleaning has to
    /// continue later.
    pub(crate) fn clean(self: &Arc<Self>, number: u32, owners: &dyn Owners) -> bool {
        let segment = self.segments.get(number);
        // A failing read does not end cleaning. The values stay in place, and readers get the
        // error.
        if let Ok(false) = self.move_values(number, segment, owners) {
            return false;
        }
        let live = segment.live.load(Acquire);
        if live == 0 {
            self.counters.segments_cleaned.fetch_add(1, Relaxed);
        }
        segment.stuck_at.store(live + 1, Relaxed);
        true
    }

    fn move_values(
        self: &Arc<Self>,
        number: u32,
        segment: &Segment,
        owners: &dyn Owners,
    ) -> io::Result<bool> {
        let end = lock(&segment.memory).end;
        let generation = segment.generation.load(Relaxed);
        let mut window = Window::new(number, end);
        let mut at = 0;
        while at < end && segment.live.load(Acquire) > 0 {
            // After the last record of a piece, and after damage, continue where the next piece can
            // begin.
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
            match self.move_value(location, Record { hash, ..record }, owners) {
                Moving::On => {}
                Moving::Over => return Ok(true),
                Moving::Later => return Ok(false),
            }
        }
        Ok(true)
    }

    fn move_value(
        self: &Arc<Self>,
        location: Location,
        record: Record<'_>,
        owners: &dyn Owners,
    ) -> Moving {
        for _ in 0..PAUSES {
            let mut append = || self.append_survivor(record);
            match owners.relocate(record.hash, location, &mut append) {
                Relocation::Moved => {
                    self.forget_alias(location);
                    self.discard(location);
                    return Moving::On;
                }
                Relocation::Gone | Relocation::Held => return Moving::On,
                Relocation::Later => return Moving::Later,
                Relocation::Refused(Refused::Busy) if self.failing.load(Relaxed) == 0 => {
                    // If a write ends before this store, the wait ends by its time limit.
                    self.cleaner_waits.store(true, Release);
                    if !self.disk.poll() {
                        self.wait(PAUSE);
                    }
                }
                Relocation::Refused(_) => return Moving::Over,
            }
        }
        Moving::Over
    }
}

/// Returns whether a header can belong to a record that begins here.
fn is_here(location: Location, segment: u32, offset: u32, end: u32) -> bool {
    location.segment() == segment
        && location.offset() == offset
        && location.len() >= HEADER
        && offset as usize + location.len() <= end as usize
}
