//! Jobs with a task: they move data (import, export, backup, its check, restore), or restart
//! copies. Each but a restart is a thread of the node that has the job.
//!
//! ```text
//!   schedule                backups that come round
//!   import  backup  restore the work of a thread
//!   restart                 the look at a rolling restart, which needs no thread
//!   places                  a database as a source or target of the crate transfer
//!   manifest  storage       what a backup consists of, and where it is kept
//! ```
//!
//! A job says what was asked for ([`Task`]), not how far it is: a node that takes one up begins it
//! again. Two nodes never write at once: a writer opens its connections first and then reads at
//! etcd that the job is its own, and a node that takes a job up closes the connections of the one
//! before. `docs/internals/transfer.md` has the rest.

pub(crate) mod backup;
mod connecting;
pub(crate) mod import;
pub(crate) mod manifest;
pub(crate) mod places;
pub mod restart;
pub(crate) mod restore;
pub mod schedule;
pub(crate) mod storage;

use crate::change::{self, Owner, Step, is_running};
use crate::servers;
use crate::shared::Shared;
use crate::site::{Job, Site};
use crate::store::{Problem, Store};
use cluster::coordinator::{LeaseId, Transaction};
use serde::{Deserialize, Serialize};
use spec::{CommandTable, NotRun};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use structs::sync::lock;
use transfer::follow::Control;

/// How often progress is written to etcd.
const REPORT: Duration = Duration::from_millis(500);

/// How long a call to etcd may take.
const CALL: Duration = Duration::from_secs(5);

/// What a job was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// See there.
    Import(import::Import),
    /// See there.
    Export(import::Export),
    /// See there.
    Backup(backup::Backup),
    /// See there.
    Verify(backup::Verify),
    /// See there.
    Restore(restore::Restore),
    /// See there.
    Restart(restart::Restart),
}

impl Task {
    /// Returns the least [`crate::site::FORMAT`] of nodes that can read it.
    pub fn format(&self) -> u32 {
        match self {
            Task::Restore(restore) => restore.settings.format().max(1),
            Task::Restart(restart) if restart.surge => 2,
            Task::Import(_)
            | Task::Export(_)
            | Task::Backup(_)
            | Task::Verify(_)
            | Task::Restart(_) => 1,
        }
    }
}

fn table() -> Result<&'static CommandTable<NotRun>, End> {
    servers::commands().ok_or_else(|| End::Failed("this program has no table of commands".into()))
}

/// Why a thread ends before its work is done.
#[derive(Clone, Debug)]
pub enum End {
    /// It cannot be done.
    Failed(String),
    /// It was told to.
    Stopped,
}

impl From<Problem> for End {
    fn from(problem: Problem) -> End {
        End::Failed(problem.to_string())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Failed(text) => f.write_str(text),
            End::Stopped => f.write_str("it was stopped"),
        }
    }
}

/// What a thread and the job's keeper share.
#[derive(Default)]
pub struct Desk {
    /// The transfer's.
    pub control: Control,
    /// Hundredths that are done, and what it waits for.
    progress: Mutex<(u8, String)>,
    has_ended: AtomicBool,
}

impl Desk {
    /// Says how far it is.
    pub fn say(&self, percent: u8, text: String) {
        *lock(&self.progress) = (percent.min(99), text);
    }

    /// Whether it is to be given up.
    pub fn is_stopped(&self) -> bool {
        self.control.is_stopped.load(SeqCst)
    }

    /// Waits a moment.
    ///
    /// # Errors
    /// It is to be given up.
    pub fn pause(&self, time: Duration) -> Result<(), End> {
        let began = Instant::now();
        while began.elapsed() < time {
            if self.is_stopped() {
                return Err(End::Stopped);
            }
            std::thread::sleep(Duration::from_millis(20).min(time));
        }
        if self.is_stopped() { Err(End::Stopped) } else { Ok(()) }
    }
}

/// What a thread works with.
pub struct Work {
    /// The node.
    pub shared: Arc<Shared>,
    /// The job.
    pub id: String,
    /// Its database.
    pub database: String,
    /// The lease under which it is this node's.
    pub lease: LeaseId,
    /// See there.
    pub desk: Arc<Desk>,
}

impl Work {
    /// A way to etcd.
    pub fn store(&self) -> Store {
        self.shared.store(CALL)
    }

    /// The name of connections that write, by which another node finds and closes them.
    pub fn connection_name(&self) -> String {
        format!("dunlin-job:{}", self.id)
    }

    /// Reads that the job is still this node's.
    ///
    /// # Errors
    /// It is not, or etcd is away.
    pub fn check_owner(&self) -> Result<(), Problem> {
        let site = self.store().read()?;
        let is_mine =
            site.jobs.get(&self.id).is_some_and(|at| self.owns(at.value.lease) && is_running(at));
        match is_mine {
            true => Ok(()),
            false => Err(Problem::Away("another node has the job".into())),
        }
    }

    fn owns(&self, lease: LeaseId) -> bool {
        lease == self.lease
    }
}

struct Running {
    lease: LeaseId,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<Result<(), End>>>,
    /// How it has ended. It stays until etcd has it: it may take several attempts to write it.
    outcome: Option<Result<(), End>>,
    said: Instant,
}

impl Running {
    /// How far it is, or how it has ended.
    fn look(&mut self, job: &Job) -> Step {
        if !self.desk.has_ended.load(SeqCst) {
            if self.said.elapsed() < REPORT {
                return Step::Waits(job.percent, job.text.clone());
            }
            self.said = Instant::now();
            let (percent, text) = lock(&self.desk.progress).clone();
            return Step::Waits(percent, if job.is_cancelled { "it ends".into() } else { text });
        }
        if let Some(thread) = self.thread.take() {
            self.outcome = Some(thread.join().expect("a panic ends the process"));
        }
        match self.outcome.clone().unwrap_or(Err(End::Stopped)) {
            Ok(()) => Step::Done(Transaction::default()),
            Err(_) if job.is_cancelled => Step::Done(Transaction::default()),
            Err(End::Stopped) => Step::Waits(0, "it begins again".into()),
            Err(End::Failed(why)) => Step::Fails(why),
        }
    }

    /// Returns whether it was told to end although the job goes on.
    fn begins_again(&self, job: &Job) -> bool {
        matches!(self.outcome, Some(Err(End::Stopped))) && !job.is_cancelled
    }
}

/// The threads of this node.
#[derive(Default)]
pub struct Tasks {
    running: BTreeMap<String, Running>,
}

impl Tasks {
    /// Tells threads to end whose jobs are not this node's any more, and forgets those that have
    /// ended so.
    pub fn keep_own(&mut self, site: &Site, owner: &Owner) {
        let mine: BTreeSet<&String> = site
            .jobs
            .iter()
            .filter(|(_, at)| is_running(at) && at.value.lease == owner.lease)
            .map(|(id, _)| id)
            .collect();
        self.running.retain(|id, running| {
            let is_mine = mine.contains(id) && running.lease == owner.lease;
            if !is_mine {
                running.desk.control.is_stopped.store(true, SeqCst);
            }
            is_mine || !running.desk.has_ended.load(SeqCst)
        });
    }

    /// One look at a job: its thread is started, asked how far it is, or told to end.
    pub(crate) fn look(
        &mut self,
        shared: &Arc<Shared>,
        id: &str,
        (job, task): (&Job, &Task),
        run: Run,
    ) -> Step {
        let Some(running) = self.running.get_mut(id) else {
            if job.is_cancelled {
                return Step::Done(Transaction::default());
            }
            return self.start(shared, id, (job, task), run);
        };
        let control = &running.desk.control;
        control.is_finishing.store(task.is_finishing(), SeqCst);
        if job.is_cancelled {
            control.is_stopped.store(true, SeqCst);
        }
        let step = running.look(job);
        if running.begins_again(job) {
            self.running.remove(id);
        }
        step
    }

    fn start(
        &mut self,
        shared: &Arc<Shared>,
        id: &str,
        (job, task): (&Job, &Task),
        run: Run,
    ) -> Step {
        let desk = Arc::new(Desk::default());
        desk.control.is_finishing.store(task.is_finishing(), SeqCst);
        desk.say(0, "it begins".into());
        let work = Work {
            shared: Arc::clone(shared),
            id: id.to_owned(),
            database: job.database.clone(),
            lease: job.lease,
            desk: Arc::clone(&desk),
        };
        let run = move || {
            let outcome = run(&work);
            work.desk.has_ended.store(true, SeqCst);
            outcome
        };
        match std::thread::Builder::new().name("job".into()).spawn(run) {
            Ok(thread) => {
                let (thread, said) = (Some(thread), Instant::now());
                let running = Running { lease: job.lease, desk, thread, outcome: None, said };
                self.running.insert(id.to_owned(), running);
                Step::Waits(0, "it begins".into())
            }
            Err(error) => Step::Waits(0, format!("there is no thread for it: {error}")),
        }
    }
}

/// What a thread does for a job.
pub(crate) type Run = Box<dyn FnOnce(&Work) -> Result<(), End> + Send>;

/// How a task is done.
pub(crate) enum Way<'a> {
    /// By a thread of its own.
    Thread(Run),
    /// By looks of the one that has the job, each of which says what is next.
    Steps(&'a restart::Restart),
}

impl Way<'_> {
    fn thread<T: Clone + Send + 'static>(
        task: &T,
        run: fn(&T, &Work) -> Result<(), End>,
    ) -> Way<'static> {
        let task = task.clone();
        Way::Thread(Box::new(move |work| run(&task, work)))
    }
}

impl Task {
    /// Returns how it is done.
    pub(crate) fn way(&self) -> Way<'_> {
        match self {
            Task::Import(import) => Way::thread(import, import::Import::run),
            Task::Export(export) => Way::thread(export, import::Export::run),
            Task::Backup(backup) => Way::thread(backup, backup::Backup::run),
            Task::Verify(verify) => Way::thread(verify, backup::Verify::run),
            Task::Restore(restore) => Way::thread(restore, restore::Restore::run),
            Task::Restart(restart) => Way::Steps(restart),
        }
    }

    /// Returns whether it changes which copies the database has: nothing else may do so meanwhile.
    pub(crate) fn changes_copies(&self) -> bool {
        matches!(self, Task::Restart(restart) if restart.surge)
    }

    /// Returns whether it is to end as soon as the target is in step.
    pub fn is_finishing(&self) -> bool {
        match self {
            Task::Import(import) => import.is_finishing,
            Task::Export(export) => export.is_finishing,
            _ => false,
        }
    }

    /// The same, to end as soon as the target is in step; `None` if it is not such a task.
    pub fn finishing(&self) -> Option<Task> {
        match self.clone() {
            Task::Import(import) => {
                Some(Task::Import(import::Import { is_finishing: true, ..import }))
            }
            Task::Export(export) => {
                Some(Task::Export(import::Export { is_finishing: true, ..export }))
            }
            _ => None,
        }
    }
}

/// Returns the words for a time.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns how far so many of all are, and how long the rest takes at the same rate.
pub(crate) fn estimate(done: u64, all: u64, since: Instant) -> (u8, String) {
    if done == 0 || all == 0 {
        return (0, String::new());
    }
    let done = done.min(all);
    let percent = u8::try_from(u128::from(done) * 100 / u128::from(all)).unwrap_or(99);
    let left = since.elapsed().mul_f64((all - done) as f64 / done as f64);
    (percent, format!(", {} left", duration(left)))
}

/// Returns the database of a job that is ready.
pub(crate) fn ready(store: &mut Store, name: &str) -> Result<crate::site::Database, Problem> {
    let site = store.read()?;
    let database = change::database(&site, name)?.value.clone();
    match database.stage {
        crate::site::Stage::Ready => Ok(database),
        _ => Err(Problem::Wrong(format!(
            "the database '{name}' is not ready: see dunlin cluster jobs"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::{Aim, JobKind, JobState};

    #[test]
    fn what_a_thread_has_ended_with_stays_until_it_is_written() {
        let job = Job {
            kind: JobKind::Import,
            database: "d".into(),
            machine: String::new(),
            state: JobState::Running,
            owner: "a".into(),
            lease: 1,
            percent: 0,
            text: String::new(),
            is_cancelled: false,
            task: None,
            aim: Aim::default(),
            request_id: String::new(),
            began_ms: 0,
            ended_ms: 0,
        };
        let desk = Arc::new(Desk::default());
        desk.has_ended.store(true, SeqCst);
        let thread = std::thread::spawn(|| Err(End::Failed("no".into())));
        let (thread, said) = (Some(thread), Instant::now());
        let mut running = Running { lease: 1, desk, thread, outcome: None, said };
        for attempt in 0..3 {
            let is_failure = matches!(running.look(&job), Step::Fails(why) if why == "no");
            assert!(is_failure && !running.begins_again(&job), "attempt {attempt}");
        }
        let cancelled = Job { is_cancelled: true, ..job };
        assert!(matches!(running.look(&cancelled), Step::Done(_)));
    }
}
