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
//! many.
//!
//! Descriptors that wait to be closed are counted, over all threads, beside the connections. When
//! both come near [`Admission::max_open`], a turn closes more, and no connection is accepted that
//! would not fit. [`accepting`](super::accepting) does so.

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
    /// Descriptors of all threads' connections, those included that wait to be closed. While some
    /// wait, no connection is accepted beyond that. While none waits, a turn accepts one from each
    /// listener: what is one too many is for the handler to say.
    pub max_open: usize,
}

impl Default for Admission {
    fn default() -> Self {
        Self { accepts: 10, handshakes: 1, max_waiting: 4096, max_open: usize::MAX }
    }
}

/// Whether there is room for one more connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// When descriptors that wait have been closed.
    Soon,
    /// There is none. The handler says what becomes of the next one.
    None,
}

/// The same, for all threads, and the descriptors that wait to be closed.
#[derive(Debug)]
pub(super) struct SharedAdmission {
    accepts: AtomicUsize,
    handshakes: AtomicUsize,
    max_waiting: AtomicUsize,
    max_open: AtomicUsize,
    /// Descriptors in the [`Leaving`] of all threads.
    leaving: AtomicUsize,
}

impl SharedAdmission {
    pub fn new(admission: Admission) -> Self {
        let new = Self {
            accepts: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            max_waiting: AtomicUsize::new(0),
            max_open: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
        };
        new.set(admission);
        new
    }

    pub fn set(&self, admission: Admission) {
        let Admission { accepts, handshakes, max_waiting, max_open } = admission;
        self.accepts.store(accepts.max(1), Relaxed);
        self.handshakes.store(handshakes.max(1), Relaxed);
        self.max_waiting.store(max_waiting, Relaxed);
        self.max_open.store(max_open, Relaxed);
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

    /// Returns whether one of `threads` may accept a connection beside `connections`. Each of them
    /// may be about to accept one. `are_ending`: some of the connections are about to leave.
    pub fn room(&self, threads: usize, connections: usize, are_ending: bool) -> Room {
        // Connections were counted before: one that ends meanwhile is counted twice, and not left
        // out.
        let leaving = self.leaving.load(Relaxed);
        if connections + leaving + threads <= self.max_open.load(Relaxed) {
            Room::Free
        } else if leaving > 0 || are_ending {
            Room::Soon
        } else {
            Room::None
        }
    }

    /// Returns how many descriptors a thread closes in this turn: as many as it accepts from one
    /// listener, or so many that all that `listeners` may bring fit beside `connections`.
    pub fn closes(&self, threads: usize, listeners: usize, connections: usize) -> usize {
        let accepts = self.accepts();
        let open = connections + self.leaving.load(Relaxed) + threads + listeners * accepts;
        accepts.max(open.saturating_sub(self.max_open.load(Relaxed)))
    }
}

/// Of very many that wait a turn closes this part, so that they are gone soon.
const PART: usize = 64;

/// Descriptors of a thread's connections that ended, which wait to be closed.
#[derive(Debug, Default)]
pub(super) struct Leaving(VecDeque<OwnedFd>);

impl Leaving {
    pub fn add(&mut self, fd: Option<OwnedFd>, shared: &SharedAdmission) {
        if let Some(fd) = fd {
            shared.leaving.fetch_add(1, Relaxed);
            self.0.push_back(fd);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Closes so many, or a [`PART`] of all if that is more, those that have waited longest.
    pub fn close(&mut self, count: usize, shared: &SharedAdmission) {
        let count = count.max(self.0.len() / PART).min(self.0.len());
        self.0.drain(..count);
        shared.leaving.fetch_sub(count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_turn_closes_a_few_in_the_order_in_which_they_ended() {
        let shared = SharedAdmission::new(Admission::default());
        let mut leaving = Leaving::default();
        let mut peers: Vec<UnixStream> = (0..5)
            .map(|_| {
                let (own, peer) = UnixStream::pair().expect("a pair of sockets");
                peer.set_nonblocking(true).expect("a socket that does not block");
                leaving.add(Some(own.into()), &shared);
                peer
            })
            .collect();
        let mut open = || {
            let is_open = |peer: &mut UnixStream| {
                peer.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            };
            peers.iter_mut().map(is_open).collect::<Vec<_>>()
        };
        leaving.close(2, &shared);
        assert_eq!(open(), [false, false, true, true, true]);
        assert!(!leaving.is_empty());
        leaving.close(10, &shared);
        assert_eq!(open(), [false; 5]);
        assert!(leaving.is_empty());
    }

    const MAX_OPEN: usize = 200;
    const THREADS: usize = 2;
    const LISTENERS: usize = 8;

    /// Threads whose connections ended all at once, while as many others wait to be accepted.
    struct Storm {
        shared: SharedAdmission,
        threads: [Leaving; THREADS],
        connections: usize,
    }

    impl Storm {
        fn begin() -> Storm {
            let admission = Admission { max_open: MAX_OPEN, ..Admission::default() };
            let shared = SharedAdmission::new(admission);
            let mut threads: [Leaving; THREADS] = Default::default();
            for at in 0..MAX_OPEN {
                let file = std::fs::File::open("/dev/null").expect("a file");
                threads[at % THREADS].add(Some(file.into()), &shared);
            }
            Storm { shared, threads, connections: 0 }
        }

        fn leaving(&self) -> usize {
            self.threads.iter().map(|leaving| leaving.0.len()).sum()
        }

        fn turn(&mut self, thread: usize) {
            let count = self.shared.closes(THREADS, LISTENERS, self.connections);
            self.threads[thread].close(count, &self.shared);
            for _ in 0..LISTENERS {
                self.accept();
            }
        }

        fn accept(&mut self) {
            for _ in 0..self.shared.accepts() {
                let room = self.shared.room(THREADS, self.connections, false);
                if room == Room::Soon || self.connections == MAX_OPEN {
                    return;
                }
                self.connections += 1;
                let open = self.connections + self.leaving();
                assert!(open <= MAX_OPEN, "{open} descriptors are open");
                if room == Room::None {
                    return;
                }
            }
        }
    }

    #[test]
    fn those_that_leave_and_those_that_come_stay_within_the_limit() {
        let mut storm = Storm::begin();
        let mut turns = 0;
        while storm.connections < MAX_OPEN {
            assert!(turns < 20, "{} of {MAX_OPEN} are connected", storm.connections);
            (0..THREADS).for_each(|thread| storm.turn(thread));
            turns += 1;
        }
        assert_eq!(storm.leaving(), 0);
    }

    #[test]
    fn a_thread_that_closes_nothing_is_waited_for() {
        let mut storm = Storm::begin();
        (0..100).for_each(|_| storm.turn(0));
        assert!(storm.threads[0].is_empty());
        assert_eq!(storm.connections, MAX_OPEN - storm.leaving() - THREADS + 1);
        (0..2).for_each(|_| storm.turn(1));
        assert_eq!((storm.connections, storm.leaving()), (MAX_OPEN, 0));
    }

    #[test]
    fn a_limit_far_away_lets_a_few_be_closed_and_all_in() {
        let shared = SharedAdmission::new(Admission::default());
        let mut leaving = Leaving::default();
        leaving.add(Some(std::fs::File::open("/dev/null").expect("a file").into()), &shared);
        assert_eq!(shared.closes(THREADS, LISTENERS, 1 << 20), Admission::default().accepts);
        assert_eq!(shared.room(THREADS, 1 << 20, true), Room::Free);
        shared.set(Admission { max_open: 3, ..Admission::default() });
        assert_eq!(shared.room(THREADS, 0, false), Room::Free);
        assert_eq!(shared.room(THREADS, 1, false), Room::Soon);
        leaving.close(1, &shared);
        assert_eq!(shared.room(THREADS, 1, false), Room::Free);
        assert_eq!(shared.room(THREADS, 2, true), Room::Soon);
        assert_eq!(shared.room(THREADS, 2, false), Room::None);
    }
}
