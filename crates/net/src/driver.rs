//! What a reactor asks of the operating system, and the two that answer.
//!
//! A driver watches sockets and moves bytes; which connection may be read, what is done with a
//! failure and when something is closed is the reactor's to say. The contract, for both back-ends:
//!
//! * `attach` begins to read a socket and `detach` ends everything about it; events that carry an
//!   old generation may still follow and are the reactor's to ignore.
//! * `send` queues a buffer. Whether it went out, in whole or in part, is settled when `wait`
//!   returns; it never stays in flight beyond that. What the socket did not take is the reactor's
//!   to keep, and `await_writable` reports once that more fits.
//! * `wait` puts the events of a turn in the batch. A buffer with received bytes belongs to the
//!   reactor until `recycle`.
//! * `read_off` stops reading; a hang-up is then reported as such. `read_on` resumes.

use super::buffers::Filled;
use super::coalesce::WaitLimit;
use super::conn::Token;
use super::epoll::Epoll;
use super::turn::{Batch, Flight};
use super::uring::Uring;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// One of the two back-ends. A match on two variants is cheaper than a virtual call, and the same
/// one is taken every time.
pub(super) enum Driver {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

macro_rules! either {
    ($self:ident, $driver:ident => $call:expr) => {
        match $self {
            Driver::Uring($driver) => $call,
            Driver::Epoll($driver) => $call,
        }
    };
}

impl Driver {
    pub fn attach(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        either!(self, d => d.attach(token, fd))
    }

    /// Watches a socket that is being connected: `Writable` tells when there is an outcome.
    /// `attach` follows, or `detach`.
    pub fn watch(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        either!(self, d => d.watch(token, fd))
    }

    /// `flags` are the connection's: they say what is outstanding. A socket that is neither
    /// attached nor watched may be named.
    pub fn detach(&mut self, token: Token, flags: u32) {
        either!(self, d => d.detach(token, flags));
    }

    pub fn read_off(&mut self, token: Token) {
        either!(self, d => d.read_off(token));
    }

    pub fn read_on(&mut self, token: Token) {
        either!(self, d => d.read_on(token));
    }

    /// Has the reactor read a socket itself: `Readable` tells when there may be something to read,
    /// after all that has been received before. Each is followed by `await_readable`, or by
    /// `read_on`, which ends it as `read_off` does. Does nothing where reading is off.
    pub fn direct(&mut self, token: Token) {
        either!(self, d => d.direct(token));
    }

    /// Returns whether the reactor reads a socket itself, and is to do so now.
    pub fn is_direct(&self, token: Token) -> bool {
        either!(self, d => d.is_direct(token))
    }

    /// Waits for more to read. `is_drained` says that the socket had nothing more.
    pub fn await_readable(&mut self, token: Token, is_drained: bool) {
        either!(self, d => d.await_readable(token, is_drained));
    }

    pub fn await_writable(&mut self, token: Token, fd: RawFd) {
        either!(self, d => d.await_writable(token, fd));
    }

    #[inline]
    pub fn send(&mut self, fd: RawFd, flight: Flight) {
        either!(self, d => d.send(fd, flight));
    }

    /// Watches a listener: each `wait` reports it while connections wait there. The reactor accepts
    /// them.
    pub fn listen(&mut self, key: u32, fd: RawFd) -> io::Result<()> {
        either!(self, d => d.listen(key, fd))
    }

    pub fn unlisten(&mut self, key: u32) {
        either!(self, d => d.unlisten(key));
    }

    /// Has waits ask network cards for packets for so many microseconds before they sleep.
    pub fn busy_poll(&self, micros: u32) -> io::Result<()> {
        either!(self, d => d.busy_poll(micros))
    }

    /// Whether it can wait for several events at once.
    pub fn can_be_patient(&self) -> bool {
        matches!(self, Driver::Uring(ring) if ring.can_be_patient())
    }

    /// Sends what is queued and waits for an event, `timeout` at most. A driver that
    /// [can](Driver::can_be_patient) waits for as many as `wait_limit` says first.
    #[inline]
    pub fn wait(
        &mut self,
        timeout: Duration,
        wait_limit: Option<WaitLimit>,
        batch: &mut Batch,
    ) -> io::Result<()> {
        match self {
            Driver::Uring(ring) => ring.wait(timeout, wait_limit, batch),
            Driver::Epoll(epoll) => epoll.wait(timeout, batch),
        }
    }

    /// The buffers `wait` has settled.
    #[inline]
    pub fn flights(&mut self) -> &mut Vec<Flight> {
        either!(self, d => d.flights())
    }

    #[inline]
    pub fn input(&self, buf: Filled) -> &[u8] {
        either!(self, d => d.input(buf))
    }

    #[inline]
    pub fn recycle(&mut self, buf: Filled) {
        either!(self, d => d.recycle(buf));
    }
}
