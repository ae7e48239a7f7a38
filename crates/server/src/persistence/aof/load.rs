//! Loading the append-only log: base, then increments, in order.
//!
//! Commands are found in large pieces of the file and repeated in batches, so that the keys of a
//! batch come into the cache together. A transaction is repeated when its EXEC has been seen; one
//! that never ends did not happen.

use super::files::Folder;
use crate::log;
use crate::persistence::load::{self, Source, load_rdb};
use crate::process::os_error;
use engine::replay::{Replay, ReplayError};
use engine::worker::ThreadContext;
use replication::manifest::LogFile;
use replication::{Item, Manifest, StreamReader};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Instant;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// Commands repeated together.
const BATCH: usize = 64;

/// What was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes of the base.
    pub base_bytes: u64,
}

/// How one file ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Whole,
    /// The end was cut off, because it was not a whole command.
    Truncated,
}

/// Loads all files of a manifest.
///
/// # Errors
/// Why not, naming the file and the place; the data set is to be thrown away.
pub fn all(thread: &ThreadContext, folder: &Folder, manifest: &Manifest) -> Result<Loaded, String> {
    let total_bytes = folder.total_size(manifest)?;
    let base_bytes = manifest.base.as_ref().map_or(Ok(0), |base| folder.size(base))?;
    let loaded = Loaded { total_bytes, base_bytes };
    let files: Vec<(&LogFile, bool)> = manifest
        .files()
        .map(|file| (file, manifest.base.as_ref().is_some_and(|base| base == file)))
        .collect();
    for (number, (file, is_base)) in files.iter().enumerate() {
        // What a crash cut off was the end, if nothing came to be written behind it.
        let mut later = files[number + 1..].iter();
        let is_last = later.all(|(file, _)| folder.size(file).is_ok_and(|size| size == 0));
        let started = Instant::now();
        let size = folder.size(file)?;
        if size > 0 {
            let loading = Loading { thread, folder, file, is_last };
            if loading.run(size)? == End::Truncated && !is_last {
                return Err("Fatal error: the truncated file is not the last file".to_owned());
            }
        }
        let kind = if *is_base { "base" } else { "incr" };
        let seconds = started.elapsed().as_secs_f64();
        log!(Notice, "DB loaded from {kind} file {}: {seconds:.3} seconds", file.display());
    }
    Ok(loaded)
}

/// One file being loaded.
struct Loading<'l> {
    thread: &'l ThreadContext,
    folder: &'l Folder,
    file: &'l LogFile,
    is_last: bool,
}

impl Loading<'_> {
    fn run(&self, size: u64) -> Result<End, String> {
        let path = self.folder.path(&self.file.name);
        let name = self.file.display();
        let mut input = File::open(&path).map_err(|error| {
            let why = os_error(&error);
            format!("Fatal error: can't open the append log file {name} for reading: {why}")
        })?;
        let mut magic = [0; 5];
        let mut offset = 0;
        if size >= 5 && input.read_exact(&mut magic).is_ok() && is_rdb_magic(magic) {
            offset = self.load_rdb(&mut input, size)?;
        }
        input.seek(SeekFrom::Start(offset)).map_err(|error| self.unreadable(&error))?;
        self.load_commands(&mut input, &path, offset)
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
        let source = Source { input, name: name.clone(), offset: 0, end: size };
        let engine = self.thread.engine;
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
        Ok(report.end)
    }

    fn unreadable(&self, error: &io::Error) -> String {
        let (name, why) = (self.file.display(), os_error(error));
        format!("Unrecoverable error reading the append only file {name}: {why}")
    }

    fn load_commands(&self, input: &mut File, path: &Path, offset: u64) -> Result<End, String> {
        let mut replay = Replay::new(self.thread);
        let mut reader = StreamReader::new(offset);
        let (mut buf, mut filled, mut wanted) = (vec![0; PIECE], 0, 0);
        loop {
            if buf.len() < filled + wanted.max(PIECE / 2) {
                buf.resize((filled + wanted).next_power_of_two().max(2 * buf.len()), 0);
            }
            let read = read_some(input, &mut buf[filled..]).map_err(|e| self.unreadable(&e))?;
            filled += read;
            let taken = self.repeat(&mut replay, &mut reader, &buf[..filled])?;
            buf.copy_within(taken.bytes..filled, 0);
            filled -= taken.bytes;
            wanted = taken.missing;
            let loading = &self.thread.engine.loading;
            loading.advance(taken.bytes as u64);
            if loading.is_cancelled() {
                return Err(format!("Loading {} was cancelled", self.file.display()));
            }
            if read == 0 {
                break;
            }
        }
        if filled == 0 {
            return Ok(End::Whole);
        }
        // What is left is no whole command, or inside a transaction that does not end.
        let mut words = Vec::new();
        if let Ok(Item::Command { .. }) = reader.clone().next(&buf[..filled], &mut words) {
            let name = self.file.display();
            log!(Warning, "Revert incomplete MULTI/EXEC transaction in AOF file {name}");
        }
        self.cut_off(path, reader.valid())
    }

    /// Repeats what is whole in a piece of the file.
    fn repeat(
        &self,
        replay: &mut Replay<'_>,
        reader: &mut StreamReader,
        piece: &[u8],
    ) -> Result<Taken, String> {
        let mut batch = Batch::default();
        let mut ranges = Vec::new();
        let (mut at, mut done) = (0, 0);
        // Where the stream stands at `done`: a transaction that the piece cuts is read again.
        let mut settled = reader.clone();
        let missing = loop {
            let begin = reader.offset();
            let item = reader.next(&piece[at..], &mut ranges).map_err(|corrupt| {
                format!(
                    "Bad file format reading the append only file {}: {corrupt}. Make a backup of \
                     your AOF file, then use dunlin check aof --fix <filename.manifest>",
                    self.file.display()
                )
            })?;
            match item {
                Item::Command { consumed } => {
                    let words = ranges.iter().map(|range| &piece[at..][range.clone()]);
                    batch.add(begin, words);
                    at += consumed;
                }
                Item::Timestamp { consumed, .. } | Item::Comment { consumed } => at += consumed,
                Item::Incomplete { missing } => break missing,
            }
            if reader.open_transaction().is_none() {
                batch.settle();
                settled = reader.clone();
                done = at;
                if batch.settled >= BATCH {
                    self.run_batch(replay, &mut batch)?;
                }
            }
        };
        self.run_batch(replay, &mut batch)?;
        *reader = settled;
        Ok(Taken { bytes: done, missing: missing + (at - done) })
    }

    /// Repeats the settled commands of a batch, and empties it.
    fn run_batch(&self, replay: &mut Replay<'_>, batch: &mut Batch<'_>) -> Result<(), String> {
        let mut first = 0;
        while first < batch.settled {
            let mut start = batch.start(first);
            let commands: Vec<&[&[u8]]> = batch.ends[first..batch.settled]
                .iter()
                .map(|&(end, _)| &batch.words[std::mem::replace(&mut start, end)..end])
                .collect();
            let name = self.file.display();
            match replay.run(&commands) {
                Ok(()) => break,
                Err(ReplayError::Unknown { index, error }) => {
                    let command = commands[index][0].escape_ascii();
                    return Err(format!(
                        "Unknown command '{command}' reading the append only file {name} at offset \
                         {}: {}",
                        batch.ends[first + index].1,
                        String::from_utf8_lossy(&error.line())
                    ));
                }
                Err(ReplayError::Failed { index, error }) => {
                    let command = commands[index][0].escape_ascii();
                    log!(
                        Warning,
                        "The command '{command}' at offset {} of the append only file {name} \
                         failed: {}",
                        batch.ends[first + index].1,
                        String::from_utf8_lossy(&error.line())
                    );
                    first += index + 1;
                }
            }
        }
        *batch = Batch::default();
        Ok(())
    }

    /// The file does not end with a whole command: cuts it there, if that is allowed.
    fn cut_off(&self, path: &Path, valid: u64) -> Result<End, String> {
        let name = self.file.display();
        if !self.is_last {
            return Ok(End::Truncated);
        }
        if self.thread.engine.config.aof_load_truncated() {
            log!(Warning, "!!! Warning: short read while loading the AOF file {name}!!!");
            log!(Warning, "!!! Truncating the AOF {name} at offset {valid} !!!");
            let cut = OpenOptions::new().write(true).open(path).and_then(|file| {
                file.set_len(valid)?;
                file.sync_all()
            });
            match cut {
                Ok(()) => {
                    log!(Warning, "AOF {name} loaded anyway because aof-load-truncated is enabled");
                    return Ok(End::Truncated);
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
}

/// Commands that wait to be repeated together.
#[derive(Default)]
struct Batch<'p> {
    words: Vec<&'p [u8]>,
    /// Behind each command, and where it begins in the file.
    ends: Vec<(usize, u64)>,
    /// So many of them are not inside a transaction that goes on.
    settled: usize,
}

impl<'p> Batch<'p> {
    fn add(&mut self, offset: u64, words: impl Iterator<Item = &'p [u8]>) {
        let start = self.words.len();
        self.words.extend(words);
        let name = self.words[start];
        // Nobody else is there to whom a transaction could look like anything else.
        if name.eq_ignore_ascii_case(b"multi") || name.eq_ignore_ascii_case(b"exec") {
            self.words.truncate(start);
        } else {
            self.ends.push((self.words.len(), offset));
        }
    }

    fn settle(&mut self) {
        self.settled = self.ends.len();
    }

    fn start(&self, command: usize) -> usize {
        command.checked_sub(1).map_or(0, |before| self.ends[before].0)
    }
}

/// Whether a file that begins so is an RDB file, of Redis or of Valkey.
pub fn is_rdb_magic(magic: [u8; 5]) -> bool {
    &magic == b"REDIS" || &magic == b"VALKE"
}

fn read_some(input: &mut File, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
