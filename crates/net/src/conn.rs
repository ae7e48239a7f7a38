//! One connection's share of the reactor, and the names connections go by.
//!
//! An idle connection costs a [`Link`] (under 128 bytes) and a slot in the handler's array; both
//! buffers are empty vectors without memory. Output buffers come from the thread's [`Pool`] when
//! the first reply of a turn is written and go back when the socket has taken it. Everything only
//! a few connections need (a backlog the peer does not read, a TLS session) is behind a box.

use super::filling::Filling;
use super::gated::Gate;
use super::gated::{Free, Gated, Passed};
use super::peer::Tag;
use super::tls::Session;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use structs::output::Output;

/// A connection's name, unique in the process for as long as it matters.
///
/// ```text
///   63        56 55                    24 23                     0
///  ┌────────────┬────────────────────────┬────────────────────────┐
///  │   thread   │       generation       │          slot          │
///  └────────────┴────────────────────────┴────────────────────────┘
/// ```
///
/// A slot is used again, but with the next generation, so an old id finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(u64);

/// The most slots one thread may have.
pub(super) const MAX_SLOTS: usize = 1 << 24;

impl ConnId {
    pub(super) fn new(thread: u8, token: Token) -> Self {
        Self(u64::from(thread) << 56 | token.pack())
    }

    /// The reactor thread that owns the connection: the index of its waker in [`Net`](super::Net).
    #[inline]
    pub fn thread(self) -> usize {
        (self.0 >> 56) as usize
    }

    /// The id as a number, for use as a map key or in a message.
    #[inline]
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The id that [`ConnId::as_u64`] gave.
    #[inline]
    pub fn from_u64(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub(super) fn token(self) -> Token {
        Token::unpack(self.0)
    }
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Token { slot, generation } = self.token();
        write!(f, "ConnId({}/{slot}#{generation})", self.thread())
    }
}

/// A connection's name within its thread: what a completion carries back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub slot: u32,
    pub generation: u32,
}

impl Token {
    /// The low 56 bits of a word; the high byte is free for the caller.
    #[inline]
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 24 | u64::from(self.slot)
    }

    #[inline]
    pub fn unpack(bits: u64) -> Self {
        Self { slot: (bits & 0xff_ffff) as u32, generation: (bits >> 24) as u32 }
    }
}

/// What is going on with a connection, one bit each.
pub(super) mod flag {
    /// In the list of connections with output to send at the end of the turn.
    pub const DIRTY: u32 = 1;
    /// The socket took only part of the output; the rest waits until it is writable.
    pub const STUCK: u32 = 1 << 1;
    /// Close when all output has been sent; input is ignored.
    pub const CLOSING: u32 = 1 << 2;
    /// Over: in the list of connections to be buried before the turn ends.
    pub const DEAD: u32 = 1 << 3;
    /// The handler does not want input now.
    pub const PAUSED: u32 = 1 << 4;
    /// The handler could not run the next request; tried again every turn.
    pub const RETRY: u32 = 1 << 5;
    /// In the list of connections whose left-over input is presented again.
    pub const RERUN: u32 = 1 << 6;
    /// The peer has closed its side, but input it sent before is still to be processed.
    pub const EOF: u32 = 1 << 7;
    /// The socket is not being read, because too much input waits already.
    pub const UNREAD: u32 = 1 << 8;
    /// Speaks TLS.
    pub const TLS: u32 = 1 << 9;
    /// The TLS handshake is not over: the handler does not know of the connection yet.
    pub const HANDSHAKE: u32 = 1 << 10;

    /// A reply is with the thread that releases it (`handed.rs`); what follows waits for its return.
    pub const HANDED: u32 = 1 << 11;

    /// Others have descriptors of the socket, too.
    pub const SHARED: u32 = 1 << 12;

    /// On its way to being connected: nothing can be sent yet.
    pub const CONNECTING: u32 = 1 << 13;

    /// The handler has asked for it; it was not accepted.
    pub const OUTGOING: u32 = 1 << 14;

    /// The handler does not want input now, but all that the peer has sent, even if it ends.
    pub const HELD_BACK: u32 = 1 << 15;

    /// The handler has brought the socket.
    pub const ADOPTED: u32 = 1 << 16;

    /// Any of these keeps input from the handler.
    pub const BLOCKED: u32 = CLOSING | DEAD | PAUSED | RETRY | HANDSHAKE | CONNECTING | HELD_BACK;
}

/// Output the socket would not take, in the order it is to be sent.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Each is sent whole, except for the first `sent` bytes of the first.
    pub chunks: VecDeque<Output>,
    pub sent: usize,
    /// Bytes still to be sent in all chunks.
    pub bytes: usize,
    /// Bytes of memory that the chunks take; a string that is at the end of one and the beginning of
    /// the next counts once.
    pub memory: usize,
}

impl Backlog {
    /// Adds output behind what waits already, of which `sent` bytes have gone out.
    pub fn push(&mut self, chunk: Output, sent: usize) {
        self.bytes += chunk.len() - sent;
        self.memory += chunk.memory() - self.joint_bytes(&chunk);
        self.chunks.push_back(chunk);
    }

    /// Bytes of the string that the last chunk and `next` have in common.
    pub fn joint_bytes(&self, next: &Output) -> usize {
        self.chunks.back().map_or(0, |last| last.joint_bytes(next))
    }

    /// Drops the first chunk, which has been sent.
    pub fn pop(&mut self) {
        self.sent = 0;
        if let Some(chunk) = self.chunks.pop_front() {
            let joint = self.chunks.front().map_or(0, |next| chunk.joint_bytes(next));
            self.memory -= chunk.memory() - joint;
        }
    }
}

/// The reactor's side of one connection.
#[derive(Default)]
pub(super) struct Link {
    /// None while the slot is vacant, and while an outgoing connection has no socket yet.
    pub fd: Option<OwnedFd>,
    pub generation: u32,
    pub flags: u32,
    /// The mark of the window in which it last sent something.
    pub seen: u8,
    pub tag: Tag,
    /// Replies of this turn (plain text, with TLS).
    pub out: Output,
    /// Input the handler has seen and left, or not seen yet, from `start` on.
    pub rest: Vec<u8>,
    pub start: usize,
    /// The handler need not be called before this many bytes are left.
    pub wanted: usize,
    pub backlog: Option<Box<Backlog>>,
    pub tls: Option<Box<Session>>,
    /// A long word that is arriving, or has arrived; `rest` goes on behind it.
    pub filling: Option<Box<Filling>>,
    /// What is written behind the last piece that is held waits too, since replies keep their order.
    /// Empty if nothing is held; its memory stays, for the next reply.
    pub gated: Option<Box<Gated>>,
    /// Bytes of the reply that is handed over.
    pub handed: u32,
}

impl Link {
    #[inline]
    pub fn is(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether the slot has a connection, open or on its way.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.fd.is_some() || self.is(flag::CONNECTING)
    }

    /// Bytes of input that are not consumed.
    #[inline]
    pub fn unread(&self) -> usize {
        self.rest.len() - self.start
    }

    /// Bytes of the input that is not consumed, a long word included.
    pub fn pending_input(&self) -> usize {
        self.unread() + self.filling.as_ref().map_or(0, |filling| filling.arrived())
    }

    /// Bytes that it will be when the word that is arriving is complete; 0 if none is.
    pub fn announced_input(&self) -> usize {
        match &self.filling {
            Some(filling) => self.unread() + filling.len(),
            None if self.rest.is_empty() => 0,
            None => self.wanted,
        }
    }

    /// True when some output must not leave yet.
    #[inline]
    pub fn holds(&self) -> bool {
        self.gated.as_ref().is_some_and(|gated| !gated.is_empty())
    }

    /// Has the output so far wait for a position.
    pub fn hold_until(&mut self, gate: Gate, position: u64) {
        let end = self.out.plain().len();
        self.gated.get_or_insert_default().add(end, gate, position);
    }

    /// What of the output may leave; all of it, if nothing is held any longer.
    pub fn take_free(&mut self, passed: &Passed) -> Free {
        let len = self.out.plain().len();
        self.gated.get_or_insert_default().take_free(passed, len)
    }

    /// Nothing is held any longer.
    pub fn hold_nothing(&mut self) {
        if let Some(gated) = &mut self.gated {
            gated.clear();
        }
    }

    /// The position at a gate behind which no output waits there, if any is held there.
    pub fn held_until(&self, gate: Gate) -> Option<u64> {
        self.gated.as_ref()?.last_at(gate)
    }

    /// Puts a reply that was handed over in front of the output again. It may leave.
    pub fn put_back(&mut self, mut buf: Output) {
        if let Some(gated) = self.gated.as_mut().filter(|gated| !gated.is_empty()) {
            gated.put_in_front(buf.plain().len());
        }
        buf.append(&mut self.out);
        self.out = buf;
        self.handed_is_back();
    }

    /// What was handed over is not on its way any more.
    pub fn handed_is_back(&mut self) {
        self.flags &= !flag::HANDED;
        self.handed = 0;
    }

    /// Bytes of output that the socket has not taken yet.
    #[inline]
    pub fn pending_output(&self) -> usize {
        self.out.len()
            + self.handed as usize
            + self.backlog.as_ref().map_or(0, |backlog| backlog.bytes)
    }

    /// Bytes of output for which the client answers: what it has not read, but a string to which several
    /// replies in a row refer only once.
    pub fn output_charge(&self) -> usize {
        let pending = self.pending_output();
        if self.out.is_plain() && self.backlog.is_none() {
            return pending;
        }
        let own = self.out.charge() + self.handed as usize;
        let behind = self
            .backlog
            .as_ref()
            .map_or(0, |backlog| backlog.memory.saturating_sub(backlog.joint_bytes(&self.out)));
        pending.min(own + behind)
    }
}

const _: () = assert!(std::mem::size_of::<Link>() <= 128, "idle connections are to be cheap");

/// Empty buffers of one thread, warm in the cache, for replies.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spare: Vec<Output>,
}

/// A fresh buffer's size: a few small replies.
const FRESH: usize = 512;
/// A buffer that has grown beyond this is not worth keeping.
const KEEP_BYTES: usize = 16 << 10;
/// More spare buffers than this are not worth keeping.
const KEEP_COUNT: usize = 256;

impl Pool {
    #[inline]
    pub fn get(&mut self) -> Output {
        self.spare.pop().unwrap_or_else(|| Output::with_capacity(FRESH))
    }

    #[inline]
    pub fn put(&mut self, mut buf: Output) {
        if buf.capacity() <= KEEP_BYTES && buf.capacity() != 0 && self.spare.len() < KEEP_COUNT {
            buf.clear();
            self.spare.push(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_parts() {
        let token = Token { slot: 0xab_cdef, generation: 0xffff_fffe };
        let id = ConnId::new(200, token);
        assert_eq!(id.thread(), 200);
        assert_eq!(id.token(), token);
        assert_eq!(ConnId::from_u64(id.as_u64()), id);
    }

    #[test]
    fn the_pool_keeps_only_what_is_worth_keeping() {
        let mut pool = Pool::default();
        pool.put(Output::default());
        pool.put(Output::with_capacity(KEEP_BYTES * 2));
        assert!(pool.spare.is_empty());
        let mut buf = Output::with_capacity(100);
        buf.extend_from_slice(&[1]);
        pool.put(buf);
        assert!(pool.get().is_empty());
    }
}
