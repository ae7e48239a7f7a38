//! Loads the snapshot with which a server starts.

use super::{Cause, LoadOptions, Source, load_rdb};
use crate::log;
use crate::persistence::check::verify_rdb;
use engine::journal::JournalPos;
use engine::journal::{Entry, History};
use engine::load::Counts;
use engine::{DbIndex, Engine, clock};
use process::{os_error, signals};
use replication::StreamPlace;
use std::fs::File;
use std::io::{ErrorKind, Seek};
use std::path::PathBuf;
use std::time::Instant;

/// Number of fields in one command of the stream.
const FIELDS_TOGETHER: usize = 1000;

/// The snapshot, as it was found before clients were admitted.
pub struct Snapshot {
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// The result of loading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadedAtStart {
    /// The server can start.
    Ready,
    /// The server was told to stop meanwhile. Nothing must be saved.
    Cancelled,
}

/// Opens the snapshot, if there is one, and refuses clients' commands until it is loaded.
pub fn begin_at_start(engine: &Engine) -> Result<Option<Snapshot>, String> {
    let path = engine.config.dbfilename().as_path().to_path_buf();
    let name = path.display();
    let opened = File::open(&path).and_then(|file| file.metadata().map(|facts| (file, facts)));
    let (file, facts) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let why = os_error(&error);
            return Err(format!("Fatal error: can't open the RDB file {name} for reading: {why}"));
        }
    };
    if !facts.is_file() {
        return Err(format!("Fatal error: {name} is not a file"));
    }
    engine.loading.begin(facts.len(), clock::now());
    signals::set_loading(true);
    Ok(Some(Snapshot { path, file, bytes: facts.len() }))
}

/// Loads the snapshot. The caller admits commands afterwards.
pub fn at_start(
    engine: &'static Engine,
    snapshot: Option<Snapshot>,
) -> Result<LoadedAtStart, String> {
    let Some(mut snapshot) = snapshot else { return Ok(LoadedAtStart::Ready) };
    let started = Instant::now();
    let source = Source {
        input: &mut snapshot.file,
        name: snapshot.path.display().to_string(),
        offset: 0,
        end: snapshot.bytes,
        begun: &mut || {},
    };
    let mut options = LoadOptions::configured(engine);
    // A replica keeps expired keys, as its primary does. A primary deletes them, and propagates
    // that to replicas that may continue from here.
    options.settings.keeps_expired = engine.upstream.is_replica();
    options.settings.names_expired = !engine.upstream.is_replica();
    let loaded = load_rdb(engine, source, &options);
    signals::set_loading(false);
    match loaded {
        Ok(report) => {
            engine.epochs.replace(report.epoch, JournalPos::default());
            continue_history(engine, report.place(), DbIndex(report.stream_db.unwrap_or(0)));
            propagate_expired(engine, &report.counts);
            log!(Notice, "DB loaded from disk: {:.3} seconds", started.elapsed().as_secs_f64());
            Ok(LoadedAtStart::Ready)
        }
        // Commands stay refused: half a data set is not served.
        Err(failure) if matches!(failure.cause(), Cause::Cancelled) => Ok(LoadedAtStart::Cancelled),
        Err(failure) => {
            Err(format!("{failure}\nTerminating server after rdb file reading failure."))
        }
    }
}

/// Continues the history of the file. Replicas of the server that wrote it may continue from the
/// snapshot's position. What that server did later is unknown here, so a new history branches off
/// at that position. If this server is itself a replica, it does not branch off but asks its
/// primary for later data, in this database.
pub fn continue_history(engine: &Engine, place: Option<StreamPlace>, db: DbIndex) {
    if let Some(StreamPlace { id, position }) = place {
        let mut history = History { id, second: None };
        if !engine.upstream.is_replica() {
            history = history.branch(position);
        }
        engine.journal.begin_history(history, position);
        engine.journal.keep();
        engine.upstream.link().stream_db = db;
        engine.epochs.replace(engine.epochs.last().epoch, position);
    } else {
        engine.epochs.replace(0, JournalPos::default());
    }
}

/// Propagates the deletion of keys and fields that expired while the server was down. Replicas that
/// continue from the snapshot's position still have them.
fn propagate_expired(engine: &Engine, counts: &Counts) {
    if !engine.journal.is_recording() {
        return;
    }
    let mut entry = Entry::default();
    for (db, key) in &counts.expired_keys {
        entry.command(*db, &[b"DEL", key]);
        engine.journal.append(&mut entry, false);
    }
    for expired in &counts.expired_fields {
        for fields in expired.fields.chunks(FIELDS_TOGETHER) {
            let mut words: Vec<&[u8]> = vec![b"HDEL", &expired.key];
            words.extend(fields.iter().map(|field| &**field));
            entry.command(expired.db, &words);
            engine.journal.append(&mut entry, false);
        }
    }
}

/// Loads the configured file while the world is stopped (DEBUG RELOAD). `make_room` removes the
/// present data. It is called after the whole file was checked, before any key is inserted.
///
/// # Errors
/// Why nothing was loaded. Without `make_room`, a part may have been loaded. If the data was
/// removed and loading fails after that, the process ends, because a part must not be served as the
/// whole.
pub fn now(
    engine: &'static Engine,
    replaces: bool,
    mut make_room: Option<&mut dyn FnMut()>,
) -> Result<(), String> {
    let path = engine.config.dbfilename().as_path().to_path_buf();
    let name = path.display().to_string();
    let opened = File::open(&path).and_then(|file| file.metadata().map(|facts| (file, facts)));
    let (mut input, facts) = opened.map_err(|error| format!("{name}: {}", os_error(&error)))?;
    let mut options = LoadOptions::configured(engine);
    if make_room.is_some() {
        verify_rdb(&mut input, facts.len(), &options).map_err(|why| format!("{name}: {why}"))?;
        input.rewind().map_err(|error| format!("{name}: {}", os_error(&error)))?;
    }
    let mut is_empty = false;
    let mut begun = || {
        if let Some(make_room) = &mut make_room {
            make_room();
            is_empty = true;
        }
    };
    let source = Source { input: &mut input, name, offset: 0, end: facts.len(), begun: &mut begun };
    options.settings.world_is_stopped = true;
    options.settings.replaces = replaces;
    // Expired keys are kept until they are found, because the append-only file must contain their
    // deletion.
    options.settings.keeps_expired = engine.journal.is_recording();
    let loaded = load_rdb(engine, source, &options);
    if let Err(failure) = &loaded
        && is_empty
    {
        log!(Warning, "DEBUG RELOAD: {failure}");
        log!(Warning, "Fatal error loading the DB, check server logs. Exiting.");
        std::process::exit(1);
    }
    loaded.map(drop).map_err(|failure| failure.to_string())
}
