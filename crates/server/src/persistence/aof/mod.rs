//! The append-only log: started with the server or while it runs, rewritten, stopped.
//!
//! A thread of its own looks after it ten times a second: it follows `appendonly`, starts rewrites
//! that are due, and keeps INFO's figures. Nothing here runs on a reactor.
//!
//! `docs/internals/aof.md` has the whole.

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
use engine::long::LateReply;
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

/// Between two looks at what is due.
const ROUND: Duration = Duration::from_millis(100);

/// The append-only log of a server.
pub struct Aof {
    engine: &'static Engine,
    net: Arc<Net>,
    folder: Folder,
    inner: Mutex<Inner>,
    /// The writer, for the threads that nudge it.
    writing: Arc<Mutex<Option<Arc<Writer>>>>,
    /// Others have gone on with the last increment behind preallocated space, so the log goes on in another file.
    has_gap: AtomicBool,
    is_stopping: AtomicBool,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Held while the log is switched on and a rewrite is asked for, which belong together; while it is
    /// switched off and its end noted; and while it becomes one, which it must not after that.
    switching: Mutex<()>,
    /// There is no log for a moment, whatever the options say.
    is_suspended: AtomicBool,
    /// The caller that has switched the log off, or the preallocated space ahead of it, and waits for that.
    settling: Mutex<Vec<LateReply>>,
    /// The number of the rewrite that has been told to end.
    ending_rewrite: AtomicU64,
    /// The snapshot of the rewrite under way.
    rewriting: Mutex<Option<Arc<Shared>>>,
}

#[derive(Default)]
struct Inner {
    manifest: Manifest,
    /// What a crash has left beside its files.
    leftovers: Vec<PathBuf>,
    writer: Option<Arc<Writer>>,
    /// Bytes of the files that are not written any more.
    settled_bytes: u64,
    backoff: Backoff,
}

impl Aof {
    /// The log of this server, which neither reads nor writes anything yet.
    pub fn new(engine: &'static Engine, net: &Arc<Net>) -> Arc<Aof> {
        engine.append_log().figures.last_rewrite_s.store(-1, Relaxed);
        let writing: Arc<Mutex<Option<Arc<Writer>>>> = Arc::default();
        let nudged = Arc::clone(&writing);
        engine.append_log().set_nudge(Box::new(move || {
            if let Some(writer) = &*lock(&nudged) {
                writer.wake();
            }
        }));
        Arc::new(Aof {
            engine,
            net: Arc::clone(net),
            folder: Folder::new(engine.config()),
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

    /// Reads the manifest, upgrades an old-style file, and says how many bytes there are to load;
    /// `None` if there is no log.
    ///
    /// # Errors
    /// Why the server must not start.
    pub fn find(&self) -> Result<Option<u64>, String> {
        if !self.engine.config().appendonly() {
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

    /// The manifest, and the files that a crash has left beside those that it names.
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
    /// Why not, naming file and place.
    pub fn load(&self) -> Result<LoadedLog, String> {
        let (send, receive) = mpsc::sync_channel(1);
        let (folder, manifest) = (self.folder.clone(), lock(&self.inner).manifest.clone());
        let engine = self.engine;
        let job = move |thread: &ThreadContext| {
            // Only the waiter below holds the other end.
            let _ = send.send(load::all(engine, thread, &folder, &manifest));
        };
        self.engine.background().run(Box::new(job));
        let loaded = receive.recv().map_err(|_| "The thread that loads died".to_owned())??;
        let figures = &self.engine.append_log().figures;
        figures.current_size.store(loaded.total_bytes, Relaxed);
        figures.base_size.store(loaded.base_bytes, Relaxed);
        self.has_gap.store(loaded.has_gap, Relaxed);
        Ok(loaded)
    }

    /// Whether there are files of one, as the manifest on the disk says; if not, the server's log says why.
    pub fn is_there(&self) -> bool {
        let why = match self.folder.read_manifest() {
            Ok(manifest) if !manifest.is_empty() => return true,
            Ok(_) => format!("{} names no files to load", self.folder.manifest().display()),
            Err(why) => why,
        };
        why.lines().for_each(|line| log!(Warning, "{line}"));
        false
    }

    /// Begins to write, where the log that was loaded ends, or a new one; and to look after it.
    ///
    /// # Errors
    /// Why the server must not start.
    pub fn open(self: &Arc<Self>) -> Result<(), String> {
        temporaries::remove_stale(self.folder.dir());
        // A log that was about to begin when the server was killed; it begins anew.
        let _ = std::fs::remove_file(self.folder.temporary_incr());
        if self.engine.config().appendonly() {
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
        let stopped = self.engine.keyspace().world().stop();
        let reader = self.engine.journal().read(IfBehind::HoldWriters);
        let db = self.engine.stream_db();
        drop(stopped);
        let writer = Writer::start(self.engine, &self.net, reader, db, file, true)
            .map_err(|error| format!("Can't start a thread: {error}"))?;
        self.set_writer(&mut inner, Some(writer));
        self.engine.append_log().set_state(LogState::On);
        self.folder.forget_beginning();
        self.delete_history_in(&mut inner);
        Ok(())
    }

    fn open_file(&self, path: &Path) -> Result<LogFile, String> {
        LogFile::open(path, self.engine.debug()).map_err(|error| unopened(path, &error))
    }

    fn create_file(&self, path: &Path) -> Result<LogFile, String> {
        LogFile::create(path, self.engine.debug()).map_err(|error| unopened(path, &error))
    }

    fn base_format(&self) -> BaseFormat {
        let is_rdb = self.engine.config().aof_use_rdb_preamble();
        if is_rdb { BaseFormat::Rdb } else { BaseFormat::Aof }
    }

    fn set_writer(&self, inner: &mut Inner, writer: Option<Arc<Writer>>) {
        *lock(&self.writing) = writer.clone();
        inner.writer = writer;
    }

    /// Bytes of all files but the last increment.
    fn settled_bytes(&self, manifest: &Manifest) -> u64 {
        let files = manifest.base.iter().chain(manifest.incr.iter().rev().skip(1));
        files.filter_map(|file| self.folder.size(file).ok()).sum()
    }

    /// `CONFIG SET appendonly`: what can be refused is refused at once, the rest follows. Switched
    /// off, the log has what was written before, and nothing that is written after.
    ///
    /// # Errors
    /// For the client.
    pub fn configure(self: &Arc<Self>, in_transaction: bool) -> Result<(), String> {
        let log = self.engine.append_log();
        if self.is_suspended.load(SeqCst) {
            return Ok(());
        }
        if !self.engine.config().appendonly() {
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
            if self.engine.snapshots().is_running() {
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

    /// Ends the log at what it has now. `_together` is the lock of `switching`.
    fn switch_off(&self, _together: &MutexGuard<'_, ()>) {
        let log = self.engine.append_log();
        log.set_state(LogState::Off);
        // It may still wait for a snapshot, without a writer that the keeper would find.
        log.figures.is_scheduled.store(false, Release);
        if let Some(writer) = &*lock(&self.writing) {
            writer.end_here();
        }
    }

    /// Ends the log, whatever the options say, and waits for that: the data set is about to be replaced
    /// by one that it knows nothing of.
    pub fn suspend(&self) {
        let log = self.engine.append_log();
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

    /// Begins a new log, if the options say that there is one, after [`Aof::suspend`].
    pub fn resume(self: &Arc<Self>) {
        if self.is_suspended.swap(false, SeqCst)
            && let Err(why) = self.configure(false)
        {
            log!(Warning, "{why}");
        }
    }

    /// Makes the directory for new files of the log.
    ///
    /// # Errors
    /// There can be none, or it has files of another log.
    fn make_folder(&self) -> Result<(), String> {
        self.folder.create()?;
        if self.read_checked_manifest().is_ok() {
            return Ok(());
        }
        // A rewrite that ends between a look at the manifest and one at the files makes its own seem
        // strange. Nothing ends while this is locked.
        let _inner = lock(&self.inner);
        self.read_checked_manifest().map(drop)
    }

    /// `CONFIG SET appendfsync`: holds for the next reply. Also what else the writer looks at.
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
        if !self.engine.config().aof_disable_auto_gc() {
            self.folder.delete_history(&mut inner.manifest);
        }
    }

    /// Has the keeper look at what is due now.
    pub fn look(&self) {
        if let Some(keeper) = &*lock(&self.keeper) {
            keeper.thread().unpark();
        }
    }

    fn keep(self: &Arc<Self>) {
        while !self.is_stopping.load(Acquire) {
            self.follow_configuration();
            self.reply_if_settled();
            self.count();
            self.rewrite_if_due();
            std::thread::park_timeout(ROUND);
        }
    }

    /// Stops the log when it was switched off. Switched on, it begins with a rewrite. Both may have
    /// happened since the last look.
    fn follow_configuration(&self) {
        let log = self.engine.append_log();
        let mut inner = lock(&self.inner);
        let is_off = log.state() == LogState::Off;
        if let Some(writer) = inner.writer.take_if(|writer| is_off || writer.is_ending()) {
            self.end_rewrite();
            *lock(&self.writing) = None;
            writer.stop();
            // Writes that waited for it need not any more.
            recheck_all(self.engine.mailboxes());
            // Only there if it was switched off before its first base was complete.
            let _ = std::fs::remove_file(self.folder.temporary_incr());
            // That took a moment, in which it may have been switched on again.
            let _together = lock(&self.switching);
            if log.state() == LogState::Off {
                log.figures.is_scheduled.store(false, Relaxed);
            }
        }
    }

    /// Replies once the log is as the options say: complete, on the disk, and closed if it was switched
    /// off; without preallocated space ahead of it if there is to be none.
    pub fn reply_when_settled(&self, reply: LateReply) {
        lock(&self.settling).push(reply);
        if lock(&self.keeper).is_some() {
            self.look();
        } else {
            // The data set is being loaded: it is not served yet, and there is no log to wait for.
            self.reply_if_settled();
        }
    }

    fn reply_if_settled(&self) {
        // Looked at first: what each of them waits for was set before.
        let mut waiting = std::mem::take(&mut *lock(&self.settling));
        let is_at_work =
            |writer: &Arc<Writer>| writer.is_ending() || writer.has_unwanted_preallocation();
        if lock(&self.inner).writer.as_ref().is_some_and(is_at_work) || self.is_rewrite_ending() {
            lock(&self.settling).append(&mut waiting);
        }
        for reply in waiting {
            reply.send(|reply| reply.ok());
        }
    }

    fn count(&self) {
        let inner = lock(&self.inner);
        if let Some(writer) = &inner.writer {
            let bytes = inner.settled_bytes + writer.size();
            self.engine.append_log().figures.current_size.store(bytes, Relaxed);
        }
    }

    fn rewrite_if_due(self: &Arc<Self>) {
        let log = self.engine.append_log();
        let figures = &log.figures;
        if figures.is_rewriting.load(Acquire) || self.engine.snapshots().is_running() {
            return;
        }
        let is_asked = figures.is_scheduled.load(Acquire);
        // A log that is none without a base, or that may lack something on the disk.
        let is_needed = log.state() == LogState::Beginning || log.needs_rewrite();
        if is_asked || (is_needed && self.may_retry()) {
            self.start_rewrite();
            return;
        }
        let config = self.engine.config();
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

    /// Whether earlier failures allow another attempt now.
    fn may_retry(&self) -> bool {
        let now_s = engine::clock::now_s();
        let failures = self.engine.append_log().figures.consecutive_failures.load(Relaxed);
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

    /// Ends a rewrite that is under way: it is not needed any more.
    fn end_rewrite(&self) {
        let figures = &self.engine.append_log().figures;
        if figures.is_rewriting.load(Acquire) {
            self.ending_rewrite.store(figures.rewrites.load(Relaxed), Relaxed);
            // Without one the rewrite has not come so far, and looks when it has.
            if let Some(snapshot) = &*lock(&self.rewriting) {
                snapshot.end();
            }
        }
    }

    /// Whether the rewrite under way is the one that was told to end.
    fn is_rewrite_ending(&self) -> bool {
        let figures = &self.engine.append_log().figures;
        figures.is_rewriting.load(Acquire)
            && figures.rewrites.load(Relaxed) == self.ending_rewrite.load(Relaxed)
    }

    /// Writes what is there, forces it to the disk, and ends; with the server.
    pub fn stop(&self) {
        /// How long a rewrite may take to notice that it is over.
        const TIMEOUT: Duration = Duration::from_secs(1);
        self.is_stopping.store(true, Release);
        let until = Instant::now() + TIMEOUT;
        // Beside a load there is none, though it keeps others from beginning one.
        let is_rewriting = || {
            let figures = &self.engine.append_log().figures;
            figures.is_rewriting.load(Acquire) && !self.engine.loading().is_on()
        };
        while is_rewriting() && Instant::now() < until {
            self.end_rewrite();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.look();
        // A rewrite that waits for a script without an end, which SHUTDOWN NOSAVE leaves behind, has `inner`
        // until the process is gone; the keeper waits for that.
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

    /// Waits until everything there is up to now is in the log, if one is written.
    ///
    /// # Errors
    /// Why it cannot be written: an attempt since the call has failed, or the log was switched off.
    pub fn complete(&self) -> Result<(), String> {
        let Some(writer) = lock(&self.inner).writer.clone() else { return Ok(()) };
        let log = self.engine.append_log();
        let (end, failures) = (writer.target().0, writer.failures());
        while log.written.load(Acquire) < end {
            // Looked at first: what it has written before its end is written.
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

    /// Loads the log anew (DEBUG LOADAOF): everything is in it, and nothing changes
    /// or rewrites it meanwhile.
    ///
    /// # Errors
    /// Why not; the data set is incomplete then.
    pub fn reload(&self) -> Result<(), String> {
        let mut inner = lock(&self.inner);
        // As it is on the disk, so that numbers of files begin anew as they do after a start.
        inner.manifest = self.folder.read_manifest()?;
        drop(inner);
        // The history goes on: what is loaded is what was there.
        self.load()?;
        self.engine.persistence().set_unchanged(self.engine.changes());
        log!(Notice, "Append Only File loaded by DEBUG LOADAOF");
        Ok(())
    }
}

fn unopened(path: &Path, error: &io::Error) -> String {
    format!("Can't open the append-only file {}: {}", path.display(), os_error(error))
}
