//! Output: from the handler's replies to the socket, and the part that the socket does not take.
//!
//! At the end of a turn, the buffer of each connection that was written to goes to the driver. When
//! the next wait returns, all of them are settled: a buffer that was sent whole returns to the
//! pool, and the connection keeps nothing. A peer that does not read fast enough gets a backlog. It
//! is sent by plain system calls when the socket takes more. Meanwhile new replies are queued after
//! it. Long output of a TLS connection waits likewise, as it is encrypted piece by piece.

use super::Close;
use super::Handler;
use super::backlog::Backlog;
use super::conn::{Link, flag};
use super::core::Core;
use super::cx::ConnIo;
use super::fair::{self, Budget};
use super::gated::Gate;
use super::gated::replace;
use super::handed::{self, HandedReply};
use super::reactor::Reactor;
use super::tls::Session;
use super::turn::Flight;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use structs::output::Output;

/// Number of bytes that are encrypted at a time. The session keeps a copy of them meanwhile.
const SEALED: usize = 64 << 10;

impl<H: Handler> Reactor<H> {
    /// Queues the output of every connection that was written to. Returns whether there is work as
    /// soon as it has been sent.
    pub(super) fn flush(&mut self) -> bool {
        let mut dirty = std::mem::take(&mut self.core.dirty);
        let mut eager = false;
        let mut later = Vec::new();
        for slot in dirty.drain(..) {
            let link = &mut self.core.links[slot as usize];
            link.flags &= !flag::DIRTY;
            let Some(fd) = link.fd.as_ref().map(AsRawFd::as_raw_fd) else { continue };
            if link.is(flag::DEAD) {
                continue;
            }
            if link.is(flag::STUCK | flag::HANDED | flag::CONNECTING) {
                if link.is(flag::HANDED) {
                    let (handed, waker) = self.net.handed(self.core.thread as usize);
                    handed.want_return(waker);
                }
                queue_behind(link);
                note_held(&mut self.core, slot);
                continue;
            }
            let mut held = Output::default();
            if link.holds() {
                let free = link.take_free(&self.core.passed);
                if free.bytes == 0 && link.holds() && link.unsealed() == 0 {
                    self.keep(slot, fd);
                    continue;
                }
                held = link.out.split_off(free.bytes);
                if !free.lost.is_empty() {
                    let line = self.handler.unconfirmed(free.lost.len());
                    replace(&mut link.out, &free.lost, &line);
                }
                note_held(&mut self.core, slot);
            }
            let link = &mut self.core.links[slot as usize];
            // The records of the handshake go before all other output.
            let is_early = link.is(flag::HANDSHAKE);
            let mut buf =
                if is_early { Output::default() } else { std::mem::replace(&mut link.out, held) };
            if link.is(flag::TLS) {
                if link.unsealed() > 0 || buf.len() > fair::PIECE {
                    later.extend(self.send_sealed(slot, fd, buf).map(|what| (slot, what)));
                    continue;
                }
                buf = seal(&mut self.core, slot, buf);
            }
            if buf.is_empty() {
                self.core.pool.put(buf);
                let link = &self.core.links[slot as usize];
                if link.is(flag::CLOSING) && (!is_early || link.out.is_empty()) {
                    self.finish(slot);
                }
                continue;
            }
            let flags = self.core.links[slot as usize].flags;
            eager |= flags & flag::CLOSING != 0;
            let token = self.core.token(slot);
            let mut flight = Flight { buf, token, flags, result: 0 };
            if flight.buf.len() > fair::PIECE {
                // The output is so long that its own system call does not matter.
                let share = self.core.send_budget.take(flight.buf.len());
                flight.send_now(fd, share);
                // If the socket takes more already, nothing else would end the wait.
                eager |= !flight.is_whole();
                self.driver.flights().push(flight);
            } else {
                self.driver.send(fd, flight);
            }
        }
        self.core.dirty = dirty;
        eager |= !later.is_empty() && self.follow_up(later);
        self.core.send_budget = Budget::new();
        self.core.receive_budget = Budget::new();
        eager
    }

    /// Goes on with TLS connections after the flush. There is work at once then.
    #[cold]
    fn follow_up(&mut self, later: Vec<(u32, Later)>) -> bool {
        for (slot, what) in later {
            match what {
                Later::Flush => self.core.mark_dirty(slot),
                Later::Tell => self.tell_drained(slot),
            }
        }
        true
    }

    /// Tells the handler that the socket has taken all.
    fn tell_drained(&mut self, slot: u32) {
        if let Some(user) = self.users[slot as usize].as_mut()
            && !self.core.links[slot as usize].is(flag::DEAD)
        {
            self.handler.drained(user, &mut ConnIo { core: &mut self.core, slot });
        }
    }

    /// Encrypts and sends long output of a TLS connection, as much as the turn has for it, piece by
    /// piece: a piece stays in the cache from one to the other. Returns what is to follow.
    fn send_sealed(&mut self, slot: u32, fd: RawFd, buf: Output) -> Option<Later> {
        let Core { links, send_budget, sealed, pool, .. } = &mut self.core;
        let link = &mut links[slot as usize];
        let session = link.tls.as_mut()?;
        let was_waiting = session.unsealed.bytes > 0;
        let mut unsealed = std::mem::take(&mut session.unsealed);
        match buf.is_empty() {
            true => pool.put(buf),
            false => unsealed.push(buf, 0),
        }
        let mut budget = send_budget.take(unsealed.bytes);
        let mut outcome = Ok(());
        while budget > 0 && outcome.is_ok() {
            budget -= seal_piece(session, &mut unsealed, sealed, budget);
            outcome = send_whole(fd, sealed);
        }
        session.unsealed = unsealed;
        match outcome {
            // One that closes has its goodbye to say.
            Ok(()) if session.unsealed.bytes > 0 || link.is(flag::CLOSING) => Some(Later::Flush),
            Ok(()) => was_waiting.then_some(Later::Tell),
            Err(Unsent::Rest(rest)) => {
                link.backlog.get_or_insert_default().push(Output::from(rest), 0);
                link.flags |= flag::STUCK;
                self.await_writable(slot);
                None
            }
            Err(Unsent::Failed(errno)) => {
                self.core.kill(slot, Close::Failed(errno));
                None
            }
        }
    }

    /// Keeps the output of a connection while none of it may be sent. Passes it to another thread
    /// if that can send it.
    fn keep(&mut self, slot: u32, fd: RawFd) {
        let token = self.core.token(slot);
        let link = &mut self.core.links[slot as usize];
        let is_for_others =
            (1..=handed::LARGEST).contains(&link.out.len()) && !link.is(flag::CLOSING | flag::TLS);
        let waits_here = |gate| link.held_until(gate).is_some();
        let is_for_others = is_for_others && !waits_here(Gate::Judged) && !waits_here(Gate::Told);
        let Some(position) = link.held_until(Gate::Released).filter(|_| is_for_others) else {
            return note_held(&mut self.core, slot);
        };
        let buf = std::mem::take(&mut link.out);
        link.hold_nothing();
        link.flags |= flag::HANDED;
        link.handed = buf.len() as u32;
        self.hands_over = true;
        let (handed, _) = self.net.handed(self.core.thread as usize);
        handed.hand_over(HandedReply { position, fd, token, buf });
    }

    /// Handles replies that other threads return.
    #[inline]
    pub(super) fn settle_handed(&mut self) {
        if self.net.handed(self.core.thread as usize).0.has_news() {
            self.take_handed();
        }
    }

    fn take_handed(&mut self) {
        let (handed, _) = self.net.handed(self.core.thread as usize);
        let (returned, crowd) = (handed.take_returned(), handed.take_crowd(self.net.released()));
        for flight in returned {
            let token = flight.token;
            self.core.lingering.retain(|(gone, _)| *gone != token);
            let link = &mut self.core.links[token.slot as usize];
            if link.generation == token.generation {
                link.handed_is_back();
                if !link.out.is_empty() {
                    self.core.mark_dirty(token.slot);
                }
                self.settle_one(flight);
            }
        }
        for HandedReply { token, buf, .. } in crowd {
            let link = &mut self.core.links[token.slot as usize];
            if link.generation == token.generation {
                link.put_back(buf);
                self.core.mark_dirty(token.slot);
            }
        }
    }

    /// Handles the results of the queued buffers.
    pub(super) fn settle(&mut self) {
        let core = &mut self.core;
        for flight in self.driver.flights().drain(..) {
            if flight.is_whole() && flight.flags & flag::CLOSING == 0 {
                core.pool.put(flight.buf);
            } else {
                self.unsettled.push(flight);
            }
        }
        while let Some(flight) = self.unsettled.pop() {
            self.settle_one(flight);
        }
    }

    #[cold]
    fn settle_one(&mut self, flight: Flight) {
        let Flight { buf, token, result, .. } = flight;
        let Some(slot) = self.core.find(token) else { return };
        let link = &mut self.core.links[slot as usize];
        if result < 0 && result != -libc::EAGAIN && result != -libc::EINTR {
            self.core.kill(slot, Close::Failed(-result));
            return;
        }
        let sent = result.max(0) as usize;
        if sent == buf.len() {
            self.core.pool.put(buf);
            self.drained(slot);
            return;
        }
        let backlog = link.backlog.get_or_insert_default();
        backlog.sent = sent;
        backlog.push(buf, sent);
        link.flags |= flag::STUCK;
        self.await_writable(slot);
    }

    fn await_writable(&mut self, slot: u32) {
        let token = self.core.token(slot);
        if let Some(fd) = &self.core.links[slot as usize].fd {
            self.driver.await_writable(token, fd.as_raw_fd());
        }
    }

    /// Sends more to a socket that was full.
    pub(super) fn on_writable(&mut self, slot: u32) {
        let link = &mut self.core.links[slot as usize];
        if link.is(flag::CONNECTING) {
            return self.on_connectable(slot);
        }
        if !link.is(flag::STUCK) {
            return;
        }
        let bytes = link.backlog.as_ref().map_or(0, |backlog| backlog.bytes);
        let share = self.core.send_budget.take(bytes);
        match send_backlog(link, share) {
            Ok(true) => {
                link.backlog = None;
                link.flags &= !flag::STUCK;
                // One that closes by TLS has its goodbye to say, once.
                let has_goodbye = link.is(flag::TLS) && link.is(flag::CLOSING);
                if !link.out.is_empty() || link.unsealed() > 0 || has_goodbye {
                    self.core.mark_dirty(slot);
                } else {
                    self.drained(slot);
                }
                if self.core.links[slot as usize].unsealed() == 0 {
                    self.tell_drained(slot);
                }
            }
            Ok(false) => self.await_writable(slot),
            Err(e) => {
                let errno = e.raw_os_error().unwrap_or(libc::EIO);
                self.core.kill(slot, Close::Failed(errno));
            }
        }
    }

    /// Handles the end of a connection's output: all has been sent.
    fn drained(&mut self, slot: u32) {
        let link = &self.core.links[slot as usize];
        if link.is(flag::CLOSING) && !link.holds() && link.out.is_empty() && link.unsealed() == 0 {
            self.finish(slot);
        }
    }

    /// Ends a connection that was to be closed after its output.
    fn finish(&mut self, slot: u32) {
        let asked = !self.core.links[slot as usize].is(flag::EOF);
        self.core.kill(slot, if asked { Close::Asked } else { Close::Eof });
    }
}

/// What follows a flush of long TLS output.
enum Later {
    /// The next piece, in the next turn.
    Flush,
    /// The handler is told that all has been sent.
    Tell,
}

/// Why a piece was not sent whole.
enum Unsent {
    /// The socket is full: what it has not taken.
    Rest(Vec<u8>),
    /// With this `errno`.
    Failed(i32),
}

/// Sends a piece with a system call of its own.
fn send_whole(fd: RawFd, bytes: &[u8]) -> Result<(), Unsent> {
    let sent = match super::sys::send(fd, bytes) {
        Ok(sent) => sent,
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
        Err(e) => return Err(Unsent::Failed(e.raw_os_error().unwrap_or(libc::EIO))),
    };
    if sent == bytes.len() { Ok(()) } else { Err(Unsent::Rest(bytes[sent..].to_vec())) }
}

/// Encrypts the next bytes of `unsealed`, at most `most`, which there are. Returns how many; the
/// records are in `wire`.
fn seal_piece(
    session: &mut Session,
    unsealed: &mut Backlog,
    wire: &mut Vec<u8>,
    most: usize,
) -> usize {
    let (most, mut bytes) = (most.min(SEALED), 0);
    wire.clear();
    let Some(chunk) = unsealed.chunks.front() else { return most };
    for slice in chunk.slices(unsealed.sent) {
        let piece = &slice[..slice.len().min(most - bytes)];
        if piece.is_empty() {
            break;
        }
        session.seal(piece, wire);
        bytes += piece.len();
    }
    let is_whole = unsealed.sent + bytes == chunk.len();
    unsealed.sent += bytes;
    unsealed.bytes -= bytes;
    if is_whole {
        unsealed.pop();
    }
    bytes
}

/// Adds a connection with held output to the queues of its gates.
fn note_held(core: &mut Core, slot: u32) {
    let token = core.token(slot);
    for gate in Gate::ALL {
        if let Some(position) = core.links[slot as usize].held_until(gate) {
            core.holding[gate as usize].push_back((position, token));
        }
    }
}

/// Moves replies to the backlog if they are long enough for a chunk.
fn queue_behind(link: &mut Link) {
    if link.out.len() < fair::PIECE || link.is(flag::TLS) || link.holds() {
        return;
    }
    if let Some(backlog) = link.backlog.as_mut() {
        backlog.push(std::mem::take(&mut link.out), 0);
    }
}

/// Encrypts a TLS connection's replies.
fn seal(core: &mut Core, slot: u32, plain: Output) -> Output {
    let mut wire = core.pool.get();
    let link = &mut core.links[slot as usize];
    let closing = link.is(flag::CLOSING)
        && !link.holds()
        && !link.is(flag::HANDSHAKE)
        && link.unsealed() == 0;
    if let Some(session) = link.tls.as_mut() {
        for record in plain.slices(0) {
            session.seal(record, wire.plain_mut());
        }
        if closing {
            session.say_goodbye();
        }
        // Also send the session's own records.
        session.seal(&[], wire.plain_mut());
    }
    core.pool.put(plain);
    wire
}

/// Sends as much of a backlog as the socket takes, at most `budget` bytes. Returns whether nothing
/// is left.
fn send_backlog(link: &mut Link, mut budget: usize) -> io::Result<bool> {
    let (Some(fd), Some(backlog)) = (link.fd.as_ref(), link.backlog.as_mut()) else {
        return Ok(true);
    };
    while let Some(chunk) = backlog.chunks.front() {
        match super::sys::send_slices(fd.as_raw_fd(), chunk.slices(backlog.sent), budget) {
            Ok(n) => {
                backlog.sent += n;
                backlog.bytes -= n;
                if backlog.sent == chunk.len() {
                    backlog.pop();
                }
                budget = budget.saturating_sub(n);
                if budget == 0 {
                    return Ok(backlog.chunks.is_empty());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}
