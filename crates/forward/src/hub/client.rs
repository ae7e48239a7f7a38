//! A client: its requests in order, and the replies that came before their turn.

use super::acks::Acks;
use super::multi::{Multi, Watch};
use super::setting::Setting;
use super::subscriptions::Subscriptions;
use super::tracked::Tracking;
use super::upload::Upload;
use crate::pool::Session;
use crate::stats::LARGE;
use crate::wire::{Id, Stall, Wire};
use resp::Parser;
use route::Joining;
use route::plan::Page;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Requests that may always be under way.
const LEAST_UNDER_WAY: usize = 16;

/// A reply is counted with so many bytes at least.
const LEAST_REPLY: usize = 64;

/// A request's place in the order of replies.
#[derive(Debug)]
pub enum ReplyPlace {
    /// The reply has not come.
    Waiting,
    /// It came, and earlier ones have not.
    Done(Vec<u8>),
    /// Some of several replies have come.
    Joining(Box<Joining>),
    /// A page of SCAN.
    Scan(Box<Page>),
    /// Its reply is not for the client.
    Muted(Box<ReplyPlace>),
}

/// How a long reply stands to the requests before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It is the next one, and is passed on.
    Passes,
    /// The client wants no reply.
    Unwanted,
    /// Others come before it, or it is joined with others.
    Waits,
}

/// What replies a client wants (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// All.
    On,
    /// None.
    Off,
    /// Not that of the next request.
    Skip,
}

/// A client's connection.
pub struct Client {
    /// The connection.
    pub id: Id,
    /// The number that CLIENT ID says.
    pub number: u64,
    /// How many clients its thread had before. Chooses among several connections to one server.
    pub turn: u64,
    /// The pool's number.
    pub pool: usize,
    /// Its address as text.
    pub peer: String,
    /// When it came.
    pub since: Instant,
    /// What it needs of the connections that carry its requests.
    pub session: Session,
    /// Of a node's client: the number by which the cluster knows it.
    pub origin: u64,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO: the library's name and version.
    pub library: Option<Box<[Vec<u8>; 2]>>,
    /// CLIENT CAPA REDIRECT. Nothing depends on it.
    pub can_redirect: bool,
    /// Whether it may send commands.
    pub is_authenticated: bool,
    /// Whether a PROXY header has to come first.
    pub awaits_header: bool,
    /// Whether it asked for maintenance notices.
    pub wants_notices: bool,
    /// Finds requests that are out of the ordinary.
    pub parser: Parser,
    /// Requests that have not been answered.
    queue: VecDeque<ReplyPlace>,
    /// Bytes of replies that came before their turn.
    pub early_bytes: usize,
    /// Bytes of a reply to expect: that of the longest lately. It bounds the requests under way.
    reply_bytes: usize,
    /// While a long reply is passed on, the messages behind it.
    pub behind: Option<Vec<u8>>,
    /// A long request of which not all has come.
    pub upload: Option<Box<Upload>>,
    /// Bytes of a request that is kept until it is whole, and of a transaction's requests.
    pub kept: usize,
    /// The number of the first of them.
    base: u64,
    /// How often slots had moved when its last request was sent.
    pub moves: u64,
    /// No request is taken until the queue is empty.
    pub waits_for_all: bool,
    /// A server gave a request back: those that are sent again are sent one after the other.
    pub repeats_in_order: bool,
    /// When the last of its requests that are to be sent again is due.
    pub repeats_until: Option<Instant>,
    /// A command that may wait without end is under way.
    pub is_blocked: bool,
    /// What it waits for at several servers.
    pub(super) awaited: Option<Acks>,
    /// No request is taken until its output has shrunk.
    pub is_paused: bool,
    /// No request is taken until the queue of a server has shrunk.
    pub is_congested: bool,
    /// No request is taken until a pause ends.
    pub is_held: bool,
    /// No request is taken until the servers have said what a command is.
    pub is_learning: bool,
    /// Its own connections, and their servers.
    pub own: Vec<(usize, Id)>,
    /// The keys that it watches.
    pub watch: Option<Box<Watch>>,
    /// The transaction.
    pub multi: Option<Box<Multi>>,
    /// A cluster's transaction whose EXEC has not been answered.
    pub executing: Option<Box<Multi>>,
    /// The slot that its next transaction belongs to, if the transaction's commands do not say so.
    pub slot_of_queue: Option<usize>,
    /// What the servers track for it.
    pub tracking: Option<Arc<Tracking>>,
    /// CLIENT CACHING, for its next request.
    pub caching: Option<Vec<u8>>,
    /// What it is subscribed to.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// What replies it wants.
    pub replies: Replies,
    /// The reply to the request that is being presented is not for it.
    pub is_muted: bool,
    /// Pages of SCAN that have not been answered.
    pages: usize,
    /// It is to be closed when everything has been answered.
    pub is_leaving: bool,
}

impl Client {
    /// A new one.
    pub fn new(id: Id, number: u64, pool: usize, peer: String, since: Instant) -> Client {
        Client {
            id,
            number,
            turn: 0,
            pool,
            peer,
            since,
            session: Session::default(),
            origin: 0,
            name: Vec::new(),
            library: None,
            can_redirect: false,
            is_authenticated: true,
            awaits_header: false,
            wants_notices: false,
            parser: Parser::new(),
            queue: VecDeque::new(),
            early_bytes: 0,
            reply_bytes: 4 << 10,
            behind: None,
            upload: None,
            kept: 0,
            base: 0,
            moves: 0,
            waits_for_all: false,
            repeats_in_order: false,
            repeats_until: None,
            is_blocked: false,
            awaited: None,
            is_paused: false,
            is_congested: false,
            is_held: false,
            is_learning: false,
            own: Vec::new(),
            watch: None,
            multi: None,
            executing: None,
            slot_of_queue: None,
            tracking: None,
            caching: None,
            subscriptions: None,
            replies: Replies::On,
            is_muted: false,
            pages: 0,
            is_leaving: false,
        }
    }

    /// Returns whether its next request has to wait.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        if let Some(upload) = &self.upload {
            return upload.is_held;
        }
        self.waits_for_all
            || self.is_paused
            || self.is_congested
            || self.is_held
            || self.is_learning
            || self.is_leaving
            || self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.awaited > 0)
    }

    /// Bytes of the requests of transactions that are kept.
    #[inline]
    pub fn bytes_of_transaction(&self) -> usize {
        let multis = [&self.multi, &self.executing];
        multis.into_iter().flatten().map(|multi| multi.bytes()).sum()
    }

    /// What its input waits for.
    #[inline]
    pub fn stall(&self) -> Stall {
        if !self.is_stalled() {
            Stall::None
        } else if self.is_blocked {
            Stall::Blocked
        } else {
            Stall::Held
        }
    }

    /// Returns whether it has connections of its own, or a transaction, and so cannot go over to
    /// another pool.
    pub fn is_bound(&self) -> bool {
        let awaits = self.subscriptions.as_ref().is_some_and(|subs| subs.awaited > 0);
        !self.own.is_empty() || self.multi.is_some() || self.watch.is_some() || awaits
    }

    /// Returns whether it listens to channels.
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|subscriptions| !subscriptions.is_empty())
    }

    /// What it is, as the letters of CLIENT LIST.
    pub fn flags(&self) -> &'static str {
        match () {
            () if self.is_blocked => "b",
            () if self.multi.is_some() => "x",
            () if self.is_subscribed() => "P",
            () => "N",
        }
    }

    /// What it says that it can, as the letters of CLIENT LIST.
    pub fn capabilities(&self) -> &'static str {
        if self.can_redirect { "r" } else { "" }
    }

    /// Returns whether every request has been answered, and every subscription confirmed.
    pub fn is_settled(&self) -> bool {
        self.is_idle() && self.subscriptions.as_ref().is_none_or(|subs| subs.awaited == 0)
    }

    /// Returns whether every request has been answered.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether requests need no more than the place of their key.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.is_authenticated
            && self.multi.is_none()
            && self.own.is_empty()
            && self.watch.is_none()
            && self.replies == Replies::On
            && self.tracking.is_none()
            && self.subscriptions.is_none()
    }

    /// Returns whether a request is the oldest without a reply.
    pub fn is_oldest(&self, seq: u64) -> bool {
        seq == self.base
    }

    /// Returns when a request is sent again that could be at a time: not before earlier ones.
    pub fn repeats_at(&mut self, due: Instant) -> Instant {
        let due = self.repeats_until.map_or(due, |last| due.max(last));
        self.repeats_until = Some(due);
        due
    }

    /// Returns whether so many requests are under way that their replies, if they are as long as
    /// those before, exceed `most` bytes.
    #[inline]
    pub fn awaits_more_than(&self, most: usize) -> bool {
        self.queue.len() > LEAST_UNDER_WAY && self.queue.len() * self.reply_bytes > most
    }

    /// Notes how long a reply is.
    #[inline]
    fn note_reply(&mut self, bytes: usize) {
        self.reply_bytes = match bytes >= self.reply_bytes {
            true => bytes,
            // It is forgotten slowly.
            false => (self.reply_bytes - (self.reply_bytes - bytes) / 16).max(LEAST_REPLY),
        };
    }

    /// Appends a request. Returns its number.
    #[inline]
    pub fn push(&mut self, slot: ReplyPlace) -> u64 {
        self.pages += usize::from(matches!(slot, ReplyPlace::Scan(_)));
        self.queue.push_back(match self.is_muted {
            true => ReplyPlace::Muted(Box::new(slot)),
            false => slot,
        });
        self.base + self.queue.len() as u64 - 1
    }

    /// Has the reply of a part of a request made of several. Returns the number of the first of
    /// these parts; `None` if the client does not want the reply.
    pub fn divide(&mut self, seq: u64, part: u32, joining: Joining) -> Option<u32> {
        let at = usize::try_from(seq.wrapping_sub(self.base)).ok()?;
        let slot = match self.queue.get_mut(at)? {
            ReplyPlace::Muted(slot) => &mut **slot,
            slot => slot,
        };
        match slot {
            slot @ ReplyPlace::Waiting => {
                *slot = ReplyPlace::Joining(Box::new(joining));
                Some(0)
            }
            ReplyPlace::Joining(whole) => u32::try_from(whole.divide(part as usize, joining)).ok(),
            _ => None,
        }
    }

    /// Returns whether it waits for pages of SCAN.
    #[inline]
    pub fn has_pages(&self) -> bool {
        self.pages > 0
    }

    /// The page of SCAN that a request is.
    pub fn page(&mut self, seq: u64) -> Option<&mut Page> {
        let at = usize::try_from(seq.wrapping_sub(self.base)).ok()?;
        match self.queue.get_mut(at)? {
            ReplyPlace::Scan(page) => Some(page),
            ReplyPlace::Muted(slot) => match &mut **slot {
                ReplyPlace::Scan(page) => Some(page),
                _ => None,
            },
            _ => None,
        }
    }

    /// Appends a request whose reply is there, unless the client does not want it.
    pub fn answer(&mut self, wire: &mut impl Wire, reply: &[u8]) {
        if self.is_muted {
            return;
        }
        if self.queue.is_empty() {
            wire.send(self.id, reply);
        } else {
            self.early_bytes += reply.len();
            self.queue.push_back(ReplyPlace::Done(reply.to_vec()));
        }
    }

    /// Answers the oldest request; if all are answered, the one that has come just now.
    pub fn answer_first(&mut self, wire: &mut impl Wire, reply: &[u8]) {
        match self.queue.is_empty() {
            true => wire.send(self.id, reply),
            false => self.take(wire, self.base, 0, reply),
        }
    }

    /// Takes the reply to a request, or to a part of it.
    ///
    /// # Panics
    /// When there is no such request: replies would be out of step.
    #[inline]
    pub fn take(&mut self, wire: &mut impl Wire, seq: u64, part: u32, reply: &[u8]) {
        let at = seq.checked_sub(self.base).expect("a reply to a request that was answered");
        self.note_reply(reply.len());
        if at == 0 && matches!(self.queue.front(), Some(ReplyPlace::Waiting)) {
            wire.send(self.id, reply);
            self.queue.pop_front();
            self.base += 1;
            if let Some(ReplyPlace::Done(_)) = self.queue.front() {
                self.flush(wire);
            }
            return;
        }
        self.take_slowly(at as usize, part, reply);
        if at == 0 {
            self.flush(wire);
        }
    }

    /// A long reply has begun to come.
    pub fn begin_passing(&mut self, seq: u64) -> Head {
        match self.queue.front() {
            Some(ReplyPlace::Waiting) if seq == self.base && self.behind.is_none() => {
                self.behind = Some(Vec::new());
                Head::Passes
            }
            _ => {
                let at = usize::try_from(seq.wrapping_sub(self.base)).ok();
                match at.and_then(|at| self.queue.get(at)) {
                    Some(ReplyPlace::Muted(slot)) if matches!(**slot, ReplyPlace::Waiting) => {
                        Head::Unwanted
                    }
                    _ => Head::Waits,
                }
            }
        }
    }

    /// The long reply has ended.
    pub fn end_passing(&mut self, wire: &mut impl Wire) {
        self.note_reply(LARGE);
        self.queue.pop_front();
        self.base += 1;
        if let Some(behind) = self.behind.take() {
            wire.send(self.id, &behind);
        }
        self.flush(wire);
    }

    fn take_slowly(&mut self, at: usize, part: u32, reply: &[u8]) {
        let protocol = self.session.protocol;
        let slot = self.queue.get_mut(at).expect("a reply to a request that was not made");
        let (inner, is_muted) = match &mut *slot {
            ReplyPlace::Muted(inner) => (&mut **inner, true),
            slot => (slot, false),
        };
        let done = match inner {
            ReplyPlace::Waiting => reply.to_vec(),
            ReplyPlace::Joining(joining) => {
                let before = joining.bytes();
                if !joining.put(part as usize, reply.to_vec()) {
                    self.early_bytes = self.early_bytes + joining.bytes() - before;
                    return;
                }
                self.early_bytes -= before;
                joining.finish(protocol)
            }
            ReplyPlace::Scan(page) => {
                self.pages -= 1;
                page.finish(reply)
            }
            ReplyPlace::Done(_) | ReplyPlace::Muted(_) => panic!("a request has two replies"),
        };
        let done = if is_muted { Vec::new() } else { done };
        self.early_bytes += done.len();
        *slot = ReplyPlace::Done(done);
    }

    fn flush(&mut self, wire: &mut impl Wire) {
        while let Some(ReplyPlace::Done(reply)) = self.queue.front() {
            wire.send(self.id, reply);
            self.early_bytes -= reply.len();
            self.queue.pop_front();
            self.base += 1;
        }
    }

    /// The own connection to a server.
    #[inline]
    pub fn own_to(&self, server: usize) -> Option<Id> {
        self.own.iter().find(|own| own.0 == server).map(|own| own.1)
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It is done with.
    Done,
    /// It is to be presented again.
    Later,
}

/// Sends a message to a client, behind the reply that is being passed on to it.
pub(super) fn send_message<W: Wire>(
    wire: &mut W,
    id: Id,
    behind: &mut Option<Vec<u8>>,
    message: &[u8],
) {
    match behind {
        Some(behind) => behind.extend_from_slice(message),
        None => wire.send(id, message),
    }
}

impl Client {
    /// Sends a message that answers no request.
    pub(super) fn send_message<W: Wire>(&mut self, wire: &mut W, message: &[u8]) {
        send_message(wire, self.id, &mut self.behind, message);
    }
}

impl Client {
    /// What its connections are to be set to.
    pub(super) fn setting(&self) -> Setting<'_> {
        Setting { session: self.session, tracking: self.tracking.as_ref() }
    }
}
