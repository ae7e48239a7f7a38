//! What needs a connection of the client's own: transactions, watched keys, commands that wait, tracking.
//!
//! A client moves to a connection of its own, and back, only while none of its requests is under way:
//! otherwise they could overtake each other.

use super::client::{Client, Multi, Slot};
use super::request::Flow;
use super::upstream::{Purpose, Tag, Upstream};
use super::wire::{Id, Wire};
use super::{Conn, Hub};
use crate::pool::LinkKey;
use route::handling::{Handling, Local, Session};
use route::plan::{Placement, Plan, Request};
use route::raw;
use std::sync::atomic::Ordering::SeqCst;

/// Free connections to one server that a thread keeps for the next client.
const MAX_IDLE: usize = 16;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";
const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";

impl Hub {
    /// A connection of the client's own.
    pub(super) fn acquire<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &Client,
        server: usize,
        more: Option<&[u8]>,
    ) -> Result<Id, String> {
        let key = LinkKey { protocol: client.protocol, db: client.db };
        let local = &mut self.pools[client.pool];
        let most = local.shared.config.limits.exclusive;
        if local.shared.exclusive.fetch_add(1, SeqCst) >= most {
            local.shared.exclusive.fetch_sub(1, SeqCst);
            return Err(format!(
                "ERR proxy: all {most} connections for blocking commands, transactions and \
                 subscriptions are in use; raise max_exclusive of pool '{}'",
                local.shared.config.name
            ));
        }
        let idle = &mut local.targets[server].idle;
        let id = match idle.iter().position(|idle| idle.0 == key).filter(|_| more.is_none()) {
            Some(at) => idle.swap_remove(at).1,
            None => match self.open(wire, client.pool, server, key, more) {
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

    pub(super) fn acquire_own<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
    ) -> Result<(), String> {
        if client.own_to(server).is_none() {
            let id = self.acquire(wire, client, server, None)?;
            client.own.push((server, id));
        }
        Ok(())
    }

    /// The connection on which the server tracks the client's keys.
    pub(super) fn tracked<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
        _key: LinkKey,
    ) -> Result<Id, String> {
        let tracking = client.tracking.clone();
        let id = self.acquire(wire, client, server, tracking.as_deref())?;
        client.own.push((server, id));
        Ok(id)
    }

    pub(super) fn exclusive_ended(&self, pool: usize) {
        self.pools[pool].shared.exclusive.fetch_sub(1, SeqCst);
    }

    /// Lets the client's own connections go.
    pub(super) fn release<W: Wire>(&mut self, wire: &mut W, client: &mut Client) {
        for (server, id) in std::mem::take(&mut client.own) {
            let Some(up) = self.upstream(id) else { continue };
            let (key, pool) = (up.key, up.pool);
            let is_clean =
                up.link.pending() == 0 && up.link.is_ready() && client.tracking.is_none();
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
        if !client.is_watching && client.multi.is_none() && client.tracking.is_none() {
            self.release(wire, &mut client);
        }
        self.rehome(wire, &mut client);
        self.put(id, Conn::Client(client));
        wire.resume(id);
    }

    /// A connection of the client's own is lost, and its requests have been told so.
    pub(super) fn own_lost<W: Wire>(&mut self, wire: &mut W, owner: Id, up: &Upstream) {
        let Some(client) = self.client(owner) else { return };
        client.own.retain(|own| own.1 != up.id);
        if client.tracking.is_some() && !up.is_subscribed {
            // What the client has cached may be outdated.
            wire.send(owner, b">2\r\n$10\r\ninvalidate\r\n_\r\n");
        } else if up.is_subscribed {
            self.subscriber_lost(wire, owner, up.id);
        } else if client.is_watching || client.multi.is_some() {
            // The end of the connection is what a client understands: the watched keys may have changed.
            client.is_leaving = true;
            wire.finish(owner);
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
        match self.acquire_own(wire, client, server) {
            Ok(()) => {
                client.is_blocked = true;
                self.forward(wire, client, server, request, Slot::Waiting);
            }
            Err(why) => client.answer(wire, &raw::error(&why)),
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
            Session::Multi if words.len() == 1 => {
                client.multi = Some(Box::new(Multi::default()));
                client.answer(wire, b"+OK\r\n");
            }
            Session::Multi => {
                client.answer(wire, b"-ERR wrong number of arguments for 'multi' command\r\n");
            }
            Session::Exec => client.answer(wire, b"-ERR EXEC without MULTI\r\n"),
            Session::Discard => client.answer(wire, b"-ERR DISCARD without MULTI\r\n"),
            Session::Watch => return self.watch(wire, client, server, request),
            Session::Unwatch => match client.own.first().copied().filter(|_| client.is_watching) {
                Some((server, _)) => {
                    client.is_watching = false;
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

    fn watch<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: Option<usize>,
        request: &[u8],
    ) -> Flow {
        let Some(server) = server.or_else(|| self.pools[client.pool].any()) else {
            client.answer(wire, &raw::error(route::plan::NO_SERVER));
            return Flow::Done;
        };
        if client.is_watching && client.own_to(server).is_none() {
            client.answer(wire, &raw::error(ONE_SERVER));
            return Flow::Done;
        }
        if !client.is_idle() && !client.is_watching {
            return self.come_again(client);
        }
        match self.acquire_own(wire, client, server) {
            Ok(()) => {
                client.is_watching = true;
                self.forward(wire, client, server, request, Slot::Waiting);
            }
            Err(why) => client.answer(wire, &raw::error(&why)),
        }
        Flow::Done
    }

    /// A request between MULTI and EXEC.
    pub(super) fn in_multi<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
        keys: &[usize],
        handling: Handling,
    ) -> Flow {
        let servers = self.pools[client.pool].servers();
        let name = String::from_utf8_lossy(words[0]).to_lowercase();
        match handling {
            Handling::Session(Session::Exec) => return self.exec(wire, client, request),
            Handling::Session(Session::Discard) => return self.discard(wire, client, request),
            Handling::Session(Session::Multi) => {
                client.answer(wire, b"-ERR MULTI calls can not be nested\r\n");
                return Flow::Done;
            }
            Handling::Session(Session::Watch) => {
                client.answer(wire, b"-ERR WATCH inside MULTI is not allowed\r\n");
                return Flow::Done;
            }
            Handling::Local(local @ (Local::Quit | Local::Reset)) => {
                return self.local(wire, client, local, words, request);
            }
            Handling::Session(Session::Subscribe | Session::Unsubscribe)
            | Handling::Local(Local::Select | Local::Hello | Local::Auth | Local::Client) => {
                let why = format!("ERR proxy: '{name}' does not work inside a transaction");
                self.refuse(wire, client, &why);
                return Flow::Done;
            }
            Handling::Refuse(why) => {
                let why = format!("ERR '{name}' does not work through the proxy: {why}");
                self.refuse(wire, client, &why);
                return Flow::Done;
            }
            Handling::All(_) | Handling::Scan if servers > 1 => {
                let why = format!("ERR proxy: '{name}' is for all servers, a transaction for one");
                self.refuse(wire, client, &why);
                return Flow::Done;
            }
            _ => {}
        }
        let server = if keys.is_empty() {
            client.multi.as_ref().and_then(|multi| multi.server)
        } else {
            let keyed =
                Request { words, keys, handling: Handling::Keyed, allows_split_writes: false };
            match route::plan(&keyed, &self.pools[client.pool]) {
                Plan::One(server) | Plan::Exclusive(server) => Some(server),
                Plan::Refuse(why) => {
                    self.refuse(wire, client, &why);
                    return Flow::Done;
                }
                _ => None,
            }
        };
        let Some(server) = server else {
            let most = self.pools[client.pool].shared.config.limits.server_queue;
            if client.multi.as_ref().is_some_and(|multi| multi.held_bytes > most) {
                self.refuse(wire, client, HELD);
                return Flow::Done;
            }
            if let Some(multi) = &mut client.multi {
                multi.held.push(request.to_vec());
                multi.held_bytes += request.len();
            }
            client.answer(wire, b"+QUEUED\r\n");
            return Flow::Done;
        };
        match self.attach(wire, client, server) {
            Ok(true) => self.forward(wire, client, server, request, Slot::Waiting),
            Ok(false) => return self.come_again(client),
            Err(why) => self.refuse(wire, client, &why),
        }
        Flow::Done
    }

    /// Begins the transaction on a server. Returns whether it could already.
    fn attach<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
    ) -> Result<bool, String> {
        let Some(multi) = &client.multi else { return Ok(true) };
        match multi.server {
            Some(before) if before == server => return Ok(true),
            Some(_) => return Err(ONE_SERVER.into()),
            None => {}
        }
        if client.is_watching && client.own_to(server).is_none() {
            return Err(ONE_SERVER.into());
        }
        if !client.is_idle() {
            return Ok(false);
        }
        self.acquire_own(wire, client, server)?;
        let (Some(id), Some(multi)) = (client.own_to(server), client.multi.as_mut()) else {
            return Ok(true);
        };
        multi.server = Some(server);
        let held = std::mem::take(&mut multi.held);
        for request in std::iter::once(MULTI.to_vec()).chain(held) {
            let tag =
                Tag { client: client.id, seq: 0, part: 0, bytes: 0, purpose: Purpose::Discard };
            self.send_on(wire, id, &request, tag);
        }
        Ok(true)
    }

    fn exec<W: Wire>(&mut self, wire: &mut W, client: &mut Client, request: &[u8]) -> Flow {
        let Some(multi) = &client.multi else { return Flow::Done };
        let is_dirty = multi.is_dirty;
        let is_empty = multi.server.is_none() && multi.held.is_empty() && !client.is_watching;
        if is_dirty || is_empty {
            let reply: &[u8] = if is_dirty {
                b"-EXECABORT Transaction discarded because of previous errors.\r\n"
            } else {
                b"*0\r\n"
            };
            client.answer(wire, reply);
            self.abandon(wire, client);
            return Flow::Done;
        }
        let server = multi.server.or_else(|| client.own.first().map(|own| own.0));
        let Some(server) = server.or_else(|| self.pools[client.pool].any()) else {
            client.answer(wire, &raw::error(route::plan::NO_SERVER));
            self.abandon(wire, client);
            return Flow::Done;
        };
        match self.attach(wire, client, server) {
            Ok(true) => self.forward(wire, client, server, request, Slot::Waiting),
            Ok(false) => return self.come_again(client),
            Err(why) => client.answer(wire, &raw::error(&why)),
        }
        client.multi = None;
        client.is_watching = false;
        self.settle_soon(client);
        Flow::Done
    }

    fn discard<W: Wire>(&mut self, wire: &mut W, client: &mut Client, request: &[u8]) -> Flow {
        let server = client.multi.as_ref().and_then(|multi| multi.server);
        match server {
            Some(server) => {
                self.forward(wire, client, server, request, Slot::Waiting);
                client.multi = None;
                client.is_watching = false;
                self.settle_soon(client);
            }
            None => {
                client.answer(wire, b"+OK\r\n");
                self.abandon(wire, client);
            }
        }
        Flow::Done
    }

    /// Ends a transaction that will not run, and forgets watched keys.
    pub(super) fn abandon<W: Wire>(&mut self, wire: &mut W, client: &mut Client) {
        let began = client.multi.take().is_some_and(|multi| multi.server.is_some());
        for &(_, id) in &client.own {
            let tag =
                Tag { client: client.id, seq: 0, part: 0, bytes: 0, purpose: Purpose::Discard };
            self.send_on(wire, id, if began { DISCARD } else { UNWATCH }, tag);
        }
        client.is_watching = false;
        self.settle_soon(client);
    }
}

const ONE_SERVER: &str = "CROSSSLOT a transaction needs all its keys, the watched ones too, on one server; \
    give them a common hash tag";
const HELD: &str = "ERR proxy: too many bytes of requests without keys at the beginning of a transaction; \
    the limit is server_queue_bytes";
