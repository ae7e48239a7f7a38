//! Maintenance notices: pushes to clients that asked for them by CLIENT MAINT_NOTIFICATIONS, in the
//! words of Redis Enterprise, which current clients wait for by themselves. They then give requests
//! more time instead of failing them.
//!
//! `FAILING_OVER` says that a master behind sentinels, or a primary of a cluster, is lost, and
//! `FAILED_OVER` that there is another or that it is back; `MOVING` that the proxy is about to end.

use super::{Conn, Hub};
use crate::policy::Policy;
use crate::settings::PoolKind;
use crate::wire::Wire;

/// How long a client should have patience.
const PATIENCE_SECONDS: u64 = 60;

impl<P: Policy> Hub<P> {
    /// A server is lost.
    pub(super) fn failing_over<W: Wire>(&mut self, wire: &mut W, pool: usize, server: usize) {
        let local = &mut self.pools[pool];
        let has_others = matches!(
            local.shared.config.kind,
            PoolKind::Sentinel { .. } | PoolKind::Cluster { .. }
        );
        if !has_others || local.failing.is_some() || !local.is_primary(server) {
            return;
        }
        local.failing = Some(server);
        self.notify(wire, pool, "FAILING_OVER", Some(PATIENCE_SECONDS));
    }

    /// A server can be reached, or another has taken its place.
    pub(super) fn failed_over<W: Wire>(&mut self, wire: &mut W, pool: usize, server: usize) {
        let local = &mut self.pools[pool];
        if local.failing == Some(server) {
            local.failing = None;
            self.notify(wire, pool, "FAILED_OVER", None);
        }
    }

    /// Looks whether another server has taken the place of the one that was lost.
    pub(super) fn look_for_successor<W: Wire>(&mut self, wire: &mut W, pool: usize) {
        let local = &self.pools[pool];
        if let Some(server) = local.failing.filter(|server| !local.is_primary(*server)) {
            self.failed_over(wire, pool, server);
        }
    }

    fn notify<W: Wire>(&mut self, wire: &mut W, pool: usize, kind: &str, seconds: Option<u64>) {
        let notice = self.notice(kind, seconds, false);
        for conn in self.conns.iter_mut().flatten() {
            if let Conn::Client(client) = conn
                && client.pool == pool
                && client.wants_notices
            {
                client.send_message(wire, &notice);
            }
        }
    }

    /// A push with a number of its own; `has_place`: it says where to go, which is the same place.
    pub(super) fn notice(&mut self, kind: &str, seconds: Option<u64>, has_place: bool) -> Vec<u8> {
        self.last_notice += 1;
        let parts = 2 + usize::from(seconds.is_some()) + usize::from(has_place);
        let mut out = format!(">{parts}\r\n${}\r\n{kind}\r\n:{}\r\n", kind.len(), self.last_notice);
        if let Some(seconds) = seconds {
            out.push_str(&format!(":{seconds}\r\n"));
        }
        if has_place {
            out.push_str("_\r\n");
        }
        out.into_bytes()
    }
}
