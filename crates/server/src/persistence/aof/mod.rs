//! The append-only log: started with the server or while it runs, rewritten, stopped.
//!
//! A thread maintains it ten times a second: it follows `appendonly`, starts due rewrites, and
//! updates INFO's figures. Nothing here runs on a reactor.
//!
//! `docs/internals/aof.md` describes the whole.

mod base;
mod file;
mod files;
mod load;
mod preallocated;
mod rewrite;
mod strays;
mod syncer;
mod tail;
mod writer;

use crate::log;
use crate::persistence::temporaries;
use engine::Engine;
use engine::append_log::LogState;
use engine::journal::IfBehind;
use engine::mailbox::recheck_all;
use engine::thread::ThreadContext;
use file::LogFile;
use files::Folder;
use keyspace::snapshot::Shared;
pub use load::Loaded as LoadedLog;
use net::Net;
pub use preallocated::data_end;
use process::{os_error, thread};
use replication::Manifest;
use replication::manifest::BaseFormat;
use replication::rewrite::{Answer, Backoff, has_grown};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use structs::sync::lock;
use writer::Writer;

/// Time between two rounds of maintenance.
const ROUND: Duration = Duration::from_millis(100);

/// The append-only log of a server.
pub struct Aof {
    engine: &'static Engine,
    net: Arc<Net>,
    folder: Folder,
    inner: Mutex<Inner>,
    /// The writer, for threads that wake it.
    writing: Arc<Mutex<Option<Arc<Writer>>>>,
    /// Other servers have written to the last increment after preallocated space, so the log
    /// continues in another file.
    has_gap: AtomicBool,
    is_stopping: AtomicBool,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Held while the log is switched on and a rewrite is requested, which belong together; while
    /// it is switched off and its end is recorded; and while it becomes active, which must not
    /// happen after it was switched off.
    switching: Mutex<()>,
    /// Whether there is no log for the moment, whatever the options say.
    is_suspended: AtomicBool,
    /// Clients that have switched off the log or its preallocation, and wait for that.
    settling: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// The number of the rewrite that was told to end.
    ending_rewrite: AtomicU64,
    /// The snapshot of the running rewrite.
    rewriting: Mutex<Option<Arc<Shared>>>,
}

#[derive(Default)]
struct Inner {
    manifest: Manifest,
    /// Files that a crash has left beside the log's files.
    leftovers: Vec<PathBuf>,
    writer: Option<Arc<Writer>>,
    /// Bytes of the files that are not written any more.
    settled_bytes: u64,
    backoff: Backoff,
}

impl Aof {
    /// Creates the state of this server's log. Nothing is read or written yet.
    pub fn new(engine: &'static Engine, net: &Arc<Net>) -> Arc<Aof> {
        engine.append_log.figures.last_rewrite_s.store(-1, Relaxed);
        let writing: Arc<Mutex<Option<Arc<Writer>>>> = Arc::default();
        let nudged = Arc::clone(&writing);
        engine.append_log.set_nudge(Box::new(move || {
            if let Some(writer) = &*lock(&nudged) {
                writer.wake();
            }
        }));
        Arc::new(Aof {
            engine,
            net: Arc::clone(net),
            folder: Folder::new(&engine.config),
            inner: Mutex::default(),
            writing,
            has_gap: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            keeper: Mutex::default(),
            switching: Mutex::default(),
            is_suspended: AtomicBool::new(false),
            settling: Mutex::default(),
            ending_rewrite: AtomicU64::new(0),
            rewriting: Mutex::new(None),
        })
    }

    /// Reads the manifest and upgrades an old-style file. Returns the number of bytes to load, or
    /// `None` if there is no log.
    ///
    /// # Errors
    /// Why the server must not start.
    pub fn find(&self) -> Result<Option<u64>, String> {
        if !self.engine.config.appendonly() {
            let manifest = self.folder.read_manifest()?;
            let found = (!manifest.is_empty()).then_some(0);
            lock(&self.inner).manifest = manifest;
            return Ok(found);
        }
        let (mut manifest, leftovers) = self.read_checked_manifest()?;
        self.folder.upgrade(&mut manifest)?;
        let bytes = self.folder.total_size(&manifest)?;
        let found = (!manifest.is_empty()).then_some(bytes);
        let mut inner = lock(&self.inner);
        inner.manifest = manifest;
        inner.leftovers = leftovers;
        Ok(found)
    }

    /// Returns the manifest, and the files that a crash has left beside the files it names.
    ///
    /// # Errors
    /// It cannot be read, or there are files that no crash explains.
    fn read_checked_manifest(&self) -> Result<(Manifest, Vec<PathBuf>), String> {
        let manifest = self.folder.read_manifest()?;
        let leftovers = strays::find(&self.folder, &manifest)?;
        Ok((manifest, leftovers))
    }

    /// Loads the log into an empty data set, on a background thread while the caller waits. The
    /// data set does not change otherwise meanwhile.
    ///
    /// # Errors
    /// Why it failed, with file and place.
    pub fn load(&self) -> Result<LoadedLog, String> {
        let (send, receive) = mpsc::sync_channel(1);
        let (folder, manifest) = (self.folder.clone(), lock(&self.inner).manifest.clone());
        let engine = self.engine;
        let job = move |thread: &ThreadContext| {
            // The thread below waits for the result.
            let _ = send.send(load::all(engine, thread, &folder, &manifest));
        };
        self.engine.background.run(Box::new(job));
        let loaded = receive.recv().map_err(|_| "The thread that loads died".to_owned())??;
        let figures = &self.engine.append_log.figures;
        figures.current_size.store(loaded.total_bytes, Relaxed);
        figures.base_size.store(loaded.base_bytes, Relaxed);
        self.has_gap.store(loaded.has_gap, Relaxed);
        Ok(loaded)
    }

    /// Returns whether the manifest on disk names files to load. If not, logs why.
    pub fn is_there(&self) -> bool {
        let why = match self.folder.read_manifest() {
            Ok(manifest) if !manifest.is_empty() => return true,
            Ok(_) => format!("{} names no files to load", self.folder.manifest().display()),
            Err(why) => why,
        };
        why.lines().for_each(|line| log!(Warning, "{line}"));
        false
    }

    /// Begins to write at the end of the loaded log, or a new log, and starts the maintenance.
    ///
    /// # Errors
    /// Why the server must not start.
    pub fn open(self: &Arc<Self>) -> Result<(), String> {
        temporaries::remove_stale(self.folder.dir());
        // A log that was beginning when the server was killed begins again.
        let _ = std::fs::remove_file(self.folder.temporary_incr());
        if self.engine.config.appendonly() {
            self.open_log()?;
        }
        let own = Arc::clone(self);
        let keeper = thread::spawn("aof-keeper", move || own.keep())
            .map_err(|error| format!("Can't start a thread: {error}"))?;
        *lock(&self.keeper) = Some(keeper);
        Ok(())
    }

    fn open_log(&self) -> Result<(), String> {
        self.folder.create()?;
        let mut inner = lock(&self.inner);
        self.folder.remove_leftovers(&std::mem::take(&mut inner.leftovers));
        let mut manifest = inner.manifest.clone();
        let stem = self.folder.stem().to_vec();
        if manifest.is_empty() {
            let base = manifest.replace_base(&stem, self.base_format());
            base::write_empty(self.engine, &self.folder.path(&base.name))
                .map_err(|error| format!("Can't write {}: {}", base.display(), os_error(&error)))?;
            log!(Notice, "Creating AOF base file {} on server start", base.display());
        }
        let last = manifest.incr.last().filter(|_| !self.has_gap.load(Relaxed)).cloned();
        let is_new = last.is_none();
        let incr = last.unwrap_or_else(|| manifest.add_incr(&stem));
        let path = self.folder.path(&incr.name);
        let (what, file) = if is_new {
            ("Creating", self.create_file(&path)?)
        } else {
            ("Opening", self.open_file(&path)?)
        };
        if manifest != inner.manifest {
            self.folder.write_manifest(&manifest)?;
        }
        log!(Notice, "{what} AOF incr file {} on server start", incr.display());
        inner.manifest = manifest;
        inner.settled_bytes = self.settled_bytes(&inner.manifest);
        let stopped = self.engine.keyspace.world().stop();
        let reader = self.engine.journal.read(IfBehind::HoldWriters);
        let db = self.engine.stream_db();
        drop(stopped);
        let writer = Writer::start(self.engine, &self.net, reader, db, file, true)
            .map_err(|error| format!("Can't start a thread: {error}"))?;
        self.set_writer(&mut inner, Some(writer));
        self.engine.append_log.set_state(LogState::On);
        self.folder.forget_beginning();
        self.delete_history_in(&mut inner);
        Ok(())
    }

    fn open_file(&self, path: &Path) -> Result<LogFile, String> {
        LogFile::open(path, &self.engine.debug).map_err(|error| unopened(path, &error))
    }

    fn create_file(&self, path: &Path) -> Result<LogFile, String> {
        LogFile::create(path, &self.engine.debug).map_err(|error| unopened(path, &error))
    }

    fn base_format(&self) -> BaseFormat {
        let is_rdb = self.engine.config.aof_use_rdb_preamble();
        if is_rdb { BaseFormat::Rdb } else { BaseFormat::Aof }
    }

    fn set_writer(&self, inner: &mut Inner, writer: Option<Arc<Writer>>) {
        *lock(&self.writing) = writer.clone();
        inner.writer = writer;
    }

    /// Returns the size of all files but the last increment.
    fn settled_bytes(&self, manifest: &Manifest) -> u64 {
        let files = manifest.base.iter().chain(manifest.incr.iter().rev().skip(1));
        files.filter_map(|file| self.folder.size(file).ok()).sum()
    }

    /// Applies `CONFIG SET appendonly`. Errors that can be found at once are returned. The rest
    /// happens later. A log that is switched off contains everything written before, and nothing
    /// written later.
    ///
    /// # Errors
    /// The error for the client.
    pub fn configure(self: &Arc<Self>, in_transaction: bool) -> Result<(), String> {
        let log = &self.engine.append_log;
        if self.is_suspended.load(SeqCst) {
            return Ok(());
        }
        if !self.engine.config.appendonly() {
            let together = lock(&self.switching);
            self.switch_off(&together);
            drop(together);
            self.engine.serve_acks();
        } else if log.state() == LogState::Off {
            self.make_folder().map_err(|why| {
                log!(Warning, "{why}");
                "Unable to turn on AOF. Check server logs.".to_owned()
            })?;
            let together = lock(&self.switching);
            log.set_state(LogState::Beginning);
            if self.engine.snapshots.is_running() {
                log!(
                    Warning,
                    "AOF was enabled but there is already another background operation. An AOF \
                     background was scheduled to start when possible."
                );
                log.figures.is_scheduled.store(true, Release);
            } else if in_transaction {
                log!(
                    Warning,
                    "AOF was enabled during a transaction. An AOF background was scheduled to \
                     start when possible."
                );
                log.figures.is_scheduled.store(true, Release);
            } else {
                drop(together);
                self.start_rewrite();
            }
        }
        self.look();
        Ok(())
    }

    /// Ends the log at its present position. `_together` is the lock of `switching`.
    fn switch_off(&self, _together: &MutexGuard<'_, ()>) {
        let log = &self.engine.append_log;
        log.set_state(LogState::Off);
        // The log may be waiting for a snapshot, without a writer that the maintenance would find.
        log.figures.is_scheduled.store(false, Release);
        if let Some(writer) = &*lock(&self.writing) {
            writer.end_here();
        }
    }

    /// Ends the log, whatever the options say, and waits for that. The data set is about to be
    /// replaced by one that the log does not contain.
    pub fn suspend(&self) {
        let log = &self.engine.append_log;
        let together = lock(&self.switching);
        self.is_suspended.store(true, SeqCst);
        self.switch_off(&together);
        drop(together);
        self.engine.serve_acks();
        loop {
            self.follow_configuration();
            self.end_rewrite();
            let is_rewriting = log.figures.is_rewriting.load(Acquire);
            if lock(&self.inner).writer.is_none() && !is_rewriting {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Begins a new log after [`Aof::suspend`], if the options want one.
    pub fn resume(self: &Arc<Self>) {
        if self.is_suspended.swap(false, SeqCst)
            && let Err(why) = self.configure(false)
        {
            log!(Warning, "{why}");
        }
    }

    /// Creates the directory for new files of the log.
    ///
    /// # Errors
    /// It cannot be created, or contains files of another log.
    fn make_folder(&self) -> Result<(), String> {
        self.folder.create()?;
        if self.read_checked_manifest().is_ok() {
            return Ok(());
        }
        // If a rewrite ends between the reading of the manifest and of the files, its files look
        // foreign. No rewrite ends while this is locked.
        let _inner = lock(&self.inner);
        self.read_checked_manifest().map(drop)
    }

    /// Applies `CONFIG SET appendfsync` for the next reply, and other options of the writer.
    pub fn follow_policy(&self) {
        if let Some(writer) = &*lock(&self.writing) {
            writer.follow_policy();
            writer.wake();
        }
    }

    /// Deletes the files that are history, unless they are to be kept.
    pub fn delete_history(&self) {
        self.delete_history_in(&mut lock(&self.inner));
    }

    fn delete_history_in(&self, inner: &mut Inner) {
        if !self.engine.config.aof_disable_auto_gc() {
            self.folder.delete_history(&mut inner.manifest);
        }
    }

    /// Starts a round of maintenance now.
    pub fn look(&self) {
        if let Some(keeper) = &*lock(&self.keeper) {
            keeper.thread().unpark();
        }
    }

    fn keep(self: &Arc<Self>) {
        while !self.is_stopping.load(Acquire) {
            self.follow_configuration();
            self.call_if_settled();
            self.count();
            self.rewrite_if_due();
            std::thread::park_timeout(ROUND);
        }
    }

    /// Stops the log if it was switched off. A log that is switched on begins with a rewrite. Both
    /// may have happened since the last round.
    fn follow_configuration(&self) {
        let log = &self.engine.append_log;
        let mut inner = lock(&self.inner);
        let is_off = log.state() == LogState::Off;
        if let Some(writer) = inner.writer.take_if(|writer| is_off || writer.is_ending()) {
            self.end_rewrite();
            *lock(&self.writing) = None;
            writer.stop();
            // Writes no longer wait for the log.
            recheck_all(&self.engine.mailboxes);
            // The file exists only if the log was switched off before its first base was complete.
            let _ = std::fs::remove_file(self.folder.temporary_incr());
            // Meanwhile the log may have been switched on again.
            let _together = lock(&self.switching);
            if log.state() == LogState::Off {
                log.figures.is_scheduled.store(false, Relaxed);
            }
        }
    }

    /// Calls `then` once the log is in the state that the options describe: complete, on the disk,
    /// closed if it was switched off, and without preallocated space if there is to be none.
    pub fn when_settled(&self, then: Box<dyn FnOnce() + Send>) {
        lock(&self.settling).push(then);
        if lock(&self.keeper).is_some() {
            self.look();
        } else {
            // The data set is being loaded. It is not served yet, and there is no log to wait for.
            self.call_if_settled();
        }
    }

    fn call_if_settled(&self) {
        // Take them first: the states they wait for were set before.
        let mut waiting = std::mem::take(&mut *lock(&self.settling));
        let is_at_work =
            |writer: &Arc<Writer>| writer.is_ending() || writer.has_unwanted_preallocation();
        if lock(&self.inner).writer.as_ref().is_some_and(is_at_work) || self.is_rewrite_ending() {
            lock(&self.settling).append(&mut waiting);
        }
        waiting.into_iter().for_each(|then| then());
    }

    fn count(&self) {
        let inner = lock(&self.inner);
        if let Some(writer) = &inner.writer {
            let bytes = inner.settled_bytes + writer.size();
            self.engine.append_log.figures.current_size.store(bytes, Relaxed);
        }
    }

    fn rewrite_if_due(self: &Arc<Self>) {
        let log = &self.engine.append_log;
        let figures = &log.figures;
        if figures.is_rewriting.load(Acquire) || self.engine.snapshots.is_running() {
            return;
        }
        let is_asked = figures.is_scheduled.load(Acquire);
        // The log is not active without a base, or may lack data on the disk.
        let is_needed = log.state() == LogState::Beginning || log.needs_rewrite();
        if is_asked || (is_needed && self.may_retry()) {
            self.start_rewrite();
            return;
        }
        let config = &self.engine.config;
        let (current, base) = (figures.current_size.load(Relaxed), figures.base_size.load(Relaxed));
        let percentage = config.auto_aof_rewrite_percentage();
        if log.state() == LogState::On
            && has_grown(current, base, percentage, config.auto_aof_rewrite_min_size())
            && self.may_retry()
        {
            let growth = (current * 100 / base.max(1)).saturating_sub(100);
            log!(Notice, "Starting automatic rewriting of AOF on {growth}% growth");
            self.start_rewrite();
        }
    }

    /// Returns whether earlier failures allow another attempt now.
    fn may_retry(&self) -> bool {
        let now_s = engine::clock::now_s();
        let failures = self.engine.append_log.figures.consecutive_failures.load(Relaxed);
        match lock(&self.inner).backoff.ask(failures, now_s) {
            Answer::Now => true,
            Answer::Wait { minutes } => {
                if let Some(minutes) = minutes {
                    log!(
                        Warning,
                        "Background AOF rewrite has repeatedly failed and triggered the limit, \
                         will retry in {minutes} minutes"
                    );
                }
                false
            }
        }
    }

    /// Ends a running rewrite, which is not needed any more.
    fn end_rewrite(&self) {
        let figures = &self.engine.append_log.figures;
        if figures.is_rewriting.load(Acquire) {
            self.ending_rewrite.store(figures.rewrites.load(Relaxed), Relaxed);
            // If there is no snapshot yet, the rewrite checks for its end when it has one.
            if let Some(snapshot) = &*lock(&self.rewriting) {
                snapshot.end();
            }
        }
    }

    /// Returns whether the running rewrite is the one that was told to end.
    fn is_rewrite_ending(&self) -> bool {
        let figures = &self.engine.append_log.figures;
        figures.is_rewriting.load(Acquire)
            && figures.rewrites.load(Relaxed) == self.ending_rewrite.load(Relaxed)
    }

    /// Writes all data, forces it to the disk, and ends the threads, because the server ends.
    pub fn stop(&self) {
        /// Time in which a rewrite should notice that it has to end.
        const TIMEOUT: Duration = Duration::from_secs(1);
        self.is_stopping.store(true, Release);
        let until = Instant::now() + TIMEOUT;
        // During a load there is no rewrite, although the flag is set to prevent one.
        let is_rewriting = || {
            let figures = &self.engine.append_log.figures;
            figures.is_rewriting.load(Acquire) && !self.engine.loading.is_on()
        };
        while is_rewriting() && Instant::now() < until {
            self.end_rewrite();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.look();
        // A rewrite may wait for an endless script, which SHUTDOWN NOSAVE leaves running. It holds
        // `inner` until the process ends, and the maintenance thread waits for that lock.
        let is_held_up = is_rewriting();
        if let Some(keeper) = lock(&self.keeper).take()
            && !is_held_up
            && keeper.join().is_err()
        {
            log!(Warning, "The thread that looks after the append-only file panicked");
        }
        let writer = lock(&self.writing).take();
        if let Some(writer) = writer {
            log!(Notice, "Calling fsync() on the AOF file.");
            writer.stop();
        }
    }

    /// Waits until all present data is in the log, if one is written.
    ///
    /// # Errors
    /// Why it cannot be written: an attempt since the call has failed, or the log was switched off.
    pub fn complete(&self) -> Result<(), String> {
        let Some(writer) = lock(&self.inner).writer.clone() else { return Ok(()) };
        let log = &self.engine.append_log;
        let (end, failures) = (writer.target().0, writer.failures());
        while log.written.load(Acquire) < end {
            // Check this first: everything written before the writer's end has been counted.
            let is_over = writer.is_over();
            if writer.failures() > failures {
                return Err(log.error());
            }
            if is_over && log.written.load(Acquire) < end {
                return Err("it was switched off".to_owned());
            }
            writer.wake();
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Loads the log again (DEBUG LOADAOF). It contains all data, and nothing changes or rewrites
    /// it meanwhile.
    ///
    /// # Errors
    /// Why it failed. The data set is incomplete then.
    pub fn reload(&self) -> Result<(), String> {
        let mut inner = lock(&self.inner);
        // Take the manifest from the disk, so that the numbers of files begin again as after a
        // start.
        inner.manifest = self.folder.read_manifest()?;
        drop(inner);
        // The history continues, because the loaded data is the data that was there.
        self.load()?;
        self.engine.persistence.set_unchanged(self.engine.changes());
        log!(Notice, "Append Only File loaded by DEBUG LOADAOF");
        Ok(())
    }
}

fn unopened(path: &Path, error: &io::Error) -> String {
    format!("Can't open the append-only file {}: {}", path.display(), os_error(error))
}
