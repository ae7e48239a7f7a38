//! Readers of the journal. Each reads at its own pace, without a copy: bytes are read in the
//! segment's own memory.
#![allow(unsafe_code)]

use crate::JournalPos;
use crate::journal::{Journal, Log};
use crate::segments::{SEGMENT, Segment};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// What happens when a reader is too far behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfBehind {
    /// Writes wait for it before they run ([`Journal::is_full`]): it must not lose anything, as the
    /// append-only file must not.
    HoldWriters,
    /// It is cut off and writes go on: it can begin anew, as a replica can. How far behind it may
    /// be is the size of the [backlog](Journal::set_backlog), or what it is
    /// [allowed](Reader::allow) if that is more.
    CutOff,
}

/// What the journal knows of a reader.
pub(crate) struct ReaderState {
    position: AtomicU64,
    allowed: AtomicU64,
    pub(crate) if_behind: IfBehind,
    is_cut_off: AtomicBool,
}

impl ReaderState {
    pub(crate) fn new(position: u64, if_behind: IfBehind) -> Arc<ReaderState> {
        Arc::new(ReaderState {
            position: AtomicU64::new(position),
            allowed: AtomicU64::new(0),
            if_behind,
            is_cut_off: AtomicBool::new(false),
        })
    }

    pub(crate) fn position(&self) -> u64 {
        self.position.load(Acquire)
    }

    pub(crate) fn allowed(&self) -> u64 {
        self.allowed.load(Relaxed)
    }

    pub(crate) fn cut_off(&self) {
        self.is_cut_off.store(true, Release);
    }
}

/// A reader.
pub struct Reader<'j> {
    journal: &'j Journal,
    log: &'j Log,
    state: Arc<ReaderState>,
    segment: Option<(u64, Arc<Segment>)>,
}

/// How far behind a reader may be, wherever the reader itself is.
pub struct Limit(Arc<ReaderState>);

impl Limit {
    /// Does what [`Reader::allow`] does.
    pub fn allow(&self, bytes: u64) {
        self.0.allowed.store(bytes, Relaxed);
    }

    /// Does what [`Reader::is_cut_off`] does.
    pub fn is_cut_off(&self) -> bool {
        self.0.is_cut_off.load(Acquire)
    }
}

/// Bytes of the journal, in the segment's own memory.
pub struct Chunk {
    segment: Arc<Segment>,
    begin: usize,
    end: usize,
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `Reader::chunk` has made sure that they are published.
        unsafe { self.segment.read(self.begin..self.end) }
    }
}

impl<'j> Reader<'j> {
    pub(crate) fn new(journal: &'j Journal, log: &'j Log, state: Arc<ReaderState>) -> Reader<'j> {
        Reader { journal, log, state, segment: None }
    }

    /// Returns the reader's position.
    pub fn position(&self) -> JournalPos {
        JournalPos(self.state.position())
    }

    /// Returns whether the reader was cut off. Then it can read nothing more.
    pub fn is_cut_off(&self) -> bool {
        self.state.is_cut_off.load(Acquire)
    }

    /// Lets it be so many bytes behind, even if the backlog is smaller.
    pub fn allow(&self, bytes: u64) {
        self.state.allowed.store(bytes, Relaxed);
    }

    /// Returns the reader's limit, by which it can be changed later.
    pub fn limit(&self) -> Limit {
        Limit(Arc::clone(&self.state))
    }

    /// Returns the position up to which bytes can be read. It is always the end of an entry.
    pub fn readable(&self) -> JournalPos {
        // A cell that becomes idle may belong to an entry that was reserved earlier, so the bound
        // may seem to go back. What could be read once stays readable.
        JournalPos(self.journal.published(self.log).max(self.state.position()))
    }

    /// Returns the next bytes before `end`, as many as lie in one piece. `end` comes from
    /// [`Reader::readable`]. Returns `None` if there are none, or if the reader [was cut
    /// off](Reader::is_cut_off).
    pub fn chunk(&mut self, end: JournalPos) -> Option<Chunk> {
        let at = self.state.position();
        if at >= end.0 || self.is_cut_off() {
            return None;
        }
        let number = at / SEGMENT as u64;
        let segment = match &self.segment {
            Some((of, segment)) if *of == number => Arc::clone(segment),
            _ => {
                let segment = self.log.segments.for_read(number)?;
                // The reader may have been cut off meanwhile. Then the segment may belong to
                // another history.
                if self.is_cut_off() {
                    return None;
                }
                self.segment = Some((number, Arc::clone(&segment)));
                segment
            }
        };
        let begin = at as usize % SEGMENT;
        let len = usize::try_from(end.0 - at).unwrap_or(usize::MAX).min(SEGMENT - begin);
        Some(Chunk { segment, begin, end: begin + len })
    }

    /// Goes on by so many bytes. `true` if writes waited for that and may go on.
    pub fn advance(&mut self, bytes: usize) -> bool {
        let before = self.state.position.fetch_add(bytes as u64, AcqRel);
        let after = before + bytes as u64;
        if before / SEGMENT as u64 == after / SEGMENT as u64 {
            return false;
        }
        self.segment = None;
        self.journal.reader_advanced(self.log)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.journal.remove_reader(self.log, &self.state);
    }
}
