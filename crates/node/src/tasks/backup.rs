//! A backup: one snapshot of each shard, all of one moment.
//!
//! Writes are paused at all primaries, each is asked for a snapshot, and writes go on as soon as
//! all snapshots have begun. So the files together are the database at a moment at which no write
//! was under way. A pause that would last too long is given up, and tried again.

use super::manifest::{self, Manifest, Part};
use super::places::{Primaries, primaries};
use super::storage::{Storage, Writer, shown};
use super::{End, Work, estimate, ready};
use crate::site::{Database, now_ms};
use crate::talk::side_by_side;
use client::Client;
use cluster::view::View;
use process::memory::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use transfer::load::Loader;
use transfer::locate::{Locate as _, open};
use transfer::source::{Begun, Handshake, Problem, Source};

/// How long writes may be paused.
const MAX_PAUSE: Duration = Duration::from_millis(1500);

/// How long servers pause writes if they are not told to go on.
const PAUSE_ENDS: &str = "3000";

/// How often a moment is tried to be found.
const ATTEMPTS: u32 = 20;

/// How long is waited in between, times the number of attempts.
const BACK_OFF: Duration = Duration::from_millis(500);

/// How long a server may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Bytes that are given to the storage at a time.
const WRITE: usize = 1 << 20;

/// Bytes that are read from the storage at a time.
pub const READ: u64 = 8 << 20;

/// The version of servers whose snapshots we read.
const VERSION: &str = "9.0.0";

/// What a backup was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Backup {
    /// Where it goes.
    #[serde(with = "crate::sealed")]
    pub at: String,
    /// Its name there.
    pub name: String,
    /// How many backups of the database are kept there; all if there is no number.
    #[serde(default)]
    pub keep: Option<usize>,
}

/// A backup that is to be read and checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verify {
    /// Where it is.
    #[serde(with = "crate::sealed")]
    pub at: String,
    /// Its name there.
    pub name: String,
}

/// A shard whose snapshot has begun.
struct Shard {
    source: Source,
    part: Part,
}

/// Shards whose snapshots are of one moment.
struct Cut {
    shards: Vec<Shard>,
    at_ms: u64,
    pause: Duration,
}

/// The slots of a shard, and its epoch.
type Layout = (Vec<(u16, u16)>, u64);

/// Returns the layout of all shards with slots. If it differs between two moments, files of one
/// moment may overlap or lack a key.
fn layout(database: &Database, view: &View) -> Result<Vec<Layout>, Problem> {
    primaries(database, view)?;
    let shards = view.topology.value.shards.iter().filter(|shard| !shard.slots.is_empty());
    let mut layout: Vec<_> =
        shards.map(|shard| (shard.slots.ranges().to_vec(), shard.epoch.0)).collect();
    layout.sort();
    Ok(layout)
}

impl Backup {
    /// Makes the backup.
    ///
    /// # Errors
    /// It cannot be made, or was stopped.
    pub fn run(&self, work: &Work) -> Result<(), End> {
        let storage = Storage::open(&self.at, true).map_err(|why| End::Failed(why.0))?;
        let outcome = self.make(work, &storage);
        if outcome.is_err() {
            // Files without a manifest are no backup, but take room.
            let _ = storage.remove(&self.name, manifest::FILE);
        }
        outcome?;
        self.retain(work, &storage).map_err(End::Failed)
    }

    fn make(&self, work: &Work, storage: &Storage) -> Result<(), End> {
        storage.remove(&self.name, manifest::FILE).map_err(End::Failed)?;
        let database = ready(&mut work.store(), &work.database)?;
        let primaries = Primaries::new(work, &database);
        let mut last = String::new();
        for attempt in 1..=ATTEMPTS {
            work.desk.say(0, format!("looks for a moment{last}"));
            match self.attempt(work, storage, &primaries) {
                Ok(()) => return Ok(()),
                Err(Problem::Final(why)) => return Err(End::Failed(why)),
                Err(Problem::Again(why) | Problem::Moving(why)) => {
                    process::log!(Warning, "Job {} tries again: {why}", work.id);
                    last = format!(" ({why})");
                }
            }
            work.desk.pause(BACK_OFF * attempt)?;
        }
        Err(End::Failed(format!("there was no moment for it in {ATTEMPTS} attempts{last}")))
    }

    fn attempt(&self, work: &Work, storage: &Storage, at: &Primaries) -> Result<(), Problem> {
        let (database, view) = at.view()?;
        let before = layout(&database, &view)?;
        let keys = super::places::keyspace(&database, &view).unwrap_or_default().values().sum();
        let mut cut = begin(at, &database, &view)?;
        let settings = database.settings.clone().sealed();
        let mut manifest = Manifest::new(&work.database, &work.shared.cluster, settings);
        manifest.at_ms = cut.at_ms;
        manifest.pause_ms = u64::try_from(cut.pause.as_millis()).unwrap_or(u64::MAX);
        let writing = Writing {
            work,
            storage,
            name: &self.name,
            keys: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            all_keys: keys,
            began: Instant::now(),
            is_over: AtomicBool::new(false),
        };
        let outcomes = side_by_side(&mut cut.shards, |shard| {
            let outcome = writing.shard(shard);
            writing.is_over.fetch_or(outcome.is_err(), SeqCst);
            outcome
        });
        manifest.parts = outcomes.into_iter().collect::<Result<_, _>>()?;
        let (database, view) = at.view()?;
        if layout(&database, &view)? != before {
            let text = "a shard got another primary or other slots meanwhile";
            return Err(Problem::Again(text.into()));
        }
        work.check_owner().map_err(|why| Problem::Again(why.to_string()))?;
        manifest.ended_ms = now_ms();
        let file = format!("{}/{}", self.name, manifest::FILE);
        storage.put(&file, manifest.encode()).map_err(Problem::Again)
    }

    /// Removes the oldest backups of this database.
    fn retain(&self, work: &Work, storage: &Storage) -> Result<(), String> {
        let Some(keep) = self.keep else { return Ok(()) };
        let mut complete = Vec::new();
        for (name, is_folder) in storage.list(&work.database)? {
            let name = format!("{}/{name}", work.database);
            if is_folder && storage.len(&format!("{name}/{}", manifest::FILE))?.is_some() {
                complete.push(name);
            }
        }
        // Their names are in the order of time.
        complete.sort_unstable();
        let surplus = complete.len().saturating_sub(keep.max(1));
        for name in &complete[..surplus] {
            storage.remove(name, manifest::FILE)?;
            process::log!(Notice, "The backup {name} in {} is removed", shown(&self.at));
        }
        Ok(())
    }
}

/// Begins a snapshot of each shard at one moment.
fn begin(at: &Primaries, database: &Database, view: &View) -> Result<Cut, Problem> {
    let parts = primaries(database, view)?;
    let (login, rules) = (at.login(), at.rules()?);
    let handshake = Handshake { version: VERSION, snapshot_only: true };
    let (mut links, mut shards) = (Vec::new(), Vec::new());
    for (number, part) in (1..).zip(&parts) {
        links.push(open(at, &part.address, LIMIT)?);
        let source = Source::open((&part.address, &login), rules.as_ref(), handshake)?;
        let slots = part.slots.clone().unwrap_or_default();
        let topology = &view.topology.value;
        let shard = topology.shards.iter().find(|shard| shard.slots.ranges() == slots);
        let part = Part {
            file: format!("shard-{number}.rdb"),
            slots,
            bytes: 0,
            keys: 0,
            sha256: String::new(),
            history: String::new(),
            offset: 0,
            epoch: shard.map_or(0, |shard| shard.epoch.0),
        };
        shards.push(Shard { source, part });
    }
    let began = Instant::now();
    let pauses = links.len() > 1;
    let outcome = pause(&mut links, pauses).and_then(|()| ask(&mut shards, began));
    let unpaused = if pauses { unpause(&mut links) } else { Ok(()) };
    let pause = if pauses { began.elapsed() } else { Duration::ZERO };
    outcome?;
    unpaused?;
    Ok(Cut { shards, at_ms: now_ms(), pause })
}

fn pause(links: &mut [Client], pauses: bool) -> Result<(), Problem> {
    for link in links.iter_mut().filter(|_| pauses) {
        link.queue(&["CLIENT", "PAUSE", PAUSE_ENDS, "WRITE"]);
        link.flush()?;
    }
    links.iter_mut().filter(|_| pauses).try_for_each(|link| {
        let reply = link.reply()?;
        reply.error().map_or(Ok(()), |text| Err(Problem::Final(text.into_owned())))
    })
}

fn unpause(links: &mut [Client]) -> Result<(), Problem> {
    // All are told, whatever one answers.
    let outcomes: Vec<_> =
        links.iter_mut().map(|link| link.order(&["CLIENT", "UNPAUSE"])).collect();
    for outcome in outcomes {
        outcome?;
    }
    Ok(())
}

/// Asks all shards for a snapshot, and waits until all have begun.
fn ask(shards: &mut [Shard], began: Instant) -> Result<(), Problem> {
    for shard in shards.iter_mut() {
        shard.source.ask(None)?;
    }
    let limit = if shards.len() > 1 { MAX_PAUSE } else { Duration::from_secs(3600) };
    for shard in shards {
        match shard.source.answer(&|| began.elapsed() < limit)? {
            Some(Begun::Full) => {
                let position = shard.source.position().clone();
                (shard.part.history, shard.part.offset) = (position.history, position.offset);
            }
            Some(Begun::Continues) => {
                return Err(Problem::Again("a shard sends no snapshot".into()));
            }
            None => {
                let text =
                    format!("a shard did not begin its snapshot in {} ms", limit.as_millis());
                return Err(Problem::Again(text));
            }
        }
    }
    Ok(())
}

/// What the threads that write files share.
struct Writing<'a> {
    work: &'a Work,
    storage: &'a Storage,
    name: &'a str,
    keys: AtomicU64,
    bytes: AtomicU64,
    all_keys: u64,
    began: Instant,
    is_over: AtomicBool,
}

impl Writing<'_> {
    fn goes_on(&self) -> bool {
        !self.is_over.load(SeqCst) && !self.work.desk.is_stopped()
    }

    fn shard(&self, shard: &mut Shard) -> Result<Part, Problem> {
        let file = format!("{}/{}", self.name, shard.part.file);
        let mut writer = self.storage.writer(&file).map_err(Problem::Again)?;
        match self.copy(&mut shard.source, &mut writer) {
            Ok((bytes, keys, sha256)) => {
                writer.finish().map_err(Problem::Again)?;
                Ok(Part { bytes, keys, sha256, ..shard.part.clone() })
            }
            Err(problem) => {
                writer.abort();
                Err(problem)
            }
        }
    }

    fn copy(
        &self,
        source: &mut Source,
        writer: &mut Writer<'_>,
    ) -> Result<(u64, u64, String), Problem> {
        let stopped = || Problem::Again("it was stopped".into());
        let size = source.size(&|| self.goes_on())?.ok_or_else(stopped)?;
        let (mut loader, mut sum) = (Loader::checking(), Sha256::new());
        let mut buffer: Vec<u8> = Vec::with_capacity(WRITE);
        let mut told = loader.loaded();
        while !loader.is_done() {
            if !self.goes_on() {
                return Err(stopped());
            }
            match loader.take(source.bytes(), &mut |_| Ok(()))? {
                Some(taken) => {
                    buffer.extend_from_slice(&source.bytes()[..taken]);
                    source.consume(taken);
                }
                None => drop(source.receive()?),
            }
            if buffer.len() >= WRITE || loader.is_done() {
                sum.update(&buffer);
                writer.write(&buffer).map_err(Problem::Again)?;
                buffer.clear();
                let loaded = loader.loaded();
                self.tell(loaded.bytes - told.bytes, loaded.keys - told.keys);
                told = loaded;
            }
        }
        while !source.end_of_snapshot(size)? {
            source.receive()?;
        }
        let sha256 = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((told.bytes, told.keys, sha256))
    }

    fn tell(&self, bytes: u64, keys: u64) {
        let bytes = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        let keys = self.keys.fetch_add(keys, SeqCst) + keys;
        let (percent, left) = estimate(keys, self.all_keys, self.began);
        let text = format!("writes: {keys} of {} keys, {}{left}", self.all_keys, Bytes(bytes));
        self.work.desk.say(percent, text);
    }
}

impl Verify {
    /// Reads all of a backup.
    ///
    /// # Errors
    /// It is damaged, or was stopped.
    pub fn run(&self, work: &Work) -> Result<(), End> {
        let storage = Storage::open(&self.at, false).map_err(|why| End::Failed(why.0))?;
        let manifest = Manifest::read(&storage, &self.name).map_err(End::Failed)?;
        verify(work, &storage, &self.name, &manifest, 100)
    }
}

/// Reads all files of a backup and checks their sums and forms. `most`: the percentage that it ends
/// with.
///
/// # Errors
/// One is damaged, or it was stopped.
pub fn verify(
    work: &Work,
    storage: &Storage,
    name: &str,
    manifest: &Manifest,
    most: u8,
) -> Result<(), End> {
    let (all, began) = (manifest.bytes(), Instant::now());
    let mut done = 0;
    for part in &manifest.parts {
        let damaged = |why: &str| End::Failed(format!("{} is damaged: {why}", part.file));
        let (mut sum, mut loader) = (Sha256::new(), Loader::checking());
        let (mut buffer, mut from) = (Vec::new(), 0);
        while from < part.bytes {
            if work.desk.is_stopped() {
                return Err(End::Stopped);
            }
            let len = READ.min(part.bytes - from);
            let file = format!("{name}/{}", part.file);
            let bytes = storage.read(&file, from, len).map_err(End::Failed)?;
            sum.update(&bytes);
            buffer.extend_from_slice(&bytes);
            from += len;
            let mut used = 0;
            while !loader.is_done()
                && let Some(taken) = loader
                    .take(&buffer[used..], &mut |_| Ok(()))
                    .map_err(|problem| damaged(problem.text()))?
            {
                used += taken;
            }
            buffer.drain(..used);
            done += len;
            let (percent, left) = estimate(done, all, began);
            let percent = u8::try_from(u32::from(percent) * u32::from(most) / 100).unwrap_or(most);
            work.desk.say(percent, format!("reads: {} of {}{left}", Bytes(done), Bytes(all)));
        }
        let sum: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if sum != part.sha256 {
            return Err(damaged("its checksum is wrong"));
        }
        if !loader.is_done() || loader.loaded().keys != part.keys {
            return Err(damaged("it is not complete"));
        }
    }
    Ok(())
}
