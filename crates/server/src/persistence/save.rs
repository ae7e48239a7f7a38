//! Writes a snapshot into the configured file.
//!
//! In the background, one thread does so, with as many helpers as `snapshot-threads` allows.

use super::aof_records::AofRecords;
use super::rdb_records::RdbRecords;
use super::snapshot_file::{Content, SnapshotFile, SnapshotOptions};
use super::temporaries;
use super::unbuffered;
use crate::log;
use config::ReplicaRdbVersion;
use engine::Engine;
use engine::engine::{OnConflict, SaveDone};
use engine::persistence::Outcome;
use engine::snapshot::{AlreadyRunning, Beside, Output, Snapshot, Snapshots};
use keyspace::memory::block_size;
use keyspace::snapshot::Workspace;
use process::{os_error, priority, signals, thread};
use replication::primary::RdbVersions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::sync::lock;

/// Greatest memory of an encoder, in bytes: the table of its compressor.
const ENCODER_BYTES: usize = 128 << 10;

/// Returns the number of threads that write a snapshot.
pub fn threads(engine: &Engine) -> usize {
    match engine.config.snapshot_threads() {
        0 => engine.threads,
        threads => threads,
    }
}

/// Writes a snapshot into the file `target`, through `temporary` beside it. Returns its size in
/// bytes.
pub fn write_file(
    engine: &'static Engine,
    snapshot: &Snapshot,
    beside: Beside,
    temporary: PathBuf,
    target: &Path,
    content: Content,
) -> io::Result<u64> {
    ensure_expressible(snapshot, content)?;
    let options = SnapshotOptions {
        checksum: engine.config.rdbchecksum(),
        incremental_fsync: if matches!(content, Content::Rdb | Content::Replica { .. }) {
            engine.config.rdb_save_incremental_fsync()
        } else {
            engine.config.aof_rewrite_incremental_fsync()
        },
        content,
    };
    snapshot.begin_beside(beside);
    let _block = Workspace::new(snapshot.progress(), block_size(unbuffered::MEMORY));
    let sizes = snapshot.sizes();
    engine.persistence.set_keys_total(sizes.iter().map(|(_, keys, _)| keys).sum());
    let (from, to) = (temporary.display().to_string(), target.display());
    let tell = |what: &str, error: &io::Error| {
        if error.kind() != io::ErrorKind::Interrupted {
            let (dir, why) = (engine.config.dir(), os_error(error));
            log!(Warning, "{what} (in server root dir {}): {why}", dir.display());
        }
    };
    let mut file = SnapshotFile::create(temporary, options, snapshot.cut(), &sizes)
        .inspect_err(|error| tell(&format!("Failed opening the temp RDB file {from}"), error))?;
    let written = if file.has_commands() {
        write_all(engine, snapshot, beside, &mut file, &AofRecords::default)
    } else {
        let version = content.version();
        write_all(engine, snapshot, beside, &mut file, &|| RdbRecords::for_version(engine, version))
    };
    let bytes = written
        .and_then(|()| file.complete())
        // If the snapshot was ended while the file was forced to the disk, that caller was told
        // that the old file stays.
        .and_then(|bytes| snapshot.ensure_not_cancelled().map(|()| bytes))
        .inspect_err(|error| tell(&format!("Failed writing the temp RDB file {from}"), error))?;
    file.rename(target).inspect_err(|error| {
        tell(&format!("Error moving temp DB file {from} on the final destination {to}"), error);
    })?;
    Ok(bytes)
}

/// Returns the content of snapshots (`rdb-version`).
fn content(engine: &Engine) -> Content {
    match engine.config.rdb_version() {
        ReplicaRdbVersion::Auto => Content::Rdb,
        ReplicaRdbVersion::V10 => Content::Replica { version: RdbVersions::OLDEST.plain },
        ReplicaRdbVersion::V11 => Content::Replica { version: rdb::VERSION },
        ReplicaRdbVersion::V12 => Content::Replica { version: rdb::REDIS_TIMED_VERSION },
    }
}

/// Checks that the snapshot's data can be written in this version.
///
/// # Errors
/// It cannot.
fn ensure_expressible(snapshot: &Snapshot, content: Content) -> io::Result<()> {
    let Content::Replica { version } = content else { return Ok(()) };
    if snapshot.cut().has_timed_fields && version < rdb::REDIS_TIMED_VERSION {
        let why = format!(
            "rdb-version {version} cannot hold hashes with fields that expire: set 12 for Redis 7.4 and \
             later, or auto for Valkey 9"
        );
        log!(Warning, "No snapshot: {why}");
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// Writes all of a snapshot to `output`, on as many threads as allowed.
pub fn write_all<E: engine::snapshot::Encode>(
    engine: &'static Engine,
    snapshot: &Snapshot,
    beside: Beside,
    output: &mut dyn Output,
    encoder: &(dyn Fn() -> E + Sync),
) -> io::Result<()> {
    let output = Mutex::new(output);
    let write = || {
        let _room = Workspace::new(snapshot.progress(), ENCODER_BYTES);
        let mut encoder = encoder();
        snapshot.write(&mut encoder, &output)
    };
    let helpers = if beside == Beside::Nobody { 0 } else { threads(engine).saturating_sub(1) };
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (0..helpers)
            .filter_map(|number| {
                let name = format!("snapshot-{}", number + 1);
                // With fewer threads it only takes longer.
                std::thread::Builder::new().name(name).spawn_scoped(scope, write).ok()
            })
            .collect();
        let mut result = write();
        for helper in helpers {
            let its = helper.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            // The first cause is more helpful than errors of threads that were stopped because of
            // it.
            let is_cause = |e: &io::Error| e.kind() != io::ErrorKind::Interrupted;
            match (&result, &its) {
                (Ok(()), Err(_)) => result = its,
                (Err(known), Err(cause)) if !is_cause(known) && is_cause(cause) => result = its,
                _ => {}
            }
        }
        result
    })
}

/// Lowers the priority of the calling thread, which writes a snapshot, below that of threads that
/// serve clients.
pub fn lower_priority() {
    priority::step_back("a snapshot's thread");
}

/// The snapshot's final path, and its path while it is written.
struct Paths {
    temporary: PathBuf,
    target: PathBuf,
}

impl Paths {
    /// Returns the configured paths. They stay fixed for one snapshot, because `dir` and
    /// `dbfilename` may change before it is written.
    fn configured(engine: &Engine) -> Paths {
        let temporary = PathBuf::from(temporaries::snapshot());
        signals::delete_when_killed(&temporary);
        // The folder's path may be invalid if it or a parent was moved or is not accessible.
        let folder = std::env::current_dir().ok().filter(|folder| folder.is_dir());
        let folder = folder.unwrap_or_default();
        Paths {
            temporary: folder.join(temporary),
            target: folder.join(engine.config.dbfilename().as_path()),
        }
    }
}

/// A snapshot that is passed to the thread that writes it.
type Save = (Snapshot, Paths);

/// The channel to that thread.
static SAVES: Mutex<Option<Sender<Save>>> = Mutex::new(None);

/// Starts the thread that writes snapshots into the configured file. It is started before the first
/// snapshot. BGSAVE runs in a stopped world, and starting a thread takes the kernel's lock of the
/// address space, which others (readers of `smaps`, say) may hold for many milliseconds.
pub fn start(engine: &'static Engine) -> io::Result<()> {
    saves(engine).map(drop)
}

fn saves(engine: &'static Engine) -> io::Result<Sender<Save>> {
    let mut saves = lock(&SAVES);
    if let Some(saves) = &*saves {
        return Ok(saves.clone());
    }
    let (sender, receiver) = channel();
    thread::spawn("snapshot", move || {
        for (snapshot, paths) in receiver {
            log!(Notice, "Background saving started");
            run(engine, snapshot, paths);
        }
    })?;
    Ok(saves.insert(sender).clone())
}

/// Begins to write a snapshot into the configured file.
pub fn in_background(engine: &'static Engine, snapshot: Snapshot) {
    engine.persistence.begins(snapshot.progress());
    engine.persistence.count_fork();
    let sent = saves(engine).and_then(|saves| {
        saves
            .send((snapshot, Paths::configured(engine)))
            .map_err(|_| io::Error::other("the thread has ended"))
    });
    if let Err(error) = sent {
        log!(Warning, "Can't start a thread to save: {error}");
        engine.persistence.ended(Outcome::Failed, 0);
    }
}

fn run(engine: &'static Engine, snapshot: Snapshot, paths: Paths) {
    let Paths { temporary, target } = paths;
    let written =
        write_file(engine, &snapshot, Beside::Clients, temporary, &target, content(engine));
    let peak = snapshot.progress().peak_bytes();
    let (outcome, last) = match written {
        Ok(bytes) => {
            engine.persistence.saved(snapshot.cut());
            log!(
                Notice,
                "DB saved on disk: {bytes} bytes in {:.3} seconds; at most {peak} bytes waited",
                snapshot.elapsed().as_secs_f64()
            );
            (Outcome::Saved, "Background saving terminated with success")
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            (Outcome::Cancelled, "Background saving was cancelled")
        }
        Err(error) => {
            log!(Warning, "Write error saving DB on disk: {}", os_error(&error));
            (Outcome::Failed, "Background saving error")
        }
    };
    // The next snapshot may begin before this one's end is announced.
    drop(snapshot);
    engine.persistence.ended(outcome, peak);
    // Log this last, because a client that reads it may request the next save at once.
    match outcome {
        Outcome::Failed => log!(Warning, "{last}"),
        Outcome::Saved | Outcome::Cancelled => log!(Notice, "{last}"),
    }
}

/// Begins a snapshot, now or as soon as possible.
pub fn begin(engine: &'static Engine, other: OnConflict) -> Snapshot {
    loop {
        // Also cancel one that has begun meanwhile: a rewrite is announced before it has a
        // snapshot.
        if other == OnConflict::Cancel
            && let Some(running) = engine.snapshots.current()
        {
            // A cancelled rewrite of the append-only file has to be repeated later.
            let figures = &engine.append_log.figures;
            if figures.is_rewriting.load(Acquire) {
                figures.is_scheduled.store(true, Release);
            }
            running.end();
        }
        match Snapshots::begin(engine, |_| {}) {
            Ok(snapshot) => return snapshot,
            Err(AlreadyRunning) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Saves on its own thread, as soon as a snapshot is possible.
pub fn apart(engine: &'static Engine, other: OnConflict, done: SaveDone) {
    let shared = Arc::new(Mutex::new(Some(done)));
    let own = Arc::clone(&shared);
    let tell = move |done: &Mutex<Option<SaveDone>>, outcome| {
        if let Some(done) = lock(done).take() {
            done(outcome);
        }
    };
    let started = thread::spawn("snapshot", move || {
        let saved = now(engine, begin(engine, other), Beside::Clients);
        tell(&own, if saved.is_ok() { Outcome::Saved } else { Outcome::Failed });
    });
    if let Err(error) = started {
        log!(Warning, "Can't start a thread to save: {error}");
        tell(&shared, Outcome::Failed);
    }
}

/// Writes the snapshot while the caller waits.
pub fn now(engine: &'static Engine, snapshot: Snapshot, beside: Beside) -> Result<(), String> {
    let Paths { temporary, target } = Paths::configured(engine);
    match write_file(engine, &snapshot, beside, temporary, &target, content(engine)) {
        Ok(_) => {
            engine.persistence.saved(snapshot.cut());
            log!(Notice, "DB saved on disk");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            log!(Notice, "Saving was interrupted");
            Err(os_error(&error))
        }
        Err(error) => {
            log!(Warning, "Write error saving DB on disk: {}", os_error(&error));
            Err(os_error(&error))
        }
    }
}
