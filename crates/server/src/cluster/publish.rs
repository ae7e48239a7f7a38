//! What reactors are shown: the newest view, whether this server leads, and until when no other can.

use super::switch::Switch;
use cluster::coordinator::Revision;
use cluster::copy::{Copy, Role};
use cluster::id::Id;
use engine::Engine;
use engine::membership::Published;
use std::time::{Duration, Instant};

/// Longer than any lease or promise.
const LONG: Duration = Duration::from_secs(1 << 20);

/// See the head of this file.
pub(super) struct Publisher {
    engine: &'static Engine,
    me: Id,
    /// What the decisions' clock counts from.
    began: Instant,
    /// The revision, whether this server leads, whether requests wait for a change of roles.
    shown: Option<(Revision, bool, bool)>,
}

impl Publisher {
    pub(super) fn new(engine: &'static Engine, me: Id, began: Instant) -> Publisher {
        Publisher { engine, me, began, shown: None }
    }

    /// A transaction is about to be sent. If it hands this server's shard over, requests wait from here on, and those
    /// that run have ended: they have seen nothing of another primary.
    pub(super) fn before_commit(&mut self, copy: &Copy, switch: &Switch) {
        if copy.is_switching() {
            self.publish(copy, switch);
            drop(self.engine.keyspace.world().stop());
        }
    }

    /// Shows the newest view.
    pub(super) fn publish(&mut self, copy: &Copy, switch: &Switch) {
        let Some(view) = copy.view() else { return };
        let now = self.began.elapsed();
        let until = self.began + copy.unchallenged_until().min(now + LONG);
        self.engine.membership.set_alone_until(until);
        let is_leader = matches!(copy.role(), Role::Leads(_)) && !self.engine.upstream.is_replica();
        // While a switch waits for its successor, writes wait at a gate of their own; when it may have been made, all do.
        let is_pausing = copy.is_switching() && copy.is_alone(now);
        let may_be_switched = is_leader && copy.is_switching() && !is_pausing;
        let leads = is_leader && copy.is_alone(now);
        // The view is ahead of the role for a moment.
        let will_lead = !is_leader && copy.is_named() && copy.is_coordinator_present();
        let changes_roles = will_lead || may_be_switched || switch.has_handed_over(copy);
        let newest = Some((view.revision, leads, changes_roles));
        if newest != self.shown {
            self.shown = newest;
            let published = Published::new(view.clone(), self.me, leads, changes_roles);
            self.engine.publish_membership(published);
        }
    }
}
