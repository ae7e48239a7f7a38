//! The reading thread: passes what the scanner finds to the workers or into the report.

use super::error::{Cause, Failure};
use super::feed::{BATCH_BYTES, Feed};
use super::queue::{Batch, Job, Large, Piece, Queue};
use super::{LoadOptions, Report, Source};
use crate::log;
use engine::load::{self, Cut, Head};
use engine::scripting::LibraryLoader;
use engine::{DbIndex, Engine};
use rdb::file::{Foreign, Item, Record, ScanStep, Scanner};
use rdb::{Decoder, Kind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Larger collections are built in pieces. In bytes.
const PIECE_BYTES: usize = 4 << 20;
/// Greatest number of a collection's pieces that wait for its worker.
const PIECES_WAITING: usize = 2;
/// Least number of bytes of a key in a file, from which the greatest number of keys follows.
const KEY_BYTES: u64 = 4;
/// Number of unsupported items that are logged. Others are only counted.
const NAMED: u64 = 10;

/// Why scanning ended early.
pub enum Ended {
    /// A worker has failed and reports why.
    GivenUp,
    /// The file is the reason.
    Failed(Failure),
}

/// The reading thread's state.
pub struct Scan<'o, 'r> {
    engine: &'static Engine,
    options: &'o LoadOptions,
    queue: &'o Queue,
    name: String,
    end: u64,
    begun: &'r mut dyn FnMut(),
    feed: Feed<'r>,
    scanner: Scanner,
    cuts: Vec<Cut>,
    /// Metadata before the next stream.
    idempotency: Option<Box<[u8]>>,
    /// The collection whose pieces are being read.
    large: Option<SyncSender<Piece>>,
    libraries: LibraryLoader,
    report: Report,
    /// Time to sleep for keys that have been loaded (`key-load-delay`).
    owed: Duration,
}

impl<'o, 'r> Scan<'o, 'r> {
    pub fn new(
        engine: &'static Engine,
        source: Source<'r>,
        options: &'o LoadOptions,
        queue: &'o Queue,
    ) -> Self {
        Self {
            engine,
            options,
            queue,
            name: source.name,
            end: source.end,
            begun: source.begun,
            feed: Feed::new(source.input, source.offset, options.verifies_checksum),
            scanner: Scanner::new(source.offset, source.end, PIECE_BYTES)
                .knowing(options.settings.limits.types)
                .accept_newer(options.accepts_newer),
            cuts: Vec::new(),
            idempotency: None,
            large: None,
            libraries: LibraryLoader::new(engine, options.settings.is_beside),
            report: Report::default(),
            owed: Duration::ZERO,
        }
    }

    /// Reads the file from beginning to end.
    pub fn run(mut self) -> Result<Report, Ended> {
        while !self.scanner.is_done() {
            match self.scanner.next(self.feed.rest()) {
                Ok(ScanStep::Item(item, bytes)) => self.item(item, bytes)?,
                Ok(ScanStep::More) => self.more()?,
                Err(error) => return Err(self.failed(Cause::Malformed(error))),
            }
        }
        self.ship()?;
        // Bytes after the file's end are counted by their own reader.
        self.engine.loading.retract(self.feed.rest().len() as u64);
        self.report.end = self.scanner.position();
        Ok(self.report)
    }

    fn failed(&self, cause: Cause) -> Ended {
        Ended::Failed(Failure::at(&self.name, &self.scanner, cause))
    }

    fn more(&mut self) -> Result<(), Ended> {
        self.ship()?;
        if self.engine.loading.is_cancelled() {
            return Err(self.failed(Cause::Cancelled));
        }
        match self.feed.read() {
            Ok(0) => Err(self.failed(Cause::Truncated)),
            Ok(bytes) => {
                self.engine.loading.advance(bytes as u64);
                Ok(())
            }
            Err(error) => Err(self.failed(Cause::Read(error))),
        }
    }

    fn item(&mut self, item: Item, bytes: usize) -> Result<(), Ended> {
        match item {
            Item::Record(record) => {
                let at = self.feed.taken();
                let idempotency = self.idempotency.take();
                self.cuts.push(Cut { record, at, end: at + bytes, idempotency });
                self.feed.take(bytes);
                return self.delay();
            }
            Item::Begin(record, count) => {
                self.ship()?;
                return self.begin(&record, count, bytes);
            }
            Item::Elements(elements) => {
                let offset = self.feed.offset() + self.feed.taken() as u64;
                let at = self.feed.taken();
                let piece = self.feed.bytes(at, at + bytes).to_vec();
                self.feed.take(bytes);
                let elements = usize::try_from(elements).unwrap_or(usize::MAX);
                let piece = Piece { bytes: piece, elements, offset };
                return match self.large.as_ref().map(|large| large.send(piece)) {
                    Some(Ok(())) => Ok(()),
                    // The worker has given up.
                    _ => Err(Ended::GivenUp),
                };
            }
            Item::End => {
                self.large = None;
                self.feed.take(bytes);
                return self.delay();
            }
            Item::Header(version) => {
                self.report.version = version;
                (self.begun)();
            }
            Item::Aux { name, value } if name == rdb::IDEMPOTENCY.as_bytes() => {
                self.idempotency = Some(value.into());
            }
            Item::Aux { name, value } => self.report.aux(self.engine, &name, &value),
            Item::SelectDb(db) => self.select(db)?,
            Item::ResizeDb { keys, expiring } => self.resize(keys, expiring),
            Item::Function(source) => self.function(&source)?,
            Item::Foreign(thing) => {
                // The item's bytes must not be part of a batch.
                self.ship()?;
                self.foreign(thing)?;
            }
            Item::Passed | Item::EndOfFile => {}
            Item::Checksum(stored) => {
                // A worker's error about a value is more helpful than a wrong checksum, so let it
                // come first.
                self.ship()?;
                self.verify(stored)?;
            }
        }
        self.feed.take(bytes);
        Ok(())
    }

    fn begin(&mut self, record: &Record, count: u64, bytes: usize) -> Result<(), Ended> {
        let at = self.feed.taken();
        let offset = self.feed.offset() + at as u64;
        let key = self.feed.bytes(at + record.key_at, at + record.value_at);
        let key = Decoder::new(key).string().map(std::borrow::Cow::into_owned);
        let key = key.map_err(|error| self.failed(Cause::Malformed(error)))?;
        let kind = Kind::from_byte(record.kind).ok_or(rdb::Error::UnsupportedType(record.kind));
        let kind = kind.map_err(|error| self.failed(Cause::Malformed(error)))?;
        let (sender, pieces) = sync_channel(PIECES_WAITING);
        let Record { db, expiry_ms, access, .. } = *record;
        let head = Head { key, db, expiry_ms, access };
        self.feed.take(bytes);
        let large = Large { head, kind, count, pieces, offset };
        self.queue.push(Job::Large(large)).map_err(|_| Ended::GivenUp)?;
        self.large = Some(sender);
        Ok(())
    }

    /// Passes the records found so far to a worker.
    fn ship(&mut self) -> Result<(), Ended> {
        if self.cuts.is_empty() {
            if self.feed.taken() > 0 {
                self.feed.forget_taken();
            }
            return Ok(());
        }
        let offset = self.feed.offset();
        let (spare, next_cuts) = self.queue.spare();
        let bytes = self.feed.give_taken(spare);
        let cuts = std::mem::replace(&mut self.cuts, next_cuts);
        let batch = Batch { bytes, cuts, offset };
        self.queue.push(Job::Batch(batch)).map_err(|_| Ended::GivenUp)
    }

    fn select(&mut self, db: u32) -> Result<(), Ended> {
        let databases = self.engine.keyspace.databases();
        if db < databases { Ok(()) } else { Err(self.failed(Cause::NoSuchDb { db, databases })) }
    }

    /// Reserves memory for keys, but not for more than the file can contain.
    fn resize(&self, keys: u64, expiring: u64) {
        let left = self.end.saturating_sub(self.scanner.position());
        let most = if self.end == u64::MAX { 0 } else { left / KEY_BYTES };
        let db = DbIndex(self.scanner.db());
        let settings = &self.options.settings;
        load::reserve(self.engine, db, keys.min(most), expiring.min(most), settings);
    }

    fn function(&mut self, source: &[u8]) -> Result<(), Ended> {
        let loaded = self.libraries.load(source, self.options.settings.replaces);
        loaded.map_err(|error| {
            let why = String::from_utf8_lossy(&error.line()).replace(char::is_control, " ");
            self.failed(Cause::Library(why))
        })
    }

    fn foreign(&mut self, thing: Foreign) -> Result<(), Ended> {
        if !self.options.skips_unknown {
            return Err(self.failed(Cause::Foreign(thing)));
        }
        self.report.skipped += 1;
        if self.report.skipped <= NAMED {
            let offset = self.scanner.position();
            log!(Warning, "Skipping at offset {offset} of {}: {thing}", self.name);
        }
        Ok(())
    }

    fn verify(&mut self, stored: u64) -> Result<(), Ended> {
        match self.feed.checksum() {
            None => Ok(()),
            Some(_) if stored == 0 => {
                log!(Notice, "RDB file was saved with checksum disabled: no check performed.");
                Ok(())
            }
            Some(computed) if computed == stored => Ok(()),
            Some(computed) => Err(self.failed(Cause::Checksum { computed, stored })),
        }
    }

    /// Slows down loading for tests (`key-load-delay`). A negative value is a fraction of a
    /// microsecond.
    fn delay(&mut self) -> Result<(), Ended> {
        let delay = self.engine.config.key_load_delay();
        if delay == 0 {
            return Ok(());
        }
        self.owed += match u64::try_from(delay) {
            Ok(micros) => Duration::from_micros(micros),
            Err(_) => Duration::from_nanos((1000 / delay.unsigned_abs()).max(1)),
        };
        if self.owed < Duration::from_millis(1) {
            return Ok(());
        }
        self.ship()?;
        // Sleep in small steps, because the option may be changed or the server stopped meanwhile.
        while !self.owed.is_zero()
            && self.engine.config.key_load_delay() != 0
            && !self.engine.loading.is_cancelled()
        {
            let step = self.owed.min(Duration::from_millis(10));
            std::thread::sleep(step);
            self.owed -= step;
        }
        self.owed = Duration::ZERO;
        Ok(())
    }
}

/// The buffer's size is the number of bytes read at a time.
const _: () = assert!(BATCH_BYTES < PIECE_BYTES);
