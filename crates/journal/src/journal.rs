//! Positions and appending.
//!
//! The bytes are those of the replication stream. An entry is what one write did; it is appended
//! under the locks of the stripes that were changed, so the order of entries agrees with the order
//! of changes of every key. While nothing is recorded, a write pays for one relaxed load.
//!
//! Appending takes no lock. One word holds the position behind the last entry and the database that
//! is selected there, so one exchange reserves a place and settles whether SELECT goes first:
//!
//! ```text
//!   63                                   8 7        0
//!  ┌──────────────────────────────────────┬──────────┐
//!  │ position (bytes, 56 bits)            │ database │   255: unknown, or too large to note
//!  └──────────────────────────────────────┴──────────┘
//! ```
//!
//! Then the bytes are copied ([`crate::cells`]). Entries are recorded while there is a reader or
//! bytes are kept for readers that come back ([`crate::backlog`]).
#![allow(unsafe_code)]

use crate::JournalPos;
use crate::aside::Asides;
use crate::cells::CopyCells;
use crate::entry::{Entry, push_select};
use crate::history::History;
use crate::reader::{IfBehind, Reader, ReaderState};
use crate::segments::{SEGMENT, Segments};
use crate::stages::{Stages, own_marks};
use keyspace::DbIndex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use structs::flags::Flag;
use structs::own_line::OwnLine;
use structs::sync::lock;

/// Bytes that may wait for a reader that must not be cut off before writes wait for it.
pub(crate) const MAX_PENDING_BYTES: u64 = 256 << 20;
/// The backlog's size until it is set; the default of `repl-backlog-size`.
const BACKLOG: u64 = 10 << 20;
/// The database is not known, or its number does not fit.
const UNKNOWN_DB: u64 = 255;

fn code(db: DbIndex) -> u64 {
    u64::from(db.0).min(UNKNOWN_DB)
}

fn pack(position: u64, code: u64) -> u64 {
    position << 8 | code
}

/// Returns `SELECT db` as it stands in the stream.
#[cold]
pub(crate) fn select(db: DbIndex) -> Vec<u8> {
    let mut line = Vec::new();
    push_select(&mut line, db);
    line
}

/// The bytes from a position on are not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotKept;

/// The journal.
#[derive(Default)]
pub struct Journal {
    /// This server's own entries are to be appended, or to be kept beside the stream.
    is_recording: AtomicBool,
    /// It is a copy of another server's journal: own entries have no place in it.
    is_copy: AtomicBool,
    /// The database that the stream goes on in, if this is a copy of it.
    pub(crate) copy_db: AtomicU32,
    /// Bytes are appended: there are readers, or bytes are kept.
    is_active: AtomicBool,
    /// The position and the database, packed. Each write changes it; the fields beside it are read
    /// by every turn and seldom change.
    state: OwnLine<AtomicU64>,
    /// Too much waits for a reader: writes are to wait.
    pub(crate) is_full: Flag,
    log: OnceLock<Box<Log>>,
    pub(crate) asides: Asides,
    register: Mutex<Register>,
}

/// The memory and the marks of threads that copy into it.
pub(crate) struct Log {
    pub(crate) segments: Segments,
    cells: CopyCells,
    stages: Stages,
}

/// What is read and kept.
pub(crate) struct Register {
    readers: Vec<Arc<ReaderState>>,
    /// Bytes are kept although no reader needs them.
    keeps: bool,
    /// How many.
    backlog: u64,
    /// The first position that is in memory.
    first: u64,
    /// Size and end of the largest entry that some reader has not read yet. A reader is allowed to
    /// be behind by that much more: otherwise a value larger than the backlog would cut off every
    /// replica, and its transfer in a full synchronisation could do so again.
    largest: (u64, u64),
    history: History,
    /// The history's id names the state at the present position, although nothing is recorded.
    is_history_valid: bool,
}

impl Default for Register {
    fn default() -> Register {
        Register {
            readers: Vec::new(),
            keeps: false,
            backlog: BACKLOG,
            first: 0,
            largest: (0, 0),
            history: History::new(),
            is_history_valid: false,
        }
    }
}

impl Register {
    /// Returns from where on bytes have to stay for readers and for the backlog.
    fn floor(&self, published: u64) -> u64 {
        let slowest = self.readers.iter().map(|reader| reader.position()).min();
        let kept = if self.keeps { published.saturating_sub(self.backlog) } else { published };
        slowest.unwrap_or(published).min(kept).min(published)
    }

    /// Returns the position of the slowest reader that writes may have to wait for.
    pub(crate) fn slowest_waited_for(&self) -> Option<u64> {
        let holding = self.readers.iter().filter(|one| one.if_behind == IfBehind::HoldWriters);
        holding.map(|reader| reader.position()).min()
    }

    /// Notes that an entry of about `size` bytes is appended.
    fn note_size(&mut self, size: u64, end: u64) {
        let is_read = self.readers.iter().all(|reader| reader.position() >= self.largest.1);
        if size > self.largest.0 || is_read {
            self.largest = (size, end);
        }
    }

    /// Cuts off the readers that are too far behind, and says whether one was.
    fn cut_off_slow_readers(&mut self, published: u64) -> bool {
        let (backlog, (size, end)) = (self.backlog, self.largest);
        let is_near = |reader: &ReaderState| {
            let extra = if reader.position() < end { size } else { 0 };
            let limit = backlog.max(reader.allowed()).saturating_add(extra);
            published <= reader.position().saturating_add(limit)
        };
        let before = self.readers.len();
        self.readers.retain(|reader| {
            let stays = reader.if_behind == IfBehind::HoldWriters || is_near(reader);
            if !stays {
                reader.cut_off();
            }
            stays
        });
        self.readers.len() < before
    }
}

impl Journal {
    /// Returns an empty journal. `full` is set while writes have to wait for a reader.
    pub fn new(full: Flag) -> Journal {
        Journal { is_full: full, ..Journal::default() }
    }

    /// Returns whether entries are to be appended.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.is_recording.load(Relaxed)
    }

    /// Returns whether bytes are appended at all: own entries, or those of the server that this is
    /// a [copy](Journal::set_copy) of.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Relaxed)
    }

    /// Sets whether this is a copy of another server's journal. Only [`Journal::append_verbatim`]
    /// adds to a copy; what this server does by itself is kept [beside it](crate::aside) for the
    /// append-only file. The world is stopped, or nothing writes yet.
    pub fn set_copy(&self, is_copy: bool) {
        let register = self.register();
        self.is_copy.store(is_copy, Release);
        if is_copy {
            self.copy_db.store(self.selected_db().unwrap_or_default().0, Release);
        }
        self.note_readers(&register);
    }

    /// Returns whether this is a copy of another server's journal.
    #[inline]
    pub fn is_copy(&self) -> bool {
        self.is_copy.load(Relaxed)
    }

    /// Decides what is recorded: the readers, or whether this is a copy, have changed.
    fn note_readers(&self, register: &Register) {
        let has_log = register.slowest_waited_for().is_some();
        let takes_asides = self.is_copy() && has_log;
        self.asides.set_on(takes_asides, has_log);
        let is_recording = self.is_active() && (!self.is_copy() || takes_asides);
        self.is_recording.store(is_recording, Release);
    }

    /// Returns how many bytes of memory the journal takes: those that hold it, and segments kept
    /// for reuse.
    pub fn allocated_bytes(&self) -> usize {
        self.log.get().map_or(0, |log| log.segments.allocated_bytes())
    }

    /// Returns how many bytes of memory hold the journal, in whole segments.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.log.get().map_or(0, |log| log.segments.bytes())
    }

    /// Returns whether writes have to wait because a reader is too far behind.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.is_set()
    }

    /// Returns the position behind the last entry; exact while the world is stopped.
    pub fn position(&self) -> JournalPos {
        JournalPos(self.state.load(Acquire) >> 8)
    }

    /// Returns the position up to which entries are complete: threads may still be copying those
    /// behind it.
    pub fn complete(&self) -> JournalPos {
        self.log.get().map_or_else(|| self.position(), |log| JournalPos(self.published(log)))
    }

    /// Returns the database that is selected behind the last entry; `None` if the next one begins
    /// with SELECT in any case. Exact while the world is stopped.
    pub fn selected_db(&self) -> Option<DbIndex> {
        let code = self.state.load(Acquire) & UNKNOWN_DB;
        (code != UNKNOWN_DB).then_some(DbIndex(code as u32))
    }

    /// Makes the next entry begin with SELECT, because what reads it from here on knows nothing of
    /// the entries before. The world is stopped. Nothing is put into a copy; its followers learn
    /// from the snapshot in which database it goes on.
    pub fn forget_db(&self) {
        if !self.is_copy() {
            self.forget_selected();
        }
    }

    /// Notes the database in which the stream that this is a copy of goes on. The world is stopped.
    pub fn note_db(&self, db: DbIndex) {
        let position = self.position().0;
        self.copy_db.store(db.0, Release);
        self.state.store(pack(position, code(db)), Release);
    }

    fn forget_selected(&self) {
        self.state.fetch_or(UNKNOWN_DB, AcqRel);
    }

    /// Appends an entry, empties it, and returns the position behind it. `is_atomic`: if it has
    /// several commands, they are one transaction. The stripes that the entry is about are locked.
    pub fn append(&self, entry: &mut Entry, is_atomic: bool) -> JournalPos {
        let (first, last) = (entry.first_db(), entry.last_db());
        let end = self.append_bytes(first, last, entry.seal(is_atomic));
        entry.clear();
        end
    }

    /// Appends an entry of one command, spelled as [`Entry`] would, and returns the position behind
    /// it. The stripes that it is about are locked.
    #[inline]
    pub fn append_command(&self, db: DbIndex, command: &[u8]) -> JournalPos {
        self.append_bytes(db, db, command)
    }

    #[inline]
    fn log(&self) -> &Log {
        self.log.get_or_init(Log::new)
    }

    #[inline]
    fn append_bytes(&self, first: DbIndex, last: DbIndex, bytes: &[u8]) -> JournalPos {
        if self.is_copy() {
            return self.append_aside(first, bytes);
        }
        let log = self.log();
        if log.stages.is_pending() {
            return self.append_behind_staged(log, first, last, bytes);
        }
        self.append_now(log, first, last, bytes)
    }

    /// Reserves a place for an entry, or for several, and copies it there.
    fn append_now(&self, log: &Log, first: DbIndex, last: DbIndex, bytes: &[u8]) -> JournalPos {
        let cell = log.cells.of_this_thread();
        let mut state = self.state.load(Relaxed);
        cell.begin(state >> 8);
        let (begin, before, end) = loop {
            let needs_select = state & UNKNOWN_DB == UNKNOWN_DB || state & 0xff != code(first);
            let before = if needs_select { select(first).len() } else { 0 };
            let begin = state >> 8;
            let end = begin + (before + bytes.len()) as u64;
            match self.state.compare_exchange_weak(state, pack(end, code(last)), AcqRel, Relaxed) {
                Ok(_) => break (begin, before, end),
                Err(now) => state = now,
            }
        };
        let at = if before > 0 { self.copy(log, begin, &select(first)) } else { begin };
        self.copy(log, at, bytes);
        cell.end();
        self.appended(log, bytes.len());
        JournalPos(end)
    }

    /// Appends a piece of another server's stream as it came, and returns the position behind it:
    /// what reads this journal then sees the same bytes at the same positions as in the other one.
    /// Behind it `db` is selected. It ends with a command; nothing else is appended meanwhile.
    pub fn append_verbatim(&self, bytes: &[u8], db: DbIndex) -> JournalPos {
        let log = self.log();
        let cell = log.cells.of_this_thread();
        let held = self.asides.is_on().then(|| self.asides.hold());
        let begin = self.position().0;
        cell.begin(begin);
        let end = begin + bytes.len() as u64;
        self.copy_db.store(db.0, Release);
        let before = self.state.swap(pack(end, code(db)), AcqRel);
        assert!(before >> 8 == begin, "something else was appended to a copy of a stream");
        drop(held);
        self.copy(log, begin, bytes);
        cell.end();
        self.appended(log, bytes.len());
        JournalPos(end)
    }

    /// Gives back memory after an entry was appended. Nothing of an entry can be given back while
    /// it is copied, and an entry that is larger than a segment must not stay until the next one.
    #[inline]
    fn appended(&self, log: &Log, bytes: usize) {
        if bytes >= SEGMENT {
            self.give_back(log, &mut self.register());
        }
    }

    /// Copies into reserved bytes; returns the position behind them.
    #[inline]
    fn copy(&self, log: &Log, mut at: u64, mut bytes: &[u8]) -> u64 {
        while !bytes.is_empty() {
            let (number, offset) = (at / SEGMENT as u64, at as usize % SEGMENT);
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT - offset));
            let (segment, is_new) = log.segments.for_append(number);
            // SAFETY: this thread has reserved the bytes and notes that it is copying.
            unsafe { segment.write(offset, now) };
            if is_new {
                self.check_readers(log, at, bytes.len());
            }
            at += now.len() as u64;
            bytes = later;
        }
        at
    }

    /// Looks how far behind the readers are, once a segment. `left` bytes of an entry are to be
    /// copied to `at`.
    #[cold]
    fn check_readers(&self, log: &Log, at: u64, left: usize) {
        let mut register = self.register();
        if left >= SEGMENT {
            register.note_size((left + SEGMENT) as u64, at + left as u64);
        }
        let slowest = register.slowest_waited_for();
        if slowest.is_some_and(|slowest| at > slowest + MAX_PENDING_BYTES) {
            self.is_full.set(true);
        }
        if register.cut_off_slow_readers(self.published(log)) {
            self.readers_left(&register);
        }
        self.give_back(log, &mut register);
    }

    /// Gives back what only readers that are gone needed.
    fn readers_left(&self, register: &Register) {
        if register.readers.is_empty() && !register.keeps {
            self.is_active.store(false, Release);
        }
        self.note_readers(register);
        if register.slowest_waited_for().is_none() {
            self.is_full.set(false);
        }
    }

    /// Gives back the memory of what is neither to be read nor to be kept. Nothing is given back
    /// into which a thread may still be copying.
    fn give_back(&self, log: &Log, register: &mut Register) {
        let floor = register.floor(self.published(log));
        log.segments.give_back(floor);
        register.first = register.first.max(floor - floor % SEGMENT as u64);
    }

    pub(crate) fn register(&self) -> MutexGuard<'_, Register> {
        lock(&self.register)
    }

    /// Returns the position up to which bytes can be read.
    pub(crate) fn published(&self, log: &Log) -> u64 {
        log.cells.lowest(self.position().0)
    }
}

/// Entries that share a reservation ([`crate::stages`]).
impl Journal {
    /// Stages an entry of one command, and returns the mark that its stripe is to carry until
    /// [`Journal::append_staged`]; `None` if it has to be [appended](Journal::append_command) by
    /// itself. The stripe is locked and is the only one that the entry is about. The thread appends
    /// what it has staged before it tells another thread or a client of it, and before it leaves
    /// the world.
    pub fn stage(&self, db: DbIndex, command: &[u8]) -> Option<u32> {
        if self.is_copy() {
            return None;
        }
        self.log().stages.for_entry(command.len())?.add(db, command)
    }

    /// Appends what the calling thread has staged, unless another thread has done so since. Returns
    /// the position behind it.
    pub fn append_staged(&self) -> JournalPos {
        let log = self.log();
        let Some(stage) = log.stages.own() else { return JournalPos(0) };
        let mut staged = stage.lock();
        stage.append(&mut staged, |first, last, bytes| self.append_now(log, first, last, bytes));
        staged.end
    }

    /// Returns whether the calling thread has staged entries.
    #[inline]
    pub fn has_staged(&self) -> bool {
        self.log.get().is_some_and(|log| log.stages.is_pending())
    }

    /// Makes sure that the entry of a mark is appended, if another thread has staged it: the caller
    /// has locked the stripe that carries the mark. Returns whether the stripe needs the mark no
    /// longer, so not if the entry is the caller's own and is still staged.
    pub fn settle(&self, mark: u32) -> bool {
        let Some(log) = self.log.get() else { return true };
        log.stages.settle(mark, |first, last, bytes| self.append_now(log, first, last, bytes))
    }

    /// Returns what tells whether a mark is of the calling thread.
    #[inline]
    pub fn own_marks() -> impl Fn(u32) -> bool {
        own_marks()
    }

    /// Appends an entry behind what the calling thread has staged, in one piece with it if the
    /// entry is short.
    #[cold]
    fn append_behind_staged(
        &self,
        log: &Log,
        first: DbIndex,
        last: DbIndex,
        bytes: &[u8],
    ) -> JournalPos {
        let append = |first, last, bytes: &[u8]| self.append_now(log, first, last, bytes);
        let Some(stage) = log.stages.pending() else { return append(first, last, bytes) };
        let mut staged = stage.lock();
        let shares = !staged.is_empty() && staged.push(first, last, bytes);
        stage.append(&mut staged, append);
        if shares {
            return staged.end;
        }
        drop(staged);
        append(first, last, bytes)
    }
}

/// Readers, and the bytes that are kept for them.
impl Journal {
    /// Sets how many bytes are kept after [`Journal::keep`], and how far behind a reader may be
    /// before it is cut off. Both are checked once a mebibyte, so both may be exceeded by that
    /// much.
    pub fn set_backlog(&self, bytes: u64) {
        let mut register = self.register();
        register.backlog = bytes;
        if let Some(log) = self.log.get() {
            self.give_back(log, &mut register);
        }
    }

    /// Keeps bytes from now on even if no reader needs them. The world is stopped, or nothing
    /// writes yet.
    pub fn keep(&self) {
        let mut register = self.register();
        self.begin_recording(&mut register);
        register.keeps = true;
    }

    /// Bytes are kept no longer than readers need them.
    pub fn stop_keeping(&self) {
        let mut register = self.register();
        register.keeps = false;
        self.readers_left(&register);
        if let Some(log) = self.log.get() {
            self.give_back(log, &mut register);
        }
    }

    /// Cuts off the readers that are too far behind now, as new entries do once a mebibyte.
    pub fn check_limits(&self) {
        let Some(log) = self.log.get() else { return };
        let mut register = self.register();
        if register.cut_off_slow_readers(self.published(log)) {
            self.readers_left(&register);
        }
        self.give_back(log, &mut register);
    }

    /// Returns whether bytes are kept.
    pub fn is_keeping(&self) -> bool {
        self.register().keeps
    }

    /// Returns the position of the first byte that a reader can begin at, if bytes are kept.
    pub fn kept_from(&self) -> Option<JournalPos> {
        let register = self.register();
        register.keeps.then(|| self.first_kept(&register))
    }

    fn first_kept(&self, register: &Register) -> JournalPos {
        let backlog = self.position().0.saturating_sub(register.backlog);
        // Bytes that are kept for a slow reader can be read by others.
        let slowest = register.readers.iter().map(|reader| reader.position()).min();
        JournalPos(register.first.max(slowest.unwrap_or(backlog).min(backlog)))
    }

    /// Changes that were made while nothing was recorded are not in the journal. So another history
    /// begins, unless the present one was [set](Journal::begin_history) since: with the old id, a
    /// file from before would stand for a position at which there is another state now.
    fn begin_recording(&self, register: &mut Register) {
        if self.is_active.swap(true, AcqRel) {
            return;
        }
        self.note_readers(register);
        if !std::mem::take(&mut register.is_history_valid) {
            register.history = History::new();
        }
        register.first = self.position().0;
        if !self.is_copy() {
            self.forget_selected();
        }
    }

    /// Returns a reader of everything from here on. The world is stopped, or nothing writes yet:
    /// otherwise a write that is under way at this moment may be missing.
    pub fn read(&self, if_behind: IfBehind) -> Reader<'_> {
        let mut register = self.register();
        self.begin_recording(&mut register);
        self.add_reader(&mut register, self.position(), if_behind)
    }

    /// Returns a reader of everything from a past position on, at any time.
    ///
    /// # Errors
    /// The bytes from there on are not kept, or the position is in the future.
    pub fn read_from(
        &self,
        position: JournalPos,
        if_behind: IfBehind,
    ) -> Result<Reader<'_>, NotKept> {
        let mut register = self.register();
        let is_there = position >= self.first_kept(&register) && position <= self.position();
        if !self.is_active() || !is_there {
            return Err(NotKept);
        }
        Ok(self.add_reader(&mut register, position, if_behind))
    }

    fn add_reader(
        &self,
        register: &mut Register,
        position: JournalPos,
        if_behind: IfBehind,
    ) -> Reader<'_> {
        let state = ReaderState::new(position.0, if_behind);
        register.readers.push(Arc::clone(&state));
        self.note_readers(register);
        Reader::new(self, self.log(), state)
    }

    pub(crate) fn remove_reader(&self, log: &Log, reader: &Arc<ReaderState>) {
        let mut register = self.register();
        register.readers.retain(|other| !Arc::ptr_eq(other, reader));
        self.readers_left(&register);
        self.give_back(log, &mut register);
    }

    /// Frees memory after a reader has left a segment. Returns whether writes waited for that and
    /// may go on.
    pub(crate) fn reader_advanced(&self, log: &Log) -> bool {
        let mut register = self.register();
        self.give_back(log, &mut register);
        let position = self.position().0;
        let waited_for = register.slowest_waited_for().unwrap_or(position);
        let has_room = position.saturating_sub(waited_for) <= MAX_PENDING_BYTES / 2;
        has_room && self.is_full.set(false)
    }
}

/// Histories.
impl Journal {
    /// Returns the ids under which the positions are known.
    pub fn history(&self) -> History {
        self.register().history
    }

    /// Returns whether the ids and the position name the present data: everything since they were
    /// set has been appended.
    pub fn is_history_known(&self) -> bool {
        self.is_active() || self.register().is_history_valid
    }

    /// Changes the ids; positions and kept bytes stay (a promotion, a primary with a new id).
    pub fn set_history(&self, history: History) {
        self.register().history = history;
    }

    /// Sets the history and the position of the data set, after it was loaded from a file or from a
    /// primary. Drops the bytes that are kept and cuts off the readers that may be. The world is
    /// stopped, or nothing writes yet, and there is no other reader.
    pub fn begin_history(&self, history: History, position: JournalPos) {
        let mut register = self.register();
        register.readers.retain(|reader| {
            assert!(reader.if_behind == IfBehind::CutOff, "the log would miss the new data");
            reader.cut_off();
            false
        });
        self.readers_left(&register);
        if let Some(log) = self.log.get() {
            let end = self.position().0;
            assert!(self.published(log) == end, "an entry is being appended");
            assert!(log.stages.are_empty(), "an entry is staged");
            log.segments.restart(end, position.0);
        }
        self.state.store(pack(position.0, UNKNOWN_DB), Release);
        register.first = position.0;
        register.largest = (0, 0);
        register.history = history;
        register.is_history_valid = !self.is_active();
    }
}

impl Log {
    fn new() -> Box<Log> {
        let (segments, cells) = (Segments::new(), CopyCells::new());
        Box::new(Log { segments, cells, stages: Stages::new() })
    }
}
