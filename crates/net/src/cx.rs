//! What a handler can do to its connections: [`ConnIo`] is one of them, [`Cx`] all of a thread's.

use super::Close;
use super::conn::{ConnId, Link, flag};
use super::core::Core;
use super::gated::Gate;
use super::outgoing::Outgoing;
use super::peer::{Kind, Tag};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Instant;
use structs::heap_string::HeapString;
use structs::output::Output;

/// Places without a connection that [`Cx::for_some`] passes over for each one that it visits.
const EMPTY_PLACES: usize = 64;

/// Where a connection's output is; in bytes but for `chunks`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputSize {
    /// What this turn has written.
    pub buffered: usize,
    /// The size of the buffer that is in; idle connections have none.
    pub buffer: usize,
    /// Buffers that wait because the socket is full, or to be encrypted.
    pub chunks: usize,
    /// The memory they take.
    pub chunk_memory: usize,
}

/// One connection, as its handler sees it.
pub struct ConnIo<'a> {
    pub(super) core: &'a mut Core,
    pub(super) slot: u32,
}

impl ConnIo<'_> {
    /// The connection's name.
    pub fn id(&self) -> ConnId {
        self.core.id(self.slot)
    }

    /// The connection's descriptor. The reactor owns it.
    pub fn fd(&self) -> RawFd {
        self.core.links[self.slot as usize].fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// A second descriptor of the connection's socket. What is written there must not meet output
    /// of this one. When the connection ends here, it ends there, too.
    pub fn duplicate(&mut self) -> std::io::Result<OwnedFd> {
        self.core.links[self.slot as usize].flags |= flag::SHARED;
        match &self.core.links[self.slot as usize].fd {
            Some(fd) => fd.try_clone(),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Whether it speaks TLS.
    pub fn is_encrypted(&self) -> bool {
        self.core.links[self.slot as usize].is(flag::TLS)
    }

    /// The buffer to append replies to. What is in it leaves at the end of the turn. Nothing may be
    /// removed that was there before this turn's first call: it may belong to earlier requests.
    #[inline]
    pub fn out(&mut self) -> &mut Output {
        if !self.core.links[self.slot as usize].is(flag::DIRTY) {
            self.core.mark_dirty(self.slot);
        }
        &mut self.core.links[self.slot as usize].out
    }

    /// Keeps the output so far, and all that follows, from leaving before this position has
    /// [passed](super::Passed) the gate.
    pub fn hold_until(&mut self, gate: Gate, position: u64) {
        if position > self.core.passed.at(gate) {
            self.begin_to_hold(gate).hold_until(gate, position);
            self.core.mark_dirty(self.slot);
        }
    }

    /// Keeps a reply, plain bytes of the output, from leaving before this position has
    /// passed the gate `Judged`. If it is given up, the reply is
    /// [replaced](super::Handler::unconfirmed).
    pub fn hold_reply(&mut self, reply: Range<usize>, position: u64) {
        if position > self.core.passed.confirmed {
            let link = self.begin_to_hold(Gate::Judged);
            link.gated.get_or_insert_default().add_reply(reply, position);
            self.core.mark_dirty(self.slot);
        }
    }

    fn begin_to_hold(&mut self, gate: Gate) -> &mut Link {
        if gate == Gate::Judged {
            self.core.awaits_judgement = true;
        }
        &mut self.core.links[self.slot as usize]
    }

    /// Whether there is output that waits to be [released](super::Net::release).
    pub fn holds_output(&self) -> bool {
        let link = &self.core.links[self.slot as usize];
        link.holds() || link.is(flag::HANDED)
    }

    /// Bytes of output that the socket has not taken yet.
    #[inline]
    pub fn pending_output(&self) -> usize {
        self.core.links[self.slot as usize].pending_output()
    }

    /// Bytes of output for which the client answers.
    #[inline]
    pub fn output_charge(&self) -> usize {
        self.core.links[self.slot as usize].output_charge()
    }

    /// Those of them that were written before this turn.
    #[inline]
    pub fn backlog(&self) -> usize {
        let link = &self.core.links[self.slot as usize];
        link.waiting().map(|waiting| waiting.bytes.min(waiting.memory)).sum()
    }

    /// Input that waits to be consumed; see [`ConnIo::pending_input`].
    pub fn input(&self) -> &[u8] {
        let link = &self.core.links[self.slot as usize];
        &link.rest[link.start..]
    }

    /// Bytes of input that wait to be consumed, without those a running
    /// [`data`](super::Handler::data) call holds.
    pub fn pending_input(&self) -> usize {
        self.core.links[self.slot as usize].pending_input()
    }

    /// Bytes that input will be when the word that is arriving is complete; 0 if none is. What a
    /// running [`data`](super::Handler::data) call holds does not count.
    pub fn announced_input(&self) -> usize {
        self.core.links[self.slot as usize].announced_input()
    }

    /// The long word that [`NextInput::Word`](super::NextInput::Word) asked for, when it is
    /// complete.
    pub fn take_word(&mut self) -> Option<HeapString> {
        let link = &mut self.core.links[self.slot as usize];
        link.filling.take_if(|filling| filling.is_complete())?.finish()
    }

    /// The output buffer and what waits before it.
    pub fn output_size(&self) -> OutputSize {
        let link = &self.core.links[self.slot as usize];
        let handed = link.handed as usize;
        if link.out.is_plain() && link.waiting().next().is_none() {
            let (buffered, buffer) = (link.out.len() + handed, link.out.capacity() + handed);
            return OutputSize { buffered, buffer, ..OutputSize::default() };
        }
        // What stands behind others waits with them, though it is not among their chunks yet.
        let own = usize::from(!link.out.is_empty() || handed > 0);
        OutputSize {
            chunks: link.waiting().map(|waiting| waiting.chunks.len()).sum::<usize>() + own,
            chunk_memory: link.waiting_memory() + link.out.memory() + handed,
            ..OutputSize::default()
        }
    }

    /// Closes the connection; output that has not been sent is dropped.
    pub fn close(&mut self) {
        self.core.kill(self.slot, Close::Asked);
    }

    /// Closes the connection and resets it: the kernel drops what the peer has not acknowledged,
    /// instead of sending it again for minutes.
    pub fn abort(&mut self) {
        // A Unix socket has delivered all it took.
        let _ = super::sys::set_reset_at_close(self.fd());
        self.close();
    }

    /// Closes the connection when all its output has been sent. Further input is ignored.
    pub fn close_after_flush(&mut self) {
        self.core.close_after_flush(self.slot);
    }

    /// Stops presenting input. The peer's hanging up is still noticed.
    pub fn pause(&mut self) {
        self.core.links[self.slot as usize].flags |= flag::PAUSED;
    }

    /// Switches off what the kernel does to find out whether an idle peer is still there.
    pub fn do_not_probe(&self) {
        // A Unix socket has nothing of that kind.
        let _ = super::sys::set_keepalive(self.fd(), 0);
    }

    /// Has the kernel end the connection if the peer's machine is silent for so long.
    pub fn probe_within(&self, time: std::time::Duration) {
        // A Unix socket has nothing of that kind.
        let _ = super::sys::set_deadline(self.fd(), time);
    }

    /// Stops presenting input, until what follows from earlier input has been taken. Unlike with
    /// [`ConnIo::pause`], a peer that hangs up loses nothing: all that it has sent is presented
    /// when it goes on, and the connection ends behind it.
    pub fn hold_back(&mut self) {
        self.core.links[self.slot as usize].flags |= flag::HELD_BACK;
    }

    /// Whether the peer has closed its side. What it sent before may still wait to be presented.
    pub fn has_ended(&self) -> bool {
        self.core.links[self.slot as usize].is(flag::EOF)
    }

    /// Presents input again, beginning with what was left over.
    pub fn resume(&mut self) {
        let link = &mut self.core.links[self.slot as usize];
        if link.is(flag::PAUSED | flag::HELD_BACK) {
            link.flags &= !(flag::PAUSED | flag::HELD_BACK);
            self.core.mark_rerun(self.slot);
        }
    }

    /// True between [`ConnIo::pause`] or [`ConnIo::hold_back`] and [`ConnIo::resume`].
    pub fn is_paused(&self) -> bool {
        self.core.links[self.slot as usize].is(flag::PAUSED | flag::HELD_BACK)
    }

    /// True when the connection is to be closed: what follows in the input is not to be run.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.core.links[self.slot as usize].is(flag::CLOSING | flag::DEAD)
    }

    /// When this turn began.
    #[inline]
    pub fn now(&self) -> Instant {
        self.core.now
    }

    /// What it is for.
    pub fn tag(&self) -> Tag {
        self.core.links[self.slot as usize].tag
    }

    /// See [`Cx::connect`].
    pub fn connect(&mut self, outgoing: Outgoing) -> ConnId {
        self.core.connect(outgoing)
    }

    /// See [`Cx::adopt`].
    pub fn adopt(&mut self, fd: OwnedFd, kind: Kind, tag: Tag) -> ConnId {
        self.core.adopt(fd, kind, tag)
    }

    /// Another connection of the same thread, for instance to write a message to a subscriber. None
    /// if it is gone.
    pub fn other(&mut self, id: ConnId) -> Option<ConnIo<'_>> {
        self.core.lookup(id).map(|slot| ConnIo { core: &mut *self.core, slot })
    }
}

impl Core {
    /// The slot of a live connection of this thread.
    #[inline]
    fn lookup(&self, id: ConnId) -> Option<u32> {
        if id.thread() != self.thread as usize {
            return None;
        }
        self.find(id.token())
    }
}

/// All connections of one thread.
pub struct Cx<'a, C> {
    pub(super) core: &'a mut Core,
    pub(super) users: &'a mut [Option<C>],
}

impl<C> Cx<'_, C> {
    /// A connection by its name, if it still exists.
    #[inline]
    pub fn get(&mut self, id: ConnId) -> Option<(&mut C, ConnIo<'_>)> {
        let slot = self.core.lookup(id)?;
        let user = self.users.get_mut(slot as usize)?.as_mut()?;
        Some((user, ConnIo { core: &mut *self.core, slot }))
    }

    /// What can be done to a connection, also while it is on its way to being open.
    pub fn io(&mut self, id: ConnId) -> Option<ConnIo<'_>> {
        let slot = self.core.lookup(id)?;
        Some(ConnIo { core: &mut *self.core, slot })
    }

    /// Asks for a connection. Its name is valid at once, and what is written to it leaves when it
    /// is open. Later in this turn or another, [`Handler::opened`](super::Handler::opened) is
    /// called or [`Handler::not_opened`](super::Handler::not_opened), never both.
    pub fn connect(&mut self, outgoing: Outgoing) -> ConnId {
        self.core.connect(outgoing)
    }

    /// Makes a connected socket a connection of this thread, as if it had been accepted. Its name
    /// is valid at once. It does not count where accepted connections are spread.
    pub fn adopt(&mut self, fd: OwnedFd, kind: Kind, tag: Tag) -> ConnId {
        self.core.adopt(fd, kind, tag)
    }

    /// Whether output has begun to wait at the gate `Judged` since the last call.
    #[inline]
    pub fn take_awaits_judgement(&mut self) -> bool {
        std::mem::take(&mut self.core.awaits_judgement)
    }

    /// Visits every connection, in no particular order.
    pub fn for_each(&mut self, visit: impl FnMut(&mut C, &mut ConnIo<'_>)) {
        self.for_some(0, usize::MAX, visit);
    }

    /// Visits so many connections from a place on. Returns the place behind them if there are more.
    /// Places without a connection do not count, unless there are very many.
    pub fn for_some(
        &mut self,
        first: usize,
        count: usize,
        mut visit: impl FnMut(&mut C, &mut ConnIo<'_>),
    ) -> Option<usize> {
        let mut left = count;
        let end = self.users.len().min(first.saturating_add(count.saturating_mul(EMPTY_PLACES)));
        for slot in first..end {
            if self.core.links[slot].is(flag::DEAD) {
                continue;
            }
            if let Some(user) = self.users[slot].as_mut() {
                if left == 0 {
                    return Some(slot);
                }
                left -= 1;
                visit(user, &mut ConnIo { core: &mut *self.core, slot: slot as u32 });
            }
        }
        (end < self.users.len()).then_some(end)
    }

    /// How many connections the thread has, those in a TLS handshake included.
    pub fn len(&self) -> usize {
        self.core.live
    }

    /// True when the thread has no connection.
    pub fn is_empty(&self) -> bool {
        self.core.live == 0
    }

    /// This thread's index.
    pub fn thread(&self) -> usize {
        self.core.thread as usize
    }

    /// When this turn began.
    pub fn now(&self) -> Instant {
        self.core.now
    }

    /// Asks for [`Handler::tick`](super::Handler::tick) within this time, should the next one be
    /// later.
    pub fn tick_within(&mut self, time: std::time::Duration) {
        let at = self.core.now + time;
        self.core.tick_wanted = Some(self.core.tick_wanted.map_or(at, |wanted| wanted.min(at)));
    }

    /// Ends this reactor after this turn; output that the sockets take at once is still sent.
    pub fn stop(&mut self) {
        self.core.stop = true;
    }
}
