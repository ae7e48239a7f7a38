//! One connection's state in the reactor, and the names of connections.
//!
//! An idle connection costs a [`Link`] (under 128 bytes) and an element of the handler's array.
//! Both its buffers are empty vectors without memory. An output buffer comes from the thread's
//! [`Pool`] when the first reply of a turn is written, and returns when the socket has taken it.
//! State that only a few connections need (a backlog that the peer does not read, a TLS session) is
//! boxed.

use super::backlog::Backlog;
use super::filling::Filling;
use super::gated::Gate;
use super::gated::{Free, Gated, Passed};
use super::peer::Tag;
use super::tls::Session;
use std::fmt;
use std::os::fd::OwnedFd;
use structs::output::Output;

/// A connection's name, unique in the process as long as any reference to it may exist.
///
/// ```text
///   63        56 55                    24 23                     0
///  ┌────────────┬────────────────────────┬────────────────────────┐
///  │   thread   │       generation       │          slot          │
///  └────────────┴────────────────────────┴────────────────────────┘
/// ```
///
/// A slot is reused with the next generation, so an old id finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(u64);

/// Greatest number of slots of one thread.
pub(super) const MAX_SLOTS: usize = 1 << 24;

impl ConnId {
    pub(super) fn new(thread: u8, token: Token) -> Self {
        Self(u64::from(thread) << 56 | token.pack())
    }

    /// Returns the reactor thread that owns the connection: the index of its waker in
    /// [`Net`](super::Net).
    #[inline]
    pub fn thread(self) -> usize {
        (self.0 >> 56) as usize
    }

    /// Returns the id as a number, for use as a map key or in a message.
    #[inline]
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the id of a number that [`ConnId::as_u64`] returned.
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

/// A connection's name within its thread. Completions carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub slot: u32,
    pub generation: u32,
}

impl Token {
    /// Returns the token as the low 56 bits of a word. The high byte is free for the caller.
    #[inline]
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 24 | u64::from(self.slot)
    }

    #[inline]
    pub fn unpack(bits: u64) -> Self {
        Self { slot: (bits & 0xff_ffff) as u32, generation: (bits >> 24) as u32 }
    }
}

/// The states of a connection, one bit each.
pub(super) mod flag {
    /// In the list of connections with output to send at the end of the turn.
    pub const DIRTY: u32 = 1;
    /// The socket took only part of the output. The rest waits until the socket is writable.
    pub const STUCK: u32 = 1 << 1;
    /// Closed when all output has been sent. Input is ignored.
    pub const CLOSING: u32 = 1 << 2;
    /// Ended: in the list of connections to remove before the turn ends.
    pub const DEAD: u32 = 1 << 3;
    /// The handler does not want input now.
    pub const PAUSED: u32 = 1 << 4;
    /// The handler could not run the next request. It is tried again every turn.
    pub const RETRY: u32 = 1 << 5;
    /// In the list of connections whose left-over input is presented again.
    pub const RERUN: u32 = 1 << 6;
    /// The peer has closed its side. Input that it sent before is still to be processed.
    pub const EOF: u32 = 1 << 7;
    /// The socket is not being read, because too much input waits already.
    pub const UNREAD: u32 = 1 << 8;
    /// Speaks TLS.
    pub const TLS: u32 = 1 << 9;
    /// The TLS handshake is not complete. The handler does not know of the connection yet.
    pub const HANDSHAKE: u32 = 1 << 10;

    /// Another thread has a reply to release it (`handed.rs`). Later output waits for its return.
    pub const HANDED: u32 = 1 << 11;

    /// Other threads have descriptors of the socket, too.
    pub const SHARED: u32 = 1 << 12;

    /// The connection is being established. Nothing can be sent yet.
    pub const CONNECTING: u32 = 1 << 13;

    /// The handler opened the connection. It was not accepted.
    pub const OUTGOING: u32 = 1 << 14;

    /// The handler does not want input now, but will want everything that the peer has sent, even
    /// if the peer closes.
    pub const HELD_BACK: u32 = 1 << 15;

    /// The handler supplied the socket.
    pub const ADOPTED: u32 = 1 << 16;

    /// The first bytes of a TLS handshake were not looked at. They cost much, and wait their turn.
    pub const HELLO: u32 = 1 << 17;

    /// In the list of connections whose TLS handshakes wait for their turn.
    pub const QUEUED: u32 = 1 << 18;

    /// Input is kept from the handler while any of these is set.
    pub const BLOCKED: u32 = CLOSING | DEAD | PAUSED | RETRY | HANDSHAKE | CONNECTING | HELD_BACK;
}

/// The reactor's side of one connection.
#[derive(Default)]
pub(super) struct Link {
    /// `None` while the slot is vacant, and while an outgoing connection has no socket yet.
    pub fd: Option<OwnedFd>,
    pub generation: u32,
    pub flags: u32,
    /// The mark of the window in which the peer last sent something.
    pub seen: u8,
    /// The peer has sent a long word of more than half of 2 to this power; 0 if it has sent none.
    pub proven_log2: u8,
    /// Requests in a row without a long word, while the reactor reads the socket itself.
    pub short_heads: u8,
    pub tag: Tag,
    /// Replies of this turn (plain text, with TLS).
    pub out: Output,
    /// Input that the handler has left or not seen yet. It begins at `start`.
    pub rest: Vec<u8>,
    pub start: usize,
    /// The handler need not be called before this many bytes are there.
    pub wanted: usize,
    pub backlog: Option<Box<Backlog>>,
    pub tls: Option<Box<Session>>,
    /// A long word that is arriving or has arrived. `rest` continues after it.
    pub filling: Option<Box<Filling>>,
    /// Pieces that are held. Output after the last one waits, too, because replies keep their
    /// order. It is empty if nothing is held, and keeps its memory for the next reply.
    pub gated: Option<Box<Gated>>,
    /// Bytes of the reply that another thread has.
    pub handed: u32,
}

impl Link {
    #[inline]
    pub fn is(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Returns whether the slot has a connection, open or being established.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.fd.is_some() || self.is(flag::CONNECTING)
    }

    /// Returns the length of words for which the peer is given room at once: about that of the
    /// longest word that it has sent to the end.
    pub fn proven(&self) -> usize {
        if self.proven_log2 == 0 { 0 } else { 1 << self.proven_log2 }
    }

    /// Records that the peer has sent a long word of so many bytes to the end.
    pub fn prove(&mut self, len: usize) {
        self.proven_log2 = self.proven_log2.max(len.next_power_of_two().trailing_zeros() as u8);
    }

    /// Returns the bytes of input that are not consumed.
    #[inline]
    pub fn unread(&self) -> usize {
        self.rest.len() - self.start
    }

    /// Returns the bytes of input that are not consumed, including a long word.
    pub fn pending_input(&self) -> usize {
        self.unread() + self.filling.as_ref().map_or(0, |filling| filling.arrived())
    }

    /// Returns the bytes of input that there will be when the arriving word is complete, or 0 if
    /// none is arriving.
    pub fn announced_input(&self) -> usize {
        match &self.filling {
            Some(filling) => self.unread() + filling.len(),
            None if self.rest.is_empty() => 0,
            None => self.wanted,
        }
    }

    /// Returns whether some output must not be sent yet.
    #[inline]
    pub fn holds(&self) -> bool {
        self.gated.as_ref().is_some_and(|gated| !gated.is_empty())
    }

    /// Makes the output so far wait for a position.
    pub fn hold_until(&mut self, gate: Gate, position: u64) {
        let end = self.out.plain().len();
        self.gated.get_or_insert_default().add(end, gate, position);
    }

    /// Takes the output that may be sent. If nothing is held any more, it is all output.
    pub fn take_free(&mut self, passed: &Passed) -> Free {
        let len = self.out.plain().len();
        self.gated.get_or_insert_default().take_free(passed, len)
    }

    /// Drops all held pieces, because nothing is held any more.
    pub fn hold_nothing(&mut self) {
        if let Some(gated) = &mut self.gated {
            gated.clear();
        }
    }

    /// Returns the last position for which output waits at a gate, if there is any.
    pub fn held_until(&self, gate: Gate) -> Option<u64> {
        self.gated.as_ref()?.last_at(gate)
    }

    /// Puts a reply back before the other output after another thread had it. It may be sent.
    pub fn put_back(&mut self, mut buf: Output) {
        if let Some(gated) = self.gated.as_mut().filter(|gated| !gated.is_empty()) {
            gated.put_in_front(buf.plain().len());
        }
        buf.append(&mut self.out);
        self.out = buf;
        self.handed_is_back();
    }

    /// Records that no other thread has a reply of this connection any more.
    pub fn handed_is_back(&mut self) {
        self.flags &= !flag::HANDED;
        self.handed = 0;
    }

    /// Returns the bytes of long output that a TLS session has not encrypted yet.
    #[inline]
    pub fn unsealed(&self) -> usize {
        self.tls.as_ref().map_or(0, |session| session.unsealed.bytes)
    }

    /// Returns the output that waits before `out`, in sending order: for the socket, and to be
    /// encrypted.
    pub fn waiting(&self) -> impl Iterator<Item = &Backlog> {
        let unsealed = self.tls.as_ref().map(|session| &session.unsealed);
        let unsealed = unsealed.filter(|unsealed| unsealed.bytes > 0);
        self.backlog.as_deref().into_iter().chain(unsealed)
    }

    /// Returns the bytes of memory of the output that waits before `out`, without those of a string
    /// that they share.
    pub fn waiting_memory(&self) -> usize {
        let memory: usize = self.waiting().map(|waiting| waiting.memory).sum();
        let joint = self.waiting().last().map_or(0, |last| last.joint_bytes(&self.out));
        memory.saturating_sub(joint)
    }

    /// Returns the bytes of output that the socket has not taken yet.
    #[inline]
    pub fn pending_output(&self) -> usize {
        self.out.len()
            + self.handed as usize
            + self.backlog.as_ref().map_or(0, |backlog| backlog.bytes)
            + self.unsealed()
    }

    /// Returns the bytes of output that the client is charged for: everything it has not read. A
    /// string to which several consecutive replies refer counts once.
    pub fn output_charge(&self) -> usize {
        let pending = self.pending_output();
        if self.out.is_plain() && self.backlog.is_none() && self.unsealed() == 0 {
            return pending;
        }
        pending.min(self.out.charge() + self.handed as usize + self.waiting_memory())
    }
}

const _: () = assert!(std::mem::size_of::<Link>() <= 128, "idle connections are to be cheap");

/// Empty buffers of one thread for replies, warm in the cache.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spare: Vec<Output>,
}

/// Size of a new buffer in bytes: a few small replies.
const FRESH: usize = 512;
/// A buffer with a larger capacity is not kept.
const KEEP_BYTES: usize = 16 << 10;
/// Greatest number of spare buffers.
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
