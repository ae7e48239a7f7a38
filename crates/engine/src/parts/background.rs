//! Threads for what must not stall a reactor: freeing big values, and long commands.
//!
//! One thread frees, so that a long command does not hold memory back; a few run jobs. All are
//! started when they are first needed, and go on to the end of the process. Jobs run at a lower
//! priority than the reactors, if the server says how ([`Background::set_prologue`]): where all
//! cores are busy, short commands come first. Freeing does not, since memory must come back as fast
//! as others use it up. Both [give way](structs::give_way) now and then.

use crate::thread::ThreadContext;
use keyspace::keyspace::Taken;
use keyspace::world::Reader;
use keyspace::{Entry, memory};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use structs::give_way;
use structs::sync::{lock, wait};

/// Values that take more allocations than this are freed in the background.
pub const FREE_EFFORT: usize = 64;

/// Work for a thread that may take its time.
pub type Job = Box<dyn FnOnce(&ThreadContext) + Send>;

/// What is to be done under the lock of a stripe that could not be had, and that no client waits
/// for. Says whether it is done; it is called inside the world.
pub(crate) type Chore = Box<dyn FnMut() -> bool + Send>;

/// What a background thread is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Freeing.
    Free,
    /// Jobs.
    Jobs,
    /// Repeating history beside the thread that reads it.
    Apply,
}

/// Makes the context of a job thread, on that thread, of its number among the job threads.
type MakeContext = Box<dyn Fn(usize) -> ThreadContext + Send + Sync>;

/// What a background thread does first.
pub type Prologue = Box<dyn Fn(Purpose) + Send + Sync>;

enum Garbage {
    /// Held only to be dropped.
    Entry(#[allow(dead_code)] Entry),
    Tables(Taken),
    Caches(#[allow(dead_code)] Vec<TrackedKeys>),
}

/// Keys that clients may have cached, with these clients.
pub type TrackedKeys = HashMap<Box<[u8]>, Vec<u64>>;

/// The background threads.
pub struct Background {
    frees: OnceLock<Mutex<Sender<Garbage>>>,
    /// What computes.
    jobs: Pool,
    /// What waits for other servers.
    waits: Pool,
    /// Scripts, which may run for ever: other jobs have threads of their own.
    scripts: Pool,
    /// What is done when a lock can be had.
    chores: Mutex<Vec<Chore>>,
    has_chores: AtomicBool,
    prologue: Arc<OnceLock<Prologue>>,
    contexts: OnceLock<MakeContext>,
    pending: Arc<AtomicUsize>,
    freed: Arc<AtomicUsize>,
}

/// Threads that run jobs in the order of coming.
struct Pool {
    name: &'static str,
    jobs: Mutex<Jobs>,
    job_arrived: Condvar,
    most_threads: usize,
    /// The number of the first thread, behind those of the reactors.
    first: usize,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// How many threads run jobs, beside so many reactors: at least two, so that a very long command
/// does not keep the merely long ones waiting.
pub fn job_threads(reactors: usize) -> usize {
    reactors.clamp(2, 16)
}

/// How many threads run commands that wait for other servers.
pub const WAIT_THREADS: usize = 4;

/// How many threads there are for jobs of all kinds, beside so many reactors.
pub fn all_threads(reactors: usize) -> usize {
    2 * job_threads(reactors) + WAIT_THREADS
}

/// The pause of a background thread that waits for others to make progress.
pub(crate) const GAP: Duration = Duration::from_micros(200);

/// Leaves the world for a moment, if another thread wants to stop it or to run.
pub(crate) fn yield_world(reader: &Reader<'static>) {
    if reader.is_wanted() || give_way::is_due() {
        reader.leave();
        give_way::give_way();
        reader.enter();
    }
}

impl Garbage {
    fn objects(&self) -> usize {
        match self {
            Garbage::Entry(_) => 1,
            Garbage::Tables(taken) => taken.keys(),
            // No objects of the data set.
            Garbage::Caches(_) => 0,
        }
    }
}

impl Background {
    /// At most so many threads for jobs; none is started yet.
    pub fn new(most_threads: usize) -> Background {
        Background {
            frees: OnceLock::new(),
            jobs: Pool::new("background", most_threads, 0),
            waits: Pool::new("peers", WAIT_THREADS, most_threads),
            scripts: Pool::new("scripts", most_threads, most_threads + WAIT_THREADS),
            chores: Mutex::default(),
            has_chores: AtomicBool::new(false),
            prologue: Arc::default(),
            contexts: OnceLock::new(),
            pending: Arc::default(),
            freed: Arc::default(),
        }
    }

    /// Says what each thread does first; once, before any is started.
    pub fn set_prologue(&self, prologue: Prologue) {
        assert!(self.prologue.set(prologue).is_ok(), "background threads begin in one way");
    }

    /// Says how the context of a job thread is made; once, before any is started.
    pub(crate) fn set_contexts(
        &self,
        make: impl Fn(usize) -> ThreadContext + Send + Sync + 'static,
    ) {
        assert!(self.contexts.set(Box::new(make)).is_ok(), "job threads belong to one engine");
    }

    fn send(&self, garbage: Garbage) {
        self.pending.fetch_add(garbage.objects(), Relaxed);
        let sender = self.frees.get_or_init(|| {
            let (sender, receiver) = channel::<Garbage>();
            let (pending, freed) = (Arc::clone(&self.pending), Arc::clone(&self.freed));
            self.spawn("lazy-free".to_owned(), Purpose::Free, move || {
                for garbage in receiver {
                    let objects = garbage.objects();
                    drop(garbage);
                    memory::collect();
                    pending.fetch_sub(objects, Relaxed);
                    freed.fetch_add(objects, Relaxed);
                }
            });
            Mutex::new(sender)
        });
        let sender = lock(sender);
        sender.send(garbage).expect("the freeing thread never ends");
    }

    pub(crate) fn spawn(
        &self,
        name: String,
        purpose: Purpose,
        work: impl FnOnce() + Send + 'static,
    ) {
        let prologue = Arc::clone(&self.prologue);
        std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                if let Some(prologue) = prologue.get() {
                    prologue(purpose);
                }
                if purpose != Purpose::Apply {
                    give_way::begin();
                }
                work();
            })
            .expect("the system can start a thread");
    }

    /// Frees an entry: at once if that is quick, else in the background.
    pub fn free_entry(&self, entry: Entry) {
        if entry.free_effort() > FREE_EFFORT {
            self.send(Garbage::Entry(entry));
        }
    }

    /// Frees whole tables in the background.
    pub fn free_tables(&self, taken: Taken) {
        if taken.keys() > 0 {
            self.send(Garbage::Tables(taken));
        }
    }

    /// Frees what was known of clients' caches in the background.
    pub fn free_tracked(&self, tracked: Vec<TrackedKeys>) {
        if tracked.iter().any(|keys| !keys.is_empty()) {
            self.send(Garbage::Caches(tracked));
        }
    }

    /// Objects that wait to be freed (INFO's `lazyfree_pending_objects`).
    pub fn pending_objects(&self) -> usize {
        self.pending.load(Relaxed)
    }

    /// Objects freed so far in the background.
    pub fn freed_objects(&self) -> usize {
        self.freed.load(Relaxed)
    }

    /// Forgets the count of freed objects (CONFIG RESETSTAT).
    pub fn reset_freed(&self) {
        self.freed.store(0, Relaxed);
    }

    /// Runs a job on one of the job threads, in the order of coming as far as there are idle ones.
    pub fn run(&'static self, job: Job) {
        self.run_in(&self.jobs, job);
    }

    /// The same for a job that waits for another server, on threads for such jobs.
    pub fn run_waiting(&'static self, job: Job) {
        self.run_in(&self.waits, job);
    }

    /// Keeps a chore until it can be done.
    pub(crate) fn add_chore(&self, chore: Chore) {
        lock(&self.chores).push(chore);
        self.has_chores.store(true, Relaxed);
    }

    /// Does the chores that can be done; the caller is inside the world and holds no stripe.
    #[inline]
    pub(crate) fn do_chores(&self) {
        if self.has_chores.load(Relaxed) {
            self.try_chores();
        }
    }

    #[cold]
    fn try_chores(&self) {
        let mut chores = std::mem::take(&mut *lock(&self.chores));
        chores.retain_mut(|chore| !chore());
        let mut waiting = lock(&self.chores);
        waiting.append(&mut chores);
        self.has_chores.store(!waiting.is_empty(), Relaxed);
    }

    /// Runs a script on one of the threads for scripts.
    pub(crate) fn run_script(&'static self, job: Job) {
        self.run_in(&self.scripts, job);
    }

    /// Whether the job thread of this number is one for scripts.
    pub(crate) fn is_for_scripts(&self, number: usize) -> bool {
        number >= self.scripts.first
    }

    /// Hands scripts that wait for a thread to other job threads, which are to refuse them.
    pub(crate) fn refuse_scripts(&'static self) {
        let waiting = std::mem::take(&mut self.scripts.lock_jobs().waiting);
        waiting.into_iter().for_each(|job| self.run(job));
    }

    /// Whether every thread for scripts runs one.
    pub(crate) fn has_no_script_thread(&self) -> bool {
        let jobs = self.scripts.lock_jobs();
        jobs.threads == self.scripts.most_threads && jobs.idle <= jobs.waiting.len()
    }

    fn run_in(&'static self, pool: &'static Pool, job: Job) {
        let Some(number) = pool.add(job) else { return };
        self.spawn(format!("{}-{number}", pool.name), Purpose::Jobs, move || {
            let make = self.contexts.get().expect("an engine says it before there are jobs");
            let thread = make(pool.first + number);
            loop {
                pool.next_job()(&thread);
                memory::collect();
            }
        });
    }
}

impl Pool {
    fn new(name: &'static str, most_threads: usize, first: usize) -> Pool {
        Pool { name, jobs: Mutex::default(), job_arrived: Condvar::new(), most_threads, first }
    }

    /// Adds a job; the number of the thread that has to be started for it, if one has.
    fn add(&self, job: Job) -> Option<usize> {
        let mut jobs = self.lock_jobs();
        jobs.waiting.push_back(job);
        if jobs.waiting.len() > jobs.idle && jobs.threads < self.most_threads {
            jobs.threads += 1;
            return Some(jobs.threads - 1);
        }
        drop(jobs);
        self.job_arrived.notify_one();
        None
    }

    fn next_job(&self) -> Job {
        let mut jobs = self.lock_jobs();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                return job;
            }
            jobs.idle += 1;
            jobs = wait(&self.job_arrived, jobs);
            jobs.idle -= 1;
        }
    }

    fn lock_jobs(&self) -> MutexGuard<'_, Jobs> {
        lock(&self.jobs)
    }
}
