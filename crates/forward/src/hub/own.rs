//! Connections of a client's own, for commands that wait, for tracking and for
//! [transactions](super::transactions).
//!
//! A client moves to a connection of its own, and back, only while none of its requests is under
//! way: otherwise they could overtake each other.

use super::client::{Client, Flow};
use super::tag::{Purpose, Tag};
use super::tracked::Tracking;
use super::upstream::Upstream;
use super::{Conn, Hub};
use crate::failure::Failure;
use crate::policy::Policy;
use crate::pool::{LinkKey, Session};
use crate::wire::{Id, NOBODY, Wire};
use route::raw;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Free connections to one server that a thread keeps for the next client.
const MAX_IDLE: usize = 16;

impl<P: Policy> Hub<P> {
    /// Takes a free connection for a client, or opens one. The caller notes that the client has it.
    pub(super) fn acquire<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &Client,
        server: usize,
        session: Session,
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
    pub(super) fn own<W: Wire>(
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

    /// Closes a connection that a client has for itself. The server forgets what it was told there
    /// only when it ends.
    pub(super) fn drop_own<W: Wire>(&mut self, wire: &mut W, id: Id) {
        if let Some(Conn::Upstream(mut up)) = self.take_conn(id) {
            wire.close(id);
            self.upstream_dropped(&mut up);
            self.exclusive_ended(up.pool);
        }
    }

    /// Asks the server of a client's own connection for the number by which it knows the
    /// connection, so that CLIENT UNBLOCK can name it there.
    pub(super) fn identify<W: Wire>(&mut self, wire: &mut W, own: Option<Id>) {
        let Some(up) = own.and_then(|own| self.upstream(own)) else { return };
        if up.server_id.is_some() {
            return;
        }
        up.server_id = Some(0);
        let (id, purpose) = (up.id, Purpose::Identify);
        let request = raw::request(&[b"CLIENT", b"ID"]);
        self.send_on(
            wire,
            id,
            &request,
            Tag { client: NOBODY, seq: 0, part: 0, bytes: 0, purpose },
        );
    }

    /// Tells the server of a client's own connection which client it is, by whose number other
    /// nodes end what it waits for there. Clients that the cluster does not know have the number 0.
    pub(super) fn say_origin<W: Wire>(&mut self, wire: &mut W, client: (Id, u64), own: Id) {
        let (client, origin) = client;
        let is_new = |up: &&mut Upstream| origin != 0 && up.origin != origin;
        let Some(up) = self.upstream(own).filter(is_new) else { return };
        up.origin = origin;
        let word = format!("client:{origin}");
        let request = raw::request(&[b"CLIENT", b"CAPA", word.as_bytes()]);
        let tag = Tag { client, seq: 0, part: 0, bytes: 0, purpose: Purpose::Discard };
        self.send_on(wire, own, &request, tag);
    }

    /// Gives a client a connection of its own to another server instead of the one that it has.
    pub(super) fn own_elsewhere<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
    ) -> Result<Id, Failure> {
        // Keys stay watched while another command waits.
        if client.tracking.is_none() && (client.watch.is_none() || !client.is_blocked) {
            self.release(wire, client);
        }
        self.acquire_own(wire, client, server)
    }

    /// Gives a client a connection of its own to another server.
    pub(super) fn move_own<W: Wire>(
        &mut self,
        wire: &mut W,
        id: Id,
        server: usize,
    ) -> Result<Id, Failure> {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else {
            return Err(Failure::NoServer);
        };
        let acquired = self.own_elsewhere(wire, &mut client, server);
        self.put(id, Conn::Client(client));
        acquired
    }

    /// Brings a client's own connection in step with its session.
    pub(super) fn step<W: Wire>(&mut self, wire: &mut W, id: Id, own: Id) {
        let Some(Conn::Client(client)) = self.take_conn(id) else { return };
        self.bring_in_step(wire, &client, own);
        self.put(id, Conn::Client(client));
    }

    /// Ends the connection of a client's long request that will not become whole.
    pub(super) fn give_up<W: Wire>(&mut self, wire: &mut W, client: &mut Client, to: Option<Id>) {
        let Some(id) = to else { return };
        client.own.retain(|own| own.1 != id);
        self.drop_own(wire, id);
    }
}
