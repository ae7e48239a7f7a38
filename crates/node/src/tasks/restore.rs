//! A new database from a backup, with any number of shards: keys go to the owners of their slots.

use super::backup::{READ, verify};
use super::manifest::{Manifest, Part};
use super::places::{self, Primaries};
use super::storage::Storage;
use super::{End, Task, Work, estimate};
use crate::change::{self, replace_job};
use crate::settings::Settings;
use crate::site::{Job, Stage};
use crate::store;
use crate::talk::side_by_side;
use process::memory::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use transfer::load::{Load, Loader};
use transfer::source::Problem;
use transfer::target::Target;

/// Files that are loaded at the same time.
const THREADS: usize = 4;

/// The percentage at which all files are checked.
const CHECKED: u8 = 30;

/// How long an attempt that failed is waited for.
const BACK_OFF: Duration = Duration::from_secs(2);

/// What a restore was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restore {
    /// Where the backup is.
    #[serde(with = "crate::sealed")]
    pub at: String,
    /// Its name there.
    pub name: String,
    /// The options of the new database.
    pub settings: Settings,
    /// The database is there, made by this job.
    #[serde(default)]
    pub is_created: bool,
}

impl Restore {
    /// Makes the database and fills it.
    ///
    /// # Errors
    /// It cannot be done, or was stopped.
    pub fn run(&self, work: &Work) -> Result<(), End> {
        let storage = Storage::open(&self.at, false).map_err(|why| End::Failed(why.0))?;
        let manifest = Manifest::read(&storage, &self.name).map_err(End::Failed)?;
        if !self.is_created {
            verify(work, &storage, &self.name, &manifest, CHECKED)?;
            self.create(work)?;
        }
        self.until_ready(work)?;
        let database = super::ready(&mut work.store(), &work.database)?;
        places::fence(work, &database);
        let primaries = Primaries::new(work, &database);
        loop {
            let loading = Loading {
                work,
                storage: &storage,
                name: &self.name,
                manifest: &manifest,
                primaries: &primaries,
                next: AtomicUsize::new(0),
                bytes: AtomicU64::new(0),
                began: Instant::now(),
                is_over: AtomicBool::new(false),
            };
            match loading.run() {
                Ok(()) => return Ok(()),
                Err(Problem::Final(why)) => return Err(End::Failed(why)),
                Err(Problem::Again(why) | Problem::Moving(why)) => {
                    process::log!(Warning, "Job {} begins again: {why}", work.id);
                    work.desk.say(CHECKED, format!("it begins again: {why}"));
                    work.desk.pause(BACK_OFF)?;
                }
            }
        }
    }

    /// Creates the database, and notes in the job that it is ours, in one transaction.
    fn create(&self, work: &Work) -> Result<(), End> {
        let owner = work.shared.owner()?;
        let task = Task::Restore(Restore { is_created: true, ..self.clone() });
        let name = &*work.database;
        work.store().change(|site, keys, copies| {
            let at = site.jobs.get(&work.id).filter(|at| at.value.lease == work.lease);
            let at = at.ok_or_else(|| store::Problem::Away("another node has the job".into()))?;
            let about = (name, &self.settings);
            let (_, mut transaction) = change::create(site, (keys, copies), about, &owner)?;
            let job = Job { task: Some(task.clone()), ..at.value.clone() };
            replace_job(keys, &work.id, at, &job, &mut transaction);
            Ok(((), transaction))
        })?;
        Ok(())
    }

    fn until_ready(&self, work: &Work) -> Result<(), End> {
        loop {
            work.desk.say(CHECKED, "the copies of the database are started".into());
            // The site may be one from before the database was made.
            if let Ok(site) = work.store().read()
                && change::database(&site, &work.database)?.value.stage == Stage::Ready
            {
                return Ok(());
            }
            work.desk.pause(Duration::from_millis(100))?;
        }
    }
}

/// What the threads that load share.
struct Loading<'a> {
    work: &'a Work,
    storage: &'a Storage,
    name: &'a str,
    manifest: &'a Manifest,
    primaries: &'a Primaries,
    /// The next file that no thread has taken.
    next: AtomicUsize,
    bytes: AtomicU64,
    began: Instant,
    is_over: AtomicBool,
}

impl Loading<'_> {
    fn run(&self) -> Result<(), Problem> {
        let mut target = places::target(self.work, self.primaries)?;
        target.send_all(0, &[b"FLUSHALL"])?;
        target.settle()?;
        let outcomes = side_by_side(0..THREADS.min(self.manifest.parts.len()), |_| {
            let outcome = self.parts();
            self.is_over.fetch_or(outcome.is_err(), SeqCst);
            outcome
        });
        outcomes.into_iter().collect()
    }

    fn parts(&self) -> Result<(), Problem> {
        let mut target = places::target(self.work, self.primaries)?;
        while let Some(part) = self.manifest.parts.get(self.next.fetch_add(1, SeqCst)) {
            self.part(part, &mut target)?;
            target.settle()?;
        }
        Ok(())
    }

    fn part(&self, part: &Part, target: &mut Target) -> Result<(), Problem> {
        let (mut loader, mut buffer, mut from) = (Loader::default(), Vec::new(), 0);
        let mut send = |load: Load<'_>| match load.key {
            Some(key) => target.send(target.pipe_of(key), load.db, load.words),
            None => target.send_all(load.db, load.words),
        };
        let file = format!("{}/{}", self.name, part.file);
        while from < part.bytes {
            let len = READ.min(part.bytes - from);
            let bytes = self.storage.read(&file, from, len).map_err(Problem::Again)?;
            buffer.extend_from_slice(&bytes);
            from += len;
            let mut used = 0;
            while !loader.is_done()
                && let Some(taken) = loader.take(&buffer[used..], &mut send)?
            {
                used += taken;
                if self.is_over.load(SeqCst) || self.work.desk.is_stopped() {
                    return Err(Problem::Final("it was stopped".into()));
                }
            }
            buffer.drain(..used);
            let done = self.bytes.fetch_add(len, SeqCst) + len;
            let all = self.manifest.bytes();
            let (percent, left) = estimate(done, all, self.began);
            let rest = u32::from(100 - CHECKED);
            let percent = u32::from(CHECKED) + u32::from(percent) * rest / 100;
            let text = format!("loads: {} of {}{left}", Bytes(done), Bytes(all));
            self.work.desk.say(u8::try_from(percent).unwrap_or(99), text);
        }
        match loader.is_done() {
            true => Ok(()),
            false => Err(Problem::Final(format!("{} is not complete", part.file))),
        }
    }
}
