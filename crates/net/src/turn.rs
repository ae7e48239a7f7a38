//! What a reactor and its [driver](super::driver) hand each other in a turn.

use super::buffers::Filled;
use super::conn::Token;
use super::sys;
use std::io;
use std::os::fd::RawFd;
use structs::output::Output;

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
    /// The socket of a connection that the reactor reads itself has something, or is at its end.
    Readable { token: Token },
}

/// One buffer on its way out.
#[derive(Debug)]
pub(super) struct Flight {
    pub buf: Output,
    pub token: Token,
    /// The connection's flags when the buffer was queued.
    pub flags: u32,
    /// Settled by `wait`: bytes the socket took, or a negated `errno`.
    pub result: i32,
}

impl Flight {
    /// Whether all of it has been sent.
    #[inline]
    pub fn is_whole(&self) -> bool {
        usize::try_from(self.result) == Ok(self.buf.len())
    }

    /// Sends what the socket takes at once of at most `limit` bytes, with a system call of its own.
    pub fn send_now(&mut self, fd: RawFd, limit: usize) {
        self.result = loop {
            let sent = match self.buf.is_plain() {
                true => sys::send(fd, &self.buf.plain()[..self.buf.len().min(limit)]),
                false => sys::send_slices(fd, self.buf.slices(0), limit),
            };
            match sent {
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
    /// Keys of the listeners at which connections wait to be accepted.
    pub arrivals: Vec<u32>,
}

/// The bytes of a buffer that are sent at a time: more would not fit any socket, and the length
/// must fit the kernel's signed result.
pub(super) const MAX_SENT: usize = 1 << 30;
