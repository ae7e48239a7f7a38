//! A connection to a server: what it is set to, which requests have no reply yet, and the long
//! reply that is on its way through. Functions here concern one connection alone; the hub's are
//! in [`links`](super::links) and [`receiving`](super::receiving).

use super::setting::Setting;
use super::tag::{Purpose, Tag};
use super::tracked::Tracking;
use crate::pool::LinkKey;
use crate::stats::Times;
use crate::wire::Id;
use resp::Scanner;
use route::link::Link;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection to a server.
pub struct Upstream {
    /// The connection.
    pub id: Id,
    /// The pool's number.
    pub pool: usize,
    /// The server's number.
    pub server: usize,
    /// What it is set to.
    pub key: LinkKey,
    /// What its server tracks for the owner.
    pub tracking: Option<Arc<Tracking>>,
    /// Matches replies.
    pub link: Link<Tag>,
    /// The client that has it for itself.
    pub owner: Option<Id>,
    /// [`Client::origin`](super::client::Client) of the owner, if the server knows it.
    pub origin: u64,
    /// The number by which the server knows it; 0 if that was asked and is not known.
    pub server_id: Option<i64>,
    /// The server has given requests back, and gives back those that concern the same slots.
    pub has_returned: bool,
    /// Bytes of replies to clients that have gone, since a time.
    pub(super) void: (Instant, usize),
    /// What has been read in a turn, by the turn's number.
    pub(super) turn: (u64, usize),
    /// What was left of the input that was shown last.
    pub(super) left: usize,
    /// When it was last sent a request.
    pub used_at: Instant,
    /// Messages are the owner's subscriptions, not replies.
    pub is_subscribed: bool,
    /// Requests of subscriptions that wait for the set-up.
    pub subscribing: Vec<u8>,
    /// Finds the ends of messages.
    pub scanner: Scanner,
    /// When it has to be connected.
    pub connect_by: Option<Instant>,
    /// Since when its server leads no shard of the cluster any more.
    pub(super) former_since: Option<Instant>,
    /// The bytes of the requests without a reply whose purpose is
    /// [`Keyed`](Purpose::Keyed), one behind the other. One buffer of a connection costs less than
    /// a block for each request.
    pub(super) requests: VecDeque<u8>,
    /// Requests up to a number were sent before a time.
    pub(super) marks: VecDeque<(u64, Instant)>,
    /// What its requests without a reply take.
    pub queued: usize,
    /// Replies up to this number are in the statistics of times.
    pub(super) timed: u64,
    /// The long reply that is being passed on.
    pub passing: Option<Box<Passing>>,
    /// It was shared, until a long reply came.
    pub is_detached: bool,
    /// What is kept of a reply until it is whole, or until the client takes it, and of a long
    /// request.
    pub kept: usize,
    /// When its owner's request has to be answered.
    pub answers_by: Option<Instant>,
    /// Its owner has it for one long request, which has been sent.
    pub has_upload: bool,
}

impl Upstream {
    /// Since when the oldest request waits.
    pub(super) fn waits_since(&mut self) -> Option<Instant> {
        let answered = self.link.answered();
        while self.marks.front().is_some_and(|mark| mark.0 <= answered) {
            self.marks.pop_front();
        }
        self.marks.front().map(|mark| mark.1)
    }

    /// Records how long the replies took that have come.
    #[inline]
    pub(super) fn note_times(&mut self, now: Instant, times: &Times) {
        let answered = self.link.answered();
        while let Some(&(end, sent)) = self.marks.front() {
            let end_answered = end.min(answered);
            if end_answered > self.timed {
                times.add(now.saturating_duration_since(sent), end_answered - self.timed);
                self.timed = end_answered;
            }
            if end > answered {
                break;
            }
            self.marks.pop_front();
        }
    }

    /// Counts bytes of replies to clients that have gone. Returns whether they are so many that the
    /// connection is to be closed.
    #[cold]
    pub(super) fn wastes(&mut self, bytes: usize, now: Instant) -> bool {
        if now >= self.void.0 + VOID_WITHIN {
            self.void = (now, 0);
        }
        self.void.1 += bytes;
        self.void.1 > MAX_VOID
    }

    /// Notes that the last request, which went out in parts, has been sent now.
    pub fn mark_end(&mut self, now: Instant) {
        if let Some(mark) = self.marks.back_mut() {
            mark.1 = now;
        }
    }

    /// Notes when a request was sent.
    #[inline]
    pub fn mark(&mut self, now: Instant) {
        let sent = self.link.sent();
        match self.marks.back_mut() {
            Some(mark) if mark.1 == now => mark.0 = sent,
            _ => self.marks.push_back((sent, now)),
        }
    }
}

/// Bytes of memory that a connection keeps for requests, however few there are.
const LEAST_FOR_REQUESTS: usize = 64 << 10;

impl Upstream {
    /// Returns the tag of the oldest request, whose reply has come. A request that may have to be
    /// sent elsewhere is taken from those that are kept; the others are kept no longer.
    #[inline]
    pub(super) fn settle(&mut self, tag: Tag, reply: &[u8]) -> Tag {
        let Purpose::Keyed(len) = tag.purpose else { return tag };
        if reply.first() == Some(&b'-') {
            return self.reclaim(tag);
        }
        self.requests.drain(..len as usize);
        self.fit_requests();
        Tag { purpose: Purpose::Client, ..tag }
    }

    /// Gives memory back that a burst of requests has left.
    #[inline]
    fn fit_requests(&mut self) {
        let (len, capacity) = (self.requests.len(), self.requests.capacity());
        if capacity > LEAST_FOR_REQUESTS && len < capacity / 8 {
            self.requests.shrink_to((2 * len).max(LEAST_FOR_REQUESTS));
        }
    }

    /// Returns the tag of the oldest request with the request, which may have to be sent again.
    #[cold]
    pub(super) fn reclaim(&mut self, tag: Tag) -> Tag {
        let Purpose::Keyed(len) = tag.purpose else { return tag };
        let request = self.requests.drain(..len as usize).collect();
        self.fit_requests();
        Tag { purpose: Purpose::redirectable(request), ..tag }
    }

    /// Keeps a request until it is settled.
    #[inline]
    pub(super) fn keep(&mut self, request: &[u8]) {
        self.requests.extend(request);
    }
}

impl Upstream {
    /// What it is set to, when all that was sent on it has been carried out.
    pub(super) fn setting(&self) -> Setting<'_> {
        Setting { session: self.key.session, tracking: self.tracking.as_ref() }
    }
}

/// A reply that is on its way through.
#[derive(Debug)]
pub struct Passing {
    /// The client; none if the reply goes nowhere.
    pub(super) to: Option<Id>,
    /// What the client has not taken of it.
    pub backlog: usize,
    /// When the last of it came, or left.
    pub progress_at: Instant,
    /// Since when the server is not read.
    pub(super) held_since: Option<Instant>,
    /// Since when the client was first behind.
    pub first_held: Option<Instant>,
}

impl Passing {
    /// The client that has the beginning of it.
    pub fn client(&self) -> Option<Id> {
        self.to
    }

    /// Returns whether the server is not read because the client is not reading.
    pub fn is_held(&self) -> bool {
        self.held_since.is_some()
    }
}

/// Without a byte in so long, a long request or reply is given up.
pub(super) const PROGRESS_WITHIN: Duration = Duration::from_secs(30);

/// Returns whether requests of others than this client wait for replies on a connection.
pub(super) fn others_wait(link: &Link<Tag>, client: Id) -> bool {
    link.tags().any(|tag| tag.client != client && tag.purpose != Purpose::Discard)
}

/// Replies to clients that have gone are read up to so many bytes within [`VOID_WITHIN`]. With more,
/// their connection is closed, since those of other clients would wait behind them.
pub(super) const MAX_VOID: usize = 64 << 20;

const VOID_WITHIN: Duration = Duration::from_secs(1);
