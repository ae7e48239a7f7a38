//! What clients in WAIT and WAITAOF wait for, and the list of them.

use super::waiter::Waiter;
use crate::journal::JournalPos;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use structs::sync::lock;

/// What a client wants to know of its writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// WAIT: that so many replicas have them.
    Replicas(i64),
    /// WAITAOF: where they are on a disk.
    Disks {
        /// On this server's.
        local: bool,
        /// On so many replicas'.
        replicas: i64,
    },
}

/// What a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acks {
    /// Behind its last write.
    pub(crate) position: JournalPos,
    pub(crate) wanted: Wanted,
}

/// The clients that wait.
#[derive(Default)]
pub struct AckWaiters {
    waiters: Mutex<Vec<Arc<Waiter>>>,
    count: AtomicUsize,
}

impl AckWaiters {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Waiter>>> {
        lock(&self.waiters)
    }

    /// Adds one that begins to wait.
    pub(crate) fn add(&self, waiter: &Arc<Waiter>) {
        let mut waiters = self.lock();
        waiters.push(Arc::clone(waiter));
        self.count.store(waiters.len(), SeqCst);
    }

    /// Forgets one that waits no longer.
    pub(crate) fn remove(&self, waiter: &Arc<Waiter>) {
        let mut waiters = self.lock();
        waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.store(waiters.len(), SeqCst);
    }

    /// Whether any client waits.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// Looks at each, and forgets those that wait no longer, as `is_over` says.
    pub(crate) fn end_if(&self, mut is_over: impl FnMut(&Waiter) -> bool) {
        let mut waiters = self.lock();
        waiters.retain(|waiter| !is_over(waiter));
        self.count.store(waiters.len(), SeqCst);
    }
}
