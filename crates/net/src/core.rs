//! The state of one reactor that does not depend on its handler: connections and the work lists of
//! the current turn.
//!
//! The handler's callbacks borrow this (through [`ConnIo`](super::ConnIo) and [`Cx`](super::Cx))
//! while the reactor holds the back-end and the receive buffers apart, so that input can be handed
//! out without a copy. What a callback asks for is therefore only noted here, in flags and lists,
//! and carried out by the reactor later in the same turn.

use super::Close;
use super::conn::{ConnId, Link, Pool, Token, flag};
use super::fair::SendBudget;
use super::gated::{Gate, Passed};
use super::outgoing::{ConnectError, Connecting};
use super::peer::{Kind, Tag};
use super::timers::Timers;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;
use structs::output::Output;

pub(super) struct Core {
    pub thread: u8,
    pub links: Vec<Link>,
    /// Vacant slots.
    pub free: Vec<u32>,
    /// Slots vacated in this turn; requests queued for the kernel may still name them.
    pub closing: Vec<u32>,
    /// Descriptors of connections that ended in this turn. They are closed after the kernel has
    /// taken all queued requests: until then a request may hold the number, which a new connection
    /// must not get.
    pub deferred_close: Vec<OwnedFd>,
    /// Those of connections that ended while a reply of theirs was being sent by another thread.
    pub lingering: Vec<(Token, OwnedFd)>,
    /// Connections with output to send when the turn ends.
    pub dirty: Vec<u32>,
    /// Connections to be buried before the turn ends.
    pub dead: Vec<(u32, Close)>,
    /// Connections whose left-over input can be presented again.
    pub rerun: Vec<Token>,
    /// One that is to be tried again has consumed something.
    pub has_progress: bool,
    /// Connections whose next request could not run.
    pub retries: Vec<Token>,
    pub pool: Pool,
    /// Connections with output that is held back, by gate, in the order of its positions.
    pub holding: [VecDeque<(u64, Token)>; 3],
    /// Up to where output that is held may leave.
    pub passed: Passed,
    /// When something was held last.
    pub held_at: Instant,
    /// Output has begun to wait at the gate `Judged` since this was last asked.
    pub awaits_judgement: bool,
    /// What may still be sent in this turn of long output.
    pub send_budget: SendBudget,
    /// The time at which this turn began.
    pub now: Instant,
    pub live: usize,
    /// Connections that the handler has asked for, and that are not open yet.
    pub connecting: Vec<Connecting>,
    /// Those that failed, and that the handler has not heard of.
    pub not_opened: Vec<(ConnId, Tag, ConnectError)>,
    /// Sockets to become connections of this thread.
    pub adopted: Vec<(Token, Kind)>,
    pub timers: Timers,
    pub stop: bool,
    /// When the handler wants its next tick at the latest.
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
            deferred_close: Vec::new(),
            lingering: Vec::new(),
            dirty: Vec::new(),
            dead: Vec::new(),
            rerun: Vec::new(),
            has_progress: false,
            retries: Vec::new(),
            pool: Pool::default(),
            holding: Default::default(),
            passed: Passed::default(),
            held_at: now,
            awaits_judgement: false,
            send_budget: SendBudget::new(),
            now,
            live: 0,
            connecting: Vec::new(),
            not_opened: Vec::new(),
            adopted: Vec::new(),
            timers: Timers::default(),
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

    /// The slot of a connection that is still alive.
    #[inline]
    pub fn find(&self, token: Token) -> Option<u32> {
        let link = self.links.get(token.slot as usize)?;
        (link.generation == token.generation && link.is_taken() && !link.is(flag::DEAD))
            .then_some(token.slot)
    }

    /// Enters a connection in the list of those to flush, with a buffer to write to.
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

    /// Enters a connection in the list of those whose left-over input is presented again.
    pub fn mark_rerun(&mut self, slot: u32) {
        let token = self.token(slot);
        let link = &mut self.links[slot as usize];
        if !link.is(flag::RERUN) {
            link.flags |= flag::RERUN;
            self.rerun.push(token);
        }
    }

    /// Lets go of output that is held for positions up to these.
    pub fn release(&mut self, passed: Passed) {
        let is_new_epoch = passed.epoch != self.passed.epoch;
        self.passed = passed;
        if is_new_epoch {
            self.lose_waiting();
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

    /// What waits at the gate `Judged` will not be confirmed.
    fn lose_waiting(&mut self) {
        for (_, token) in std::mem::take(&mut self.holding[Gate::Judged as usize]) {
            let Some(slot) = self.find(token) else { continue };
            if let Some(held) = &mut self.links[slot as usize].gated {
                held.lose();
            }
            self.mark_dirty(slot);
        }
    }

    /// Whether some output is held back.
    pub fn holds(&self) -> bool {
        self.holding.iter().any(|queue| !queue.is_empty())
    }

    /// Condemns a connection; it is buried before the turn ends.
    pub fn kill(&mut self, slot: u32, why: Close) {
        let link = &mut self.links[slot as usize];
        if link.is_taken() && !link.is(flag::DEAD) {
            link.flags |= flag::DEAD;
            // Nothing of it will be sent: others may need the memory in this very turn.
            (link.out, link.backlog) = (Output::default(), None);
            self.dead.push((slot, why));
        }
    }

    /// Has a connection closed once its output is sent; at once if there is none.
    pub fn close_after_flush(&mut self, slot: u32) {
        self.links[slot as usize].flags |= flag::CLOSING;
        self.mark_dirty(slot);
    }

    /// True when something is left to do that no event will announce.
    pub fn hurried(&self) -> bool {
        !(self.deferred_close.is_empty()
            && self.dirty.is_empty()
            && self.adopted.is_empty()
            && self.rerun.is_empty()
            && self.retries.is_empty()
            && self.dead.is_empty())
            || (!self.connecting.is_empty() || !self.not_opened.is_empty()) && self.has_steps()
    }
}
