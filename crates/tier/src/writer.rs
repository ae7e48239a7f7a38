//! Appends records. They are collected in pieces of 256 KiB, and a full piece is written at once.
//!
//! A record is readable from memory until it is on the disk. Pieces that cannot be written stay in
//! memory and are tried again. Meanwhile no more records are accepted, so the waiting pieces are
//! bounded.

use crate::disk::{Operation, Work};
use crate::location::Location;
use crate::record::{self, Record};
use crate::segments::{Memory, Open, SegmentState, Writing};
use crate::tier::{SPARE, Tier};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use structs::aligned::{ALIGNMENT, AlignedBytes};
use structs::sync::lock;

/// Bytes of a piece. A longer record gets its own piece.
pub(crate) const PIECE: usize = 256 << 10;
/// Number of pieces beyond the limit that moved values may take in memory.
const EXTRA_PIECES: u64 = 4;
/// Number of pieces whose memory is kept for reuse.
const KEPT_PIECES: usize = 8;

/// Why a value was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The greatest amount of memory waits for the disk. Try again when [`Tier::on_room`] notifies.
    Busy,
    /// There is no segment for the value, and no more can be had.
    Full,
    /// Writes to the disk fail.
    Failing,
    /// The value is longer than a record may be.
    TooLong,
}

/// A write that failed.
pub(crate) struct Failed {
    pub segment: u32,
    pub offset: u32,
    pub len: usize,
    pub bytes: Arc<AlignedBytes>,
}

/// The source of an append.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Outside,
    Cleaner,
}

impl Tier {
    /// Appends a value. It can be read at once. `stream` selects a segment (modulo the number of
    /// streams), and threads that append to different streams do not contend. Does not wait for the
    /// disk.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn append(
        self: &Arc<Self>,
        stream: usize,
        hash: u64,
        kind: u8,
        payload: &[u8],
    ) -> Result<Location, Refused> {
        if self.failing.load(Relaxed) > 0 {
            return Err(Refused::Failing);
        }
        let record = Record { hash, kind, payload };
        let stream = stream % (self.streams.len() - 1);
        let location = match self.append_to(stream, From::Outside, record) {
            Err(Refused::Busy) => {
                self.backlog.set_mark();
                self.append_to(stream, From::Outside, record)?
            }
            result => result?,
        };
        self.counters.values.fetch_add(1, Relaxed);
        self.counters.appended.fetch_add(1, Relaxed);
        self.counters.appended_bytes.fetch_add(location.len() as u64, Relaxed);
        Ok(location)
    }

    /// Appends a value that the cleaner moves.
    pub(crate) fn append_survivor(
        self: &Arc<Self>,
        record: Record<'_>,
    ) -> Result<Location, Refused> {
        let location = self.append_to(self.streams.len() - 1, From::Cleaner, record)?;
        self.counters.rewritten.fetch_add(1, Relaxed);
        self.counters.rewritten_bytes.fetch_add(location.len() as u64, Relaxed);
        Ok(location)
    }

    fn append_to(
        self: &Arc<Self>,
        stream: usize,
        from: From,
        record: Record<'_>,
    ) -> Result<Location, Refused> {
        let len = record::len_of(record.payload.len());
        if len > self.max_record() {
            return Err(Refused::TooLong);
        }
        let mut stream = lock(&self.streams[stream]);
        loop {
            let Some(number) = *stream else {
                *stream = Some(self.open_segment(from)?);
                continue;
            };
            let segment = self.segments.get(number);
            let mut memory = lock(&segment.memory);
            if let Some(open) =
                memory.open.as_mut().filter(|open| open.bytes.len() - open.filled >= len)
            {
                let location = Location::new(number, open.offset + open.filled as u32, len);
                let to = &mut open.bytes[open.filled..open.filled + len];
                record::write(to, location, segment.generation.load(Relaxed), record);
                open.filled += len;
                segment.live.fetch_add(len as u64, AcqRel);
                self.counters.live_bytes.fetch_add(len as u64, Relaxed);
                return Ok(location);
            }
            self.write_open(number, &mut memory);
            let left = self.settings.segment_bytes as usize - memory.end as usize;
            if left < len {
                segment.sealed_at.store(self.sealed.fetch_add(1, Relaxed), Relaxed);
                segment.stuck_at.store(0, Relaxed);
                segment.set_state(SegmentState::Sealed);
                *stream = None;
                continue;
            }
            let size = PIECE.max(len.next_multiple_of(ALIGNMENT)).min(left);
            let bytes = self.piece(size, from)?;
            memory.open = Some(Open { offset: memory.end, bytes, filled: 0 });
        }
    }

    /// Begins to write the open piece.
    pub(crate) fn write_open(self: &Arc<Self>, number: u32, memory: &mut Memory) {
        let Some(mut open) = memory.open.take() else { return };
        let len = open.filled.next_multiple_of(ALIGNMENT);
        open.bytes[open.filled..len].fill(0);
        memory.end = open.offset + len as u32;
        let bytes = Arc::new(open.bytes);
        memory.writing.push(Writing { offset: open.offset, len, bytes: Arc::clone(&bytes) });
        self.write(Failed { segment: number, offset: open.offset, len, bytes });
    }

    fn write(self: &Arc<Self>, piece: Failed) {
        let Failed { segment, offset, len, bytes } = piece;
        let tier = Arc::clone(self);
        self.backlog.begin_write(len);
        self.disk.submit(vec![Operation {
            segment,
            offset,
            len,
            work: Work::Write(bytes),
            done: Box::new(move |work, result| tier.written(segment, offset, len, work, result)),
        }]);
    }

    fn written(
        &self,
        segment: u32,
        offset: u32,
        len: usize,
        work: Work,
        result: io::Result<usize>,
    ) {
        let Work::Write(bytes) = work else { unreachable!("a write gives back what it wrote") };
        let of = self.segments.get(segment);
        if result.is_ok_and(|written| written == len) {
            self.counters.disk_write_bytes.fetch_add(len as u64, Relaxed);
            let mut memory = lock(&of.memory);
            memory.writing.retain(|piece| piece.offset != offset);
            drop(memory);
            self.give_back(bytes);
        } else {
            self.counters.write_errors.fetch_add(1, Relaxed);
            self.failing.fetch_add(1, Relaxed);
            lock(&self.failed).push(Failed { segment, offset, len, bytes });
        }
        self.backlog.end_write(len);
        // Maintenance visits all segments, which is too expensive for every piece.
        let is_empty = of.state() == SegmentState::Sealed && of.live.load(Acquire) == 0;
        if is_empty || self.cleaner_waits.swap(false, AcqRel) {
            self.wake();
        }
    }

    /// Repeats failed writes, except those of pieces that are not needed any more.
    pub(crate) fn write_again(self: &Arc<Self>) {
        let failed = std::mem::take(&mut *lock(&self.failed));
        for piece in failed {
            self.failing.fetch_sub(1, Relaxed);
            let segment = self.segments.get(piece.segment);
            let is_dead =
                segment.state() == SegmentState::Sealed && segment.live.load(Acquire) == 0;
            if is_dead && !segment.needs.is_pinned() {
                let mut memory = lock(&segment.memory);
                memory.writing.retain(|writing| writing.offset != piece.offset);
                drop(memory);
                self.give_back(piece.bytes);
            } else {
                self.write(piece);
            }
        }
    }

    /// Returns memory for a piece of `size` bytes.
    fn piece(&self, size: usize, from: From) -> Result<AlignedBytes, Refused> {
        let extra = if from == From::Cleaner { EXTRA_PIECES * PIECE as u64 } else { 0 };
        let limit = self.settings.buffer_bytes + extra;
        let before = self.buffered.fetch_add(size as u64, Relaxed);
        // One piece is always allowed, however long.
        if before > 0 && before + size as u64 > limit {
            self.buffered.fetch_sub(size as u64, Relaxed);
            return Err(Refused::Busy);
        }
        let kept = if size == PIECE { lock(&self.pieces).pop() } else { None };
        Ok(kept.unwrap_or_else(|| AlignedBytes::new(size)))
    }

    fn give_back(&self, bytes: Arc<AlignedBytes>) {
        self.buffered.fetch_sub(bytes.len() as u64, Relaxed);
        if bytes.len() == PIECE
            && let Ok(bytes) = Arc::try_unwrap(bytes)
        {
            let mut kept = lock(&self.pieces);
            // Kept pieces count as memory of pieces.
            let others = self.buffered.load(Relaxed) + (kept.len() * PIECE) as u64;
            if kept.len() < KEPT_PIECES && others + PIECE as u64 <= self.settings.buffer_bytes {
                kept.push(bytes);
            }
        }
    }

    /// Opens a free segment. The last ones are reserved for the cleaner.
    fn open_segment(&self, from: From) -> Result<u32, Refused> {
        let mut free = lock(&self.free);
        let kept = if from == From::Cleaner { 0 } else { SPARE };
        let number = if free.len() > kept { free.pop_front() } else { None };
        let left = free.len();
        drop(free);
        if left < self.wanted_free() {
            self.wake();
        }
        let Some(number) = number else {
            // Only the cleaner frees segments, so it must not wait for one.
            let is_full = from == From::Cleaner || self.is_full.load(Relaxed);
            return Err(if is_full { Refused::Full } else { Refused::Busy });
        };
        self.segments.get(number).set_state(SegmentState::Open);
        Ok(number)
    }
}
