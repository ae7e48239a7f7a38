//! What a copy knew last of its shard. A coordinator that knows less was started again with older
//! files, for example those of a backup.
//!
//! The host keeps this on its disk, so that a process that is started later knows it as well.

use crate::coordinator::Revision;
use crate::id::{Epoch, Id, Incarnation};
use crate::view::{View, encode};
use serde::{Deserialize, Serialize};

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Known {
    /// The database.
    pub database: Id,
    /// The revision of the last change of its topology.
    pub topology: Revision,
    /// The greatest epoch that was ever given to one of its shards.
    pub newest: Epoch,
    /// How many copies hold a write before it is confirmed.
    pub quorum: usize,
    /// How many members a promotion in the copy's shard had to fence.
    pub fence: usize,
    /// The data with which the copy was a member.
    pub member: Option<Incarnation>,
    /// The copy has announced its port for other copies: it and the others had reached each other.
    /// Versions that have no such port do not say it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_bus: bool,
}

/// Tells a field that is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the derived code passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Known {
    /// Returns what a view says. `None`: the copy is not in its database. `before`: what was known
    /// before, for what the view does not say while the copy has no lease.
    pub fn of(view: &View, copy: Id, before: Option<&Known>) -> Option<Known> {
        let topology = &view.topology.value;
        let shard = topology.shard_of(copy)?;
        Some(Known {
            database: view.database,
            topology: view.topology.revision,
            newest: topology.epoch,
            quorum: topology.quorum,
            fence: shard.fence,
            member: shard.copy(copy)?.member,
            has_bus: match view.alive.get(&copy) {
                Some(at) => at.value.bus_port > 0,
                None => before.is_some_and(|known| known.has_bus),
            },
        })
    }

    /// Returns the line for a file.
    pub fn line(&self) -> Vec<u8> {
        let mut line = encode(self);
        line.push(b'\n');
        line
    }

    /// Reads such a line. `None`: it is not one.
    pub fn parse(line: &[u8]) -> Option<Known> {
        serde_json::from_slice(line).ok()
    }

    /// Returns whether a view that was read later shows an earlier state. Revisions and epochs of a
    /// coordinator only grow.
    pub fn is_lost_in(&self, view: &View) -> bool {
        let topology = &view.topology;
        view.database == self.database
            && (topology.revision < self.topology || topology.value.epoch < self.newest)
    }
}
