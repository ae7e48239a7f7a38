//! Loads the append-only log: the base, then the increments in order.
//!
//! Commands are parsed in large pieces of the file, and the commands of a piece are replayed
//! together. A transaction is replayed when its EXEC has been parsed. A transaction without an EXEC
//! did not happen.

use super::files::Folder;
use super::tail;
use crate::log;
use crate::persistence::load::{self, Source, load_rdb};
use config::PropagationErrorBehavior;
use engine::Engine;
use engine::appliers::SharedCommands;
use engine::journal::JournalPos;
use engine::replay::{Replay, Unknown};
use engine::thread::ThreadContext;
use engine::{DbIndex, Error};
use process::os_error;
use replication::manifest::LogFile;
use replication::{Commands, FileEnd, Item, Manifest, StreamPlace, StreamReader, wire};
use std::cell::Cell;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// The result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes of the base.
    pub base_bytes: u64,
    /// Whether the last file must not be continued, because it has preallocated space in the
    /// middle.
    pub has_gap: bool,
    /// The log's end as a place in the replication stream, if the log contains it.
    pub place: Option<StreamPlace>,
    /// The database that is selected at the end.
    pub db: DbIndex,
}

/// Loads all files of a manifest.
///
/// # Errors
/// Why it failed, with the file and the place. The data set has to be discarded.
pub fn all(
    engine: &'static Engine,
    thread: &ThreadContext,
    folder: &Folder,
    manifest: &Manifest,
) -> Result<Loaded, String> {
    let mut files = Vec::new();
    for file in manifest.files() {
        files.push((file, folder.data_end(file)?));
    }
    let is_base = |file: &LogFile| manifest.base.as_ref().is_some_and(|base| base == file);
    let base = files.iter().find(|(file, _)| is_base(file));
    let mut loaded = Loaded {
        total_bytes: files.iter().map(|(_, end)| end.at).sum(),
        base_bytes: base.map_or(0, |(_, end)| end.at),
        has_gap: false,
        place: None,
        db: DbIndex(0),
    };
    for (number, &(file, end)) in files.iter().enumerate() {
        // An incomplete end is a crash's, if no data was written after it. A base gets its name
        // only when it is complete. Only a lone old-style file may be incomplete.
        let is_base = is_base(file);
        let mut later = files[number + 1..].iter();
        let is_last = if is_base { later.len() == 0 } else { later.all(|(_, end)| end.at == 0) };
        let started = Instant::now();
        let (place, db) = (Cell::new(loaded.place), Cell::new(loaded.db));
        let loading =
            Loading { engine, thread, folder, file, end, is_last, place: &place, db: &db };
        loaded.has_gap = loading.run()?;
        (loaded.place, loaded.db) = (place.get(), db.get());
        let kind = if is_base { "base" } else { "incr" };
        let seconds = started.elapsed().as_secs_f64();
        log!(Notice, "DB loaded from {kind} file {}: {seconds:.3} seconds", file.display());
    }
    Ok(loaded)
}

/// The loading of one file.
struct Loading<'l> {
    engine: &'static Engine,
    thread: &'l ThreadContext,
    folder: &'l Folder,
    file: &'l LogFile,
    end: FileEnd,
    is_last: bool,
    /// The place in the replication stream after the last replayed command.
    place: &'l Cell<Option<StreamPlace>>,
    /// The database that is selected there.
    db: &'l Cell<DbIndex>,
}

impl Loading<'_> {
    /// Loads the file. Returns whether it has preallocated space in the middle.
    fn run(&self) -> Result<bool, String> {
        let path = self.folder.path(&self.file.name);
        let name = self.file.display();
        let mut input = File::open(&path).map_err(|error| {
            let why = os_error(&error);
            format!("Fatal error: can't open the append log file {name} for reading: {why}")
        })?;
        let end = self.end;
        let mut magic = [0; 5];
        let mut offset = 0;
        if end.at >= 5 && input.read_exact(&mut magic).is_ok() && rdb::file::is_rdb(magic) {
            offset = self.load_rdb(&mut input, end.at)?;
        }
        input.seek(SeekFrom::Start(offset)).map_err(|error| self.unreadable(&error))?;
        self.load_commands(&mut input.take(end.at - offset), &path, offset, end)
    }

    /// Loads the RDB file that this file is or begins with. Returns the offset of its end.
    fn load_rdb(&self, input: &mut File, size: u64) -> Result<u64, String> {
        let name = self.file.display();
        let is_old_style = self.file.name == self.folder.stem();
        if is_old_style {
            log!(Notice, "Reading RDB preamble from AOF file...");
        } else {
            log!(Notice, "Reading RDB base file on AOF loading...");
        }
        input.seek(SeekFrom::Start(0)).map_err(|error| self.unreadable(&error))?;
        let source = Source { input, name: name.clone(), offset: 0, end: size, begun: &mut || {} };
        let engine = self.engine;
        let mut options = load::LoadOptions::configured(engine);
        // Later commands delete the expired keys.
        options.settings.keeps_expired = true;
        let report = load_rdb(engine, source, &options).map_err(|why| {
            let what = if is_old_style { "RDB preamble of the AOF file" } else { "RDB base file" };
            format!("{why}\nError reading the {what} {name}, AOF loading aborted")
        })?;
        if is_old_style {
            log!(Notice, "Reading the remaining AOF tail...");
        }
        self.place.set(report.place());
        self.engine.epochs.replace(report.epoch, JournalPos::default());
        self.db.set(DbIndex(report.stream_db.unwrap_or(0)));
        Ok(report.end)
    }

    fn unreadable(&self, error: &io::Error) -> String {
        let (name, why) = (self.file.display(), os_error(error));
        format!("Unrecoverable error reading the append only file {name}: {why}")
    }

    fn load_commands(
        &self,
        input: &mut impl Read,
        path: &Path,
        offset: u64,
        end: FileEnd,
    ) -> Result<bool, String> {
        let mut replay = Replay::new(self.engine, self.thread);
        let mut reader = StreamReader::of_file(offset, end);
        let (mut shared, mut filled, mut wanted) = (Arc::new(vec![0; PIECE]), 0, 0);
        let mut unread = end.at - offset;
        loop {
            // A corrupt length must not enlarge the buffer beyond the size of the file.
            let most = usize::try_from(unread).unwrap_or(usize::MAX);
            let room = filled + wanted.min(most).max(PIECE / 2);
            // This copies the bytes if a thread still uses them.
            let buf = Arc::make_mut(&mut shared);
            if buf.len() < room {
                buf.resize(room.max((2 * buf.len()).min(filled.saturating_add(most))), 0);
            }
            let read = read_some(input, &mut buf[filled..]).map_err(|e| self.unreadable(&e))?;
            filled += read;
            unread = unread.saturating_sub(read as u64);
            let taken = self.repeat(&mut replay, &mut reader, &shared, filled)?;
            Arc::make_mut(&mut shared).copy_within(taken.bytes..filled, 0);
            filled -= taken.bytes;
            wanted = taken.missing;
            let loading = &self.engine.loading;
            loading.advance(taken.bytes as u64);
            if loading.is_cancelled() {
                return Err(format!("Loading {} was cancelled", self.file.display()));
            }
            if taken.is_torn {
                self.cut_off(path, reader.valid(), end.at)?;
                return Ok(reader.has_gap());
            }
            if read == 0 {
                break;
            }
        }
        if filled == 0 {
            return Ok(reader.has_gap());
        }
        // The rest is an incomplete command, or belongs to a transaction without an end.
        if let Some(why) = tail::damage(self.engine.table, &reader, &shared[..filled]) {
            return Err(self.malformed(&why));
        }
        let mut words = Vec::new();
        if let Ok(Item::Command { .. }) = reader.clone().next(&shared[..filled], &mut words) {
            let name = self.file.display();
            log!(Warning, "Revert incomplete MULTI/EXEC transaction in AOF file {name}");
        }
        self.cut_off(path, reader.valid(), end.at)?;
        Ok(reader.has_gap())
    }

    fn malformed(&self, why: &dyn Display) -> String {
        format!(
            "Bad file format reading the append only file {}: {why}. Make a backup of your AOF \
             file, then use dunlin check aof --fix <filename.manifest>",
            self.file.display()
        )
    }

    /// Replays the whole commands of a piece of the file.
    fn repeat(
        &self,
        replay: &mut Replay<'_>,
        reader: &mut StreamReader,
        bytes: &Arc<Vec<u8>>,
        filled: usize,
    ) -> Result<Taken, String> {
        let piece = &bytes[..filled];
        let mut batch = Batch::default();
        let mut ranges = Vec::new();
        let (mut at, mut done) = (0, 0);
        // The reader's state at `done`. A transaction that the piece cuts is read again.
        let mut settled = reader.clone();
        let mut place = self.place.get();
        let (missing, is_torn) = loop {
            let begin = reader.offset();
            let item = reader
                .next(&piece[at..], &mut ranges)
                .map_err(|corrupt| self.malformed(&corrupt))?;
            match item {
                Item::Command { consumed } => {
                    batch.add(begin, piece, at, &ranges);
                    if let Some(epoch) = epoch_of(&piece[at..], &ranges) {
                        self.engine.epochs.replace(epoch, JournalPos::default());
                    }
                    at += consumed;
                    place = place.map(|place| place.behind(consumed));
                }
                Item::Place { place: named, consumed } => {
                    place = named;
                    at += consumed;
                }
                Item::Timestamp { consumed, .. } | Item::Comment { consumed } => at += consumed,
                Item::Incomplete { missing } => break (missing, false),
                Item::Torn => break (0, true),
            }
            if reader.open_transaction().is_none() {
                batch.settle();
                settled = reader.clone();
                self.place.set(place);
                done = at;
            }
        };
        self.run_batch(replay, batch, bytes)?;
        *reader = settled;
        Ok(Taken { bytes: done, missing: missing + (at - done), is_torn })
    }

    /// Replays the settled commands of a batch.
    fn run_batch(
        &self,
        replay: &mut Replay<'_>,
        mut batch: Batch,
        bytes: &Arc<Vec<u8>>,
    ) -> Result<(), String> {
        // Commands of an unfinished transaction are read again.
        let _ = batch.commands.split_off(batch.settled, 0);
        let source = Arc::new(SharedCommands {
            bytes: Arc::clone(bytes),
            begin: 0,
            commands: batch.commands,
        });
        let name = self.file.display();
        let name_of = |command| {
            let mut words = Vec::new();
            source.commands.words(bytes, command, &mut words);
            words[0]
        };
        let outcome = replay.run(&source);
        self.db.set(replay.db());
        let failures = outcome.map_err(|Unknown { command, error }| {
            let what = match error {
                Error::Arity(_) => "Error".to_owned(),
                _ => format!("Unknown command '{}'", name_of(command).escape_ascii()),
            };
            let (offset, why) = (batch.offsets[command], one_line(&error));
            format!("{what} reading the append only file {name} at offset {offset}: {why}")
        })?;
        for (command, error) in failures {
            let failure = format!(
                "The command '{}' at offset {} of the append only file {name} failed: {}",
                name_of(command).escape_ascii(),
                batch.offsets[command],
                one_line(&error)
            );
            // Later commands would go to the wrong database.
            if name_of(command).eq_ignore_ascii_case(b"select") {
                return Err(failure);
            }
            log!(Warning, "{failure}");
            assert!(
                self.engine.config.propagation_error_behavior() != PropagationErrorBehavior::Panic,
                "This server panicked sending an error to its AOF-loading-client after processing the command \
                 '{}'",
                name_of(command).escape_ascii()
            );
        }
        Ok(())
    }

    /// Cuts the file after its last whole command, if that is allowed.
    fn cut_off(&self, path: &Path, valid: u64, size: u64) -> Result<(), String> {
        let name = self.file.display();
        if !self.is_last {
            return Err(format!(
                "Fatal error: the truncated file is not the last file: {name} ends in the middle \
                 of a command or transaction that begins at offset {valid}"
            ));
        }
        if self.engine.config.aof_load_truncated() {
            log!(Warning, "!!! Warning: short read while loading the AOF file {name}!!!");
            log!(Warning, "!!! Truncating the AOF {name} at offset {valid} !!!");
            log!(Warning, "What is behind that offset is lost: {} bytes", size - valid);
            let cut = OpenOptions::new().write(true).open(path).and_then(|file| {
                file.set_len(valid)?;
                file.sync_all()
            });
            match cut {
                Ok(()) => {
                    log!(Warning, "AOF {name} loaded anyway because aof-load-truncated is enabled");
                    return Ok(());
                }
                Err(error) => {
                    log!(Warning, "Error truncating the AOF file {name}: {}", os_error(&error));
                }
            }
        }
        Err(format!(
            "Unexpected end of file reading the append only file {name} at offset {valid}. You can: \
             1) Make a backup of your AOF file, then use dunlin check aof --fix \
             <filename.manifest>. 2) Alternatively you can set the 'aof-load-truncated' \
             configuration option to yes and restart the server."
        ))
    }
}

/// How much of a piece was used.
struct Taken {
    bytes: usize,
    /// A lower bound of the bytes that must follow.
    missing: usize,
    /// Whether the remains of a batch that was written in place follow.
    is_torn: bool,
}

/// Commands that are replayed together.
#[derive(Default)]
struct Batch {
    commands: Commands,
    /// The offset in the file at which each command begins.
    offsets: Vec<u64>,
    /// Number of commands that are not part of an unfinished transaction.
    settled: usize,
}

impl Batch {
    /// Adds a command that begins at `offset` in the file, and at `at` in the piece.
    fn add(&mut self, offset: u64, piece: &[u8], at: usize, words: &[Range<usize>]) {
        let name = &piece[at..][words[0].clone()];
        // MULTI and EXEC are left out, because no client can see half of the transaction.
        if !name.eq_ignore_ascii_case(b"multi") && !name.eq_ignore_ascii_case(b"exec") {
            self.commands.push(at, words);
            self.offsets.push(offset);
        }
    }

    fn settle(&mut self) {
        self.settled = self.offsets.len();
    }
}

/// Returns the epoch that this entry begins, if it is such an entry.
fn epoch_of(piece: &[u8], words: &[Range<usize>]) -> Option<u64> {
    let [name, message] = words else { return None };
    let is_ping = piece[name.clone()].eq_ignore_ascii_case(b"ping");
    is_ping.then(|| wire::epoch_of(&piece[message.clone()])).flatten()
}

/// Formats an error for the log. Text of the file in it cannot begin a new line.
fn one_line(error: &Error) -> String {
    String::from_utf8_lossy(&error.line()).replace(char::is_control, " ")
}

fn read_some(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
