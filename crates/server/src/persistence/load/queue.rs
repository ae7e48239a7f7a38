//! The jobs that wait for a worker. The queue is short, so reading cannot run far ahead of
//! inserting.

use super::error::Failure;
use engine::load::{Cut, Head};
use rdb::Kind;
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::sync::{Condvar, Mutex, MutexGuard};
use structs::sync::{lock, wait};

/// A job for one worker.
pub enum Job {
    /// Whole records.
    Batch(Batch),
    /// A collection in pieces.
    Large(Large),
}

/// Records and the bytes that contain them.
pub struct Batch {
    pub bytes: Vec<u8>,
    pub cuts: Vec<Cut>,
    /// Offset in the container at which the bytes begin.
    pub offset: u64,
}

/// A collection whose elements follow.
pub struct Large {
    pub head: Head,
    pub kind: Kind,
    /// Number of elements.
    pub count: u64,
    pub pieces: Receiver<Piece>,
    /// Offset in the container at which it begins.
    pub offset: u64,
}

/// Some elements.
pub struct Piece {
    pub bytes: Vec<u8>,
    pub elements: usize,
    /// Offset in the container at which the bytes begin.
    pub offset: u64,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
    gave_up: bool,
    failure: Option<Failure>,
    spare: Vec<(Vec<u8>, Vec<Cut>)>,
}

/// The queue.
pub struct Queue {
    state: Mutex<State>,
    capacity: usize,
    filled: Condvar,
    drained: Condvar,
}

/// The load has failed or is no longer wanted. [`Queue::take_failure`] returns the reason.
pub struct GivenUp;

impl Queue {
    pub fn new(capacity: usize) -> Queue {
        let state = Mutex::default();
        Queue { state, capacity, filled: Condvar::new(), drained: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a job. Waits while the queue is full.
    pub fn push(&self, job: Job) -> Result<(), GivenUp> {
        let mut state = self.lock();
        while state.jobs.len() >= self.capacity && !state.gave_up {
            state = wait(&self.drained, state);
        }
        if state.gave_up {
            return Err(GivenUp);
        }
        state.jobs.push_back(job);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Returns the next job and waits for one. Returns `None` if there will be no more.
    pub fn pop(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.gave_up {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.drained.notify_one();
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = wait(&self.filled, state);
        }
    }

    /// Gives back the memory of a batch for reuse.
    pub fn recycle(&self, bytes: Vec<u8>, mut cuts: Vec<Cut>) {
        cuts.clear();
        let mut state = self.lock();
        if state.spare.len() < self.capacity {
            state.spare.push((bytes, cuts));
        }
    }

    /// Returns memory of a finished batch, if there is any.
    pub fn spare(&self) -> (Option<Vec<u8>>, Vec<Cut>) {
        match self.lock().spare.pop() {
            Some((bytes, cuts)) => (Some(bytes), cuts),
            None => (None, Vec::new()),
        }
    }

    /// Declares that no more jobs will come.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    /// Ends the load.
    pub fn give_up(&self) {
        self.lock().gave_up = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Ends the load because a worker has failed. Only the first failure is kept.
    pub fn fail(&self, failure: Failure) {
        self.lock().failure.get_or_insert(failure);
        self.give_up();
    }

    /// Returns why a worker failed, if one has.
    pub fn take_failure(&self) -> Option<Failure> {
        self.lock().failure.take()
    }
}
