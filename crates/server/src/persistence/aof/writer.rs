//! The thread that writes the append-only log.
//!
//! The writer takes new data from the journal, writes it, and reports its position. Then replies
//! that wait for the disk are released. With `everysec` it wakes every few milliseconds while there
//! are writes, and passes the fsync to a second thread once a second, so that neither a slow write
//! nor a slow fsync delays a reactor. With `always` it sleeps until a reactor wakes it at the end
//! of its turn. It then writes and forces in one step, so one fsync serves all waiting replies.

use super::file::{self, LogFile};
use super::lock;
use super::syncer::Syncer;
use crate::log;
use config::AppendFsync;
use engine::DbIndex;
use engine::Engine;
use engine::journal::safe::{Gate, Need};
use engine::journal::{Aside, HistoryId, JournalPos, Reader, push_select};
use engine::mailbox::recheck_all;
use net::Net;
use process::os_error;
use replication::preallocation::LARGEST_BATCH;
use replication::{NO_PLACE, StreamPlace};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Time between two checks of the journal while there are writes.
const PAUSE: Duration = Duration::from_millis(2);
/// After this time without writes, the thread sleeps until it is woken.
const IDLE: Duration = Duration::from_millis(50);
/// Longest sleep. It limits the delay of writes whose threads do not wake the writer.
const SLEEP: Duration = Duration::from_millis(100);
/// Time between two attempts after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// Time between two log lines about the same error.
const COMPLAINT: Duration = Duration::from_secs(30);
/// Time between two fsyncs of `everysec`.
const SECOND: Duration = Duration::from_secs(1);
/// Time between two attempts to make or to cut off preallocated space, after a failure.
const ROOM_RETRY: Duration = Duration::from_secs(1);
/// Number of batches after a too large one that are appended, too, and not written in place.
const APPENDED: u32 = 64;
/// An fsync that takes longer counts as delayed.
const SLOW_SYNC: Duration = Duration::from_secs(2);

/// Requests to the writer.
#[derive(Default)]
struct Orders {
    /// Everything from a position on goes to another file. The thread may be so far behind that a
    /// second switch comes before it has done the first.
    switches: VecDeque<Switch>,
    /// Everything before this position is durably contained in a base.
    contained: JournalPos,
    /// So are entries beside the stream with a lower number.
    contained_aside: u64,
    /// Write all data, force it to the disk, and end.
    stops: bool,
}

/// A change of files.
struct Switch {
    at: JournalPos,
    file: LogFile,
    /// The database that is selected there. `None`: the following data begins with a SELECT.
    db: Option<DbIndex>,
    /// Entries beside the stream from this number on go to the new file.
    aside: u64,
}

impl Orders {
    fn is_empty(&self) -> bool {
        self.switches.is_empty() && !self.stops
    }
}

/// The writer, as other threads see it.
pub struct Writer {
    engine: &'static Engine,
    net: Arc<Net>,
    orders: Mutex<Orders>,
    thread: Thread,
    handle: Mutex<Option<JoinHandle<()>>>,
    /// Bytes of the file that is being written.
    size: Arc<AtomicU64>,
    /// Data from this position on is not part of the log, because it was switched off.
    end: AtomicU64,
    /// Nor are entries beside the stream from this number on.
    end_aside: AtomicU64,
    /// Whether replies may wait for the log. They may not before its first base is complete.
    is_trusted: AtomicBool,
    /// Number of failed attempts to write.
    failures: AtomicU64,
    /// Whether the thread has ended its work.
    is_over: AtomicBool,
    /// Whether there may be preallocated space ahead of the data.
    has_preallocated: AtomicBool,
    /// Held while deciding whether replies wait, and while releasing them.
    policy: Mutex<()>,
}

impl Writer {
    /// Starts the threads. `reader` stands where `file` continues. `db` is the database that is
    /// selected there, or `None` if the following data begins with a SELECT. The world is stopped
    /// or nothing writes yet, at least from the moment when `reader` was made to the moment when
    /// `db` was read.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        engine: &'static Engine,
        net: &Arc<Net>,
        reader: Reader<'static>,
        db: Option<DbIndex>,
        file: LogFile,
        is_trusted: bool,
    ) -> io::Result<Arc<Writer>> {
        let size = Arc::new(AtomicU64::new(file.size()));
        let syncer = Syncer::start(engine)?;
        let position = reader.position();
        engine.append_log.begin_at(position);
        engine.safe.begin_disk_at(position);
        let (send, receive) = std::sync::mpsc::sync_channel::<Arc<Writer>>(1);
        let mut work = Work {
            engine,
            net: Arc::clone(net),
            reader,
            file,
            syncer,
            last_sync: Instant::now(),
            sync_asked: position.0,
            counted_delay: false,
            last_data: Instant::now(),
            last_second: 0,
            noted: None,
            unselected: db,
            has_unsynced_aside: false,
            complaint: None,
            write_failed: false,
            size: Arc::clone(&size),
            to_append: 0,
            not_preallocated: None,
            preallocation_error: None,
            not_cut: None,
        };
        let handle = std::thread::Builder::new().name("aof".into()).spawn(move || {
            if let Ok(writer) = receive.recv() {
                work.run(&writer);
            }
        })?;
        let writer = Arc::new(Writer {
            engine,
            net: Arc::clone(net),
            orders: Mutex::default(),
            thread: handle.thread().clone(),
            handle: Mutex::new(Some(handle)),
            size,
            end: AtomicU64::new(u64::MAX),
            end_aside: AtomicU64::new(u64::MAX),
            is_trusted: AtomicBool::new(is_trusted),
            failures: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            has_preallocated: AtomicBool::new(false),
            policy: Mutex::default(),
        });
        // Do this before the first reply, because the thread may take a while to begin.
        writer.follow_policy();
        // The thread waits for this.
        let _ = send.send(Arc::clone(&writer));
        Ok(writer)
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.thread.unpark();
    }

    /// Switches to another file from `at` on. The old file is forced to the disk. The world is
    /// stopped, and `at` is the journal's end.
    pub fn switch(&self, at: JournalPos, file: LogFile) {
        let (db, aside) = (self.engine.stream_db(), self.engine.journal.next_aside());
        lock(&self.orders).switches.push_back(Switch { at, file, db, aside });
        self.wake();
    }

    /// Records that a durable base contains everything up to the last switch. Data before it that
    /// cannot be written need not be written: its file was deleted, and keeps its blocks only while
    /// it is open.
    pub fn contained(&self) {
        let mut orders = lock(&self.orders);
        if let Some(&Switch { at, aside, .. }) = orders.switches.back() {
            (orders.contained, orders.contained_aside) = (at, aside);
            self.engine.append_log.in_base.store(at.0, Release);
        }
        drop(orders);
        self.wake();
    }

    /// Returns the position up to which data belongs to the current file.
    fn limit(&self) -> JournalPos {
        lock(&self.orders).switches.front().map_or(JournalPos(u64::MAX), |switch| switch.at)
    }

    /// Returns the number up to which entries beside the stream belong to the current file.
    fn aside_limit(&self) -> u64 {
        let end = self.end_aside.load(Acquire);
        lock(&self.orders).switches.front().map_or(end, |switch| switch.aside.min(end))
    }

    /// Returns the next file, if the current one has everything up to `written`.
    fn next_file(&self, written: JournalPos) -> Option<Switch> {
        let mut orders = lock(&self.orders);
        // If the log ends before the switch, the next file stays empty.
        let journal = &self.engine.journal;
        let is_due = |switch: &Switch| {
            let before = switch.aside.min(self.end_aside.load(Acquire));
            written >= switch.at.min(self.target())
                && journal.first_aside(written, before).is_none()
        };
        if !orders.switches.front().is_some_and(is_due) {
            return None;
        }
        orders.switches.pop_front()
    }

    /// Ends the log at the journal's present end. A command that begins now does not wait for it,
    /// although the threads continue until they are [stopped](Writer::stop).
    pub fn end_here(&self) {
        self.end.fetch_min(self.engine.journal.position().0, AcqRel);
        self.end_aside.fetch_min(self.engine.journal.next_aside(), AcqRel);
        self.follow_policy();
    }

    /// Returns whether [`Writer::end_here`] was called.
    pub fn is_ending(&self) -> bool {
        self.end.load(Acquire) != u64::MAX
    }

    /// Returns the present end of the data to write.
    pub fn target(&self) -> JournalPos {
        self.engine.journal.position().min(JournalPos(self.end.load(Acquire)))
    }

    /// Allows replies to wait for the log.
    pub fn trust(&self) {
        self.is_trusted.store(true, Release);
        self.follow_policy();
        self.wake();
    }

    /// Makes replies wait for the disk or not, by the present `appendfsync`. Returns the policy.
    pub fn follow_policy(&self) -> AppendFsync {
        // Under the lock, the last caller applies the latest options.
        let _looking = lock(&self.policy);
        let policy = self.engine.fsync_policy();
        let is_trusted = self.is_trusted.load(Acquire) && !self.is_ending();
        let holds = policy == AppendFsync::Always && is_trusted;
        let safe = &self.engine.safe;
        let held = safe.holds_at(Gate::Disk);
        if holds && !held {
            // Lower the released position to that of the disk. Replies that tell of earlier writes
            // without an fsync are held from now on, too.
            self.net.release_only(safe.disk().0);
        }
        let end = self.engine.journal.position();
        safe.hold_replies(Gate::Disk, holds.then_some(Need::DISK), end);
        if holds != held {
            // A quorum now needs the disk as well, or no longer.
            self.engine.follow_commit_modes();
        }
        policy
    }

    /// Writes all data, forces it to the disk, and ends the threads.
    pub fn stop(&self) {
        lock(&self.orders).stops = true;
        self.wake();
        if let Some(handle) = lock(&self.handle).take()
            && handle.join().is_err()
        {
            log!(Warning, "The thread that writes the append-only file panicked");
        }
    }

    /// Returns the number of failed attempts to write.
    pub fn failures(&self) -> u64 {
        self.failures.load(Acquire)
    }

    /// Returns whether the thread has ended its work.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Acquire)
    }

    /// Returns whether there is preallocated space although none is wanted any more. Space that
    /// cannot be cut off does not count; it is logged.
    pub fn has_unwanted_preallocation(&self) -> bool {
        self.has_preallocated.load(Acquire) && self.engine.config.aof_preallocation_size() == 0
    }

    /// Returns the bytes of the file that is being written.
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }
}

/// The state of the writing thread.
struct Work {
    engine: &'static Engine,
    net: Arc<Net>,
    reader: Reader<'static>,
    file: LogFile,
    syncer: Arc<Syncer>,
    last_sync: Instant,
    /// The position up to which an fsync was requested.
    sync_asked: u64,
    counted_delay: bool,
    last_data: Instant,
    /// The second of the last time annotation.
    last_second: i64,
    /// The history that was last annotated in the file.
    noted: Option<HistoryId>,
    /// The database of the following data, if neither the file nor that data selects it.
    unselected: Option<DbIndex>,
    /// Whether an entry beside the stream was written since the last fsync.
    has_unsynced_aside: bool,
    complaint: Option<Instant>,
    write_failed: bool,
    size: Arc<AtomicU64>,
    /// Number of further batches that are appended whatever their size.
    to_append: u32,
    /// When preallocation last failed.
    not_preallocated: Option<Instant>,
    /// When such a failure was last logged.
    preallocation_error: Option<Instant>,
    /// When preallocated space last could not be cut off.
    not_cut: Option<Instant>,
}

impl Work {
    fn run(&mut self, writer: &Writer) {
        loop {
            let policy = writer.follow_policy();
            // Read this first: data from before the request is then written before the end.
            let stops = lock(&writer.orders).stops;
            let wrote = self.drain(writer, policy);
            let is_stuck = self.write_failed;
            // Also after a failure, by which writes are refused.
            if self.engine.append_log.catch_up() {
                self.post_recheck();
            }
            if let Some(switch) = writer.next_file(self.reader.position()) {
                self.change_file(switch);
                continue;
            }
            self.sync(policy);
            self.release_replies(writer);
            self.write_preallocation(policy);
            writer
                .has_preallocated
                .store(self.file.is_in_place() && self.not_cut.is_none(), Release);
            if stops && (is_stuck || self.reader.position() >= writer.target()) {
                return self.finish(writer);
            }
            if stops {
                std::thread::yield_now();
                continue;
            }
            self.pause(policy, wrote, writer);
        }
    }

    /// Writes the journal's new data up to the next change of files. Returns whether there was any.
    fn drain(&mut self, writer: &Writer, policy: AppendFsync) -> bool {
        if self.write_failed {
            let orders = lock(&writer.orders);
            let (contained, aside) = (orders.contained, orders.contained_aside);
            drop(orders);
            self.skip(contained.min(writer.target()), aside);
        }
        let end = self.reader.readable();
        // Read the limits after the readable end: data that was appended after a limit comes with
        // that limit.
        let end = end.min(writer.limit()).min(writer.target());
        let mut wrote = false;
        while let Some(aside) = self.engine.journal.first_aside(end, writer.aside_limit()) {
            wrote = true;
            self.write_up_to(aside.at, writer, policy);
            if self.reader.position() < aside.at || !self.write_aside(&aside, writer, policy) {
                return true;
            }
        }
        self.write_up_to(end, writer, policy) || wrote
    }

    /// Writes the journal's data up to `end`. Returns whether there was any.
    fn write_up_to(&mut self, end: JournalPos, writer: &Writer, policy: AppendFsync) -> bool {
        if end <= self.reader.position() {
            return false;
        }
        let notes = self.notes();
        self.engine.timings.journal_write.time(|| {
            if self.goes_in_place(policy, end, notes.len()) {
                writer.has_preallocated.store(true, Release);
                self.write_batch(writer, end, &notes, policy);
            } else {
                self.append(writer, end, &notes, policy);
            }
        });
        self.size.store(self.file.size(), Relaxed);
        self.publish_position();
        true
    }

    /// Tells the other threads up to where the journal has been read.
    fn publish_position(&self) {
        self.engine.append_log.written.store(self.reader.position().0, Release);
    }

    /// Writes an entry beside the stream at the file's end. Returns `false` if that failed.
    fn write_aside(&mut self, aside: &Aside, writer: &Writer, policy: AppendFsync) -> bool {
        let mut bytes = NO_PLACE.to_vec();
        bytes.extend_from_slice(&aside.bytes);
        push_select(&mut bytes, aside.stream_db);
        let place = StreamPlace { id: self.engine.journal.history().id, position: aside.at };
        bytes.extend_from_slice(place.line().as_bytes());
        let cut = self.file.write_at_end().map_err(file::AppendError::from);
        if let Err(error) = cut.and_then(|()| self.file.append(&bytes)) {
            self.fail(writer, &error, bytes.len(), policy);
            return false;
        }
        self.noted = Some(place.id);
        self.unselected = None;
        self.has_unsynced_aside = true;
        self.size.store(self.file.size(), Relaxed);
        self.wrote();
        if self.engine.journal.aside_written(aside) {
            self.post_recheck();
        }
        true
    }

    /// Skips the journal's data up to `end`, and entries beside it with a number lower than
    /// `aside_end`, because a base contains them.
    fn skip(&mut self, end: JournalPos, aside_end: u64) {
        while let Some(aside) = self.engine.journal.first_aside(end, aside_end) {
            if self.engine.journal.aside_written(&aside) {
                self.post_recheck();
            }
        }
        if end <= self.reader.position() {
            return;
        }
        // The following data is elsewhere in the stream than the last data written.
        self.noted = None;
        while let Some(chunk) = self.reader.chunk(end) {
            if self.reader.advance(chunk.len()) {
                self.post_recheck();
            }
        }
        self.publish_position();
        self.wrote();
    }

    /// Returns whether the journal's data up to `end` is written in place, after `before` other
    /// bytes.
    fn goes_in_place(&mut self, policy: AppendFsync, end: JournalPos, before: usize) -> bool {
        if policy != AppendFsync::Always || self.skips_sync() || self.wants_preallocated() == 0 {
            return false;
        }
        let len = end.0 - self.reader.position().0 + before as u64;
        if len > LARGEST_BATCH as u64 {
            self.to_append = APPENDED;
        }
        if self.to_append > 0 {
            self.to_append -= 1;
            return false;
        }
        self.file.write_in_place()
    }

    fn wants_preallocated(&self) -> u64 {
        self.engine.config.aof_preallocation_size()
    }

    /// Writes the journal's data up to `end` as one batch. If it fails, the server ends, because
    /// the policy is `always`.
    fn write_batch(&mut self, writer: &Writer, end: JournalPos, notes: &[u8], policy: AppendFsync) {
        let len = notes.len() + (end.0 - self.reader.position().0) as usize;
        let Some(batch) = self.file.begin_batch(len) else { return };
        batch.push(notes);
        let mut may_go_on = false;
        while let Some(chunk) = self.reader.chunk(end) {
            batch.push(&chunk);
            may_go_on |= self.reader.advance(chunk.len());
        }
        let outcome = self.file.write_batch();
        if may_go_on {
            self.post_recheck();
        }
        match outcome {
            Ok(()) => {
                self.unselected = None;
                self.wrote();
            }
            Err(error) => self.fail(writer, &error, len, policy),
        }
    }

    fn post_recheck(&self) {
        recheck_all(&self.engine.mailboxes);
    }

    /// Preallocates space if that is due, so that the next batches find some. Unwanted space is cut
    /// off even if nothing is written: a copy of the file that is being made may lack data written
    /// into that space.
    fn write_preallocation(&mut self, policy: AppendFsync) {
        let is_recent = |at: Instant| at.elapsed() < ROOM_RETRY;
        if policy != AppendFsync::Always || self.wants_preallocated() == 0 {
            if !self.not_cut.is_some_and(is_recent) {
                self.not_cut = (!cut_preallocated(&mut self.file)).then(Instant::now);
            }
            return;
        }
        self.not_cut = None;
        if self.not_preallocated.is_some_and(is_recent) {
            return;
        }
        self.not_preallocated = None;
        if self.file.has_preallocated() {
            self.preallocation_error = None;
        }
        match self.file.preallocation_due(self.wants_preallocated()) {
            Ok(None) => {}
            Ok(Some(job)) => self.syncer.write_preallocation(job),
            Err(error) => {
                self.not_preallocated = Some(Instant::now());
                self.log_preallocation_error(&error);
            }
        }
    }

    fn log_preallocation_error(&mut self, error: &io::Error) {
        if self.preallocation_error.is_some_and(|at| at.elapsed() <= COMPLAINT) {
            return;
        }
        self.preallocation_error = Some(Instant::now());
        let (name, why) = (self.file.name(), os_error(error));
        log!(
            Warning,
            "Can't write preallocated space ahead of the AOF file {name}: {why}. Without it every fsync takes \
             longer"
        );
    }

    /// Appends the journal's data up to `end`.
    fn append(&mut self, writer: &Writer, end: JournalPos, notes: &[u8], policy: AppendFsync) {
        let begun = match self.file.write_at_end() {
            Ok(()) if notes.is_empty() => Ok(()),
            Ok(()) => self.file.append(notes),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = begun {
            self.last_second = 0;
            self.noted = None;
            self.fail(writer, &error, notes.len(), policy);
            return;
        }
        self.unselected = None;
        while let Some(chunk) = self.reader.chunk(end) {
            let (advanced, outcome) = match self.file.append(&chunk) {
                Ok(()) => (chunk.len(), Ok(())),
                Err(error) => (error.kept, Err(error)),
            };
            if self.reader.advance(advanced) {
                self.post_recheck();
            }
            self.publish_position();
            if let Err(error) = outcome {
                self.fail(writer, &error, chunk.len(), policy);
                break;
            }
            self.wrote();
        }
    }

    /// Returns the annotations before the next data: its place in the replication stream, if the
    /// file does not contain it yet, and the time.
    fn notes(&mut self) -> Vec<u8> {
        let mut notes = self.time_note();
        let id = self.engine.journal.history().id;
        if let Some(db) = self.unselected {
            // The SELECT is not part of the stream.
            notes.extend_from_slice(NO_PLACE);
            push_select(&mut notes, db);
            self.noted = None;
        }
        if self.noted != Some(id) {
            self.noted = Some(id);
            let place = StreamPlace { id, position: self.reader.position() };
            notes.extend_from_slice(place.line().as_bytes());
        }
        notes
    }

    /// Returns the annotation of the time, once a second if it is wanted.
    fn time_note(&mut self) -> Vec<u8> {
        let second = engine::clock::now_s();
        if !self.engine.config.aof_timestamp_enabled() || second == self.last_second {
            return Vec::new();
        }
        self.last_second = second;
        format!("#TS:{second}\r\n").into_bytes()
    }

    fn wrote(&mut self) {
        self.last_data = Instant::now();
        if std::mem::take(&mut self.write_failed) {
            self.complaint = None;
            self.engine.append_log.set_sound();
            log!(Warning, "AOF write error looks solved, Dunlin can write again.");
        }
    }

    /// Handles a failed write. With `always` the server has to end, because it could not keep what
    /// clients are about to be told. Otherwise writes are refused until one succeeds.
    fn fail(
        &mut self,
        writer: &Writer,
        failure: &file::AppendError,
        expected: usize,
        policy: AppendFsync,
    ) {
        let why = os_error(&failure.error);
        if self.complaint.is_none_or(|at| at.elapsed() > COMPLAINT) {
            self.complaint = Some(Instant::now());
            let (name, offset) = (self.file.name(), self.file.size());
            log!(Warning, "Error writing to the AOF file {name} at offset {offset}: {why}");
            if let Some(error) = &failure.cut_failed {
                log!(
                    Warning,
                    "Could not remove short write from the append-only file ({} of {expected} \
                     bytes). Dunlin may refuse to load the AOF the next time it starts. ftruncate: \
                     {}",
                    failure.kept,
                    os_error(error)
                );
            }
        }
        if policy == AppendFsync::Always {
            log!(
                Warning,
                "Can't recover from AOF write error when the AOF fsync policy is 'always'. \
                 Exiting..."
            );
            std::process::exit(1);
        }
        self.write_failed = true;
        self.engine.append_log.set_broken(&why);
        // Count the failure after its reason is set.
        writer.failures.fetch_add(1, AcqRel);
    }

    /// Continues in another file.
    fn change_file(&mut self, switch: Switch) {
        let mut old = std::mem::replace(&mut self.file, switch.file);
        self.unselected = switch.db;
        self.size.store(self.file.size(), Relaxed);
        self.last_second = 0;
        self.noted = None;
        cut_preallocated(&mut old);
        self.sync_old(&old);
    }

    /// Forces the old file, which is complete now, to the disk. Only then is the next one written,
    /// so that no later write is on the disk without an earlier one. Nothing waits for that.
    fn sync_old(&mut self, old: &LogFile) {
        self.engine.append_log.is_closing.store(true, Relaxed);
        self.syncer.wait();
        let outcome = old.sync();
        self.engine.append_log.is_closing.store(false, Relaxed);
        match outcome {
            Ok(()) => self.synced_up_to(self.reader.position().0),
            Err(error) => self.sync_failed(&old.name(), &error),
        }
    }

    fn synced_up_to(&mut self, position: u64) {
        self.sync_asked = self.sync_asked.max(position);
        self.syncer.succeeded(self.engine, JournalPos(position));
    }

    fn sync_failed(&self, name: &str, error: &io::Error) {
        let why = os_error(error);
        if self.engine.fsync_policy() == AppendFsync::Always {
            log!(
                Warning,
                "Can't persist AOF for fsync error when the AOF fsync policy is 'always': {why} \
                 ({name}). Exiting..."
            );
            std::process::exit(1);
        }
        self.syncer.failed(self.engine, name, &why);
    }

    /// Forces the file to the disk if that is due.
    fn sync(&mut self, policy: AppendFsync) {
        let written = self.reader.position().0;
        if self.sync_asked >= written && !self.has_unsynced_aside && !self.syncer.has_failed() {
            return;
        }
        if self.skips_sync() {
            return;
        }
        match policy {
            AppendFsync::No => {}
            AppendFsync::Always => {
                self.syncer.wait();
                self.has_unsynced_aside = false;
                match self.engine.timings.journal_fsync.time(|| self.file.sync()) {
                    Ok(()) => self.synced_up_to(written),
                    Err(error) => self.sync_failed(&self.file.name(), &error),
                }
            }
            AppendFsync::EverySec => self.sync_each_second(written),
        }
    }

    fn sync_each_second(&mut self, written: u64) {
        if self.last_sync.elapsed() < SECOND {
            return;
        }
        if self.syncer.ask(&self.file, written) {
            self.sync_asked = written;
            self.has_unsynced_aside = false;
            self.last_sync = Instant::now();
            self.counted_delay = false;
        } else if self.last_sync.elapsed() > SLOW_SYNC && !self.counted_delay {
            self.counted_delay = true;
            self.engine.append_log.figures.delayed_fsyncs.fetch_add(1, Relaxed);
            log!(
                Notice,
                "Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer \
                 without waiting for fsync to complete."
            );
        }
    }

    /// Returns whether `no-appendfsync-on-rewrite` suppresses fsyncs now.
    fn skips_sync(&self) -> bool {
        self.engine.config.no_appendfsync_on_rewrite()
            && self.engine.append_log.figures.is_rewriting.load(Relaxed)
    }

    /// Releases the replies that are safe.
    fn release_replies(&mut self, writer: &Writer) {
        let engine = self.engine;
        // Use the present policy: a reply that waits since the policy changed was promised an
        // fsync. So was a reply that waits while the log ends, although later ones need not wait.
        let _looking = lock(&writer.policy);
        let ends = writer.is_ending() && engine.fsync_policy() == AppendFsync::Always;
        let safe = if self.skips_sync() {
            self.reader.position().0
        } else if let Some(safe) = engine.safe.safe_at(Gate::Disk) {
            safe.0
        } else if ends {
            engine.safe.disk().0
        } else {
            self.reader.position().0
        };
        self.net.release(safe);
        engine.timings.commit_fsync.reached(JournalPos(safe));
    }

    /// Waits for more data.
    fn pause(&mut self, policy: AppendFsync, wrote: bool, writer: &Writer) {
        if self.write_failed {
            std::thread::park_timeout(RETRY);
            return;
        }
        if policy == AppendFsync::Always {
            self.sleep(writer);
        } else if wrote || self.last_data.elapsed() < IDLE {
            std::thread::sleep(PAUSE);
        } else {
            self.sleep(writer);
        }
    }

    fn has_nothing_to_do(&self, writer: &Writer) -> bool {
        let limit = writer.aside_limit();
        writer.target() <= self.reader.position()
            && lock(&writer.orders).is_empty()
            && self.engine.journal.first_aside(self.reader.position(), limit).is_none()
    }

    /// Sleeps until there is something to write or another request.
    fn sleep(&self, writer: &Writer) {
        let log = &self.engine.append_log;
        log.is_asleep.store(true, SeqCst);
        // Check again now that other threads see the flag. Threads that appended before did not
        // wake this one.
        if self.has_nothing_to_do(writer) {
            std::thread::park_timeout(SLEEP);
        }
        log.is_asleep.store(false, SeqCst);
    }

    /// Ends the work: nothing is left in memory or in progress.
    fn finish(&mut self, writer: &Writer) {
        cut_preallocated(&mut self.file);
        self.syncer.wait();
        match self.file.sync() {
            Ok(()) => self.synced_up_to(self.reader.position().0),
            Err(error) => {
                let name = self.file.name();
                log!(Warning, "Fail to fsync the AOF file {name}: {}", os_error(&error));
            }
        }
        let left = writer.target().0.saturating_sub(self.reader.position().0);
        if self.write_failed && left > 0 {
            log!(
                Warning,
                "The append-only file ends {left} bytes before the last write: {}",
                self.engine.append_log.error()
            );
        }
        let log = &self.engine.append_log;
        self.engine.safe.hold_replies(Gate::Disk, None, self.reader.position());
        if self.write_failed || self.syncer.has_failed() {
            log.set_sound();
        }
        self.net.release(self.engine.journal.position().0);
        writer.is_over.store(true, Release);
        self.syncer.stop();
    }
}

/// Cuts off preallocated space of a file that is not written any more. Returns whether it could.
fn cut_preallocated(file: &mut LogFile) -> bool {
    let cut = file.write_at_end();
    if let Err(error) = &cut {
        // The space is only wasted, and readers of the file skip it.
        let (name, why) = (file.name(), os_error(error));
        log!(Warning, "Can't cut off the preallocated space ahead of the AOF file {name}: {why}");
    }
    cut.is_ok()
}
