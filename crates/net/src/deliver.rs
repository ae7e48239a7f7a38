//! Input: from a socket's bytes to the handler's `data`, and the input that is left over.
//!
//! In the usual case nothing is copied: if a connection has nothing left over, the handler gets the
//! receive buffer itself. Input that the handler does not consume moves to the connection's `rest`,
//! which has memory only while it is not empty. A request that is larger than the buffers grows
//! there. It grows geometrically, so that a peer which only announces 512 MB does not cause their
//! reservation, but not beyond what the peer announced, so that no more is reserved than arrives. A
//! long word of a request is received [into its own block](super::filling), where it may stay.

use super::buffers::Filled;
use super::conn::{Link, Token, flag};
use super::core::Core;
use super::cx::ConnIo;
use super::filling::Filling;
use super::reactor::Reactor;
use super::tls::FeedResult;
use super::{Close, Consumed, Handler, NextInput, Problem, sys};
use std::os::fd::AsRawFd;

/// Bytes of input that are kept for a connection that is not being served. Beyond that its socket
/// is no longer read, and the peer's sends stop.
const STASH: usize = 64 << 10;

/// A vector with more capacity than this that is mostly empty is exchanged for a smaller one.
const ROOMY: usize = 64 << 10;

/// Where the text of a TLS session goes: to the long word that is arriving, and what is behind it
/// to the handler.
pub(super) struct Text<'a> {
    word: Option<&'a mut Filling>,
    plain: Vec<u8>,
    has_grown: bool,
}

impl<'a> Text<'a> {
    pub fn of(filling: &'a mut Option<Box<Filling>>, plain: Vec<u8>) -> Text<'a> {
        Text { word: filling.as_deref_mut(), plain, has_grown: false }
    }

    #[inline]
    pub fn take(&mut self, record: &[u8]) {
        let behind = match &mut self.word {
            None => record,
            Some(word) => {
                self.has_grown = true;
                word.take_in(record)
            }
        };
        self.plain.extend_from_slice(behind);
    }

    /// Returns what is for the handler, and whether the word has grown.
    pub fn end(self) -> (Vec<u8>, bool) {
        (self.plain, self.has_grown)
    }
}

impl<H: Handler> Reactor<H> {
    /// Handles received bytes. This is the hot path.
    #[inline]
    pub(super) fn on_data(&mut self, token: Token, buf: Filled) {
        let slot = token.slot;
        let link = &mut self.core.links[slot as usize];
        if link.generation == token.generation {
            self.coalescer.arrived(&mut link.seen);
            if link.flags & (flag::BLOCKED | flag::TLS) == 0 && link.rest.is_empty() {
                let input = self.driver.input(buf);
                fresh(&mut self.handler, &mut self.users, &mut self.core, slot, input);
            } else if link.is(flag::TLS) {
                self.on_wire(slot, buf);
            } else {
                let input = self.driver.input(buf);
                append(&mut self.core.links[slot as usize], input);
                self.appended(slot);
            }
        }
        self.driver.recycle(buf);
    }

    /// Handles received bytes of a TLS connection.
    fn on_wire(&mut self, slot: u32, buf: Filled) {
        let link = &mut self.core.links[slot as usize];
        if link.is(flag::DEAD) {
            return;
        }
        if link.is(flag::HELLO) {
            append(link, self.driver.input(buf));
            return self.queue_hello(slot);
        }
        let Some(session) = link.tls.as_mut() else { return };
        let mut text = Text::of(&mut link.filling, std::mem::take(&mut self.plain));
        let fed = session.feed(self.driver.input(buf), |record| text.take(record));
        let (plain, has_grown) = text.end();
        self.on_fed(slot, fed, plain, has_grown);
    }

    /// Acts on what a TLS session made of its input. `plain` is the reactor's buffer. `has_grown`
    /// says that some of it went to a long word.
    #[inline]
    pub(super) fn on_fed(
        &mut self,
        slot: u32,
        fed: Result<FeedResult, rustls::Error>,
        mut plain: Vec<u8>,
        has_grown: bool,
    ) {
        let link = &mut self.core.links[slot as usize];
        let Some(session) = link.tls.as_mut() else { return };
        let ready = !session.is_handshaking();
        if link.is(flag::HANDSHAKE) {
            // The session's records are sent at the end of the turn.
            self.core.mark_dirty(slot);
            if ready && fed.is_ok() {
                self.core.links[slot as usize].flags &= !flag::HANDSHAKE;
                self.introduce(slot, None);
            }
        }
        if (!plain.is_empty() || has_grown) && !self.core.links[slot as usize].is(flag::HANDSHAKE) {
            self.on_plain(slot, &plain);
        }
        match fed {
            Ok(FeedResult::Open) => {}
            Ok(FeedResult::Ended) => self.on_eof(slot),
            Err(error) if !self.core.links[slot as usize].is(flag::DEAD) => {
                self.tls_failed(slot, &error.to_string());
            }
            Err(_) => {}
        }
        plain.clear();
        plain.shrink_to(ROOMY);
        self.plain = plain;
    }

    pub(super) fn on_plain(&mut self, slot: u32, plain: &[u8]) {
        let link = &mut self.core.links[slot as usize];
        if !link.is(flag::BLOCKED) && link.rest.is_empty() {
            fresh(&mut self.handler, &mut self.users, &mut self.core, slot, plain);
        } else {
            append(link, plain);
            self.appended(slot);
        }
    }

    /// Ends a connection whose TLS session failed, after sending the peer an alert.
    pub(super) fn tls_failed(&mut self, slot: u32, why: &str) {
        let link = &mut self.core.links[slot as usize];
        if let (Some(session), Some(fd)) = (link.tls.as_mut(), link.fd.as_ref()) {
            let mut alert = Vec::new();
            session.seal(&[], &mut alert);
            // An empty socket has space for it. With a full socket, the peer is not reading anyway.
            let _ = sys::send(fd.as_raw_fd(), &alert);
        }
        if link.is(flag::OUTGOING) {
            self.core.handshake_failed(slot, why);
        } else if link.is(flag::HANDSHAKE) {
            let peer = self.peer_info(slot, None).addr_text();
            self.handler.problem(Problem::Handshake(&peer, why));
        }
        self.core.kill(slot, Close::Tls);
    }

    /// Handles the growth of a connection's `rest`.
    fn appended(&mut self, slot: u32) {
        let link = &mut self.core.links[slot as usize];
        if link.is(flag::CLOSING | flag::DEAD) {
            forget(link);
        } else if link.is(flag::BLOCKED) {
            if link.unread() >= STASH && !link.is(flag::UNREAD) {
                link.flags |= flag::UNREAD;
                let token = self.core.token(slot);
                self.driver.read_off(token);
            }
        } else if link.unread() >= link.wanted {
            self.run_rest(slot);
        } else if let Some(user) = self.users[slot as usize].as_mut() {
            self.handler.growing(user, &mut ConnIo { core: &mut self.core, slot });
        }
    }

    /// Presents left-over input to the handler.
    fn run_rest(&mut self, slot: u32) {
        let Some(user) = self.users[slot as usize].as_mut() else { return };
        let link = &mut self.core.links[slot as usize];
        let (mut rest, start) = (std::mem::take(&mut link.rest), std::mem::take(&mut link.start));
        let input = &rest[start..];
        let mut io = ConnIo { core: &mut self.core, slot };
        let consumed = self.handler.data(user, &mut io, input);
        let used = consumed.bytes.min(input.len());
        debug_assert_eq!(used, consumed.bytes, "a handler consumed more than there was");
        let left = input.len() - used;
        if left > 0 {
            let link = &mut self.core.links[slot as usize];
            let begin = start + used;
            if rest.capacity() > ROOMY && left < rest.capacity() / 4 {
                rest = rest[begin..].to_vec();
            } else if begin > left {
                // Less is moved than was consumed, so the total cost is linear.
                rest.copy_within(begin.., 0);
                rest.truncate(left);
            } else {
                link.start = begin;
            }
            link.rest = rest;
        }
        conclude(&mut self.core, slot, consumed, left);
    }

    /// Presents left-over input to the handler, unless the connection is still blocked, and resumes
    /// reading.
    pub(super) fn again(&mut self, slot: u32) {
        let link = &self.core.links[slot as usize];
        if !link.is(flag::BLOCKED) && link.unread() > 0 {
            self.run_rest(slot);
        }
        let link = &mut self.core.links[slot as usize];
        if link.is(flag::BLOCKED) {
            return;
        }
        if link.is(flag::UNREAD) {
            link.flags &= !flag::UNREAD;
            let token = self.core.token(slot);
            self.driver.read_on(token);
        } else if link.is(flag::EOF) {
            self.end_of_input(slot);
        }
    }

    /// Handles a peer that has closed its side.
    pub(super) fn on_eof(&mut self, slot: u32) {
        let link = &mut self.core.links[slot as usize];
        if link.is(flag::CLOSING | flag::DEAD) {
            return;
        }
        link.flags |= flag::EOF;
        if link.is(flag::PAUSED) || link.is(flag::HANDSHAKE) {
            self.core.kill(slot, Close::Eof);
        } else if !(link.is(flag::RETRY | flag::RERUN | flag::HELD_BACK) && link.unread() > 0) {
            self.end_of_input(slot);
        }
    }

    /// Ends a connection whose peer has closed its side, after all input has been presented.
    /// Replies to earlier input are still sent.
    fn end_of_input(&mut self, slot: u32) {
        let user = self.users.get_mut(slot as usize).and_then(Option::as_mut);
        let stays = user.is_some_and(|user| {
            self.handler.ended(user, &mut ConnIo { core: &mut self.core, slot })
        });
        if !stays {
            self.core.close_after_flush(slot);
        }
    }

    /// Handles a peer that has hung up while its connection is not being read.
    pub(super) fn on_hung_up(&mut self, slot: u32, both: bool) {
        if self.core.links[slot as usize].is(flag::HELD_BACK) {
            // Its earlier input is still to be read.
        } else if both {
            self.core.kill(slot, Close::Failed(libc::ECONNRESET));
        } else if self.core.links[slot as usize].is(flag::PAUSED) {
            self.core.kill(slot, Close::Eof);
        }
        // Otherwise reading finds the end, after the input that came before.
    }
}

/// Presents bytes of a connection that has nothing left over.
#[inline]
fn fresh<H: Handler>(
    handler: &mut H,
    users: &mut [Option<H::Conn>],
    core: &mut Core,
    slot: u32,
    input: &[u8],
) {
    let Some(user) = users[slot as usize].as_mut() else { return };
    let consumed = handler.data(user, &mut ConnIo { core, slot }, input);
    let left = input.get(consumed.bytes..).unwrap_or_else(|| {
        debug_assert!(false, "a handler consumed more than there was");
        &[]
    });
    if left.is_empty() {
        return;
    }
    keep(&mut core.links[slot as usize], left, consumed);
    conclude(core, slot, consumed, left.len());
}

/// Begins `rest` with the part of a receive buffer that the handler left.
fn keep(link: &mut Link, left: &[u8], consumed: Consumed) {
    let missing = match consumed.next {
        NextInput::Read { missing } => missing,
        NextInput::Word { .. } | NextInput::Retry => 0,
    };
    // Twice the capacity saves the first few growths.
    let room = left.len().saturating_mul(2).min(left.len().saturating_add(missing));
    link.rest = Vec::with_capacity(even(room));
    link.rest.extend_from_slice(left);
}

/// Acts on the handler's result. `left` bytes of input are in `rest`.
fn conclude(core: &mut Core, slot: u32, consumed: Consumed, left: usize) {
    let token = core.token(slot);
    let link = &mut core.links[slot as usize];
    if link.is(flag::CLOSING | flag::DEAD) {
        forget(link);
        return;
    }
    link.wanted = 0;
    match consumed.next {
        NextInput::Read { missing } => link.wanted = left.saturating_add(missing),
        NextInput::Word { arrived, len, behind } => {
            fill(link, arrived, len, behind);
            core.begun_words.push(token);
        }
        NextInput::Retry if left > 0 => {
            link.flags |= flag::RETRY;
            core.has_progress |= consumed.bytes > 0;
            core.retries.push(token);
        }
        NextInput::Retry => {}
    }
}

/// Begins to receive a long word into its own block. Its first `arrived` bytes are the last of
/// `rest`.
fn fill(link: &mut Link, arrived: usize, len: usize, behind: usize) {
    if link.filling.is_none() {
        let begin = link.rest.len() - arrived;
        link.filling = Filling::begin(&link.rest[begin..], len, link.proven());
        if link.filling.is_none() {
            // There is no contiguous memory, so receive it like any other word, as far as memory
            // suffices.
            link.wanted = link.unread().saturating_add(len - arrived + behind);
            return;
        }
        link.rest.truncate(begin);
    }
    link.wanted = link.unread() + behind;
}

/// Returns a capacity of at least `room`. Medium sizes are rounded to a few values, because each
/// size in use costs the allocator some memory.
fn even(room: usize) -> usize {
    if (4 << 10..=STASH).contains(&room) { room.next_power_of_two() } else { room }
}

/// Drops input that will not be read.
fn forget(link: &mut Link) {
    link.rest = Vec::new();
    link.filling = None;
    link.start = 0;
    link.wanted = 0;
}

/// Appends received bytes to `rest`.
fn append(link: &mut Link, bytes: &[u8]) {
    let bytes = match &mut link.filling {
        None => bytes,
        Some(filling) => {
            let behind = filling.take_in(bytes);
            if filling.is_complete() {
                let len = filling.len();
                link.prove(len);
            }
            behind
        }
    };
    let len = link.rest.len() + bytes.len();
    if len > link.rest.capacity() {
        // Doubles the capacity, but not beyond the known need of the request.
        let known = link.start.saturating_add(link.wanted);
        let room = link.rest.capacity().saturating_mul(2).min(known).max(len);
        link.rest.reserve_exact(even(room) - link.rest.len());
    }
    link.rest.extend_from_slice(bytes);
}
