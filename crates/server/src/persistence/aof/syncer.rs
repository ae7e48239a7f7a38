//! The thread that forces the append-only file to the disk once a second (`everysec`), so that a
//! slow disk does not stop writers, and that makes [preallocated space](super::preallocated) ahead
//! of the data (`always`). It also handles failed fsyncs.

use super::file::{self, LogFile};
use super::lock;
use super::preallocated::PreallocationJob;
use crate::log;
use engine::Engine;
use engine::journal::JournalPos;
use process::os_error;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use structs::sync::wait;

/// The thread, as the writer sees it.
pub struct Syncer {
    state: Mutex<SyncState>,
    changed: Condvar,
    has_failed: AtomicBool,
}

/// A requested fsync.
struct Wanted {
    file: Arc<File>,
    name: Arc<str>,
    /// The position up to which the file then has data.
    position: u64,
}

#[derive(Default)]
struct SyncState {
    wanted: Option<Wanted>,
    preallocated: Option<Arc<PreallocationJob>>,
    is_busy: bool,
    stops: bool,
}

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start it.
    pub fn start(engine: &'static Engine) -> io::Result<Arc<Syncer>> {
        let syncer = Arc::new(Syncer {
            state: Mutex::default(),
            changed: Condvar::new(),
            has_failed: AtomicBool::new(false),
        });
        let own = Arc::clone(&syncer);
        std::thread::Builder::new().name("aof-fsync".into()).spawn(move || own.run(engine))?;
        Ok(syncer)
    }

    fn run(&self, engine: &'static Engine) {
        let mut state = lock(&self.state);
        loop {
            if let Some(Wanted { file, name, position }) = state.wanted.take() {
                state.is_busy = true;
                drop(state);
                let figures = &engine.append_log.figures;
                figures.pending_fsyncs.store(1, Relaxed);
                let sync = || file::sync(&file, &engine.debug);
                let outcome = engine.timings.journal_fsync.time(sync);
                match outcome {
                    Ok(()) => self.succeeded(engine, JournalPos(position)),
                    Err(error) => self.failed(engine, &name, &os_error(&error)),
                }
                figures.pending_fsyncs.store(0, Relaxed);
                state = lock(&self.state);
                state.is_busy = false;
                self.changed.notify_all();
            } else if let Some(job) = state.preallocated.take() {
                drop(state);
                job.run();
                state = lock(&self.state);
            } else if state.stops {
                return;
            } else {
                state = wait(&self.changed, state);
            }
        }
    }

    /// Requests an fsync. Returns `false` if the previous one has not ended.
    pub fn ask(&self, file: &LogFile, position: u64) -> bool {
        let mut state = lock(&self.state);
        if state.is_busy || state.wanted.is_some() {
            return false;
        }
        state.wanted = Some(Wanted { file: file.handle(), name: file.name(), position });
        self.changed.notify_all();
        true
    }

    /// Requests that a job preallocates space. The previous job has ended.
    pub fn write_preallocation(&self, job: Arc<PreallocationJob>) {
        lock(&self.state).preallocated = Some(job);
        self.changed.notify_all();
    }

    /// Waits until no fsync is in progress.
    pub fn wait(&self) {
        let mut state = lock(&self.state);
        while state.is_busy || state.wanted.is_some() {
            state = wait(&self.changed, state);
        }
    }

    /// Ends the thread once nothing is in progress.
    pub fn stop(&self) {
        lock(&self.state).stops = true;
        self.changed.notify_all();
    }

    /// Returns whether the last fsync failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Acquire)
    }

    /// Handles a failed fsync. Data that the kernel could not write may be lost although a later
    /// fsync succeeds. So writes are refused until an fsync succeeds, and then the whole log is
    /// rewritten.
    pub fn failed(&self, engine: &Engine, name: &str, why: &str) {
        if !self.has_failed.swap(true, AcqRel) {
            log!(Warning, "Fail to fsync the AOF file {name}: {why}");
        }
        engine.append_log.set_broken(why);
    }

    /// Records that the file is on the disk up to this position.
    pub fn succeeded(&self, engine: &Engine, position: JournalPos) {
        if self.has_failed.swap(false, AcqRel) {
            engine.append_log.set_sound();
            engine.append_log.note_lapse();
            log!(
                Warning,
                "AOF fsync works again, Dunlin can write again. The append-only file will be \
                 rewritten, since what could not be forced to the disk before may be lost there."
            );
        }
        engine.safe.set_disk(position);
        engine.serve_acks();
    }
}
