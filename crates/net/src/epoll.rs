//! The epoll back-end, for kernels and containers without io_uring.
//!
//! Every socket is registered once, edge-triggered, for reading, writing and hang-ups together, and
//! never changed again: pausing a connection or waiting for room costs no system call. A turn is
//! one `epoll_wait`, then one `recv` for each readable socket, whose bytes wait in a shared buffer
//! until the reactor delivers the batch; sends are made when they are queued, which is at the end
//! of the turn, all together.
#![allow(unsafe_code)] // Three system calls; the structures they fill are plain data.

use super::buffers::{Buffers, Filled};
use super::conn::Token;
use super::sys;
use super::turn::{Batch, Event, Flight, MAX_SENT};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Events taken from the kernel in one call.
const EVENTS: usize = 256;

/// The high byte of an event's data says whose it is.
const CONN: u64 = 0;
const LISTENER: u64 = 1;
const WAKER: u64 = 2;

/// What is known about the readability of one socket.
#[derive(Debug, Clone, Copy)]
struct Read {
    fd: RawFd,
    generation: u32,
    /// There may be something to read: an edge has been seen and not been followed to its end.
    ready: bool,
    /// The peer has hung up: read on until the end is reached, since no edge follows.
    hung_up: bool,
    /// The reactor does not want to read.
    off: bool,
    /// The reactor reads it.
    direct: bool,
    /// In the list of sockets to be read next turn.
    queued: bool,
    /// The reactor waits for room to send. Without this flag such events are ignored.
    awaited: bool,
    /// It is being connected, and registered for the outcome only.
    connecting: bool,
}

const VACANT: Read = Read {
    fd: -1,
    generation: u32::MAX,
    ready: false,
    hung_up: false,
    off: false,
    direct: false,
    queued: false,
    awaited: false,
    connecting: false,
};

pub(super) struct Epoll {
    epoll: OwnedFd,
    buffers: Buffers,
    /// Free buffers.
    free: Vec<u16>,
    reads: Vec<Read>,
    /// Sockets with more to read than the last turn took.
    again: Vec<Token>,
    listens: Vec<(u32, RawFd)>,
    flights: Vec<Flight>,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub fn new(waker: RawFd) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let this = Self {
            epoll,
            buffers: Buffers::new(),
            free: Vec::new(),
            reads: Vec::new(),
            again: Vec::new(),
            listens: Vec::new(),
            flights: Vec::new(),
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
        };
        this.control(libc::EPOLL_CTL_ADD, waker, libc::EPOLLIN | libc::EPOLLET, WAKER << 56)?;
        Ok(this)
    }

    pub fn busy_poll(&self, micros: u32) -> io::Result<()> {
        sys::set_busy_poll(&self.epoll, micros)
    }

    fn control(&self, what: i32, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: `event` is read during the call only.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn interest() -> i32 {
        libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET
    }

    pub fn attach(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        let slot = token.slot as usize;
        if self.reads.len() <= slot {
            self.reads.resize(slot + 1, VACANT);
        }
        let Read { generation, connecting, .. } = self.reads[slot];
        let is_watched = connecting && generation == token.generation;
        let what = if is_watched { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
        self.control(what, fd, Self::interest(), CONN << 56 | token.pack())?;
        self.reads[slot] = Read { fd, generation: token.generation, ..VACANT };
        Ok(())
    }

    pub fn watch(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        let slot = token.slot as usize;
        if self.reads.len() <= slot {
            self.reads.resize(slot + 1, VACANT);
        }
        let events = libc::EPOLLOUT | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, events, CONN << 56 | token.pack())?;
        self.reads[slot] = Read { fd, generation: token.generation, connecting: true, ..VACANT };
        Ok(())
    }

    pub fn detach(&mut self, token: Token, _flags: u32) {
        let Some(read) = self.reads.get_mut(token.slot as usize) else { return };
        if read.generation != token.generation {
            return;
        }
        let read = std::mem::replace(read, VACANT);
        // The descriptor stays open a little longer, so it does not leave by itself in time.
        let _ = self.control(libc::EPOLL_CTL_DEL, read.fd, 0, 0);
    }

    pub fn read_off(&mut self, token: Token) {
        let read = &mut self.reads[token.slot as usize];
        read.off = true;
        read.direct = false;
        // A hang-up seen while there was still something to read is news now.
        if read.hung_up && !read.queued {
            self.queue(token);
        }
    }

    pub fn read_on(&mut self, token: Token) {
        let read = &mut self.reads[token.slot as usize];
        read.off = false;
        read.direct = false;
        if read.ready && !read.queued {
            read.queued = true;
            self.again.push(token);
        }
    }

    pub fn direct(&mut self, token: Token) {
        let read = &mut self.reads[token.slot as usize];
        read.direct = !read.off;
    }

    pub fn is_direct(&self, token: Token) -> bool {
        self.reads[token.slot as usize].direct
    }

    pub fn await_readable(&mut self, token: Token, is_drained: bool) {
        let read = &mut self.reads[token.slot as usize];
        // No edge follows a hang-up: read on until the end is reached.
        if is_drained && !read.hung_up {
            read.ready = false;
        } else if !read.queued {
            self.queue(token);
        }
    }

    pub fn await_writable(&mut self, token: Token, fd: RawFd) {
        self.reads[token.slot as usize].awaited = true;
        // Changing the registration to what it is makes the kernel look again: room that became
        // free between the failed send and now would otherwise go unnoticed.
        let _ = self.control(libc::EPOLL_CTL_MOD, fd, Self::interest(), CONN << 56 | token.pack());
    }

    pub fn send(&mut self, fd: RawFd, mut flight: Flight) {
        flight.send_now(fd, MAX_SENT);
        self.flights.push(flight);
    }

    pub fn listen(&mut self, key: u32, fd: RawFd) -> io::Result<()> {
        // Level-triggered, and one thread at a time: several reactors watch the same listener.
        let events = libc::EPOLLIN | libc::EPOLLEXCLUSIVE;
        self.control(libc::EPOLL_CTL_ADD, fd, events, LISTENER << 56 | u64::from(key))?;
        self.listens.push((key, fd));
        Ok(())
    }

    pub fn unlisten(&mut self, key: u32) {
        if let Some(at) = self.listens.iter().position(|(k, _)| *k == key) {
            let (_, fd) = self.listens.swap_remove(at);
            let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }

    pub fn flights(&mut self) -> &mut Vec<Flight> {
        &mut self.flights
    }

    #[inline]
    pub fn input(&self, buf: Filled) -> &[u8] {
        self.buffers.filled(buf)
    }

    #[inline]
    pub fn recycle(&mut self, buf: Filled) {
        // The last one used is the next one used: it is in the cache.
        self.free.push(buf.id);
    }

    pub fn wait(&mut self, timeout: Duration, batch: &mut Batch) -> io::Result<()> {
        let millis = if self.again.is_empty() {
            // Rounded up, so that a wait never ends just before its time and spins.
            i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
        } else {
            0
        };
        let most = self.events.len() as i32;
        // SAFETY: the array has room for `most` events.
        let n = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), most, millis)
        };
        if n < 0 {
            let e = io::Error::last_os_error();
            return if e.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(e) };
        }
        let again = std::mem::take(&mut self.again);
        for token in again {
            let read = &mut self.reads[token.slot as usize];
            if read.generation == token.generation {
                read.queued = false;
                self.read(token, batch);
            }
        }
        for at in 0..n as usize {
            let libc::epoll_event { events, u64: data } = self.events[at];
            match data >> 56 {
                CONN => self.conn(Token::unpack(data), events as i32, batch),
                LISTENER => batch.arrivals.push(data as u32),
                // The waker's flag says all there is to say.
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn conn(&mut self, token: Token, events: i32, batch: &mut Batch) {
        let read = &mut self.reads[token.slot as usize];
        if read.generation != token.generation {
            return;
        }
        if read.connecting {
            batch.events.push(Event::Writable { token });
            return;
        }
        if read.awaited && events & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) != 0 {
            read.awaited = false;
            batch.events.push(Event::Writable { token });
        }
        let hang_up = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        if events & (libc::EPOLLIN | hang_up) == 0 {
            return;
        }
        read.ready = true;
        if events & hang_up != 0 {
            read.hung_up = true;
            if read.off {
                let both = events & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
                batch.events.push(Event::HungUp { token, both });
            }
        }
        if !read.off && !read.queued {
            self.read(token, batch);
        }
    }

    /// Reads one buffer full; a socket with more to give gets its next turn with the others.
    #[inline]
    fn read(&mut self, token: Token, batch: &mut Batch) {
        let Read { fd, hung_up, off, direct, .. } = self.reads[token.slot as usize];
        if off {
            if hung_up {
                batch.events.push(Event::HungUp { token, both: false });
            }
            return;
        }
        if direct {
            batch.events.push(Event::Readable { token });
            return;
        }
        let Some(id) = self.free.pop().or_else(|| self.more_buffers()) else {
            // As many buffers as there may be are full in this very turn.
            self.queue(token);
            return;
        };
        let room = self.buffers.room(id);
        let most = room.len();
        match sys::recv(fd, room) {
            Ok(0) => {
                self.free.push(id);
                self.reads[token.slot as usize].ready = false;
                batch.events.push(Event::Eof { token });
            }
            Ok(n) => {
                batch.events.push(Event::Data { token, buf: Filled { id, len: n as u32 } });
                if n == most || hung_up {
                    self.queue(token);
                } else {
                    self.reads[token.slot as usize].ready = false;
                }
            }
            Err(e) => {
                self.free.push(id);
                match e.kind() {
                    io::ErrorKind::WouldBlock => self.reads[token.slot as usize].ready = false,
                    io::ErrorKind::Interrupted => self.queue(token),
                    _ => {
                        let errno = e.raw_os_error().unwrap_or(libc::EIO);
                        batch.events.push(Event::Failed { token, errno });
                    }
                }
            }
        }
    }

    fn queue(&mut self, token: Token) {
        self.reads[token.slot as usize].queued = true;
        self.again.push(token);
    }

    #[cold]
    fn more_buffers(&mut self) -> Option<u16> {
        let ids = self.buffers.grow(self.reads.len())?;
        self.free.extend(ids.rev());
        self.free.pop()
    }
}
