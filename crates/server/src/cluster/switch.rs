//! The pause of a planned switch: from when the decisions begin it until they have ended it, writes
//! wait, and replicas are asked what they have.

use super::data::holder_of;
use crate::log;
use cluster::copy::{Copy, Role};
use cluster::id::Id;
use cluster::topology::{Holder, Replica};
use cluster::view::View;
use engine::Engine;
use engine::failover::Address;
use engine::journal::JournalPos;
use std::time::{Duration, Instant};

/// How long requests wait for a successor that does not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many bytes a successor may lack when writes pause.
const NEAR: u64 = 1 << 20;

/// See the head of this file.
#[derive(Default)]
pub(super) enum Switch {
    /// There is none.
    #[default]
    None,
    /// Writes wait.
    Pausing {
        since: Instant,
        /// The stream's end before and behind the question to the replicas.
        request: (JournalPos, JournalPos),
    },
    /// The coordinator names the successor, which may not have seen it yet: requests wait until its
    /// epoch has begun in the stream that this server gets.
    HandingOver { since: Instant, until: Instant, epoch: u64 },
}

impl Switch {
    /// Whether something waits.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Switch::None)
    }

    /// Whether all requests for this server's shard wait: another is the primary now.
    pub(super) fn has_handed_over(&self, copy: &Copy) -> bool {
        self.is_on() && !copy.is_named()
    }

    /// Goes on, as the decisions say: whether a switch is on its way, and this copy's role.
    pub(super) fn follow(&mut self, engine: &Engine, (is_switching, role): (bool, Role)) {
        match *self {
            Switch::None if is_switching => {
                log!(Notice, "Cluster: writes pause for a planned switch");
                let since = Instant::now();
                let stopped = engine.keyspace.world().stop();
                let request = engine.begin_switch();
                drop(stopped);
                *self = Switch::Pausing { since, request };
            }
            Switch::Pausing { since, .. } if !is_switching => {
                engine.end_switch();
                *self = match role {
                    Role::Follows(_, epoch) => {
                        let until = Instant::now() + PATIENCE;
                        Switch::HandingOver { since, until, epoch: epoch.0 }
                    }
                    Role::Leads(_) | Role::Nothing => {
                        log!(Warning, "Cluster: the planned switch was given up");
                        Switch::None
                    }
                };
            }
            Switch::HandingOver { since, until, epoch }
                if engine.epochs.last().epoch >= epoch || Instant::now() >= until =>
            {
                let time = since.elapsed().as_millis();
                log!(Notice, "Cluster: the planned switch is over after {time} ms");
                *self = Switch::None;
            }
            _ => {}
        }
    }

    /// The copies that have acknowledged everything in the present epoch. There are none before
    /// writes have paused.
    pub(super) fn level(&self, engine: &Engine) -> Vec<Holder> {
        let &Switch::Pausing { request, .. } = self else { return Vec::new() };
        engine.level_voters(request).iter().filter_map(holder_of).collect()
    }
}

/// The copies that receive what this server writes, and are at most [`NEAR`] behind, if a switch is
/// asked for.
pub(super) fn linked(engine: &Engine, copy: &Copy) -> Vec<Id> {
    match copy.view() {
        Some(view) if !view.switches.is_empty() => near(engine, view),
        _ => Vec::new(),
    }
}

/// The copies that receive what this server writes, and are at most [`NEAR`] behind.
pub(super) fn near(engine: &Engine, view: &View) -> Vec<Id> {
    let position = engine.journal.position().0.saturating_sub(NEAR);
    copies_at(engine, view, JournalPos(position))
}

/// The copies that receive what this server writes, however far they are behind.
pub(super) fn all_linked(engine: &Engine, view: &View) -> Vec<Id> {
    copies_at(engine, view, JournalPos(0))
}

fn copies_at(engine: &Engine, view: &View, position: JournalPos) -> Vec<Id> {
    members_of(view, engine.addresses_at(position)).map(|copy| copy.id).collect()
}

/// The copies of the database that announce one of these addresses.
fn members_of(view: &View, found: Vec<Address>) -> impl Iterator<Item = &Replica> {
    view.topology.value.copies().filter(move |copy| {
        let address = &copy.address;
        found.iter().any(|found| found.host == address.host && address.has_port(found.port))
    })
}
