//! Long replies are passed on as they come: none of it is kept but what the client's socket does
//! not take.
//!
//! From the first byte on, a reply that is passed on has the shared connection to its server for
//! itself: new requests take another one, and those that were sent behind the long one wait for its
//! end. While there are such, the proxy reads on although the client does not, up to its limits; at
//! the limit the client has [`PATIENCE`] before it is disconnected. Without such, the server is not
//! read while the client is not.

use super::client::Head;
use super::tag::{Purpose, Tag};
use super::upstream::{Passing, Upstream, others_wait};
use super::{Conn, Hub};
use crate::failure::Ended;
use crate::policy::Policy;
use crate::wire::Wire;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// Free connections to one server that a thread keeps for the next client.
const MAX_IDLE: usize = 16;

impl<P: Policy> Hub<P> {
    /// A reply is long, and not all of it has come. Returns whether it is passed on from now on.
    pub(super) fn begin_passing<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        begin: &[u8],
    ) -> bool {
        if !P::PASSES_ON || !up.link.is_ready() || begin[0] == b'>' {
            return false;
        }
        let Some(tag) = up.link.tags().next() else { return false };
        let (id, seq) = (tag.client, tag.seq);
        let to = match &tag.purpose {
            Purpose::Discard => None,
            Purpose::Client | Purpose::Streamed => Some(id),
            Purpose::Redirectable(_) | Purpose::Keyed(_) if begin[0] != b'-' => Some(id),
            _ => return false,
        };
        let to = match (to, to.and_then(|id| self.client(id))) {
            (None, _) | (Some(_), None) => None,
            (Some(id), Some(client)) => match client.begin_passing(seq) {
                Head::Passes => Some(id),
                Head::Unwanted => None,
                Head::Waits => return self.check_kept(wire, up.pool, id, begin.len()),
            },
        };
        let now = wire.now();
        up.passing = Some(Box::new(Passing {
            to,
            backlog: 0,
            progress_at: now,
            held_since: None,
            first_held: None,
        }));
        self.detach(up);
        true
    }

    /// Has new requests take another connection while a long reply comes on this one. The number of
    /// such connections is limited.
    fn detach(&mut self, up: &mut Upstream) {
        let local = &self.pools[up.pool];
        if local.shared.exclusive.load(SeqCst) < local.shared.config.limits.exclusive {
            self.set_aside(up);
        }
    }

    /// Passes on what has come of a long reply. Returns how many bytes are done with, and the
    /// reply's tag at its end.
    pub(super) fn pass_reply<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        input: &[u8],
    ) -> Result<(usize, Option<Tag>), Ended> {
        let passed = up.link.pass(input, &mut |bytes| wire.send(up.id, bytes));
        let (bytes, tag) = passed.map_err(|why| self.why_broken(up.pool, why))?;
        let now = wire.now();
        let local = &self.pools[up.pool];
        let limits = &local.shared.config.limits;
        let Some(passing) = up.passing.as_mut() else { return Ok((bytes, tag)) };
        passing.progress_at = now;
        let Some(to) = passing.to else {
            let owner = tag.as_ref().or_else(|| up.link.tags().next()).map(|tag| tag.client);
            if owner.is_some_and(|owner| self.client(owner).is_none()) {
                self.void_bytes += bytes;
            }
            return Ok((bytes, tag));
        };
        wire.send(to, &input[..bytes]);
        let backlog = wire.backlog(to);
        passing.backlog = backlog;
        let reads_on = backlog <= limits.client_output / 2
            && local.queued_of_all() <= limits.queue
            && others_wait(&up.link, to);
        if tag.is_none() && backlog > limits.client_backlog && !reads_on {
            passing.held_since = Some(now);
            passing.first_held.get_or_insert(now);
            if !up.is_detached {
                self.held_own.push(up.id);
            }
        }
        if self.client(to).is_none() {
            // The rest goes nowhere.
            if let Some(passing) = up.passing.as_mut() {
                passing.to = None;
                passing.held_since = None;
            }
        }
        Ok((bytes, tag))
    }

    /// A long reply has ended.
    pub(super) fn passed<W: Wire>(&mut self, wire: &mut W, up: &mut Upstream, tag: Tag) {
        let tag = up.settle(tag, b"");
        let Some(passing) = up.passing.take() else { return };
        match passing.to.and_then(|id| self.client(id)) {
            Some(client) => {
                client.end_passing(wire);
                self.answered(wire, tag.client);
            }
            None if tag.purpose == Purpose::Discard || passing.to.is_some() => {}
            // The client wants no reply.
            None => self.deliver(wire, tag, b""),
        }
    }

    /// Goes on with long replies whose clients read again, and takes connections back that are
    /// free.
    pub(super) fn go_on_passing<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        for id in std::mem::take(&mut self.detached) {
            let Some(Conn::Upstream(mut up)) = self.take_conn(id) else { continue };
            if self.goes_on(wire, &mut up, now) {
                wire.resume(id);
            }
            let is_over = up.link.pending() == 0 && up.passing.is_none();
            if !is_over {
                self.detached.push(id);
                self.put(id, Conn::Upstream(up));
            } else if self.reattach(&mut up) {
                self.put_back(wire, up);
            } else {
                wire.close(id);
                self.upstream_dropped(&mut up);
            }
        }
        for id in std::mem::take(&mut self.held_own) {
            let Some(Conn::Upstream(mut up)) = self.take_conn(id) else { continue };
            if self.goes_on(wire, &mut up, now) {
                wire.resume(id);
            } else if up.passing.as_ref().is_some_and(|passing| passing.is_held()) {
                self.held_own.push(id);
            }
            self.put(id, Conn::Upstream(up));
        }
    }

    /// Returns whether a server is to be read again that was not.
    fn goes_on<W: Wire>(&mut self, wire: &mut W, up: &mut Upstream, now: Instant) -> bool {
        let limit = self.pools[up.pool].shared.config.limits.client_backlog;
        let Some(passing) = up.passing.as_mut().filter(|passing| passing.is_held()) else {
            return false;
        };
        let is_there = passing.to.is_some_and(|to| self.client(to).is_some());
        if is_there && passing.to.is_some_and(|to| wire.backlog(to) > limit / 2) {
            return false;
        }
        if !is_there {
            passing.to = None;
        }
        passing.held_since = None;
        passing.progress_at = now;
        true
    }

    /// Makes a connection the shared one, or a free one, again. Returns false if it is not needed.
    fn reattach(&mut self, up: &mut Upstream) -> bool {
        if std::mem::take(&mut up.is_detached) {
            self.exclusive_ended(up.pool);
        }
        let target = &mut self.pools[up.pool].targets[up.server];
        if target.links.iter().all(|link| link.0 != up.key) {
            target.links.push((up.key, up.id));
            return true;
        }
        let is_plain = up.key.lane == 0 && !up.key.is_reading;
        if is_plain && target.idle.len() < MAX_IDLE {
            target.idle.push((up.key, up.id));
            return true;
        }
        false
    }
}
