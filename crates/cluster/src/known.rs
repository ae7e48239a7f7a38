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
}

impl Known {
    /// Returns what a view says. `None`: the copy is not in its database.
    pub fn of(view: &View, copy: Id) -> Option<Known> {
        let topology = &view.topology.value;
        let shard = topology.shard_of(copy)?;
        Some(Known {
            database: view.database,
            topology: view.topology.revision,
            newest: topology.epoch,
            quorum: topology.quorum,
            fence: shard.fence,
            member: shard.copy(copy)?.member,
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
