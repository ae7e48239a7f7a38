//! Connections of a client's own, for commands that wait, for tracking and for
//! [transactions](super::transactions).
//!
//! A client moves to a connection of its own, and back, only while none of its requests is under
//! way: otherwise they could overtake each other.

use super::client::{Client, Slot};
use super::request::Flow;
use super::tracking::Tracking;
use super::transactions::Multi;
use super::upstream::{Purpose, Tag, Upstream};
use super::wire::{Id, Wire};
use super::{Conn, Hub};
use crate::failure::Failure;
use crate::policy::Policy;
use crate::pool::{LinkKey, Session as Setting};
use spec::{Merge, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Free connections to one server that a thread keeps for the next client.
const MAX_IDLE: usize = 16;

/// How long a server may take to answer a request that does not need the answer of each.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How the replies of several servers become one.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    /// By this rule.
    pub merge: Merge,
    /// This reply is joined with theirs.
    pub own: Option<&'a [u8]>,
    /// Servers that do not answer are left out ([`Joining::lenient`](route::Joining::lenient)).
    pub is_lenient: bool,
    /// The request is about no database, and goes out on connections as they are.
    pub is_apart: bool,
}

impl Answers<'_> {
    /// The answers of all servers, by this rule.
    pub fn of_all(merge: Merge) -> Answers<'static> {
        Answers { merge, own: None, is_lenient: false, is_apart: false }
    }
}

impl<P: Policy> Hub<P> {
    /// A connection of the client's own, of which it takes care.
    pub(super) fn acquire<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &Client,
        server: usize,
        session: Setting,
        tracking: Option<Arc<Tracking>>,
    ) -> Result<Id, Failure> {
        let key = LinkKey::new(session);
        let local = &mut self.pools[client.pool];
        let most = local.shared.config.limits.exclusive;
        if local.shared.exclusive.fetch_add(1, SeqCst) >= most {
            local.shared.exclusive.fetch_sub(1, SeqCst);
            let pool = local.shared.config.name.clone();
            return Err(Failure::TooManyExclusive { pool, most });
        }
        let idle = &mut local.targets[server].idle;
        let id = match idle.iter().position(|idle| idle.0 == key).filter(|_| tracking.is_none()) {
            Some(at) => idle.swap_remove(at).1,
            None => match self.open(wire, client.pool, server, key, tracking) {
                Ok(id) => id,
                Err(why) => {
                    self.exclusive_ended(client.pool);
                    return Err(why);
                }
            },
        };
        if let Some(up) = self.upstream(id) {
            up.owner = Some(client.id);
        }
        Ok(id)
    }

    /// The client's own connection to a server, which is made if there is none. On a new one the
    /// server tracks what the client wants to be tracked.
    pub(super) fn acquire_own<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
    ) -> Result<Id, Failure> {
        if let Some(own) = client.own_to(server) {
            return Ok(own);
        }
        let (session, tracking) = (client.session, client.tracking.clone());
        let id = self.acquire(wire, client, server, session, tracking)?;
        client.own.push((server, id));
        Ok(id)
    }

    /// A connection of the client's own, for a command that may wait. A node's client is known by
    /// its number there.
    fn own<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
    ) -> Result<Id, Failure> {
        let own = self.acquire_own(wire, client, server)?;
        self.say_origin(wire, (client.id, client.origin), own);
        Ok(own)
    }

    /// Sends CLIENT CACHING in front of the request that it is for.
    pub(super) fn say_caching<W: Wire>(&mut self, wire: &mut W, client: &Client, id: Id) {
        if let Some(caching) = &client.caching {
            let purpose = Purpose::Discard;
            let tag = Tag { client: client.id, seq: 0, part: 0, bytes: 0, purpose };
            self.send_on(wire, id, caching, tag);
        }
    }

    pub(super) fn exclusive_ended(&self, pool: usize) {
        self.pools[pool].shared.exclusive.fetch_sub(1, SeqCst);
    }

    /// Lets the client's own connections go.
    pub(super) fn release<W: Wire>(&mut self, wire: &mut W, client: &mut Client) {
        for (server, id) in std::mem::take(&mut client.own) {
            let Some(up) = self.upstream(id) else { continue };
            let (key, pool) = (up.key, up.pool);
            (up.has_upload, up.answers_by) = (false, None);
            let is_clean = up.link.pending() == 0
                && up.link.is_ready()
                && !up.has_returned
                && up.tracking.is_none();
            up.owner = None;
            self.exclusive_ended(pool);
            let idle = &mut self.pools[pool].targets[server].idle;
            if is_clean && idle.len() < MAX_IDLE {
                idle.push((key, id));
            } else if let Some(Conn::Upstream(mut up)) = self.take_conn(id) {
                wire.close(id);
                self.upstream_dropped(&mut up);
            }
        }
    }

    /// Takes no more requests until all have been answered, then lets own connections go.
    pub(super) fn settle_soon(&mut self, client: &mut Client) {
        client.waits_for_all = true;
        if client.is_idle() {
            self.settling.push(client.id);
        }
    }

    /// Takes no more requests until all have been answered; this one comes again.
    pub(super) fn come_again(&mut self, client: &mut Client) -> Flow {
        self.settle_soon(client);
        Flow::Later
    }

    /// All requests of a client that waited for it have been answered.
    pub(super) fn settle<W: Wire>(&mut self, wire: &mut W, id: Id) {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else { return };
        client.waits_for_all = false;
        client.is_blocked = false;
        client.repeats_in_order = false;
        client.repeats_until = None;
        if client.watch.is_none() && client.multi.is_none() && client.tracking.is_none() {
            self.release(wire, &mut client);
        }
        self.rehome(wire, &mut client);
        // A transaction that has ended takes nothing any more.
        self.count_kept(wire, &mut client, 0);
        self.put(id, Conn::Client(client));
        wire.resume(id);
    }

    /// A connection of the client's own is lost, and its requests have been told so.
    pub(super) fn own_lost<W: Wire>(&mut self, wire: &mut W, owner: Id, up: &Upstream) {
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

    /// A command that may wait.
    pub(super) fn blocking<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
        request: &[u8],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        match self.own(wire, client, server) {
            Ok(own) => {
                if !P::TRUSTS_SERVERS {
                    self.identify(wire, Some(own));
                }
                client.is_blocked = true;
                self.forward(wire, client, server, request, Slot::Waiting);
            }
            Err(why) => client.answer(wire, &why.reply()),
        }
        self.settle_soon(client);
        Flow::Done
    }

    /// A request for several servers that does not wait behind those of other clients: it is about
    /// what these do there.
    pub(super) fn send_apart<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        servers: Vec<usize>,
        request: &[u8],
        answers: Answers<'_>,
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        // A server that runs a long script selects no database.
        let db = std::mem::replace(&mut client.session.db, 0);
        let answers_by = answers.is_lenient.then(|| wire.now() + ANSWERS_WITHIN);
        let acquired = servers.iter().try_for_each(|&server| {
            let acquired = self.own(wire, client, server);
            if let Some(own) = client.own_to(server).and_then(|own| self.upstream(own)) {
                own.answers_by = answers_by;
            }
            if answers.is_lenient { Ok(()) } else { acquired.map(drop) }
        });
        client.session.db = db;
        match acquired {
            Ok(()) if servers.is_empty() => client.answer(wire, &Failure::NoServer.reply()),
            Ok(()) => {
                client.is_blocked = true;
                self.send_to(wire, client, servers, request, answers);
            }
            Err(why) => client.answer(wire, &why.reply()),
        }
        self.settle_soon(client);
        Flow::Done
    }

    /// A command of transactions or subscriptions, outside MULTI.
    pub(super) fn session<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        session: Session,
        server: Option<usize>,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        match session {
            Session::Multi => {
                client.multi = Some(Box::new(Multi::default()));
                client.answer(wire, b"+OK\r\n");
            }
            Session::Exec => client.answer(wire, b"-ERR EXEC without MULTI\r\n"),
            Session::Discard => client.answer(wire, b"-ERR DISCARD without MULTI\r\n"),
            Session::Watch => return self.watch(wire, client, server, words, request),
            Session::Unwatch => match client.watch.take().and_then(|watch| watch.server_of(client))
            {
                Some(server) => {
                    self.forward(wire, client, server, request, Slot::Waiting);
                    self.settle_soon(client);
                }
                None => client.answer(wire, b"+OK\r\n"),
            },
            Session::Subscribe => return self.subscribe(wire, client, words),
            Session::Unsubscribe => return self.unsubscribe(wire, client, words),
        }
        Flow::Done
    }
}
