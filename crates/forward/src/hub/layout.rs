//! Pools that come, change and go while the proxy runs.
//!
//! The process's pools are a table by tags ([`Layout`]); each thread follows it. A pool that has
//! changed is replaced: clients that have nothing with the old one go over at once, the others when
//! their transaction, blocking command or subscription is over. The old one is retired: its
//! connections are closed when no reply is due on them.

use super::client::Client;
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::pool::{Local, Shared};
use crate::wire::{Id, Wire};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Between two looks at what is left of retired pools.
const SWEEP: Duration = Duration::from_millis(200);

impl<P: Policy> Hub<P> {
    /// Takes over a changed layout.
    pub(super) fn follow_layout<W: Wire>(&mut self, wire: &mut W) {
        if self.layout_version == self.common.layout_version() {
            return;
        }
        let (version, layout) = self.common.layout();
        self.layout_version = version;
        self.of_tag.resize(layout.len(), None);
        for (tag, wanted) in layout.iter().enumerate() {
            match (self.of_tag[tag], wanted) {
                (Some(at), Some(shared)) if Arc::ptr_eq(&self.pools[at].shared, shared) => {}
                (Some(at), Some(shared)) => self.replace(at, Some(shared)),
                (Some(at), None) => {
                    self.replace(at, None);
                    self.of_tag[tag] = None;
                }
                (None, Some(shared)) => self.of_tag[tag] = Some(self.add(Local::new(shared))),
                (None, None) => {}
            }
        }
        self.sweep(wire);
    }

    /// The number of the pool with this tag.
    pub(super) fn pool_of_tag(&self, tag: usize) -> Option<usize> {
        self.of_tag.get(tag).copied().flatten()
    }

    /// Finds a number for a pool.
    fn add(&mut self, local: Local<P>) -> usize {
        match self.vacant.pop() {
            Some(at) => {
                self.pools[at] = local;
                at
            }
            None => {
                self.pools.push(local);
                self.pools.len() - 1
            }
        }
    }

    /// Retires a pool. A successor gets its number.
    fn replace(&mut self, at: usize, successor: Option<&Arc<Shared>>) {
        let retired = match successor {
            Some(shared) => {
                let old = std::mem::replace(&mut self.pools[at], Local::new(shared));
                self.add(old)
            }
            None => at,
        };
        if successor.is_none() {
            self.pools
                .iter_mut()
                .filter(|p| p.successor == Some(at))
                .for_each(|p| p.successor = None);
        }
        self.pools[retired].is_retired = true;
        self.pools[retired].successor = successor.map(|_| at);
        self.retired.push(retired);
        for conn in self.conns.iter_mut().flatten() {
            match conn {
                Conn::Upstream(up) if up.pool == at => up.pool = retired,
                Conn::Client(client) if client.pool == at => client.pool = retired,
                _ => {}
            }
        }
        self.again
            .iter_mut()
            .filter(|again| again.pool == at)
            .for_each(|again| again.pool = retired);
    }

    /// Lets clients of retired pools go over to the successors, or leave, and closes connections
    /// that are of no more use.
    pub(super) fn sweep<W: Wire>(&mut self, wire: &mut W) {
        if self.retired.is_empty() || wire.now() < self.sweep_at {
            return;
        }
        self.sweep_at = wire.now() + SWEEP;
        let of_retired = |conn: &Conn| match conn {
            Conn::Client(client) => Some((client.pool, client.id)),
            Conn::Upstream(up) => Some((up.pool, up.id)),
        };
        let ids: Vec<Id> = self
            .conns
            .iter()
            .flatten()
            .filter_map(of_retired)
            .filter(|(pool, _)| self.pools[*pool].is_retired)
            .map(|(_, id)| id)
            .collect();
        for id in ids {
            match self.take_conn(id) {
                Some(Conn::Client(mut client)) => {
                    self.rehome(wire, &mut client);
                    self.put(id, Conn::Client(client));
                }
                Some(Conn::Upstream(mut up)) => {
                    // Set-ups that are under way end first.
                    let is_used = up.owner.is_some() || up.link.pending() > 0;
                    if is_used || up.connect_by.is_some() {
                        self.put(id, Conn::Upstream(up));
                        continue;
                    }
                    wire.close(id);
                    self.upstream_dropped(&mut up);
                    let target = &mut self.pools[up.pool].targets[up.server];
                    target.links.retain(|link| link.1 != id);
                    target.idle.retain(|link| link.1 != id);
                }
                None => {}
            }
        }
        let pools_of = |conn: &Conn| match conn {
            Conn::Client(client) => client.pool,
            Conn::Upstream(up) => up.pool,
        };
        let used: std::collections::HashSet<usize> =
            self.conns.iter().flatten().map(pools_of).collect();
        let vacant = |at: &usize| !used.contains(at);
        self.vacant.extend(self.retired.iter().copied().filter(vacant));
        self.retired.retain(|at| used.contains(at));
    }

    /// Takes a client to the successor of its pool, if it may go there already.
    pub(super) fn rehome<W: Wire>(&mut self, wire: &mut W, client: &mut Client) {
        let old = &self.pools[client.pool];
        if !old.is_retired {
            return;
        }
        let Some(successor) = old.successor.filter(|at| !self.pools[*at].is_retired) else {
            if client.is_settled() && client.multi.is_none() && !client.is_leaving {
                client.is_leaving = true;
                wire.finish(client.id);
            }
            return;
        };
        if client.is_bound() {
            return;
        }
        let is_subscribed = client.subscriptions.is_some();
        let new = &self.pools[successor];
        old.shared.clients.fetch_sub(1, SeqCst);
        new.shared.clients.fetch_add(1, SeqCst);
        old.stats.client_connections.sub(1);
        new.stats.client_connections.add(1);
        self.pools[client.pool].queued -= client.kept;
        self.pools[successor].queued += client.kept;
        client.pool = successor;
        if is_subscribed {
            self.resubscribe(wire, client);
        }
    }
}
