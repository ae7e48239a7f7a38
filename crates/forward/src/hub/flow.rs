//! Limits for what waits in memory: requests for servers, and replies for clients.
//!
//! A client whose requests or replies pile up is not read until they have shrunk. Because many
//! clients may each have one request more, a server's queue, and all queues of a pool together,
//! have an upper end at which requests are refused.

use super::Hub;
use super::client::Client;
use super::upstream::Upstream;
use crate::failure::Failure;
use crate::policy::Policy;
use crate::wire::{Id, Wire};
use std::sync::atomic::Ordering::Relaxed;

impl<P: Policy> Hub<P> {
    /// Stops reading the requests of a client if the replies to those under way will be too long.
    #[inline]
    pub(super) fn check_awaited(&mut self, client: &mut Client) {
        let config = &self.pools[client.pool].shared.config;
        if P::BOUNDS_CLIENTS
            && client.awaits_more_than(config.limits.client_backlog)
            && !client.is_paused
        {
            client.is_paused = true;
            self.paused.push(client.id);
        }
    }

    /// Reads clients again whose replies, and whose servers' queues, have shrunk.
    pub(super) fn go_on<W: Wire>(&mut self, wire: &mut W) {
        for id in std::mem::take(&mut self.paused) {
            let backlog = wire.backlog(id);
            let Some(client) = self.client(id) else { continue };
            let (pool, backlog) = (client.pool, backlog + client.early_bytes);
            let limit = self.pools[pool].shared.config.limits.client_backlog;
            let Some(client) = self.client(id) else { continue };
            if backlog > limit / 2 || client.awaits_more_than(limit / 2) {
                self.paused.push(id);
            } else if let Some(client) = self.client(id) {
                client.is_paused = false;
                wire.resume(id);
            }
        }
        for (id, server) in std::mem::take(&mut self.congested) {
            let queue = self.upstream(server).map(|up| (up.queued, up.pool));
            let limit = |pool: usize| self.pools[pool].shared.config.limits.server_queue;
            if queue.is_some_and(|(queued, pool)| queued > limit(pool) / 4) {
                self.congested.push((id, server));
            } else if let Some(client) = self.client(id) {
                client.is_congested = false;
                wire.resume(id);
            }
        }
    }

    /// Returns why a connection to a server takes no more requests, if so.
    #[inline]
    pub(super) fn is_full(&mut self, id: Id) -> Option<Failure> {
        let up = self.upstream(id)?;
        let (queued, pool, server) = (up.queued, up.pool, up.server);
        let local = &self.pools[pool];
        let limits = &local.shared.config.limits;
        if queued <= limits.server_queue && local.queued_of_all() <= limits.queue {
            return None;
        }
        Some(self.full(pool, server, queued))
    }

    #[cold]
    fn full(&self, pool: usize, server: usize, queued: usize) -> Failure {
        let local = &self.pools[pool];
        local.server_stats(server).refused.add(1);
        let (server, config) = (local.name(server), &local.shared.config);
        if queued > config.limits.server_queue {
            return Failure::ServerQueueFull { server, bytes: queued };
        }
        let (pool, bytes) = (config.name.clone(), local.queued_of_all());
        Failure::PoolQueueFull { server, pool, bytes }
    }

    /// Stops reading a client whose requests wait for a server.
    #[inline]
    pub(super) fn check_queue(&mut self, client: &mut Client, server: Id) {
        let Some(up) = self.upstream(server) else { return };
        let (queued, pool) = (up.queued, up.pool);
        let limit = self.pools[pool].shared.config.limits.server_queue;
        if queued > limit / 2 && !client.is_congested {
            client.is_congested = true;
            self.congested.push((client.id, server));
        }
    }

    /// Notes that so many bytes of requests on a connection have been answered.
    pub(super) fn dequeued(&mut self, up: &mut Upstream, bytes: usize) {
        up.queued -= bytes;
        let local = &mut self.pools[up.pool];
        local.queued -= bytes;
        local.server_stats(up.server).queue_bytes.sub(bytes as u64);
    }

    /// Tells the other threads how much waits here.
    pub(super) fn publish_queues(&mut self) {
        for local in &mut self.pools {
            if local.queued != local.published {
                let total = &local.shared.queued;
                total.fetch_add(local.queued.wrapping_sub(local.published), Relaxed);
                local.published = local.queued;
            }
        }
    }
}
