//! How connections come and go: so many a turn, so that the open ones go first.
//!
//! To accept a connection costs some ten microseconds, and to answer the first message of a TLS
//! handshake a few hundred. When thousands come at once, all of it in one turn would keep the
//! connections that are open waiting for a second. So a turn accepts a few, and answers one TLS
//! handshake or so. Connections that were not accepted are in the kernel's queue (`tcp-backlog`).
//! [`hello`](super::hello) has those whose handshakes were not begun.
//!
//! To close the socket of a peer that has gone costs as much as to accept one. When a process with
//! thousands of connections ends, a turn closes a few of them ([`Leaving`]) and accepts half as
//! many, so that there are enough descriptors.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many strangers a turn of a reactor lets in.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    /// Connections accepted from one listener, or closed.
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

/// Of very many that wait a turn closes this part: descriptors are scarce, and no limit counts
/// those that wait.
const PART: usize = 64;

/// Descriptors of connections that ended, which wait to be closed.
#[derive(Debug, Default)]
pub(super) struct Leaving(VecDeque<OwnedFd>);

impl Leaving {
    pub fn add(&mut self, fd: Option<OwnedFd>) {
        self.0.extend(fd);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Closes so many, or a [`PART`] of all if that is more, those that have waited longest.
    pub fn close(&mut self, count: usize) {
        let count = count.max(self.0.len() / PART);
        self.0.drain(..count.min(self.0.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_turn_closes_a_few_in_the_order_in_which_they_ended() {
        let mut leaving = Leaving::default();
        let mut peers: Vec<UnixStream> = (0..5)
            .map(|_| {
                let (own, peer) = UnixStream::pair().expect("a pair of sockets");
                peer.set_nonblocking(true).expect("a socket that does not block");
                leaving.add(Some(own.into()));
                peer
            })
            .collect();
        let mut open = || {
            let is_open = |peer: &mut UnixStream| {
                peer.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            };
            peers.iter_mut().map(is_open).collect::<Vec<_>>()
        };
        leaving.close(2);
        assert_eq!(open(), [false, false, true, true, true]);
        assert!(!leaving.is_empty());
        leaving.close(10);
        assert_eq!(open(), [false; 5]);
        assert!(leaving.is_empty());
    }
}
