//! The journal: one ordered log of effects in memory, which everything that follows the data reads.
//!
//! Its bytes are those of the replication stream. An entry is what one write did; it is appended
//! under the locks of the stripes that were changed, so the order of entries agrees with the order
//! of changes of every key. While nobody reads, a write pays for one relaxed load.
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
//! Then the bytes are copied. Others may be copying too, and the later ones may be done first: each
//! thread notes in a cell of its own a lower bound of where it copies, and readers see bytes only
//! up to the lowest. `docs/internals/journal.md` has the whole.
#![allow(unsafe_code)]

use crate::journal_entry::push_select;
pub use crate::journal_entry::{Effect, Entry};
use crate::journal_segments::{SEGMENT, Segment, Segments};
use keyspace::DbIndex;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use structs::sync::lock;

/// A place in the journal: bytes of the replication stream before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct JournalPos(pub u64);

/// Bytes that may wait for a reader that must not be cut off before writes wait for it.
const MOST_WAITING: u64 = 256 << 20;
/// The backlog's size until it is told; that of `repl-backlog-size`.
const BACKLOG: u64 = 10 << 20;
/// Threads that can append at a time.
const CELLS: usize = 1024;
/// The database is not known, or its number does not fit.
const UNKNOWN_DB: u64 = 255;

fn code(db: DbIndex) -> u64 {
    u64::from(db.0).min(UNKNOWN_DB)
}

fn pack(position: u64, code: u64) -> u64 {
    position << 8 | code
}

/// `SELECT db`, as it stands in the stream.
#[cold]
fn select(db: DbIndex) -> Vec<u8> {
    let mut line = Vec::new();
    push_select(&mut line, db);
    line
}

/// What becomes of a reader who is too far behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfBehind {
    /// Writes wait for it before they run ([`Journal::is_full`]): it must not lose anything, as the
    /// append-only file must not.
    HoldWriters,
    /// It is cut off when it is further behind than the backlog is long
    /// ([`Journal::set_backlog`]), and nobody waits: it can begin anew, as a replica can.
    CutOff,
}

/// The journal.
pub struct Journal {
    is_read: AtomicBool,
    state: AtomicU64,
    /// Too much waits for a reader: writes are to wait.
    is_full: AtomicBool,
    /// Bytes that are kept for readers that may be cut off.
    backlog: AtomicU64,
    log: OnceLock<Box<Log>>,
    readers: Mutex<Vec<Arc<ReaderState>>>,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            is_read: AtomicBool::default(),
            state: AtomicU64::default(),
            is_full: AtomicBool::default(),
            backlog: AtomicU64::new(BACKLOG),
            log: OnceLock::default(),
            readers: Mutex::default(),
        }
    }
}

struct Log {
    segments: Segments,
    cells: Box<[CopyCell]>,
    /// Cells that were ever used are below.
    cells_used: AtomicU64,
}

/// Where a thread is copying, plus one; 0 while it does not.
#[repr(align(128))]
#[derive(Default)]
struct CopyCell(AtomicU64);

struct ReaderState {
    position: AtomicU64,
    if_behind: IfBehind,
    is_cut_off: AtomicBool,
}

impl Log {
    fn new() -> Box<Log> {
        let cells = (0..CELLS).map(|_| CopyCell::default()).collect();
        Box::new(Log { segments: Segments::new(), cells, cells_used: AtomicU64::new(0) })
    }
}

impl Journal {
    /// Whether anybody reads; if not, nothing needs to be appended.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.is_read.load(Relaxed)
    }

    /// Bytes of memory that hold what somebody has yet to read, in whole segments.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.log.get().map_or(0, |log| log.segments.bytes())
    }

    /// Whether writes are to wait because a reader is too far behind.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// The position behind the last entry; exact while the world is stopped.
    pub fn position(&self) -> JournalPos {
        JournalPos(self.state.load(Acquire) >> 8)
    }

    /// The database that is selected behind the last entry; `None` if the next one begins with
    /// SELECT in any case. Exact while the world is stopped.
    pub fn selected_db(&self) -> Option<DbIndex> {
        let code = self.state.load(Acquire) & UNKNOWN_DB;
        (code != UNKNOWN_DB).then_some(DbIndex(code as u32))
    }

    /// Makes the next entry begin with SELECT, because what reads it from here on knows of nothing
    /// before. The world is stopped.
    pub fn forget_db(&self) {
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

    /// Appends an entry of one command, spelled as [`Entry`] would, and returns the position behind it.
    /// The stripes that it is about are locked.
    #[inline]
    pub fn append_command(&self, db: DbIndex, command: &[u8]) -> JournalPos {
        self.append_bytes(db, db, command)
    }

    fn append_bytes(&self, first: DbIndex, last: DbIndex, bytes: &[u8]) -> JournalPos {
        let log = self.log.get_or_init(Log::new);
        let number = ThreadNumber::get();
        let cell = &log.cells[number].0;
        if log.cells_used.load(Relaxed) <= number as u64 {
            log.cells_used.fetch_max(number as u64 + 1, AcqRel);
        }
        let mut state = self.state.load(Relaxed);
        // Noted before the place is reserved: a reader that sees the reservation sees this too; and who
        // sees this, which says that all before is copied, sees what this thread copied last.
        cell.store((state >> 8) + 1, Release);
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
        cell.store(0, Release);
        JournalPos(end)
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
                self.check_room(log, at);
            }
            at += now.len() as u64;
            bytes = later;
        }
        at
    }

    /// Looks how far behind the readers are, once a segment.
    #[cold]
    fn check_room(&self, log: &Log, at: u64) {
        let mut readers = self.lock_readers();
        let (before, backlog) = (readers.len(), self.backlog.load(Relaxed));
        readers.retain(|reader| match reader.if_behind {
            IfBehind::HoldWriters => {
                if at > reader.position() + MOST_WAITING {
                    self.is_full.store(true, Release);
                }
                true
            }
            IfBehind::CutOff => {
                let is_near = at <= reader.position().saturating_add(backlog);
                if !is_near {
                    reader.is_cut_off.store(true, Release);
                }
                is_near
            }
        });
        if readers.len() < before {
            self.readers_left(log, &readers);
        }
    }

    /// There are fewer readers than before: what only the others wanted is given back.
    fn readers_left(&self, log: &Log, readers: &[Arc<ReaderState>]) {
        let floor = readers.iter().map(|reader| reader.position()).min();
        if floor.is_none() {
            self.is_read.store(false, Release);
        }
        if slowest_waited_for(readers).is_none() {
            self.is_full.store(false, Release);
        }
        // Without readers nobody appends, but who has begun may still be copying behind what is
        // published; the next reader gives that back.
        log.segments.give_back(floor.unwrap_or_else(|| self.published(log)));
    }

    /// How far behind a reader may be that can be cut off. It is looked at once a mebibyte, so it
    /// may be that much further behind.
    pub fn set_backlog(&self, bytes: u64) {
        self.backlog.store(bytes, Relaxed);
    }

    fn lock_readers(&self) -> MutexGuard<'_, Vec<Arc<ReaderState>>> {
        lock(&self.readers)
    }

    /// A reader of everything from here on. The world is stopped, or nobody writes yet: otherwise
    /// what others do at this moment is not in the journal.
    pub fn read(&self, if_behind: IfBehind) -> Reader<'_> {
        let log = self.log.get_or_init(Log::new);
        let position = AtomicU64::new(self.position().0);
        let state =
            Arc::new(ReaderState { position, if_behind, is_cut_off: AtomicBool::default() });
        let mut readers = self.lock_readers();
        if readers.is_empty() {
            self.forget_db();
        }
        readers.push(Arc::clone(&state));
        self.is_read.store(true, Release);
        Reader { journal: self, log, state, segment: None }
    }

    /// Bytes up to here can be read.
    fn published(&self, log: &Log) -> u64 {
        let mut end = self.position().0;
        let used = log.cells_used.load(Acquire) as usize;
        for cell in &log.cells[..used] {
            match cell.0.load(Acquire) {
                0 => {}
                copying => end = end.min(copying - 1),
            }
        }
        end
    }
}

/// Where the reader stands that writes may have to wait for.
fn slowest_waited_for(readers: &[Arc<ReaderState>]) -> Option<u64> {
    let holding = readers.iter().filter(|reader| reader.if_behind == IfBehind::HoldWriters);
    holding.map(|reader| reader.position()).min()
}

impl ReaderState {
    fn position(&self) -> u64 {
        self.position.load(Acquire)
    }
}

/// Somebody who reads the journal at his own pace; what happens if he falls far behind he says when
/// he begins.
pub struct Reader<'j> {
    journal: &'j Journal,
    log: &'j Log,
    state: Arc<ReaderState>,
    segment: Option<(u64, Arc<Segment>)>,
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

impl Reader<'_> {
    /// Where it stands.
    pub fn position(&self) -> JournalPos {
        JournalPos(self.state.position())
    }

    /// Whether it was cut off: there is nothing more for it.
    pub fn is_cut_off(&self) -> bool {
        self.state.is_cut_off.load(Acquire)
    }

    /// How far it can read; always the end of an entry.
    pub fn readable(&self) -> JournalPos {
        // An idle cell may hide an entry that was reserved long before; what was readable stays so.
        JournalPos(self.journal.published(self.log).max(self.state.position()))
    }

    /// The next bytes, as many as lie in one piece before `end`, which [`Reader::readable`] gave;
    /// `None` if there are none, or if it [was cut off](Reader::is_cut_off).
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
        let readers = self.journal.lock_readers();
        let floor = readers.iter().map(|reader| reader.position()).min().unwrap_or(after);
        self.log.segments.give_back(floor);
        let waited_for = slowest_waited_for(&readers).unwrap_or(after);
        let has_room = self.journal.position().0 - waited_for <= MOST_WAITING / 2;
        has_room && self.journal.is_full.swap(false, AcqRel)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut readers = self.journal.lock_readers();
        readers.retain(|reader| !Arc::ptr_eq(reader, &self.state));
        self.journal.readers_left(self.log, &readers);
    }
}

/// The number of a thread that appends. Numbers of threads that ended are given again.
struct ThreadNumber(usize);

static NUMBERS: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

thread_local! {
    static NUMBER: RefCell<Option<ThreadNumber>> = const { RefCell::new(None) };
}

impl ThreadNumber {
    #[inline]
    fn get() -> usize {
        NUMBER.with_borrow_mut(|number| number.get_or_insert_with(ThreadNumber::take).0)
    }

    #[cold]
    fn take() -> ThreadNumber {
        let mut numbers = lock(&NUMBERS);
        let number = numbers.0.pop().unwrap_or_else(|| {
            numbers.1 += 1;
            numbers.1 - 1
        });
        assert!(number < CELLS, "more than {CELLS} threads write");
        ThreadNumber(number)
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        lock(&NUMBERS).0.push(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn drain(reader: &mut Reader<'_>, into: &mut Vec<u8>) {
        let end = reader.readable();
        while let Some(chunk) = reader.chunk(end) {
            into.extend_from_slice(&chunk);
            reader.advance(chunk.len());
        }
        assert_eq!(reader.position(), end);
    }

    fn append(journal: &Journal, db: u32, words: &[&[u8]]) -> JournalPos {
        let mut entry = Entry::default();
        entry.command(DbIndex(db), words);
        journal.append(&mut entry, true)
    }

    #[test]
    fn a_database_is_selected_where_it_changes() {
        let journal = Journal::default();
        assert!(!journal.is_read());
        let mut reader = journal.read(IfBehind::HoldWriters);
        assert!(journal.is_read());
        assert_eq!(journal.selected_db(), None);
        append(&journal, 0, &[b"A"]);
        append(&journal, 0, &[b"B"]);
        append(&journal, 9, &[b"C"]);
        assert_eq!(journal.selected_db(), Some(DbIndex(9)));
        append(&journal, 300, &[b"D"]);
        assert_eq!(journal.selected_db(), None);
        append(&journal, 300, &[b"E"]);
        journal.forget_db();
        let end = append(&journal, 9, &[b"F"]);
        let mut bytes = Vec::new();
        drain(&mut reader, &mut bytes);
        assert_eq!(end.0, bytes.len() as u64);
        assert_eq!(end, journal.position());
        let text = String::from_utf8(bytes).unwrap().replace("\r\n", " ");
        let select = |db: &str| format!("*2 $6 SELECT ${} {db} ", db.len());
        let one = |name: &str| format!("*1 $1 {name} ");
        let wanted = [
            select("0"),
            one("A"),
            one("B"),
            select("9"),
            one("C"),
            select("300"),
            one("D"),
            select("300"),
            one("E"),
            select("9"),
            one("F"),
        ];
        assert_eq!(text, wanted.concat());
        drop(reader);
        assert!(!journal.is_read());
    }

    /// Words of a stream, one list a command.
    fn parse(bytes: &[u8]) -> Vec<Vec<String>> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut lines = text.split("\r\n");
        let mut commands = Vec::new();
        while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')) {
            let word = |_| {
                let len = lines.next().unwrap()[1..].parse::<usize>().unwrap();
                let word = lines.next().unwrap().to_owned();
                assert_eq!(word.len(), len);
                word
            };
            commands.push((0..count.parse().unwrap()).map(word).collect());
        }
        commands
    }

    #[test]
    fn threads_append_and_readers_see_whole_entries_in_each_threads_order() {
        const THREADS: usize = 6;
        const EACH: usize = 4000;
        let journal = Journal::default();
        let [mut first, mut second] = [0; 2].map(|_| journal.read(IfBehind::HoldWriters));
        let running = AtomicUsize::new(THREADS);
        let (first, second) = std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (journal, running) = (&journal, &running);
                scope.spawn(move || {
                    let filler = "x".repeat(thread * 300);
                    let mut entry = Entry::default();
                    for number in 0..EACH {
                        let db =
                            DbIndex(if number.is_multiple_of(7) { 1 } else { thread as u32 % 2 });
                        for part in ["a", "b", "c"].iter().take(1 + number % 3) {
                            let (thread, number) = (thread.to_string(), number.to_string());
                            let words = [&thread, &number, *part, &filler].map(str::as_bytes);
                            entry.command(db, &words);
                        }
                        journal.append(&mut entry, true);
                    }
                    running.fetch_sub(1, SeqCst);
                });
            }
            let follow = |reader: &mut Reader<'_>| {
                let mut bytes = Vec::new();
                loop {
                    let is_last = running.load(SeqCst) == 0;
                    drain(reader, &mut bytes);
                    if is_last {
                        return bytes;
                    }
                    std::thread::yield_now();
                }
            };
            let other = scope.spawn(move || follow(&mut second));
            let mine = follow(&mut first);
            (mine, other.join().unwrap())
        });
        assert!(first == second, "readers see the same");
        assert_eq!(journal.position().0, first.len() as u64);
        check_stream(&parse(&first), THREADS, EACH);
    }

    fn check_stream(commands: &[Vec<String>], threads: usize, each: usize) {
        let (mut next, mut db) = (vec![0; threads], String::new());
        let mut commands = commands.iter();
        while let Some(command) = commands.next() {
            match command[0].as_str() {
                "SELECT" => db = command[1].clone(),
                "MULTI" => {
                    let inside: Vec<_> =
                        commands.by_ref().take_while(|command| command[0] != "EXEC").collect();
                    assert!(inside.len() > 1);
                    // One thread's parts, in order, and nobody else's between them.
                    for (part, command) in ["a", "b", "c"].iter().zip(&inside) {
                        assert_eq!((&command[..2], &*command[2]), (&inside[0][..2], *part));
                    }
                    check_one(inside[0], &db, &mut next);
                }
                _ => check_one(command, &db, &mut next),
            }
        }
        assert!(next.iter().all(|&next| next == each));
    }

    fn check_one(command: &[String], db: &str, next: &mut [usize]) {
        let (thread, number) = (command[0].parse::<usize>().unwrap(), &command[1]);
        assert_eq!(*number, next[thread].to_string());
        let wanted = if next[thread].is_multiple_of(7) { 1 } else { thread % 2 };
        assert_eq!(db, wanted.to_string());
        next[thread] += 1;
    }

    #[test]
    fn writes_wait_for_a_reader_that_is_far_behind() {
        let journal = Journal::default();
        let mut reader = journal.read(IfBehind::HoldWriters);
        let big = vec![b'v'; 5 << 20];
        let mut in_vain = 0;
        while !journal.is_full() {
            append(&journal, 0, &[b"SET", b"k", &big]);
            in_vain += 1;
            assert!(in_vain < 60, "the limit does not work");
        }
        assert!(journal.position().0 > MOST_WAITING);
        let (end, mut woke) = (reader.readable(), false);
        while let Some(chunk) = reader.chunk(end) {
            woke |= reader.advance(chunk.len());
        }
        assert!(woke && !journal.is_full());
    }

    #[test]
    fn a_reader_that_may_be_cut_off_holds_up_nobody() {
        let journal = Journal::default();
        journal.set_backlog(3 << 20);
        let mut log = journal.read(IfBehind::HoldWriters);
        let [mut near, mut far] = [0; 2].map(|_| journal.read(IfBehind::CutOff));
        let (big, mut of_log, mut of_near) = (vec![b'v'; 1 << 19], Vec::new(), Vec::new());
        append(&journal, 0, &[b"SET", b"first", &big]);
        // Held in the hand while its segment is given back.
        let kept = far.chunk(far.readable()).unwrap();
        let copy = kept.to_vec();
        let mut cut_off_at = None;
        for number in 0..40 {
            append(&journal, 0, &[b"SET", b"k", &big]);
            drain(&mut log, &mut of_log);
            drain(&mut near, &mut of_near);
            if far.is_cut_off() {
                cut_off_at.get_or_insert(number);
            }
        }
        // Behind by three mebibytes and as much as goes unnoticed.
        assert!((6..=8).contains(&cut_off_at.unwrap()), "{cut_off_at:?}");
        assert!(far.chunk(far.readable()).is_none());
        assert!(*kept == copy[..], "what is held is not used again");
        assert!(!near.is_cut_off() && !journal.is_full());
        assert!(of_log == of_near && of_log.len() as u64 == journal.position().0);
    }

    #[test]
    fn writes_wait_only_for_those_who_must_not_be_cut_off() {
        let journal = Journal::default();
        journal.set_backlog(u64::MAX);
        let mut log = journal.read(IfBehind::HoldWriters);
        let slow = journal.read(IfBehind::CutOff);
        let (big, mut bytes) = (vec![b'v'; 5 << 20], Vec::new());
        while !journal.is_full() {
            append(&journal, 0, &[b"SET", b"k", &big]);
        }
        drain(&mut log, &mut bytes);
        assert!(!journal.is_full() && !slow.is_cut_off());
        while !journal.is_full() {
            append(&journal, 0, &[b"SET", b"k", &big]);
        }
        drop(log);
        assert!(journal.is_read() && !journal.is_full());
    }

    #[test]
    fn when_the_last_reader_is_cut_off_nobody_reads() {
        let journal = Journal::default();
        journal.set_backlog(1 << 20);
        let reader = journal.read(IfBehind::CutOff);
        let big = vec![b'v'; 1 << 20];
        while journal.is_read() {
            append(&journal, 0, &[b"SET", b"k", &big]);
            assert!(journal.position().0 < 9 << 20, "it is never cut off");
        }
        assert!(reader.is_cut_off());
        let mut next = journal.read(IfBehind::CutOff);
        append(&journal, 0, &[b"A"]);
        let mut bytes = Vec::new();
        drain(&mut next, &mut bytes);
        assert_eq!(parse(&bytes), [vec!["SELECT", "0"], vec!["A"]]);
    }
}
