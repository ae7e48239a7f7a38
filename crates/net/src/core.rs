//! The state of one reactor that does not depend on its handler: connections, and the work lists of
//! the current turn.
//!
//! The handler's callbacks borrow this (through [`ConnIo`](super::ConnIo) and [`Cx`](super::Cx)).
//! The reactor keeps the back-end and the receive buffers apart, so it can pass input without a
//! copy. Callbacks only record requests here, in flags and lists, and the reactor executes them
//! later in the same turn.

use super::Close;
use super::admission::Leaving;
use super::backlog::Backlog;
use super::conn::{ConnId, Link, Pool, Token, flag};
use super::fair::Budget;
use super::gated::{Gate, Passed};
use super::outgoing::{ConnectError, Connecting};
use super::peer::{Kind, Tag};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;
use structs::output::Output;

/// Bytes that are received where no long word is arriving: enough for the words in front of one.
pub(super) const HEAD: usize = 2 << 10;

pub(super) struct Core {
    pub thread: u8,
    pub links: Vec<Link>,
    /// Vacant slots.
    pub free: Vec<u32>,
    /// Slots vacated in this turn. Requests queued for the kernel may still name them.
    pub closing: Vec<u32>,
    /// Descriptors of connections that ended. They are closed after the kernel has taken all queued
    /// requests, a few in each turn. Until then a request may contain the number, and no new
    /// connection may get it.
    pub leaving: Leaving,
    /// Descriptors of connections that ended while another thread was sending a reply of theirs.
    pub lingering: Vec<(Token, OwnedFd)>,
    /// Connections with output to send when the turn ends.
    pub dirty: Vec<u32>,
    /// Connections to remove before the turn ends.
    pub dead: Vec<(u32, Close)>,
    /// Connections whose left-over input can be presented again.
    pub rerun: Vec<Token>,
    /// Whether a connection that is tried again has consumed something.
    pub has_progress: bool,
    /// Connections whose next request could not run.
    pub retries: Vec<Token>,
    /// Connections whose TLS handshakes wait for their turn, oldest first.
    pub hellos: VecDeque<Token>,
    pub pool: Pool,
    /// Connections with held output, by gate, in the order of their positions.
    pub holding: [VecDeque<(u64, Token)>; 3],
    /// The positions up to which held output may be sent.
    pub passed: Passed,
    /// When output was last held.
    pub held_at: Instant,
    /// Whether output has begun to wait at the gate `Judged` since this was last read.
    pub awaits_judgement: bool,
    /// Bytes of long output that may still be sent in this turn.
    pub send_budget: Budget,
    /// Where long output of TLS connections is encrypted to; empty until there is some.
    pub sealed: Vec<u8>,
    /// Bytes of long words that may still be received in this turn.
    pub receive_budget: Budget,
    /// Connections of which a long word has begun in this turn.
    pub begun_words: Vec<Token>,
    /// Where the reactor receives input itself that is no part of a long word.
    pub head: Box<[u8]>,
    /// The time when this turn began.
    pub now: Instant,
    pub live: usize,
    /// Connections that the handler is opening.
    pub connecting: Vec<Connecting>,
    /// Connections that failed to open, and that the handler does not know of yet.
    pub not_opened: Vec<(ConnId, Tag, ConnectError)>,
    /// Sockets that will become connections of this thread.
    pub adopted: Vec<(Token, Kind)>,
    pub stop: bool,
    /// Latest time of the handler's next tick.
    pub tick_wanted: Option<Instant>,
}

impl Core {
    pub fn new(thread: u8) -> Self {
        let now = Instant::now();
        Self {
            thread,
            links: Vec::new(),
            free: Vec::new(),
            closing: Vec::new(),
            leaving: Leaving::default(),
            lingering: Vec::new(),
            dirty: Vec::new(),
            dead: Vec::new(),
            rerun: Vec::new(),
            has_progress: false,
            retries: Vec::new(),
            hellos: VecDeque::new(),
            pool: Pool::default(),
            holding: Default::default(),
            passed: Passed::default(),
            held_at: now,
            awaits_judgement: false,
            send_budget: Budget::new(),
            sealed: Vec::new(),
            receive_budget: Budget::new(),
            begun_words: Vec::new(),
            head: vec![0; HEAD].into_boxed_slice(),
            now,
            live: 0,
            connecting: Vec::new(),
            not_opened: Vec::new(),
            adopted: Vec::new(),
            stop: false,
            tick_wanted: None,
        }
    }

    #[inline]
    pub fn token(&self, slot: u32) -> Token {
        Token { slot, generation: self.links[slot as usize].generation }
    }

    pub fn id(&self, slot: u32) -> ConnId {
        ConnId::new(self.thread, self.token(slot))
    }

    /// Returns the slot of a connection that is still alive.
    #[inline]
    pub fn find(&self, token: Token) -> Option<u32> {
        let link = self.links.get(token.slot as usize)?;
        (link.generation == token.generation && link.is_taken() && !link.is(flag::DEAD))
            .then_some(token.slot)
    }

    /// Adds a connection to the list of those to flush, with a buffer to write to.
    #[inline]
    pub fn mark_dirty(&mut self, slot: u32) {
        let link = &mut self.links[slot as usize];
        if !link.is(flag::DIRTY) {
            link.flags |= flag::DIRTY;
            if link.out.capacity() == 0 {
                link.out = self.pool.get();
            }
            self.dirty.push(slot);
        }
    }

    /// Adds a connection to the list of those whose left-over input is presented again.
    pub fn mark_rerun(&mut self, slot: u32) {
        let token = self.token(slot);
        let link = &mut self.links[slot as usize];
        if !link.is(flag::RERUN) {
            link.flags |= flag::RERUN;
            self.rerun.push(token);
        }
    }

    /// Releases held output up to these positions.
    #[inline]
    pub fn release(&mut self, passed: Passed) {
        let before = std::mem::replace(&mut self.passed, passed).epoch;
        if passed.epoch != before || self.holds() {
            self.release_since(before);
        }
    }

    /// Releases held output up to the positions that have passed, in the epoch that was before or a
    /// later one.
    fn release_since(&mut self, before: u64) {
        let passed = self.passed;
        if passed.epoch != before {
            // What was confirmed before the last epoch is not known any more.
            let is_next = passed.epoch == before + 1;
            self.end_judged(if is_next { passed.confirmed_before } else { 0 });
        }
        for gate in Gate::ALL {
            let (queue, position) = (gate as usize, passed.at(gate));
            while let Some(&(_, token)) =
                self.holding[queue].front().filter(|(at, _)| *at <= position)
            {
                self.holding[queue].pop_front();
                if let Some(slot) = self.find(token) {
                    self.mark_dirty(slot);
                }
            }
        }
    }

    /// Lets go of what waits at the gate `Judged`; what is not confirmed is lost.
    fn end_judged(&mut self, confirmed: u64) {
        for (_, token) in std::mem::take(&mut self.holding[Gate::Judged as usize]) {
            let Some(slot) = self.find(token) else { continue };
            if let Some(held) = &mut self.links[slot as usize].gated {
                held.end_judged(confirmed);
            }
            self.mark_dirty(slot);
        }
    }

    /// Returns whether some output is held.
    #[inline]
    pub fn holds(&self) -> bool {
        self.holding.iter().any(|queue| !queue.is_empty())
    }

    /// Ends a connection. It is removed before the turn ends.
    pub fn kill(&mut self, slot: u32, why: Close) {
        let link = &mut self.links[slot as usize];
        if link.is_taken() && !link.is(flag::DEAD) {
            link.flags |= flag::DEAD;
            // Free the output now, because other connections may need the memory in this turn.
            (link.out, link.backlog) = (Output::default(), None);
            if let Some(session) = &mut link.tls {
                session.unsealed = Backlog::default();
            }
            self.dead.push((slot, why));
        }
    }

    /// Closes a connection once its output is sent, or at once if there is none.
    pub fn close_after_flush(&mut self, slot: u32) {
        self.links[slot as usize].flags |= flag::CLOSING;
        self.mark_dirty(slot);
    }

    /// Returns whether there is work that no event will announce.
    pub fn hurried(&self) -> bool {
        !(self.leaving.is_empty()
            && self.dirty.is_empty()
            && self.adopted.is_empty()
            && self.rerun.is_empty()
            && self.retries.is_empty()
            && self.hellos.is_empty()
            && self.dead.is_empty())
            || (!self.connecting.is_empty() || !self.not_opened.is_empty()) && self.has_steps()
    }
}
