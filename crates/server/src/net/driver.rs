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
use super::coalesce::Patience;
use super::conn::Token;
use super::epoll::Epoll;
use super::sys;
use super::uring::Uring;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

/// Something that happened to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Bytes arrived.
    Data { token: Token, buf: Filled },
    /// The peer closed its side; nothing more arrives.
    Eof { token: Token },
    /// Reading failed with this `errno`.
    Failed { token: Token, errno: i32 },
    /// The peer of a socket that is not being read hung up: in both directions if `both`, else it
    /// may still read what it is sent.
    HungUp { token: Token, both: bool },
    /// A socket that was full takes bytes again, or is broken.
    Writable { token: Token },
    /// Accepting on this listener failed with this `errno` and has stopped.
    AcceptFailed { key: u32, errno: i32 },
}

/// One buffer on its way out.
#[derive(Debug)]
pub(super) struct Flight {
    pub buf: Vec<u8>,
    pub token: Token,
    /// The connection's flags when the buffer was queued.
    pub flags: u16,
    /// Settled by `wait`: bytes the socket took, or a negated `errno`.
    pub result: i32,
}

impl Flight {
    /// Sends what the socket takes at once, with a system call of its own.
    pub fn send_now(&mut self, fd: RawFd) {
        let len = self.buf.len().min(MOST_SENT);
        self.result = loop {
            match sys::send(fd, &self.buf[..len]) {
                Ok(n) => break n as i32,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break -e.raw_os_error().unwrap_or(libc::EIO),
            }
        };
    }
}

/// A turn's worth of news.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub events: Vec<Event>,
    /// New connections and the key of the listener they came from.
    pub accepted: Vec<(u32, OwnedFd)>,
}

/// The bytes of a buffer that are sent at a time: more would not fit any socket, and the length
/// must fit the kernel's signed result.
pub(super) const MOST_SENT: usize = 1 << 30;

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

    /// `flags` are the connection's: they say what is outstanding.
    pub fn detach(&mut self, token: Token, flags: u16) {
        either!(self, d => d.detach(token, flags));
    }

    pub fn read_off(&mut self, token: Token) {
        either!(self, d => d.read_off(token));
    }

    pub fn read_on(&mut self, token: Token) {
        either!(self, d => d.read_on(token));
    }

    pub fn await_writable(&mut self, token: Token, fd: RawFd) {
        either!(self, d => d.await_writable(token, fd));
    }

    #[inline]
    pub fn send(&mut self, fd: RawFd, flight: Flight) {
        either!(self, d => d.send(fd, flight));
    }

    pub fn listen(&mut self, key: u32, fd: RawFd) -> io::Result<()> {
        either!(self, d => d.listen(key, fd))
    }

    pub fn unlisten(&mut self, key: u32) {
        either!(self, d => d.unlisten(key));
    }

    /// Whether it can wait for several events at once.
    pub fn can_be_patient(&self) -> bool {
        matches!(self, Driver::Uring(ring) if ring.can_be_patient())
    }

    /// Sends what is queued and waits for an event, `timeout` at most. A driver that
    /// [can](Driver::can_be_patient) waits for as many as `patience` says first.
    #[inline]
    pub fn wait(
        &mut self,
        timeout: Duration,
        patience: Option<Patience>,
        batch: &mut Batch,
    ) -> io::Result<()> {
        match self {
            Driver::Uring(ring) => ring.wait(timeout, patience, batch),
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
