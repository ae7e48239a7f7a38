//! Connections to servers that end, and servers that do not answer. Each request without a reply
//! is answered with an error, or sent again where that is safe.

use super::tag::{Purpose, Tag, WasSent};
use super::upstream::{PROGRESS_WITHIN, Upstream};
use super::{Conn, Hub};
use crate::failure::{Ended, Failure};
use crate::policy::{Audience, Policy};
use crate::wire::{Id, Wire};
use route::raw;
use spec::Way;
use std::time::Duration;

/// Between two attempts to connect to a server that could not be reached.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// How long a node that leads no shard any more may take to answer what it was asked before.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

impl<P: Policy> Hub<P> {
    /// Ends a connection to a server that is of no more use, and tells all that wait for it.
    pub(super) fn upstream_lost<W: Wire>(
        &mut self,
        wire: &mut W,
        mut up: Box<Upstream>,
        why: Ended,
    ) {
        let was_connecting = up.connect_by.is_some() || !up.link.is_ready();
        if let Some(to) = up.passing.as_ref().and_then(|passing| passing.client()) {
            // It has the beginning of a reply that has no end.
            self.drop_client(wire, to);
        }
        let (sent, unsent, _) = up.link.take_all();
        let [sent, unsent] = [sent, unsent]
            .map(|tags| tags.into_iter().map(|tag| up.reclaim(tag)).collect::<Vec<_>>());
        let had_requests = !sent.is_empty() || !unsent.is_empty();
        let queued = up.queued;
        self.dequeued(&mut up, queued);
        self.forget_kept(&mut up);
        let local = &mut self.pools[up.pool];
        let stats = local.server_stats(up.server);
        stats.server_connections.sub(1);
        stats.lost.add((sent.len() + unsent.len()) as u64);
        let target = &mut local.targets[up.server];
        let was_current = target.links.iter().any(|link| link.1 == up.id)
            || target.idle.iter().any(|link| link.1 == up.id)
            || up.owner.is_some()
            || up.is_detached;
        target.links.retain(|link| link.1 != up.id);
        target.idle.retain(|link| link.1 != up.id);
        if was_connecting {
            target.retry_at = Some(wire.now() + RETRY_AFTER);
        }
        let server = local.name(up.server);
        if was_current && why.is_failure() && (had_requests || was_connecting) {
            self.note_failure(wire.now(), up.pool, up.server, &why);
            self.failing_over(wire, up.pool, up.server);
        }
        let was_sent = if why == Ended::GoesDown { WasSent::No } else { WasSent::Perhaps };
        let is_refused = why.is_refusal();
        let reply = Failure::Lost { server, why }.reply();
        for tag in sent {
            self.lost(wire, tag, &reply, was_sent);
        }
        // What a server has refused it will refuse again.
        let was_sent = if is_refused { WasSent::Perhaps } else { WasSent::No };
        for tag in unsent {
            self.lost(wire, tag, &reply, was_sent);
        }
        if let Some(owner) = up.owner {
            self.exclusive_ended(up.pool);
            self.own_lost(wire, owner, &up);
        } else if up.is_subscribed {
            self.ear_lost(up.id);
        }
    }

    /// Notes that a client has lost a connection of its own, whose requests have been answered.
    fn own_lost<W: Wire>(&mut self, wire: &mut W, owner: Id, up: &Upstream) {
        let Some(client) = self.client(owner) else { return };
        client.own.retain(|own| own.1 != up.id);
        if let Some(upload) = client.upload.as_mut().filter(|upload| upload.to == Some(up.id)) {
            // The rest of the request goes nowhere; the error has been told.
            upload.to = None;
        }
        self.transaction_lost(owner, up.server);
        let Some(client) = self.client(owner) else { return };
        if client.tracking.is_some() && !up.is_subscribed {
            // What the client has cached may be outdated.
            self.pushed(wire, up, b">2\r\n$10\r\ninvalidate\r\n_\r\n");
        } else if up.is_subscribed {
            self.subscriber_lost(wire, owner, up.id);
        }
    }

    /// Answers a request whose connection was lost before the reply came, or sends it again.
    pub(super) fn lost<W: Wire>(
        &mut self,
        wire: &mut W,
        tag: Tag,
        reply: &[u8],
        was_sent: WasSent,
    ) {
        let Tag { client: id, seq, part, bytes, purpose } = tag;
        let tag = |purpose| Tag { client: id, seq, part, bytes, purpose };
        let again = Tag { bytes: 0, ..tag(Purpose::Client) };
        match purpose {
            Purpose::Redirectable(kept) if kept.is_watch => {
                if let Some(watch) = self.client(id).and_then(|client| client.watch.as_mut()) {
                    watch.is_broken = true;
                }
                self.deliver(wire, tag(Purpose::Client), b"+OK\r\n");
            }
            Purpose::Redirectable(kept) if self.is_message_to_all(id, &kept.request) => {
                // As on one server, clients that do not listen at this moment do not hear it.
                self.deliver(wire, tag(Purpose::Client), b":0\r\n");
            }
            Purpose::Redirectable(kept)
                if kept.is_read || self.may_repeat(id, &kept.request, was_sent) =>
            {
                self.try_again(wire, again, kept, reply);
            }
            Purpose::Redirectable(_) => self.deliver(wire, tag(Purpose::Client), reply),
            Purpose::Queued => self.deliver(wire, tag(Purpose::Client), b"+QUEUED\r\n"),
            Purpose::Requeued => {}
            Purpose::Exec => {
                let pool = self.client(id).map(|client| client.pool);
                let has_slots = pool.is_some_and(|pool| self.pools[pool].has_slots());
                let multi = self.client(id).and_then(|client| client.executing.take());
                match multi.filter(|_| has_slots && was_sent == WasSent::No) {
                    Some(mut multi) => {
                        multi.onward = None;
                        self.execute_later(wire, again, multi, reply);
                    }
                    None => self.deliver(wire, tag(Purpose::Client), reply),
                }
            }
            other => self.reply(wire, tag(other), reply),
        }
    }

    /// Returns whether a request of a client that is still there is a message for the clients of
    /// all servers.
    fn is_message_to_all(&mut self, id: Id, request: &[u8]) -> bool {
        if P::AUDIENCE != Audience::All || self.client(id).is_none() {
            return false;
        }
        let words = raw::words(request).unwrap_or_default();
        let row = self.commands.table.lookup(&words);
        row.is_some_and(|row| row.way == Way::Message)
    }

    /// Returns whether a request that was lost may be sent again.
    fn may_repeat(&mut self, id: Id, request: &[u8], was_sent: WasSent) -> bool {
        if !P::TRUSTS_SERVERS || self.client(id).is_none() {
            return was_sent == WasSent::No;
        }
        let Some(words) = raw::words(request) else { return false };
        let Some(row) = self.commands.table.lookup(&words) else { return false };
        let mut has_key = false;
        // A request without a key was for this server's shard alone, and another server may lead
        // that now.
        let _ = spec::keys::for_each_key(row.command, &words, |_, _| has_key = true);
        has_key && (was_sent == WasSent::No || self.commands.reads[row.index])
    }

    /// Ends the requests to nodes of a cluster that lead no shard any more and do not say so: a
    /// process that stands still keeps its connections. `leads` has the numbers of the servers that
    /// lead.
    pub fn leave_former_primaries<W: Wire>(&mut self, wire: &mut W, leads: &[u16]) {
        let now = wire.now();
        let mut late = Vec::new();
        for conn in self.conns.iter_mut().flatten() {
            let Conn::Upstream(up) = conn else { continue };
            let is_used = up.is_subscribed || up.link.pending() > 0;
            if up.answers_by.is_some()
                || leads.iter().any(|&server| usize::from(server) == up.server)
                || !is_used
            {
                up.former_since = None;
            } else if now >= *up.former_since.get_or_insert(now) + LAST_ANSWERS {
                late.push(up.id);
            }
        }
        for id in late {
            if let Some(Conn::Upstream(up)) = self.take_conn(id) {
                self.pools[up.pool].server_stats(up.server).server_timedout.add(1);
                wire.abort(id);
                self.upstream_lost(wire, up, Ended::NotLeading);
            }
        }
    }

    /// Looks for servers that do not answer.
    pub(super) fn check_timeouts<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        let (mut late, mut unread) = (Vec::new(), Vec::new());
        for conn in self.conns.iter_mut().flatten() {
            let Conn::Upstream(up) = conn else { continue };
            let config = &self.pools[up.pool].shared.config;
            unread.extend(Self::unread_since(up, now));
            let is_late = match (up.connect_by, config.timeout) {
                (Some(by), _) => now >= by,
                _ if up.answers_by.is_some_and(|by| now >= by) => up.link.pending() > 0,
                (None, timeout) if up.passing.is_some() => {
                    let passing = up.passing.as_ref().filter(|passing| !passing.is_held());
                    let within = timeout.unwrap_or(PROGRESS_WITHIN);
                    passing.is_some_and(|passing| now >= passing.progress_at + within)
                }
                // A blocking command takes its time.
                (None, Some(timeout)) if up.owner.is_none() || up.has_upload => {
                    up.waits_since().is_some_and(|since| now >= since + timeout)
                }
                _ => false,
            };
            if is_late {
                late.push((up.id, up.connect_by.is_some()));
            }
        }
        for id in unread {
            self.drop_unread(wire, id);
        }
        for (id, is_connecting) in late {
            if let Some(Conn::Upstream(up)) = self.take_conn(id) {
                self.pools[up.pool].server_stats(up.server).server_timedout.add(1);
                wire.abort(id);
                let why = if is_connecting { Ended::NotReached } else { Ended::Silent };
                self.upstream_lost(wire, up, why);
            }
        }
    }
}

/// A PROXY header has to have come whole within this time.
const HEADER_WITHIN: Duration = Duration::from_secs(10);

impl<P: Policy> Hub<P> {
    /// Ends long requests that do not go on: the client does not send, or the server does not read.
    /// Ends connections that do not begin with a whole PROXY header.
    pub(super) fn check_uploads<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        let (mut late, mut headless) = (Vec::new(), Vec::new());
        for conn in self.conns.iter().flatten() {
            let Conn::Client(client) = conn else { continue };
            if client.awaits_header && now >= client.since + HEADER_WITHIN {
                headless.push(client.id);
            }
            let Some(upload) = &client.upload else { continue };
            if now >= upload.progress_at + PROGRESS_WITHIN {
                late.push((client.id, upload.is_held.then_some(upload.to).flatten()));
            }
        }
        for id in headless {
            let peer = self.client(id).map_or_else(String::new, |client| client.peer.clone());
            let seconds = HEADER_WITHIN.as_secs();
            (self.common.log)(&format!("client {peer}: no PROXY header in {seconds} s; closed"));
            self.drop_client(wire, id);
        }
        for (id, server) in late {
            match server.and_then(|server| self.take_conn(server)) {
                Some(Conn::Upstream(up)) => {
                    wire.abort(up.id);
                    self.upstream_lost(wire, up, Ended::NotTaken);
                }
                Some(other) => {
                    let id = other.id();
                    self.put(id, other);
                }
                None => {
                    let peer = self.client(id).map_or_else(String::new, |c| c.peer.clone());
                    (self.common.log)(&format!(
                        "client {peer}: a long request did not go on; closed"
                    ));
                    self.drop_client(wire, id);
                }
            }
        }
    }
}
