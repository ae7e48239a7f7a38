//! The network under a hub: sockets of one thread, watched with epoll.
//!
//! A turn waits, reads what has come, tells the hub, and then writes: all that a turn's clients have for
//! one server goes out in one write.

use crate::config::Address;
use crate::hub::Hub;
use crate::hub::wire::{Id, Wire};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;

const WAKER: Token = Token(usize::MAX);
const READ_BYTES: usize = 64 << 10;
/// More than this of one connection is not read in one turn.
const MAX_READS: usize = 16;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    /// Whether it is connected; an error if it never will be.
    fn is_connected(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Stream::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Stream::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(why)) if why.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(why)) => Err(why),
        }
    }
}

struct Socket {
    stream: Stream,
    is_connecting: bool,
    /// Input that the hub has not taken.
    rest: Vec<u8>,
    /// The hub takes no input; see [`Wire::resume`].
    is_stalled: bool,
    is_readable: bool,
    is_writable: bool,
    out: Vec<u8>,
    sent: usize,
    is_dirty: bool,
    is_finishing: bool,
}

/// A connection on its way to a thread.
pub enum Arrival {
    /// By TCP.
    Tcp(std::net::TcpStream, usize, String),
    /// By a Unix socket.
    Unix(std::os::unix::net::UnixStream, usize, String),
}

/// What other threads reach of a thread.
pub struct Seat {
    waker: Waker,
    mail: Mutex<Vec<Arrival>>,
}

impl Seat {
    /// Gives the thread a connection.
    pub fn hand_over(&self, arrival: Arrival) {
        lock(&self.mail).push(arrival);
        self.wake();
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        // A thread that cannot be woken looks at its next tick.
        let _ = self.waker.wake();
    }
}

struct Sockets {
    registry: Registry,
    sockets: Vec<(u32, Option<Socket>)>,
    free: Vec<u32>,
    dirty: Vec<Id>,
    resumed: Vec<Id>,
    failed: Vec<(Id, String)>,
    now: Instant,
}

impl Sockets {
    fn get(&mut self, id: Id) -> Option<&mut Socket> {
        let (generation, socket) = self.sockets.get_mut(id.slot as usize)?;
        if *generation == id.generation { socket.as_mut() } else { None }
    }

    fn add(&mut self, socket: Option<Socket>) -> Id {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sockets.push((0, None));
            self.sockets.len() as u32 - 1
        });
        let place = &mut self.sockets[slot as usize];
        place.0 += 1;
        let id = Id { slot, generation: place.0 };
        place.1 = socket;
        if let Some(socket) = &mut place.1 {
            let interest = Interest::READABLE | Interest::WRITABLE;
            let registered =
                self.registry.register(socket.stream.source(), Token(slot as usize), interest);
            if let Err(why) = registered {
                self.failed.push((id, why.to_string()));
            }
        }
        id
    }

    fn new_socket(stream: Stream, is_connecting: bool) -> Socket {
        Socket {
            stream,
            is_connecting,
            rest: Vec::new(),
            is_stalled: false,
            is_readable: false,
            is_writable: !is_connecting,
            out: Vec::new(),
            sent: 0,
            is_dirty: false,
            is_finishing: false,
        }
    }

    fn remove(&mut self, id: Id) {
        let Some((generation, place)) = self.sockets.get_mut(id.slot as usize) else { return };
        if *generation != id.generation {
            return;
        }
        if let Some(mut socket) = place.take() {
            let _ = self.registry.deregister(socket.stream.source());
        }
        *generation += 1;
        self.free.push(id.slot);
    }

    /// Writes what the socket takes. Returns an error if the connection broke.
    fn flush(&mut self, id: Id) -> io::Result<()> {
        let Some(socket) = self.get(id) else { return Ok(()) };
        socket.is_dirty = false;
        while socket.is_writable && !socket.is_connecting && socket.sent < socket.out.len() {
            match socket.stream.write(&socket.out[socket.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => socket.sent += written,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => socket.is_writable = false,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        if socket.sent == socket.out.len() {
            socket.out.clear();
            socket.sent = 0;
            if socket.out.capacity() > 4 * READ_BYTES {
                socket.out = Vec::new();
            }
            if socket.is_finishing {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        } else if socket.sent > READ_BYTES && socket.sent > socket.out.len() / 2 {
            socket.out.drain(..socket.sent);
            socket.sent = 0;
        }
        Ok(())
    }
}

fn connect(address: &Address) -> io::Result<Stream> {
    match address {
        Address::Unix(path, _) => UnixStream::connect(path).map(Stream::Unix),
        Address::Tcp(host, port) => {
            let target = match host.parse() {
                Ok(ip) => SocketAddr::new(ip, *port),
                Err(_) => (&host[..], *port)
                    .to_socket_addrs()?
                    .next()
                    .ok_or(io::ErrorKind::AddrNotAvailable)?,
            };
            let stream = TcpStream::connect(target)?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream))
        }
    }
}

impl Wire for Sockets {
    #[inline]
    fn send(&mut self, id: Id, bytes: &[u8]) {
        let Some(socket) = self.get(id) else { return };
        socket.out.extend_from_slice(bytes);
        if !socket.is_dirty {
            socket.is_dirty = true;
            self.dirty.push(id);
        }
    }

    #[inline]
    fn backlog(&self, id: Id) -> usize {
        match self.sockets.get(id.slot as usize) {
            Some((generation, Some(socket))) if *generation == id.generation => {
                socket.out.len() - socket.sent
            }
            _ => 0,
        }
    }

    fn close(&mut self, id: Id) {
        self.remove(id);
    }

    fn finish(&mut self, id: Id) {
        let Some(socket) = self.get(id) else { return };
        socket.is_finishing = true;
        if !socket.is_dirty {
            socket.is_dirty = true;
            self.dirty.push(id);
        }
    }

    fn resume(&mut self, id: Id) {
        if self.get(id).is_some() {
            self.resumed.push(id);
        }
    }

    fn connect(&mut self, address: &Address, _keepalive: bool) -> Id {
        match connect(address) {
            Ok(stream) => self.add(Some(Sockets::new_socket(stream, true))),
            Err(why) => {
                let id = self.add(None);
                self.failed.push((id, why.to_string()));
                id
            }
        }
    }

    fn now(&self) -> Instant {
        self.now
    }
}

/// One thread.
pub struct Driver {
    poll: Poll,
    sockets: Sockets,
    hub: Hub,
    seat: Arc<Seat>,
    buffer: Vec<u8>,
    tick_at: Instant,
}

impl Driver {
    /// A thread's driver and its seat.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(hub: Hub) -> io::Result<(Driver, Arc<Seat>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let seat = Seat { waker, mail: Mutex::default() };
        let seat = Arc::new(seat);
        let now = Instant::now();
        let sockets = Sockets {
            registry: poll.registry().try_clone()?,
            sockets: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            resumed: Vec::new(),
            failed: Vec::new(),
            now,
        };
        let buffer = vec![0; READ_BYTES];
        Ok((Driver { poll, sockets, hub, seat: seat.clone(), buffer, tick_at: now }, seat))
    }

    /// Runs until the process ends or `drain_until` says when to, and no client is left.
    ///
    /// # Errors
    /// Waiting failed.
    pub fn run(mut self, drain_until: impl Fn() -> Option<Instant>) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        self.hub.preconnect(&mut self.sockets);
        self.end_of_turn();
        loop {
            let is_urgent = !self.sockets.resumed.is_empty() || !self.sockets.failed.is_empty();
            let rest = self.tick_at.saturating_duration_since(Instant::now());
            let timeout = if is_urgent { Duration::ZERO } else { rest };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(why) if why.kind() != io::ErrorKind::Interrupted => return Err(why),
                _ => {}
            }
            self.sockets.now = Instant::now();
            for event in &events {
                if event.token() == WAKER {
                    self.take_mail();
                    continue;
                }
                let slot = event.token().0 as u32;
                let Some(place) = self.sockets.sockets.get(slot as usize) else { continue };
                let id = Id { slot, generation: place.0 };
                self.happened(
                    id,
                    event.is_writable(),
                    event.is_readable() || event.is_read_closed(),
                );
            }
            for id in std::mem::take(&mut self.sockets.resumed) {
                if let Some(socket) = self.sockets.get(id) {
                    socket.is_stalled = false;
                    self.read(id);
                }
            }
            for (id, why) in std::mem::take(&mut self.sockets.failed) {
                self.ended(id, Some(&why));
            }
            if self.sockets.now >= self.tick_at {
                let pause = self.hub.tick(&mut self.sockets);
                self.tick_at = self.sockets.now + pause;
                if let Some(until) = drain_until() {
                    let left = until.saturating_duration_since(self.sockets.now);
                    let is_any = self.hub.drain(&mut self.sockets, left.as_secs());
                    if !is_any || left.is_zero() {
                        self.end_of_turn();
                        return Ok(());
                    }
                }
            }
            self.end_of_turn();
        }
    }

    fn take_mail(&mut self) {
        for arrival in std::mem::take(&mut *lock(&self.seat.mail)) {
            let (stream, pool, peer) = match arrival {
                Arrival::Tcp(stream, pool, peer) => {
                    let _ = stream.set_nodelay(true);
                    let _ = stream.set_nonblocking(true);
                    (Stream::Tcp(TcpStream::from_std(stream)), pool, peer)
                }
                Arrival::Unix(stream, pool, peer) => {
                    let _ = stream.set_nonblocking(true);
                    (Stream::Unix(UnixStream::from_std(stream)), pool, peer)
                }
            };
            let id = self.sockets.add(Some(Sockets::new_socket(stream, false)));
            self.hub.accepted(&mut self.sockets, id, pool, &peer);
        }
    }

    fn happened(&mut self, id: Id, is_writable: bool, is_readable: bool) {
        let Some(socket) = self.sockets.get(id) else { return };
        if socket.is_connecting {
            match socket.stream.is_connected() {
                Ok(false) => return,
                Ok(true) => {
                    socket.is_connecting = false;
                    socket.is_writable = true;
                    self.hub.connected(&mut self.sockets, id);
                }
                Err(why) => return self.ended(id, Some(&why.to_string())),
            }
        }
        let Some(socket) = self.sockets.get(id) else { return };
        if is_writable && !socket.is_writable {
            socket.is_writable = true;
            if !socket.is_dirty && socket.sent < socket.out.len() {
                socket.is_dirty = true;
                self.sockets.dirty.push(id);
            }
        }
        if is_readable {
            if let Some(socket) = self.sockets.get(id) {
                socket.is_readable = true;
            }
            self.read(id);
        }
    }

    /// Reads, and tells the hub, until there is no more or the hub wants none.
    fn read(&mut self, id: Id) {
        let has_rest = self.sockets.get(id).is_some_and(|socket| !socket.rest.is_empty());
        if has_rest && !self.present(id, 0) {
            return;
        }
        for _ in 0..MAX_READS {
            let Some(socket) = self.sockets.get(id) else { return };
            if socket.is_stalled || !socket.is_readable || socket.is_connecting {
                return;
            }
            match socket.stream.read(&mut self.buffer) {
                Ok(0) => {
                    socket.is_readable = false;
                    return self.ended(id, None);
                }
                Ok(len) => {
                    // All that had come; epoll tells when there is more.
                    if len < READ_BYTES {
                        socket.is_readable = false;
                    }
                    if !self.present(id, len) {
                        return;
                    }
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => socket.is_readable = false,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return self.ended(id, Some(&why.to_string())),
            }
        }
        self.sockets.resumed.push(id);
    }

    /// Shows the hub what was left over and `len` bytes of the buffer. Returns whether to go on.
    fn present(&mut self, id: Id, len: usize) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        let mut rest = std::mem::take(&mut socket.rest);
        let is_fresh = rest.is_empty();
        if !is_fresh {
            rest.extend_from_slice(&self.buffer[..len]);
        }
        let input = if is_fresh { &self.buffer[..len] } else { &rest[..] };
        let done = self.hub.data(&mut self.sockets, id, input);
        let left = input.len() - done.bytes;
        if is_fresh {
            rest.extend_from_slice(&self.buffer[len - left..len]);
        } else {
            rest.drain(..done.bytes);
        }
        let Some(socket) = self.sockets.get(id) else { return false };
        socket.rest = rest;
        socket.is_stalled = done.is_stalled;
        !done.is_stalled
    }

    fn ended(&mut self, id: Id, error: Option<&str>) {
        // Replies to what came before the end are still sent.
        if error.is_none() && self.hub.ended(&mut self.sockets, id) {
            return;
        }
        let _ = self.sockets.flush(id);
        self.hub.closed(&mut self.sockets, id, error);
        self.sockets.remove(id);
    }

    fn end_of_turn(&mut self) {
        self.hub.end_of_turn(&mut self.sockets);
        for _ in 0..8 {
            if self.sockets.dirty.is_empty() {
                break;
            }
            for id in std::mem::take(&mut self.sockets.dirty) {
                if let Err(why) = self.sockets.flush(id) {
                    let why = why.to_string();
                    let is_wanted = self.sockets.get(id).is_some_and(|socket| socket.is_finishing);
                    self.hub.closed(
                        &mut self.sockets,
                        id,
                        if is_wanted { None } else { Some(&why) },
                    );
                    self.sockets.remove(id);
                }
            }
        }
    }
}
