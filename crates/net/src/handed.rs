//! Replies that wait for a position, kept where the thread that releases it can send them.
//!
//! A reply that is [held](super::ConnIo::hold_until) may leave when another thread says so. If that
//! thread only woke the reactor, each reply would wait for a change of thread, which on a busy
//! machine takes longer than sending it. So the reactor *hands over* what a connection holds: the
//! thread that releases sends it itself, and the reactor need not wake at all. What became of it is
//! *returned*, and settled at the reactor's next turn like a buffer of its own.
//!
//! A connection hands over at most one reply at a time, so replies keep their order: what it writes
//! meanwhile waits for the return. Its descriptor stays open that long. Not handed over is what
//! needs the reactor: TLS, backlogs, connections that are closing, large replies; and of many
//! replies that are released at once, all but the first are the reactor's again, since one thread
//! must not do the work of all.

use super::conn::Token;
use super::turn::{Flight, MAX_SENT};
use super::waker::Waker;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use structs::output::Output;
use structs::sync::lock;

/// Replies of more bytes than this are the reactor's to send.
pub(super) const LARGEST: usize = 16 << 10;
/// More replies of one reactor than this are not sent by the thread that releases them.
const MAX_FLIGHTS: usize = 64;

/// A reply that waits.
#[derive(Debug)]
pub(super) struct HandedReply {
    pub position: u64,
    pub fd: RawFd,
    pub token: Token,
    pub buf: Output,
}

/// The replies that one reactor has handed over.
#[derive(Debug, Default)]
pub(super) struct HandedReplies {
    waiting: Mutex<VecDeque<HandedReply>>,
    returned: Mutex<Vec<Flight>>,
    has_returned: AtomicBool,
    /// The reactor is to be woken by a return.
    return_wanted: AtomicBool,
    /// The reactor is to send what is due.
    is_crowded: AtomicBool,
}

impl HandedReplies {
    /// The reactor hands over a reply. Whether it is due already is for the reactor to see
    /// afterwards.
    pub fn hand_over(&self, reply: HandedReply) {
        lock(&self.waiting).push_back(reply);
    }

    /// Sends what is due, for the thread that released it.
    pub fn send_due(&self, released: u64, reactor: &Waker) {
        let (mut due, is_crowded) = self.take_due(released);
        if is_crowded {
            self.is_crowded.store(true, SeqCst);
            reactor.wake();
        }
        if due.is_empty() {
            return;
        }
        // The descriptors are open: the reactor keeps them until this is returned.
        for (fd, flight) in &mut due {
            flight.send_now(*fd, MAX_SENT);
        }
        self.give_back(due, reactor);
    }

    /// The first of those that are due, and whether there are more.
    fn take_due(&self, released: u64) -> (Vec<(RawFd, Flight)>, bool) {
        let mut waiting = lock(&self.waiting);
        let due = waiting.iter().take_while(|reply| reply.position <= released).count();
        let flight = |HandedReply { fd, token, buf, .. }: HandedReply| {
            (fd, Flight { buf, token, flags: 0, result: 0 })
        };
        (waiting.drain(..due.min(MAX_FLIGHTS)).map(flight).collect(), due > MAX_FLIGHTS)
    }

    fn give_back(&self, flights: Vec<(RawFd, Flight)>, reactor: &Waker) {
        let any_unfinished = flights.iter().any(|(_, flight)| !flight.is_whole());
        lock(&self.returned).extend(flights.into_iter().map(|(_, flight)| flight));
        self.has_returned.store(true, SeqCst);
        if self.return_wanted.swap(false, SeqCst) || any_unfinished {
            reactor.wake();
        }
    }

    /// Returns whether there is something for the reactor to take.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.has_returned.load(SeqCst) || self.is_crowded.load(SeqCst)
    }

    /// What has been sent, or could not be, since the last call.
    pub fn take_returned(&self) -> Vec<Flight> {
        if !self.has_returned.load(SeqCst) {
            return Vec::new();
        }
        self.has_returned.store(false, SeqCst);
        std::mem::take(&mut *lock(&self.returned))
    }

    /// Has the next return wake the reactor, also if it has happened.
    pub fn want_return(&self, reactor: &Waker) {
        self.return_wanted.store(true, SeqCst);
        if self.has_returned.load(SeqCst) {
            reactor.wake();
        }
    }

    /// Takes back the reply of one connection, unless it is being sent or has been.
    pub fn take_back(&self, token: Token) -> Option<HandedReply> {
        let mut waiting = lock(&self.waiting);
        let at = waiting.iter().position(|reply| reply.token == token)?;
        waiting.remove(at)
    }

    /// What the reactor is to send itself, because it was too much for the thread that released it.
    pub fn take_crowd(&self, released: u64) -> Vec<HandedReply> {
        if !self.is_crowded.load(SeqCst) {
            return Vec::new();
        }
        self.is_crowded.store(false, SeqCst);
        let mut waiting = lock(&self.waiting);
        let due = waiting.iter().take_while(|reply| reply.position <= released).count();
        waiting.drain(..due).collect()
    }
}
