//! Loading RDB files: one thread reads, checksums and cuts, others decode and insert.
//!
//! ```text
//!  file ─ read ─ checksum ─ cut ─┬─ batch of records ───────────── decode ─ insert
//!                                ├─ batch of records ───────────── decode ─ insert
//!                                └─ large collection ─ its pieces ─ decode ─ insert
//! ```
//!
//! The caller reads. There are as many workers as reactors. Memory is bounded: batches wait in a
//! short queue, and a collection of any size passes in pieces. An unsound file ends the load with
//! an error that names the offset. Entries inserted before that stay, so the caller has to stop or
//! to empty the keyspace.

mod error;
pub(super) mod feed;
mod queue;
mod report;
mod scan;
mod start;
mod worker;

pub use error::{Cause, Failure};
pub use start::{LoadedAtStart, Snapshot, at_start, begin_at_start, continue_history, now};

use config::RdbVersionCheck;
use engine::Engine;
use engine::journal::{HistoryId, JournalPos};
use engine::load::{Counts, Settings};
use queue::Queue;
use replication::StreamPlace;
use scan::{Ended, Scan};
use std::io::Read;
use std::sync::Arc;

/// The source of a file.
pub struct Source<'r> {
    /// The bytes, from `offset` on.
    pub input: &'r mut dyn Read,
    /// The file's name in messages.
    pub name: String,
    /// Offset in the container at which the file begins.
    pub offset: u64,
    /// The container's end. Lengths beyond it are refused at once. `u64::MAX` if it is unknown.
    pub end: u64,
    /// Called once the file is known to be readable, before any key is inserted.
    pub begun: &'r mut dyn FnMut(),
}

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// How keys are put into the keyspace.
    pub settings: Settings,
    /// Whether the checksum is verified.
    pub verifies_checksum: bool,
    /// Whether newer, unknown versions are tried.
    pub accepts_newer: bool,
    /// Whether items of unknown types are skipped and counted.
    pub skips_unknown: bool,
}

impl LoadOptions {
    /// Returns the configured options, for a load at start while the world runs.
    pub fn configured(engine: &Engine) -> LoadOptions {
        let config = &engine.config;
        LoadOptions {
            settings: Settings {
                limits: engine::limits::all(&engine.config, &engine.debug),
                keeps_expired: false,
                names_expired: false,
                replaces: false,
                is_beside: false,
                world_is_stopped: false,
                now: engine::clock::now(),
            },
            verifies_checksum: config.rdbchecksum() && !engine.debug.skips_checksums(),
            accepts_newer: config.rdb_version_check() == RdbVersionCheck::Relaxed,
            skips_unknown: config.rdb_skip_unknown_types(),
        }
    }
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The RDB version.
    pub version: u16,
    /// Numbers of keys.
    pub counts: Counts,
    /// Number of items that were skipped because their types are unknown.
    pub skipped: u64,
    /// Offset of the first byte after the file, in its container.
    pub end: u64,
    /// `repl-id`: the history to which the snapshot belongs.
    pub replication_id: Option<String>,
    /// `repl-offset`: the position in that history.
    pub replication_offset: Option<i64>,
    /// `repl-stream-db`: the database in which the stream continues.
    pub stream_db: Option<u32>,
    /// `dunlin-epoch`: the epoch of the last entry before that position. 0 outside of a cluster.
    pub epoch: u64,
    /// `aof-base`: whether this is the base of an append-only file.
    pub is_aof_base: bool,
    /// `aof-preamble`: whether an append-only file follows.
    pub has_aof_tail: bool,
}

impl Report {
    /// Returns the snapshot's place in the replication stream, if the file contains it.
    pub fn place(&self) -> Option<StreamPlace> {
        let id = HistoryId::parse(self.replication_id.as_ref()?.as_bytes())?;
        let position = JournalPos(u64::try_from(self.replication_offset?).ok()?);
        self.stream_db.map(|_| StreamPlace { id, position })
    }
}

/// Loads a file. Logs what it does, as Redis does. The caller logs a failure.
pub fn load_rdb(
    engine: &'static Engine,
    source: Source<'_>,
    options: &LoadOptions,
) -> Result<Report, Failure> {
    let name = source.name.clone();
    let queue = Arc::new(Queue::new(engine.threads * 2));
    let workers = worker::start(engine, options, &queue)
        .map_err(|error| Failure::new(&name, source.offset, Cause::Read(error)))?;
    let scanned = Scan::new(engine, source, options, &queue).run();
    // A wrong checksum is known only at the end. A worker may still find the damaged key.
    let is_checksum = |failure: &Failure| matches!(failure.cause(), Cause::Checksum { .. });
    match &scanned {
        Err(Ended::Failed(failure)) if !is_checksum(failure) => queue.give_up(),
        _ => queue.close(),
    }
    let mut counts = Counts::default();
    for worker in workers {
        counts.add(worker.join().unwrap_or_default());
    }
    let of_worker = queue.take_failure().map(|failure| failure.in_file(&name));
    let mut report = match (scanned, of_worker) {
        (Ok(report), None) => report,
        (Err(Ended::Failed(failure)), None) => return Err(failure),
        (Err(Ended::Failed(failure)), Some(_)) if !is_checksum(&failure) => return Err(failure),
        (_, Some(failure)) => return Err(failure),
        (Err(Ended::GivenUp), None) => return Err(Failure::new(&name, 0, Cause::Cancelled)),
    };
    report.counts = counts;
    engine.loading.keys_loaded.set(report.counts.loaded);
    engine.loading.keys_expired.set(report.counts.expired);
    engine.loading.skipped.set(report.skipped);
    report.log(engine);
    Ok(report)
}
