//! Threads for what must not stall a reactor: freeing big values, and long commands.
//!
//! Two threads, started when they are first needed: one frees, one runs jobs, so that a long job
//! does not hold memory back. A job gets the engine and works on the keyspace like any other
//! thread, in small bites.

use crate::engine::Engine;
use keyspace::Entry;
use keyspace::keyspace::Taken;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Values that take more allocations than this are freed in the background.
pub const FREE_EFFORT: usize = 64;

/// Work for the second thread.
pub type Job = Box<dyn FnOnce(&'static Engine) + Send>;

enum Garbage {
    /// Held only to be dropped.
    Entry(#[allow(dead_code)] Entry),
    Tables(Taken),
}

/// The background threads.
#[derive(Default)]
pub struct Background {
    frees: OnceLock<Mutex<Sender<Garbage>>>,
    jobs: OnceLock<Mutex<Sender<Job>>>,
    pending: Arc<AtomicUsize>,
    freed: Arc<AtomicUsize>,
}

impl Garbage {
    fn objects(&self) -> usize {
        match self {
            Garbage::Entry(_) => 1,
            Garbage::Tables(taken) => taken.keys(),
        }
    }
}

impl Background {
    fn send(&self, garbage: Garbage) {
        self.pending.fetch_add(garbage.objects(), Relaxed);
        let sender = self.frees.get_or_init(|| {
            let (sender, receiver) = channel::<Garbage>();
            let (pending, freed) = (Arc::clone(&self.pending), Arc::clone(&self.freed));
            spawn("lazy-free", move || {
                for garbage in receiver {
                    let objects = garbage.objects();
                    drop(garbage);
                    pending.fetch_sub(objects, Relaxed);
                    freed.fetch_add(objects, Relaxed);
                }
            });
            Mutex::new(sender)
        });
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(garbage).expect("the freeing thread never ends");
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

    /// Runs a job in the background; jobs run one after the other.
    pub fn run(&self, engine: &'static Engine, job: Job) {
        let sender = self.jobs.get_or_init(|| {
            let (sender, receiver) = channel::<Job>();
            spawn("background", move || {
                for job in receiver {
                    job(engine);
                }
            });
            Mutex::new(sender)
        });
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(job).expect("the background thread never ends");
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .expect("the system can start a thread");
}
