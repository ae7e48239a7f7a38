//! `dunlin check rdb FILE`, which is also `redis-check-rdb FILE`: reads a snapshot as a server does
//! at its start, and reports its contents and its faults with their offsets.
//!
//! Every value of a type that this server can load is decoded. Large collections are checked in
//! pieces, so memory stays bounded. A duplicate element is only found within a piece.

use crate::persistence::load::LoadOptions;
use crate::persistence::load::feed::Feed;
use process::{facts, os_error};
use rdb::file::{Foreign, Item, Record, ScanStep, Scanner};
use rdb::{Builder, Decoder, Error, Kind, Limits};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Larger collections are checked in pieces. In bytes.
const PIECE_BYTES: usize = 4 << 20;
/// Time between two progress lines of a long check.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Keys.
    pub keys: u64,
    /// Keys that expire.
    pub expires: u64,
    /// Keys that have expired.
    pub already_expired: u64,
    /// Keys of collections without elements. A server skips them.
    pub empty: u64,
    /// Libraries of functions.
    pub functions: u64,
    /// Keys and other items of types that this server cannot load.
    pub unsupported: u64,
    /// The file's end, in bytes from the container's beginning.
    pub end: u64,
}

/// Runs the subcommand. `args` are its arguments.
pub fn run_check_rdb(program: &str, args: &[OsString]) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let done = match args {
        [option] if option == "-v" || option == "--version" => {
            writeln!(out, "{program} {}", facts::VERSION).map(|()| true)
        }
        [path] => check_path(Path::new(path), &mut out, &mut err),
        _ => writeln!(err, "Usage: {program} <rdb-file-name>").map(|()| false),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // A closed output (`| head`) is no failure by itself, but nothing was proven.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

fn check_path(path: &Path, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<bool> {
    let name = path.display();
    let opened = File::open(path).and_then(|file| file.metadata().map(|facts| (file, facts)));
    let (mut file, facts) = match opened {
        Ok((_, facts)) if facts.is_dir() => {
            writeln!(err, "Cannot check {name}: it is a directory")?;
            return Ok(false);
        }
        Ok(opened) => opened,
        Err(error) => {
            writeln!(err, "Cannot open file {name}: {}", os_error(&error))?;
            return Ok(false);
        }
    };
    writeln!(out, "[offset 0] Checking RDB file {name}")?;
    // The length of a pipe is unknown.
    let end = if facts.is_file() { facts.len() } else { u64::MAX };
    Ok(check_rdb(&mut file, 0, end, out, err)?.is_some())
}

/// Checks the file that begins at byte `offset` of a container that ends at byte `end` (`u64::MAX`
/// if unknown). `input` begins at `offset`. Prints its findings on `out` and its progress on `err`.
/// Returns `None` if the file is unsound.
pub fn check_rdb(
    input: &mut dyn Read,
    offset: u64,
    end: u64,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Option<Summary>> {
    let feed = Feed::new(input, offset, true);
    let scanner = Scanner::new(offset, end, PIECE_BYTES).knowing(datatypes::ALL);
    let mut check = Check::new(feed, scanner, end, out, err);
    let failed = match check.run() {
        Ok(()) => {
            let position = check.scanner.position();
            check.summary.end = position;
            writeln!(check.out, "[offset {position}] \\o/ RDB looks OK! \\o/")?;
            None
        }
        Err(Stop::Output(error)) => return Err(error),
        Err(Stop::Unsound(what)) => Some(what),
    };
    if let Some(what) = &failed {
        check.explain(what)?;
    }
    check.summarize()?;
    Ok(failed.is_none().then_some(check.summary))
}

/// Checks a whole file of `end` bytes before a server discards its data for it.
///
/// # Errors
/// What is wrong, with the offset.
pub fn verify_rdb(input: &mut dyn Read, end: u64, options: &LoadOptions) -> Result<(), String> {
    let (mut out, mut err) = (io::sink(), io::sink());
    let feed = Feed::new(input, 0, options.verifies_checksum);
    let scanner = Scanner::new(0, end, PIECE_BYTES)
        .knowing(datatypes::ALL)
        .accept_newer(options.accepts_newer);
    let mut check = Check::new(feed, scanner, end, &mut out, &mut err);
    match check.run() {
        Ok(()) if check.summary.unsupported == 0 || options.skips_unknown => Ok(()),
        Ok(()) => Err("it has values of types that can't be loaded here".to_owned()),
        Err(Stop::Output(error)) => Err(os_error(&error)),
        Err(Stop::Unsound(what)) => {
            let position = check.scanner.position();
            let offset = check.at.map_or(position, |(offset, ..)| offset);
            Err(format!("{what} (at offset {offset})"))
        }
    }
}

/// Why a check ends early.
enum Stop {
    Unsound(String),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

struct Check<'c> {
    feed: Feed<'c>,
    scanner: Scanner,
    summary: Summary,
    now_ms: i64,
    end: u64,
    /// The offset of an unsound value, with its key and type.
    at: Option<(u64, Vec<u8>, u8)>,
    /// The collection whose pieces are being read.
    large: Option<(Kind, Vec<u8>)>,
    said: Instant,
    out: &'c mut dyn Write,
    err: &'c mut dyn Write,
}

impl<'c> Check<'c> {
    fn new(
        feed: Feed<'c>,
        scanner: Scanner,
        end: u64,
        out: &'c mut dyn Write,
        err: &'c mut dyn Write,
    ) -> Check<'c> {
        Check {
            feed,
            scanner,
            summary: Summary::default(),
            now_ms: engine::clock::now().0,
            end,
            at: None,
            large: None,
            said: Instant::now(),
            out,
            err,
        }
    }

    fn run(&mut self) -> Result<(), Stop> {
        while !self.scanner.is_done() {
            match self.scanner.next(self.feed.rest()) {
                Ok(ScanStep::Item(item, bytes)) => self.item(item, bytes)?,
                Ok(ScanStep::More) => self.more()?,
                Err(error) => return Err(self.unsound(error)),
            }
        }
        Ok(())
    }

    fn unsound(&self, error: Error) -> Stop {
        Stop::Unsound(match (error, self.scanner.kind()) {
            (Error::Version(version), _) => format!("Can't handle RDB format version {version}"),
            (Error::Corrupt("signature"), _) => {
                "Wrong signature trying to load DB from file".into()
            }
            (Error::UnsupportedType(kind), _) => format!("Invalid object type: {kind}"),
            (error, _) => error.to_string(),
        })
    }

    fn more(&mut self) -> Result<(), Stop> {
        if self.feed.taken() > 0 {
            self.feed.forget_taken();
        }
        if self.said.elapsed() >= PROGRESS_EVERY {
            self.said = Instant::now();
            let position = self.scanner.position();
            if self.end == u64::MAX {
                writeln!(self.err, "[offset {position}] so far")?;
            } else {
                let percent = position as f64 / self.end.max(1) as f64 * 100.0;
                writeln!(self.err, "[offset {position}] {percent:.1}% checked")?;
            }
        }
        match self.feed.read() {
            Ok(0) => Err(Stop::Unsound("Unexpected EOF reading RDB file".into())),
            Ok(_) => Ok(()),
            Err(error) => Err(Stop::Unsound(format!("Can't read the file: {}", os_error(&error)))),
        }
    }

    fn info(&mut self, what: &str) -> io::Result<()> {
        writeln!(self.out, "[offset {}] {what}", self.scanner.position())
    }

    fn item(&mut self, item: Item, bytes: usize) -> Result<(), Stop> {
        let at = self.feed.taken();
        match item {
            Item::Record(record) => self.record(&record, at, at + bytes)?,
            Item::Begin(record, _) => {
                self.count(record.expiry_ms);
                let key = self.key(&record, at)?;
                self.large = Kind::from_byte(record.kind).map(|kind| (kind, key));
            }
            Item::Elements(count) => self.elements(count, at, bytes)?,
            Item::End => self.large = None,
            Item::Aux { name, value } => {
                let (name, value) = (name.escape_ascii(), value.escape_ascii());
                self.info(&format!("AUX FIELD {name} = '{value}'"))?;
            }
            Item::SelectDb(db) => self.info(&format!("Selecting DB ID {db}"))?,
            Item::Function(_) => self.summary.functions += 1,
            Item::Foreign(thing) => self.foreign(&thing)?,
            Item::Checksum(stored) => {
                // All bytes before the checksum have been taken.
                let computed = self.feed.checksum();
                match stored {
                    // The checksum is not verified.
                    _ if computed.is_none() => {}
                    0 => {
                        self.info("RDB file was saved with checksum disabled: no check performed.")?
                    }
                    _ if Some(stored) == computed => self.info("Checksum OK")?,
                    _ => return Err(Stop::Unsound("RDB CRC error".into())),
                }
            }
            Item::Header(_) | Item::ResizeDb { .. } | Item::Passed | Item::EndOfFile => {}
        }
        self.feed.take(bytes);
        Ok(())
    }

    fn count(&mut self, expiry_ms: Option<i64>) {
        self.summary.keys += 1;
        self.summary.expires += u64::from(expiry_ms.is_some());
        self.summary.already_expired += u64::from(expiry_ms.is_some_and(|at| at < self.now_ms));
    }

    fn key(&mut self, record: &Record, at: usize) -> Result<Vec<u8>, Stop> {
        let bytes = self.feed.bytes(at + record.key_at, at + record.value_at);
        let key = Decoder::new(bytes).string().map(std::borrow::Cow::into_owned);
        key.map_err(|error| {
            self.at =
                Some((self.feed.offset() + (at + record.key_at) as u64, Vec::new(), record.kind));
            Stop::Unsound(error.to_string())
        })
    }

    fn record(&mut self, record: &Record, at: usize, end: usize) -> Result<(), Stop> {
        self.count(record.expiry_ms);
        let key = self.key(record, at)?;
        let value_at = at + record.value_at;
        let mut value = Decoder::new(self.feed.bytes(value_at, end));
        let kind = Kind::from_byte(record.kind).ok_or(Error::UnsupportedType(record.kind));
        match kind.and_then(|kind| value.value(kind, &limits())) {
            Ok(_) => Ok(()),
            Err(Error::Empty) => {
                self.summary.empty += 1;
                Ok(())
            }
            Err(error) => {
                self.at = Some((self.feed.offset() + value_at as u64, key, record.kind));
                Err(Stop::Unsound(error.to_string()))
            }
        }
    }

    fn elements(&mut self, count: u64, at: usize, bytes: usize) -> Result<(), Stop> {
        let Some((kind, key)) = &self.large else { return Ok(()) };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut input = Decoder::new(self.feed.bytes(at, at + bytes));
        let built = Builder::new(*kind, count, &limits())
            .ok_or(Error::UnsupportedType(*kind as u8))
            .and_then(|mut builder| builder.add(&mut input, count));
        built.map_err(|error| {
            let bad = at + bytes - input.remaining().len();
            self.at = Some((self.feed.offset() + bad as u64, key.clone(), *kind as u8));
            Stop::Unsound(error.to_string())
        })
    }

    fn foreign(&mut self, thing: &Foreign) -> io::Result<()> {
        self.summary.unsupported += 1;
        match thing {
            Foreign::Key { .. } => self.count(None),
            Foreign::ModuleAux(_) | Foreign::SlotImport => {}
        }
        self.info(&format!("Can't be loaded by Dunlin: {thing}"))
    }

    fn explain(&mut self, what: &str) -> io::Result<()> {
        let scanner = &self.scanner;
        let (offset, doing, key, kind) = match &self.at {
            Some((offset, key, kind)) => {
                let kind = Some((*kind, rdb::file::type_name(*kind)));
                (*offset, "read-object-value", Some(&key[..]), kind)
            }
            None => (scanner.position(), scanner.doing().name(), scanner.key(), scanner.kind()),
        };
        let out = &mut *self.out;
        writeln!(out, "--- RDB ERROR DETECTED ---")?;
        writeln!(out, "[offset {offset}] {what}")?;
        writeln!(out, "[additional info] While doing: {doing}")?;
        if let Some(key) = key {
            writeln!(out, "[additional info] Reading key '{}'", key.escape_ascii())?;
        }
        if let Some((number, name)) = kind {
            writeln!(out, "[additional info] Reading type {number} ({name})")?;
        }
        Ok(())
    }

    fn summarize(&mut self) -> io::Result<()> {
        let Summary { keys, expires, already_expired, empty, functions, unsupported, end: _ } =
            self.summary;
        let out = &mut *self.out;
        writeln!(out, "[info] {keys} keys read")?;
        writeln!(out, "[info] {expires} expires")?;
        writeln!(out, "[info] {already_expired} already expired")?;
        for (count, what) in [
            (empty, "empty keys, which are passed over"),
            (functions, "functions"),
            (unsupported, "things that Dunlin can't load (see rdb-skip-unknown-types)"),
        ] {
            if count > 0 {
                writeln!(out, "[info] {count} {what}")?;
            }
        }
        out.flush()
    }
}

/// Returns the limits that values are read with.
fn limits() -> Limits {
    Limits { types: datatypes::ALL, ..Limits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::file::RecordHead;
    use rdb::{Compression, Encoder};

    fn file() -> Vec<u8> {
        let mut encoder = Encoder::new(Compression::Off);
        encoder.file_header();
        encoder.aux("redis-ver", b"7.2");
        encoder.select_db(3);
        for (key, expiry_ms) in [(&b"old"[..], Some(1)), (b"new", Some(i64::MAX)), (b"k", None)] {
            let head = RecordHead { key, expiry_ms, access: rdb::file::Access::Unknown };
            encoder.record_head(&head, Kind::Set);
            encoder.length(2);
            encoder.string(b"a");
            encoder.string(b"b");
        }
        encoder.end_of_file();
        let checksum = structs::crc64::crc64(0, encoder.as_bytes());
        encoder.checksum(checksum);
        encoder.into_bytes()
    }

    fn checked(file: &[u8]) -> (Option<Summary>, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = file.len() as u64;
        let summary = check_rdb(&mut &*file, 0, end, &mut out, &mut err).expect("it can be said");
        (summary, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn a_sound_file_is_summed_up() {
        let (summary, said) = checked(&file());
        let end = file().len() as u64;
        let expected =
            Summary { keys: 3, expires: 2, already_expired: 1, end, ..Summary::default() };
        assert_eq!(summary, Some(expected));
        assert!(said.contains("AUX FIELD redis-ver = '7.2'\n"), "{said}");
        assert!(said.contains("[offset 26] Selecting DB ID 3\n"), "{said}");
        assert!(said.contains("Checksum OK\n"), "{said}");
        assert!(said.contains("\\o/ RDB looks OK! \\o/\n[info] 3 keys read\n"), "{said}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let sound = file();
        let mut twice = sound.clone();
        let last = twice.iter().rposition(|&byte| byte == b'b').expect("the last member");
        twice[last] = b'a';
        let (summary, said) = checked(&twice);
        assert_eq!(summary, None);
        let expected = format!(
            "--- RDB ERROR DETECTED ---\n[offset {}] corrupt data: duplicate set member\n\
             [additional info] While doing: read-object-value\n[additional info] Reading key 'k'\n\
             [additional info] Reading type 2 (set-hashtable)\n[info] 3 keys read\n",
            last - 4
        );
        assert!(said.contains(&expected), "{said}");

        let mut damaged = sound.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        assert!(
            checked(&damaged).1.contains("RDB CRC error\n[additional info] While doing: check-sum")
        );

        for len in 0..sound.len() {
            let (summary, said) = checked(&sound[..len]);
            assert_eq!(summary, None, "{len} bytes");
            assert!(said.contains("--- RDB ERROR DETECTED ---"), "{said}");
        }
        assert!(checked(b"FOREIGN FILE").1.contains("[offset 0] Wrong signature"));
        let newer = checked(b"REDIS9999\xff\0\0\0\0\0\0\0\0");
        assert_eq!(newer.0, None);
        assert!(newer.1.contains("Can't handle RDB format version 9999"), "{}", newer.1);
    }
}
