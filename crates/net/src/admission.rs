//! How new connections are let in: so many a turn, so that the open ones go first.
//!
//! To accept a connection costs some ten microseconds, and to answer the first message of a TLS
//! handshake a few hundred. When thousands come at once, all of it in one turn would keep the
//! connections that are open waiting for a second. So a turn accepts a few, and answers one TLS
//! handshake or so. Connections that were not accepted are in the kernel's queue (`tcp-backlog`).
//! [`hello`](super::hello) has those whose handshakes were not begun.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many strangers a turn of a reactor lets in.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    /// Connections accepted from one listener.
    pub accepts: usize,
    /// TLS handshakes begun.
    pub handshakes: usize,
    /// TLS handshakes of one reactor that may wait for their turn; further ones are refused.
    pub max_waiting: usize,
}

impl Default for Admission {
    fn default() -> Self {
        Self { accepts: 10, handshakes: 1, max_waiting: 4096 }
    }
}

/// The same, for all threads.
#[derive(Debug)]
pub(super) struct SharedAdmission {
    accepts: AtomicUsize,
    handshakes: AtomicUsize,
    max_waiting: AtomicUsize,
}

impl SharedAdmission {
    pub fn new(admission: Admission) -> Self {
        let Admission { accepts, handshakes, max_waiting } = admission;
        Self {
            accepts: AtomicUsize::new(accepts.max(1)),
            handshakes: AtomicUsize::new(handshakes.max(1)),
            max_waiting: AtomicUsize::new(max_waiting),
        }
    }

    pub fn set(&self, admission: Admission) {
        self.accepts.store(admission.accepts.max(1), Relaxed);
        self.handshakes.store(admission.handshakes.max(1), Relaxed);
        self.max_waiting.store(admission.max_waiting, Relaxed);
    }

    pub fn accepts(&self) -> usize {
        self.accepts.load(Relaxed)
    }

    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Relaxed)
    }

    pub fn max_waiting(&self) -> usize {
        self.max_waiting.load(Relaxed)
    }
}
