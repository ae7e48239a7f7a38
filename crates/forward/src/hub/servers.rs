//! Servers that fail, that are taken out, and that are tried again.

use super::Hub;
use super::tag::{Purpose, Tag};
use crate::failure::Ended;
use crate::policy::Policy;
use crate::pool::Session;
use crate::wire::{NOBODY, Wire};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

impl<P: Policy> Hub<P> {
    /// Sends a request to a server of the first pool, and drops its reply. If the server cannot be
    /// reached or its queue is full, the request is lost.
    pub fn tell<W: Wire>(&mut self, wire: &mut W, server: usize, request: &[u8]) {
        let key = self.pools[0].link_key(Session::default(), 0, server);
        let Ok(id) = self.shared(wire, 0, server, key) else { return };
        if self.is_full(id).is_none() {
            let tag = Tag { client: NOBODY, seq: 0, part: 0, bytes: 0, purpose: Purpose::Discard };
            self.send_on(wire, id, request, tag);
        }
    }

    /// Counts a server's failure and takes the server out, if that is wanted.
    pub(super) fn note_failure(&mut self, now: Instant, pool: usize, server: usize, why: &Ended) {
        let local = &self.pools[pool];
        local.stats.forward_error.add(1);
        let failures = local.shared.failures[server].fetch_add(1, SeqCst) + 1;
        let config = &local.shared.config;
        local.shared.is_stale.store(true, SeqCst);
        let name = local.name(server);
        (self.common.log)(&format!("pool {}: server {name}: {why}", config.name));
        if !config.ejection.is_on || failures < config.ejection.failure_limit as usize {
            return;
        }
        let until = now + config.ejection.retry_after;
        let is_new = local.shared.change(|topology| match topology.ejected.get_mut(server) {
            Some(ejected) => ejected.replace(until).is_none(),
            None => false,
        });
        if is_new {
            local.stats.server_ejects.add(1);
            let line = format!("pool {}: server {name} is ejected: {why}", config.name);
            (self.common.log)(&line);
        }
    }

    /// Takes servers back whose time is over.
    pub(super) fn readmit(&mut self, now: Instant) {
        for local in &self.pools {
            let config = &local.shared.config;
            if !config.ejection.is_on {
                continue;
            }
            let is_due = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
            if !local.shared.topology().ejected.iter().any(is_due) {
                continue;
            }
            local.shared.change(|topology| {
                for (server, until) in topology.ejected.iter_mut().enumerate() {
                    if is_due(until) {
                        *until = None;
                        let name = local.name(server);
                        let line = format!("pool {}: server {name} is tried again", config.name);
                        (self.common.log)(&line);
                    }
                }
            });
        }
    }

    /// Connects to all servers of pools that want it.
    pub fn preconnect<W: Wire>(&mut self, wire: &mut W) {
        for pool in 0..self.pools.len() {
            if !self.pools[pool].shared.config.preconnect {
                continue;
            }
            let db = self.pools[pool].shared.config.db;
            let lanes = self.pools[pool].shared.config.server_connections;
            for server in 0..self.pools[pool].targets.len() {
                for lane in 0..lanes {
                    let local = &self.pools[pool];
                    let session = Session { db, ..Session::default() };
                    let key = local.link_key(session, u64::from(lane), server);
                    let _ = self.shared(wire, pool, server, key);
                }
            }
        }
    }
}
