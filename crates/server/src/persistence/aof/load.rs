//! Loading the append-only log: base, then increments, in order.
//!
//! Commands are found in large pieces of the file, whose commands are repeated together. A transaction is repeated when its EXEC has been seen; one
//! that never ends did not happen.

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
use replication::{Commands, FileEnd, Item, Manifest, Place, StreamReader, wire};
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

/// What was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes of the base.
    pub base_bytes: u64,
    /// The last file is not to be gone on with: there is room in the middle of it.
    pub has_gap: bool,
    /// Where in the replication stream the log ends, if it says so.
    pub place: Option<Place>,
    /// The database that is selected there.
    pub db: DbIndex,
}

/// Loads all files of a manifest.
///
/// # Errors
/// Why not, naming the file and the place; the data set is to be thrown away.
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
        // What a crash cut off was the end, if nothing came to be written behind it. A base is
        // complete before it has its name; only an old-style file, alone, may have been cut off.
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

/// One file being loaded.
struct Loading<'l> {
    engine: &'static Engine,
    thread: &'l ThreadContext,
    folder: &'l Folder,
    file: &'l LogFile,
    end: FileEnd,
    is_last: bool,
    /// Where in the replication stream the commands stand that were repeated last.
    place: &'l Cell<Option<Place>>,
    /// The database that is selected behind them.
    db: &'l Cell<DbIndex>,
}

impl Loading<'_> {
    /// Loads it; whether there is room in the middle of it.
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

    /// Loads the RDB file that this one is or begins with; where that ends.
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
        let mut options = load::Options::configured(engine);
        // What has expired is deleted by what follows, if it is so.
        options.settings.keeps_expired = true;
        let report = load_rdb(engine, source, &options).map_err(|why| {
            let what = if is_old_style { "RDB preamble of the AOF file" } else { "RDB base file" };
            format!("{why}\nError reading the {what} {name}, AOF loading aborted")
        })?;
        if is_old_style {
            log!(Notice, "Reading the remaining AOF tail...");
        }
        self.place.set(report.place());
        self.engine.epochs().replace(report.epoch, JournalPos::default());
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
            // A length that is garbage must not make room for more than there is.
            let most = usize::try_from(unread).unwrap_or(usize::MAX);
            let room = filled + wanted.min(most).max(PIECE / 2);
            // It is copied if a thread has not let go of it yet.
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
            let loading = self.engine.loading();
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
        // What is left is no whole command, or inside a transaction that does not end.
        if let Some(why) = tail::damage(self.engine.table(), &reader, &shared[..filled]) {
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

    /// Repeats what is whole in a piece of the file.
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
        // Where the stream stands at `done`: a transaction that the piece cuts is read again.
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
                        self.engine.epochs().replace(epoch, JournalPos::default());
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

    /// Repeats the settled commands of a batch.
    fn run_batch(
        &self,
        replay: &mut Replay<'_>,
        mut batch: Batch,
        bytes: &Arc<Vec<u8>>,
    ) -> Result<(), String> {
        // What is inside a transaction that goes on is read again.
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
            // What follows went into another database than it is meant for.
            if name_of(command).eq_ignore_ascii_case(b"select") {
                return Err(failure);
            }
            log!(Warning, "{failure}");
            assert!(
                self.engine.config().propagation_error_behavior()
                    != PropagationErrorBehavior::Panic,
                "This server panicked sending an error to its AOF-loading-client after processing the command \
                 '{}'",
                name_of(command).escape_ascii()
            );
        }
        Ok(())
    }

    /// The file does not end with a whole command: cuts it there, if that is allowed.
    fn cut_off(&self, path: &Path, valid: u64, size: u64) -> Result<(), String> {
        let name = self.file.display();
        if !self.is_last {
            return Err(format!(
                "Fatal error: the truncated file is not the last file: {name} ends in the middle \
                 of a command or transaction that begins at offset {valid}"
            ));
        }
        if self.engine.config().aof_load_truncated() {
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

/// How far a piece was used.
struct Taken {
    bytes: usize,
    /// A lower bound of what must follow it.
    missing: usize,
    /// What follows are the remains of a batch that was written in place.
    is_torn: bool,
}

/// Commands that wait to be repeated together.
#[derive(Default)]
struct Batch {
    commands: Commands,
    /// Where each begins in the file.
    offsets: Vec<u64>,
    /// So many of them are not inside a transaction that goes on.
    settled: usize,
}

impl Batch {
    /// Adds a command that begins at this offset of the file, and at `at` in the piece.
    fn add(&mut self, offset: u64, piece: &[u8], at: usize, words: &[Range<usize>]) {
        let name = &piece[at..][words[0].clone()];
        // No other client is there that could see half of a transaction.
        if !name.eq_ignore_ascii_case(b"multi") && !name.eq_ignore_ascii_case(b"exec") {
            self.commands.push(at, words);
            self.offsets.push(offset);
        }
    }

    fn settle(&mut self) {
        self.settled = self.offsets.len();
    }
}

/// The epoch that begins with this command, if it is such an entry.
fn epoch_of(piece: &[u8], words: &[Range<usize>]) -> Option<u64> {
    let [name, message] = words else { return None };
    let is_ping = piece[name.clone()].eq_ignore_ascii_case(b"ping");
    is_ping.then(|| wire::epoch_of(&piece[message.clone()])).flatten()
}

/// An error for the log, where what it quotes of the file cannot begin a line.
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
