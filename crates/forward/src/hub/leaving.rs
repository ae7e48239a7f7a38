//! Clients that go, or have to: their connections end, and what they had at servers with them.

use super::client::Client;
use super::upstream::{PROGRESS_WITHIN, Upstream, others_wait};
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::wire::{Id, Wire};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

impl<P: Policy> Hub<P> {
    pub(super) fn client_gone<W: Wire>(&mut self, wire: &mut W, client: Box<Client>) {
        let local = &self.pools[client.pool];
        local.shared.clients.fetch_sub(1, SeqCst);
        local.stats.client_connections.sub(1);
        self.pools[client.pool].queued -= client.kept;
        let subscribed = client.subscriptions.iter().flat_map(|subs| subs.connections.iter());
        let own = client.own.iter().map(|own| own.1);
        for id in own.chain(subscribed.map(|known| known.id)) {
            self.drop_own(wire, id);
        }
    }

    /// Closes a client's connection.
    pub(super) fn drop_client<W: Wire>(&mut self, wire: &mut W, id: Id) {
        if let Some(Conn::Client(client)) = self.take_conn(id) {
            wire.close(id);
            self.client_gone(wire, client);
        }
    }

    /// Stops reading the requests of a client that does not read its replies.
    pub(super) fn check_output<W: Wire>(&mut self, wire: &mut W, id: Id) {
        let backlog = wire.backlog(id);
        let Some(client) = self.client(id) else { return };
        let backlog = backlog + client.early_bytes;
        let (pool, is_paused) = (client.pool, client.is_paused);
        let limits = self.pools[pool].shared.config.limits;
        if backlog > limits.client_output {
            let peer = self.client(id).map_or_else(String::new, |client| client.peer.clone());
            (self.common.log)(&format!("client {peer} does not read its replies; closed"));
            self.drop_client(wire, id);
        } else if backlog > limits.client_backlog && !is_paused {
            if let Some(client) = self.client(id) {
                client.is_paused = true;
            }
            self.paused.push(id);
        }
    }

    /// Disconnects a client that does not read a long reply.
    pub(super) fn drop_unread<W: Wire>(&mut self, wire: &mut W, id: Id) {
        let Some(client) = self.client(id) else { return };
        let peer = client.peer.clone();
        (self.common.log)(&format!("client {peer} does not read a long reply; closed"));
        self.drop_client(wire, id);
    }

    /// Closes a client for which too much would have to be kept: a long reply that has to wait for
    /// others. Returns false, because the reply is not passed on.
    pub(super) fn check_kept<W: Wire>(
        &mut self,
        wire: &mut W,
        pool: usize,
        id: Id,
        bytes: usize,
    ) -> bool {
        let most = self.pools[pool].shared.config.limits.client_output;
        let backlog = wire.backlog(id);
        let Some(client) = self.client(id) else { return false };
        if bytes + backlog + client.early_bytes > most {
            let peer = client.peer.clone();
            (self.common.log)(&format!(
                "client {peer}: replies that wait for earlier ones exceed client_output_bytes; closed"
            ));
            self.drop_client(wire, id);
        }
        false
    }

    /// Returns the client that is to be disconnected because it does not read a long reply.
    pub(super) fn unread_since(up: &Upstream, now: Instant) -> Option<Id> {
        let passing = up.passing.as_ref()?;
        let to = passing.to?;
        let is_late = match (passing.held_since, passing.first_held) {
            (Some(_), Some(first)) if now >= first + PATIENCE && others_wait(&up.link, to) => true,
            (Some(since), _) => now >= since + PROGRESS_WITHIN,
            _ => false,
        };
        is_late.then_some(to)
    }
}

/// How long others wait for a client that does not read, once the limits are reached.
const PATIENCE: Duration = Duration::from_secs(1);
