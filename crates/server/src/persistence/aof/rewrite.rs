//! Rewrites the log: a snapshot becomes its new base, and a new increment continues after it.
//!
//! ```text
//!   base.1 │ incr.1 ───────────┐ cut
//!          │                   ├─── incr.2 ──────────────────▶   written from the cut on
//!          │                   └─── snapshot ─── base.2
//!   manifest:  base.1 incr.1  ▸  base.1 incr.1 incr.2  ▸  base.2 incr.2, base.1 and incr.1 history
//! ```
//!
//! The manifest names the new increment before anything is written to it. So at every moment,
//! everything can be loaded from the files that the manifest names. If the snapshot fails, the log
//! only has one file more.

use super::{Aof, Inner, lock};
use crate::log;
use crate::persistence::save;
use crate::persistence::snapshot_file::Content;
use crate::persistence::temporaries;
use engine::DbIndex;
use engine::append_log::LogState;
use engine::journal::{IfBehind, Reader};
use engine::snapshot::{AlreadyRunning, Beside, Snapshot, Snapshots};
use process::{os_error, thread};
use replication::manifest::{BaseFormat, LogFile as Named};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// Why a rewrite did not happen.
enum Trouble {
    /// Another snapshot is running. The rewrite is tried again later.
    Busy,
    /// The rewrite is not wanted any more.
    Cancelled,
    /// An error in words for the log.
    Failed(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble::Failed(why)
    }
}

impl Aof {
    /// Starts a rewrite on its own thread, unless one is running. Returns whether it did.
    pub fn start_rewrite(self: &Arc<Self>) -> bool {
        let figures = &self.engine.append_log.figures;
        if figures.is_rewriting.swap(true, AcqRel) {
            return false;
        }
        // A postponed rewrite is this one.
        figures.is_scheduled.store(false, Release);
        figures.rewrite_began_s.store(engine::clock::now_s(), Relaxed);
        figures.rewrites.fetch_add(1, Relaxed);
        // Count it together with the flag, because a client that sees a running rewrite may expect
        // it to be counted.
        self.engine.persistence.count_fork();
        let own = Arc::clone(self);
        // If the log is switched off before the thread runs, the rewrite is not wanted any more.
        let state = self.engine.append_log.state();
        let started = thread::spawn("aof-rewrite", move || {
            save::lower_priority();
            let outcome = own.rewrite(state);
            own.finished(outcome);
        });
        if let Err(error) = &started {
            self.finished(Err(Trouble::Failed(format!("Can't start a thread: {error}"))));
        }
        started.is_ok()
    }

    /// Ends a rewrite. `outcome` is the number of failed fsyncs at its beginning, or why it failed.
    fn finished(&self, outcome: Result<u64, Trouble>) {
        let log = &self.engine.append_log;
        let figures = &log.figures;
        let seconds = engine::clock::now_s() - figures.rewrite_began_s.load(Relaxed);
        let is_ok = outcome.is_ok();
        match outcome {
            Ok(lapses) => log.repair(lapses),
            Err(Trouble::Busy) => {
                figures.is_scheduled.store(true, Release);
                figures.is_rewriting.store(false, Release);
                return;
            }
            Err(Trouble::Cancelled) => {
                // Redis's words, for which users search. Here it is a thread.
                log!(Notice, "Killing running AOF rewrite child: it is not needed any more");
                figures.is_rewriting.store(false, Release);
                log!(Notice, "Background AOF rewrite was cancelled");
                // A client may wait for this.
                self.look();
                return;
            }
            Err(Trouble::Failed(why)) => log!(Warning, "{why}"),
        }
        let mut inner = lock(&self.inner);
        if !is_ok && log.state() == LogState::Beginning {
            self.drop_beginning(&mut inner);
        }
        figures.last_rewrite_s.store(seconds, Relaxed);
        figures.rewrite_failed.store(!is_ok, Relaxed);
        let failures = if is_ok { 0 } else { figures.consecutive_failures.load(Relaxed) + 1 };
        figures.consecutive_failures.store(failures, Relaxed);
        drop(inner);
        figures.is_rewriting.store(false, Release);
        // Log this last, because a client that reads it may request the next rewrite at once.
        if is_ok {
            log!(Notice, "Background AOF rewrite finished successfully");
        } else {
            log!(Warning, "Background AOF rewrite terminated with error");
        }
        // The log may be active now, or complete again.
        self.engine.serve_acks();
    }

    /// Discards a log that has just begun. It has no base, so its increment is of no use. The next
    /// attempt begins anew.
    fn drop_beginning(&self, inner: &mut Inner) {
        if let Some(writer) = inner.writer.take() {
            *lock(&self.writing) = None;
            writer.stop();
        }
        let path = self.folder.temporary_incr();
        if path.exists() {
            let name = path.file_name().unwrap_or_default().display();
            log!(Notice, "Removing the temp incr aof file {name}");
            if let Err(error) = fs::remove_file(&path) {
                log!(Warning, "Can't remove {}: {}", path.display(), os_error(&error));
            }
        }
    }

    fn rewrite(&self, state: LogState) -> Result<u64, Trouble> {
        // A failure from here on may concern data that the new base does not contain.
        let lapses = self.engine.append_log.lapses();
        self.make_folder()?;
        if state == LogState::Beginning || lock(&self.inner).manifest.is_empty() {
            self.mark_beginning()?;
        }
        let snapshot = match state {
            LogState::Off => self.begin(|| {})?,
            LogState::On => self.begin_with_increment()?,
            LogState::Beginning => self.begin_log()?,
        };
        *lock(&self.rewriting) = Some(Arc::clone(snapshot.progress()));
        if self.is_rewrite_ending() {
            return Err(Trouble::Cancelled);
        }
        log!(Notice, "Background append only file rewriting started");
        let (format, mut manifest) = (self.base_format(), lock(&self.inner).manifest.clone());
        let base = manifest.replace_base(self.folder.stem(), format);
        let written = self.write_base(&snapshot, format, &base);
        let peak = snapshot.progress().peak_bytes() as u64;
        self.engine.append_log.figures.last_cow_bytes.store(peak, Relaxed);
        *lock(&self.rewriting) = None;
        drop(snapshot);
        written.map_err(|error| {
            // The base may have its name already, although not durably.
            let _ = fs::remove_file(self.folder.path(&base.name));
            let why = os_error(&error);
            match error.kind() {
                io::ErrorKind::Interrupted => Trouble::Cancelled,
                _ => {
                    Trouble::Failed(format!("Write error writing append only file on disk: {why}"))
                }
            }
        })?;
        self.install(state, &base, format)?;
        Ok(lapses)
    }

    /// Marks the beginning of a log. Its first base has its name before a manifest names it. If the
    /// server was killed in between, the base would look like a file of another log without this
    /// mark.
    fn mark_beginning(&self) -> Result<(), String> {
        let path = self.folder.beginning();
        fs::write(&path, b"")
            .map_err(|error| format!("Can't write {}: {}", path.display(), os_error(&error)))
    }

    fn begin(&self, at_cut: impl FnOnce()) -> Result<Snapshot, Trouble> {
        Snapshots::begin(self.engine, |_| at_cut()).map_err(|AlreadyRunning| Trouble::Busy)
    }

    /// Begins a snapshot, and continues the log in a new increment from the cut on.
    fn begin_with_increment(&self) -> Result<Snapshot, Trouble> {
        if self.engine.snapshots.is_running() {
            return Err(Trouble::Busy);
        }
        let mut inner = lock(&self.inner);
        let writer = inner.writer.clone().filter(|writer| !writer.is_ending());
        let Some(writer) = writer else { return Err(Trouble::Cancelled) };
        let mut manifest = inner.manifest.clone();
        let incr = manifest.add_incr(self.folder.stem());
        let path = self.folder.path(&incr.name);
        let file = self.create_file(&path)?;
        self.folder.replace_manifest(&manifest).inspect_err(|_| {
            let _ = fs::remove_file(&path);
        })?;
        // The manifest must be durable, or data written to the increment could be lost with it.
        self.folder.sync_dir()?;
        log!(Notice, "Creating AOF incr file {} on background rewrite", incr.display());
        let mut file = Some(file);
        let journal = &self.engine.journal;
        let snapshot = self.begin(|| {
            journal.forget_db();
            if let Some(file) = file.take() {
                writer.switch(journal.position(), file);
            }
        });
        if snapshot.is_err() {
            // The increment stays empty. The manifest in force does not name it, and it does no
            // harm.
            self.folder.write_manifest(&inner.manifest)?;
            let _ = fs::remove_file(&path);
            return snapshot;
        }
        inner.settled_bytes += writer.size();
        inner.manifest = manifest;
        snapshot
    }

    /// Begins a log that was switched on. It begins at the cut, in a file that becomes part of it
    /// when the base is complete.
    fn begin_log(&self) -> Result<Snapshot, Trouble> {
        let mut inner = lock(&self.inner);
        if self.engine.append_log.state() == LogState::Off {
            return Err(Trouble::Cancelled);
        }
        // Remove the file of an earlier attempt.
        self.drop_beginning(&mut inner);
        let path = self.folder.temporary_incr();
        let file = self.create_file(&path)?;
        let mut reader: Option<(Reader<'static>, Option<DbIndex>)> = None;
        let engine = self.engine;
        let begun = self.begin(|| {
            // Replicas may have read the journal for long, but other servers need a SELECT.
            engine.journal.forget_db();
            reader = Some((engine.journal.read(IfBehind::HoldWriters), engine.stream_db()));
        });
        // The log begins again later, unless it is switched off first.
        let snapshot = begun.inspect_err(|_| drop(fs::remove_file(&path)))?;
        if let Some((reader, db)) = reader {
            let writer = super::Writer::start(engine, &self.net, reader, db, file, false)
                .map_err(|error| format!("Can't start a thread: {error}"))?;
            inner.settled_bytes = 0;
            self.set_writer(&mut inner, Some(writer));
        }
        Ok(snapshot)
    }

    fn write_base(&self, snapshot: &Snapshot, format: BaseFormat, base: &Named) -> io::Result<u64> {
        let temporary: PathBuf = self.folder.path(temporaries::base().as_bytes());
        let target = self.folder.path(&base.name);
        let engine = self.engine;
        let content = match format {
            BaseFormat::Rdb => Content::AofPreamble,
            BaseFormat::Aof => {
                Content::Commands { timestamp: engine.config.aof_timestamp_enabled() }
            }
        };
        save::write_file(engine, snapshot, Beside::Clients, temporary, &target, content)
    }

    /// Installs the new base in the place of the files that it replaces.
    fn install(&self, began_as: LogState, base: &Named, format: BaseFormat) -> Result<(), Trouble> {
        let mut inner = lock(&self.inner);
        let log = &self.engine.append_log;
        let is_written = inner.writer.is_some() && log.state() != LogState::Off;
        if (began_as != LogState::Off) != is_written {
            let _ = fs::remove_file(self.folder.path(&base.name));
            // The log was switched off or on meanwhile.
            return Err(Trouble::Cancelled);
        }
        let mut manifest = inner.manifest.clone();
        let installed = manifest.replace_base(self.folder.stem(), format);
        assert!(installed == *base, "one rewrite at a time");
        let mut moved = None;
        if began_as == LogState::Beginning {
            // Increments from before the log was switched off are contained in the base.
            manifest.retire_incr(0);
            moved = Some(self.folder.path(&manifest.add_incr(self.folder.stem()).name));
        } else {
            manifest.retire_incr(usize::from(is_written));
        }
        let replaced = moved.as_ref().map_or(Ok(()), |to| self.move_temporary_incr(to));
        if let Err(why) = replaced.and_then(|()| self.folder.replace_manifest(&manifest)) {
            // The files would take the space that the next attempt needs.
            let _ = fs::remove_file(self.folder.path(&base.name));
            if let Some(moved) = moved {
                let _ = fs::remove_file(moved);
            }
            return Err(why.into());
        }
        // From here on the base is part of the log, so it must not be written a second time.
        inner.manifest = manifest;
        let synced = self.folder.sync_dir();
        self.settle(&mut inner, synced.is_ok());
        Ok(synced?)
    }

    fn move_temporary_incr(&self, to: &Path) -> Result<(), String> {
        let from = self.folder.temporary_incr();
        fs::rename(&from, to)
            .map_err(|error| format!("Error moving {}: {}", from.display(), os_error(&error)))
    }

    /// Updates the figures. `is_sure`: the manifest that names the new base survives a crash of the
    /// machine. Then the replaced files can be deleted, and a beginning log becomes active.
    fn settle(&self, inner: &mut Inner, is_sure: bool) {
        let log = &self.engine.append_log;
        inner.settled_bytes = self.settled_bytes(&inner.manifest);
        if let Some(writer) = &inner.writer {
            let bytes = inner.settled_bytes + writer.size();
            log.figures.current_size.store(bytes, Relaxed);
            log.figures.base_size.store(bytes, Relaxed);
            let _together = lock(&self.switching);
            // The log may have been switched off and on again meanwhile. The next rewrite is for
            // that.
            if is_sure && log.state() == LogState::Beginning && !writer.is_ending() {
                log.set_state(LogState::On);
                writer.trust();
            }
        }
        if is_sure {
            if let Some(writer) = &inner.writer {
                writer.contained();
            }
            self.delete_history_in(inner);
        }
    }
}
