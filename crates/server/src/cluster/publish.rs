//! What reactors are shown: the newest view, whether this server leads, and until when no other
//! can.

use super::switch::Switch;
use crate::log;
use cluster::Moment;
use cluster::coordinator::Revision;
use cluster::copy::{Copy, LONGEST_PROMISE, Role};
use cluster::id::Id;
use cluster::view::{Alive, At, View};
use engine::Engine;
use engine::membership::Published;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use structs::sync::lock;

/// Longer than any lease or promise.
const LONG: Duration = Duration::from_secs(1 << 20);

/// How long a change may take to be shown. It is made in any case.
const PATIENCE: Duration = Duration::from_secs(3);

/// Waits until clients of this server see what was changed at this revision. Not for reactors.
pub(super) fn wait_until_shown(engine: &Engine, revision: Revision) {
    wait_until(engine, |published| published.view.revision >= revision);
}

/// Waits until this server leads its shard. Not for reactors.
pub(super) fn wait_until_leading(engine: &Engine) {
    wait_until(engine, |published| published.leads);
}

fn wait_until(engine: &Engine, holds: impl Fn(&Published) -> bool) {
    let began = Instant::now();
    let newest = || engine.membership.newest();
    while !newest().is_some_and(|published| holds(&published)) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Shows until when no other copy can lead. `copy` stays locked meanwhile, so that a later answer
/// is shown later.
pub(super) fn show_alone(engine: &Engine, copy: &Copy, began: Instant, now: Moment) {
    let until = began + copy.unchallenged_until().min(now + LONG);
    engine.show_alone_until(until);
}

/// See the head of this file.
pub(super) struct Publisher {
    engine: &'static Engine,
    me: Id,
    /// What the decisions' clock counts from.
    began: Instant,
    /// The revision, whether this server leads, whether requests wait for a change of roles,
    /// whether leases that have ended are shown.
    shown: Option<(Revision, bool, bool, bool)>,
    known: Known,
    /// Why the copy changes nothing at the coordinator, as the log says.
    held: Option<String>,
    /// Every slot that has to be is served, as the log says.
    is_ok: bool,
}

/// The leases that were there before the coordinator went away. Many end meanwhile, and their
/// copies need a moment to find it again.
#[derive(Default)]
struct Known {
    alive: BTreeMap<Id, At<Alive>>,
    until: Moment,
}

impl Known {
    /// Returns whether leases that have ended are shown as if they were there.
    fn note(&mut self, now: Moment, copy: &Copy, view: &View) -> bool {
        if !copy.is_coordinator_present() {
            self.until = now + LONGEST_PROMISE;
        }
        let is_on = now < self.until;
        if !is_on {
            self.alive.clone_from(&view.alive);
        }
        is_on
    }

    fn complete(&self, mut view: View) -> View {
        for (id, alive) in &self.alive {
            view.alive.entry(*id).or_insert_with(|| alive.clone());
        }
        view
    }
}

impl Publisher {
    pub(super) fn new(engine: &'static Engine, me: Id, began: Instant) -> Publisher {
        let (known, held) = (Known::default(), None);
        Publisher { engine, me, began, shown: None, known, held, is_ok: false }
    }

    /// A transaction is about to be sent. If it hands this server's shard over, requests wait from
    /// here on, and those that run have ended: they have seen nothing of another primary.
    pub(super) fn before_commit(&mut self, copy: &Mutex<Copy>, switch: &Switch) {
        let is_switching = {
            let copy = lock(copy);
            if copy.is_switching() {
                self.publish(&copy, switch);
            }
            copy.is_switching()
        };
        // Threads that run requests may wait for the lock.
        if is_switching {
            drop(self.engine.keyspace.world().stop());
        }
    }

    /// Logs that values of later versions keep the copy from changing anything, and when that ends.
    fn say_whether_held(&mut self, copy: &Copy) {
        let held = copy.held_by_version();
        if held != self.held {
            match &held {
                Some(why) => log!(Warning, "Cluster: goes on as it is: {why}"),
                None => log!(Notice, "Cluster: changes what is at the coordinator again"),
            }
            self.held = held;
        }
    }

    /// Shows the newest view.
    pub(super) fn publish(&mut self, copy: &Copy, switch: &Switch) {
        self.say_whether_held(copy);
        let Some(view) = copy.view() else { return };
        let now = self.began.elapsed();
        self.engine.membership.set_coordinator_present(copy.is_coordinator_present());
        show_alone(self.engine, copy, self.began, now);
        let is_leader = matches!(copy.role(), Role::Leads(_)) && !self.engine.upstream.is_replica();
        // While a switch waits for its successor, writes wait at a gate of their own; when it may
        // have been made, all do.
        let is_pausing = copy.is_switching() && copy.is_alone(now);
        let may_be_switched = is_leader && copy.is_switching() && !is_pausing;
        let leads = is_leader && copy.is_alone(now);
        // The view is ahead of the role for a moment.
        let will_lead = !is_leader && copy.is_named() && copy.is_coordinator_present();
        let changes_roles = will_lead || may_be_switched || switch.has_handed_over(copy);
        let shows_ended = self.known.note(now, copy, view);
        let newest = Some((view.revision, leads, changes_roles, shows_ended));
        if newest != self.shown {
            self.shown = newest;
            let view = view.clone();
            let view = if shows_ended { self.known.complete(view) } else { view };
            let before = self.engine.membership.newest();
            let published = Published::new(view, self.me, leads, changes_roles, before.as_deref());
            let is_ok = published.is_ok(self.engine.config.cluster_require_full_coverage());
            self.engine.publish_membership(published);
            self.log_state(is_ok);
        }
    }

    /// Says in the words of Redis, which tools look for, whether the cluster serves.
    fn log_state(&mut self, is_ok: bool) {
        if std::mem::replace(&mut self.is_ok, is_ok) == is_ok {
            return;
        }
        if !is_ok {
            log!(
                Warning,
                "Cluster is currently down: At least one hash slot is not served by any available node. Please \
                 check the 'cluster-require-full-coverage' configuration."
            );
        }
        log!(Notice, "Cluster state changed: {}", if is_ok { "ok" } else { "fail" });
    }
}
