//! What a hub is told: connections that come, bytes, connections that end, time. Each event
//! leads to the functions of the modules below; nothing below calls one of these.

use super::client::Client;
use super::{Conn, Hub};
use crate::failure::Ended;
use crate::policy::Policy;
use crate::wire::{Done, Id, Stall, Wire};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The longest time between two calls of [`Hub::tick`].
const TICK: Duration = Duration::from_millis(20);

impl<P: Policy> Hub<P> {
    /// Takes a client that has connected to the pool with this tag.
    pub fn accepted<W: Wire>(&mut self, wire: &mut W, id: Id, tag: usize, peer: &str) {
        if self.pool_of_tag(tag).is_none() {
            self.follow_layout(wire);
        }
        // A pool that has just gone.
        let Some(pool) = self.pool_of_tag(tag) else { return wire.finish(id) };
        let local = &self.pools[pool];
        let config = &local.shared.config;
        let count = local.shared.clients.fetch_add(1, SeqCst);
        local.stats.client_connections.add(1);
        local.stats.accepted.add(1);
        let number = self.common.last_client.fetch_add(1, SeqCst) + 1;
        let mut client = Client::new(id, number, pool, peer.to_owned(), wire.now());
        client.is_authenticated = config.client_login.is_none();
        client.awaits_header = config.proxy_protocol;
        client.session.db = config.db;
        client.turn = self.arrivals;
        self.arrivals += 1;
        if config.limits.clients.is_some_and(|most| count >= most) {
            wire.send(id, b"-ERR max number of clients reached\r\n");
            client.is_leaving = true;
            wire.finish(id);
        }
        self.put(id, Conn::Client(Box::new(client)));
    }

    /// Begins to use a connection to a server that has been made.
    pub fn connected<W: Wire>(&mut self, wire: &mut W, id: Id) {
        if let Some(Conn::Upstream(mut up)) = self.take_conn(id) {
            self.upstream_connected(wire, &mut up);
            self.put(id, Conn::Upstream(up));
        }
    }

    /// Works on bytes that a connection has received.
    pub fn data<W: Wire>(&mut self, wire: &mut W, id: Id, input: &[u8]) -> Done {
        match self.take_conn(id) {
            None => Done { bytes: input.len(), stall: Stall::None },
            Some(Conn::Client(mut client)) => {
                let bytes = self.requests(wire, &mut client, input);
                self.count_kept(wire, &mut client, input.len() - bytes);
                let stall = client.stall();
                self.put(id, Conn::Client(client));
                Done { bytes, stall }
            }
            Some(Conn::Upstream(mut up)) => match self.upstream_data(wire, &mut up, input) {
                Ok(bytes) => {
                    let is_held = up.passing.as_ref().is_some_and(|passing| passing.is_held());
                    let is_held = self.has_spent_turn(&mut up, input.len(), bytes) || is_held;
                    self.put(id, Conn::Upstream(up));
                    Done { bytes, stall: if is_held { Stall::Held } else { Stall::None } }
                }
                Err(why) => {
                    self.pools[up.pool].server_stats(up.server).server_err.add(1);
                    wire.close(id);
                    self.upstream_lost(wire, up, why);
                    Done { bytes: input.len(), stall: Stall::None }
                }
            },
        }
    }

    /// A connection will send no more. Returns whether it is to stay open until its requests are
    /// answered.
    pub fn ended(&mut self, id: Id) -> bool {
        let Some(client) = self.client(id) else { return false };
        if client.is_leaving {
            return true;
        }
        if client.is_settled() || client.upload.is_some() {
            return false;
        }
        client.is_leaving = true;
        true
    }

    /// Forgets a connection that has ended without the hub's asking for it.
    pub fn closed<W: Wire>(&mut self, wire: &mut W, id: Id, error: Option<&str>) {
        match self.take_conn(id) {
            None => {}
            Some(Conn::Client(client)) => {
                let stats = &self.pools[client.pool].stats;
                if error.is_some() {
                    stats.client_err.add(1)
                } else {
                    stats.client_eof.add(1)
                }
                self.client_gone(wire, client);
            }
            Some(Conn::Upstream(up)) => {
                let stats = self.pools[up.pool].server_stats(up.server);
                if error.is_some() {
                    stats.server_err.add(1)
                } else {
                    stats.server_eof.add(1)
                }
                let why = error.map_or(Ended::Closed, |error| Ended::Failed(error.to_owned()));
                self.upstream_lost(wire, up, why);
            }
        }
    }

    /// Does what waits for the end of a turn, when all its events have been told.
    pub fn end_of_turn<W: Wire>(&mut self, wire: &mut W) {
        self.follow_layout(wire);
        for pool in 0..self.pools.len() {
            let changed = self.pools[pool].refresh();
            if let Some(&server) =
                changed.iter().find(|server| self.pools[pool].failing == Some(**server))
            {
                self.failed_over(wire, pool, server);
            }
            self.look_for_successor(wire, pool);
            if changed.is_empty() {
                continue;
            }
            let is_outdated = |conn: &Conn| match conn {
                Conn::Upstream(up) if up.pool == pool && changed.contains(&up.server) => {
                    Some(up.id)
                }
                _ => None,
            };
            let outdated: Vec<Id> = self.conns.iter().flatten().filter_map(is_outdated).collect();
            for id in outdated {
                if let Some(Conn::Upstream(up)) = self.take_conn(id) {
                    wire.abort(id);
                    self.upstream_lost(wire, up, Ended::Replaced);
                }
            }
        }
        self.go_on_scanning(wire);
        self.send_again(wire);
        self.read_letters(wire);
        for id in std::mem::take(&mut self.settling) {
            self.settle(wire, id);
        }
        self.go_on(wire);
        self.go_on_passing(wire);
        self.begin_turn(wire);
        self.go_on_uploading(wire);
        self.publish_queues();
    }

    /// Does what depends on the time. Returns when to call again, at the latest.
    pub fn tick<W: Wire>(&mut self, wire: &mut W) -> Duration {
        self.check_timeouts(wire);
        self.check_uploads(wire);
        self.send_again(wire);
        self.readmit(wire.now());
        self.end_pauses(wire);
        self.follow_layout(wire);
        self.sweep(wire);
        self.restore(wire);
        TICK
    }

    /// Tells clients that the proxy is about to end, and lets each go when all its requests are
    /// answered. Returns whether any is left.
    pub fn drain<W: Wire>(&mut self, wire: &mut W, seconds: u64) -> bool {
        let is_first = !std::mem::replace(&mut self.is_draining, true);
        let mut is_any = false;
        let notice = self.notice("MOVING", Some(seconds), true);
        for conn in self.conns.iter_mut().flatten() {
            let Conn::Client(client) = conn else { continue };
            is_any = true;
            if is_first && client.wants_notices {
                client.send_message(wire, &notice);
            }
            let may_stay = is_first && client.wants_notices;
            if !may_stay && client.is_idle() && client.multi.is_none() && !client.is_leaving {
                client.is_leaving = true;
                wire.finish(client.id);
            }
        }
        is_any
    }
}
