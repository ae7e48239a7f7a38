//! Segments: their contents, and which of them are free.

use crate::location::MAX_SEGMENTS;
use crate::marks::Needs;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use structs::aligned::AlignedBytes;

const BLOCK: u32 = 1024;

/// The states of a segment. It passes through them in this order, repeatedly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum SegmentState {
    /// The segment has no file.
    Absent = 0,
    /// The segment has a file without records.
    Free = 1,
    /// Records are being appended.
    Open = 2,
    /// The segment is full.
    Sealed = 3,
    /// No record is referenced, but a snapshot or a read may need one.
    Emptied = 4,
}

/// The piece of a segment to which records are appended.
pub(crate) struct Open {
    pub offset: u32,
    pub bytes: AlignedBytes,
    pub filled: usize,
}

/// A piece that is being written to the disk.
pub(crate) struct Writing {
    pub offset: u32,
    pub len: usize,
    pub bytes: Arc<AlignedBytes>,
}

/// The part of a segment that is in memory.
#[derive(Default)]
pub(crate) struct Memory {
    /// Offset of the next piece, or the length of a sealed segment.
    pub end: u32,
    pub open: Option<Open>,
    pub writing: Vec<Writing>,
}

impl Memory {
    pub fn is_on_disk(&self) -> bool {
        self.open.is_none() && self.writing.is_empty()
    }

    /// Returns a copy of bytes that are still in memory, or `None` if they are on the disk.
    pub fn copy(&self, offset: u32, len: usize) -> Option<Vec<u8>> {
        let within = |start: u32, bytes: &[u8]| {
            let at = offset.checked_sub(start)? as usize;
            bytes.get(at..at + len).map(<[u8]>::to_vec)
        };
        let open =
            self.open.as_ref().and_then(|open| within(open.offset, &open.bytes[..open.filled]));
        open.or_else(|| {
            self.writing.iter().find_map(|piece| within(piece.offset, &piece.bytes[..piece.len]))
        })
    }
}

#[derive(Default)]
pub(crate) struct Segment {
    state: AtomicU8,
    /// Increases each time the segment is reused.
    pub generation: AtomicU32,
    /// Bytes of referenced records.
    pub live: AtomicU64,
    /// Number of reads in progress.
    pub readers: AtomicU32,
    /// Number of segments that were sealed before this one.
    pub sealed_at: AtomicU64,
    /// `live` plus one, at the end of the last cleaning that could not empty the segment.
    pub stuck_at: AtomicU64,
    pub memory: Mutex<Memory>,
    /// What the present snapshot needs of it.
    pub needs: Needs,
}

impl Segment {
    pub fn state(&self) -> SegmentState {
        match self.state.load(Acquire) {
            0 => SegmentState::Absent,
            1 => SegmentState::Free,
            2 => SegmentState::Open,
            3 => SegmentState::Sealed,
            _ => SegmentState::Emptied,
        }
    }

    pub fn set_state(&self, state: SegmentState) {
        self.state.store(state as u8, Release);
    }
}

/// All segments by number. They are allocated in blocks of a thousand when they are first needed,
/// and stay.
pub(crate) struct Segments {
    blocks: Box<[OnceLock<Box<[Segment]>>]>,
    /// Number of segments that were ever used.
    count: AtomicU32,
}

impl Segments {
    pub fn new() -> Segments {
        Segments {
            blocks: (0..MAX_SEGMENTS / BLOCK).map(|_| OnceLock::new()).collect(),
            count: AtomicU32::new(0),
        }
    }

    pub fn count(&self) -> u32 {
        self.count.load(Acquire)
    }

    /// Adds a segment without a file and returns its number, or `None` at the greatest number. Only
    /// one thread may call it at a time.
    pub fn add(&self) -> Option<u32> {
        let number = self.count();
        let block = self.blocks.get((number / BLOCK) as usize)?;
        block.get_or_init(|| (0..BLOCK).map(|_| Segment::default()).collect());
        self.count.store(number + 1, Release);
        Some(number)
    }

    pub fn get(&self, number: u32) -> &Segment {
        let block = self.blocks[(number / BLOCK) as usize].get();
        &block.expect("the number comes from `add`")[(number % BLOCK) as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..self.count()).map(|number| (number, self.get(number)))
    }
}
