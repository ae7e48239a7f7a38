//! How long the members of this server's shard have been silent. What a copy lacks that has been
//! silent for long would be lost if it was promoted (`cluster-replica-validity-factor`).

use super::data::holder_of;
use crate::log;
use cluster::copy::{Copy, Role};
use cluster::id::{Epoch, Id};
use engine::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A copy that has acknowledged something within so many seconds is not silent. Copies do it each
/// second.
const RECENT_S: i64 = 2;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Silence {
    /// The epoch in which this server leads, and when it has heard of each member.
    epoch: Option<Epoch>,
    heard: BTreeMap<Id, Instant>,
    /// Those of them of which the log says that they are silent.
    told: BTreeSet<Id>,
}

impl Silence {
    /// Returns the members that have been silent for too long. There are none while this server
    /// does not lead, or if a quorum is promised.
    pub(super) fn too_long(&mut self, engine: &Engine, copy: &Copy) -> Vec<Id> {
        let leads = match copy.role() {
            Role::Leads(epoch) => Some(epoch),
            Role::Follows(..) | Role::Nothing => None,
        };
        if self.epoch != leads {
            *self = Silence { epoch: leads, ..Silence::default() };
        }
        let me = copy.myself().id;
        let topology = copy.view().map(|view| &view.topology.value);
        let shard = topology.filter(|it| it.quorum == 0).and_then(|it| it.shard_of(me));
        let (Some(shard), Some(_), Some(limit)) = (shard, leads, limit(engine)) else {
            self.heard.clear();
            self.told.clear();
            return Vec::new();
        };
        let now = Instant::now();
        let recent: Vec<Id> = engine
            .heard_voters(RECENT_S)
            .iter()
            .filter_map(|voter| Some(holder_of(voter)?.id))
            .collect();
        let others = || shard.members().map(|copy| copy.id).filter(|&id| id != me);
        self.heard.retain(|id, _| others().any(|other| other == *id));
        self.told.retain(|id| others().any(|other| other == *id));
        for id in others() {
            let at = self.heard.entry(id).or_insert(now);
            if recent.contains(&id) {
                *at = now;
            }
        }
        let silent = self.heard.iter().filter(|(_, at)| now - **at > limit);
        let silent: Vec<Id> = silent.map(|(id, _)| *id).collect();
        for &id in silent.iter().filter(|&&id| self.told.insert(id)) {
            log!(
                Warning,
                "Cluster: node {id} has been silent for {} s, so it is not promoted before it has the data again \
                 (cluster-replica-validity-factor)",
                limit.as_secs()
            );
        }
        silent
    }
}

/// How long a copy may be silent. `None`: for any time.
fn limit(engine: &Engine) -> Option<Duration> {
    let config = &engine.config;
    let factor = config.cluster_replica_validity_factor();
    let seconds = config.cluster_lease().saturating_mul(factor);
    let seconds = seconds.saturating_add(config.repl_ping_replica_period());
    (factor > 0).then(|| Duration::from_secs(seconds.into()))
}
