//! What a copy knew last of its shard. A coordinator that never had it was started again with older
//! files, for example those of a backup.
//!
//! The host keeps this on its disk, so that a process that is started later knows it as well.
//!
//! **Less than was known.** The revision of the topology and the greatest epoch only grow, so a
//! lesser one tells ([`Known::is_lost_in`]).
//!
//! **Another history.** A coordinator with older files goes on counting: in time it has greater
//! revisions and epochs than were known. But it has another topology at the revision that was
//! known, or none. So a view with a newer topology counts only when the coordinator has shown the
//! one of before ([`look_back`]). If its history does not go back so far, the numbers alone tell.

use crate::coordinator::{Coordinator, Failure, Revision};
use crate::id::{Epoch, Id, Incarnation};
use crate::view::{View, digest, encode};
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
    /// The digest of the topology's value. Earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<u64>,
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
            digest: Some(view.history.digest),
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

    /// Returns whether a view that was read later is one of a coordinator that was rolled back:
    /// its revision or its epoch is less than was known, or its history is another one.
    pub fn is_lost_in(&self, view: &View) -> bool {
        let topology = &view.topology;
        view.database == self.database
            && (topology.revision < self.topology
                || topology.value.epoch < self.newest
                || view.history.is_another)
    }

    /// Returns whether this is what was known of a topology of this revision and digest.
    fn is(&self, revision: Revision, digest: u64) -> bool {
        self.topology == revision && self.digest.is_none_or(|known| known == digest)
    }
}

/// Finds out whether the coordinator whose view this is has ever had the topology that was known.
/// This costs a call when the topology is a newer one. A history that does not go back so far says
/// nothing.
///
/// # Errors
/// The coordinator does not answer, so the view does not count.
pub fn look_back(
    coordinator: &mut impl Coordinator,
    view: &mut View,
    known: Option<&Known>,
) -> Result<(), Failure> {
    let Some(known) = known.filter(|known| known.database == view.database) else { return Ok(()) };
    let read = view.topology.revision;
    view.history.is_another = if read > known.topology {
        let key = view.keys.topology(view.database);
        let before = match coordinator.range(&key, Some(known.topology)) {
            Ok(before) => before,
            Err(Failure::Compacted(_)) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let of_then = before.items.iter().find(|item| item.key == key);
        !of_then.is_some_and(|item| known.is(item.revision, digest(&item.value)))
    } else {
        // One of an earlier revision tells by its number.
        read == known.topology && !known.is(read, view.history.digest)
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_an_earlier_version_is_read_and_knows_the_revision_alone() {
        let line =
            br#"{"database":"0707070707070707070707070707070707070707","topology":9,"newest":3,
            "quorum":2,"fence":2,"member":18446744073709551615}"#;
        let known = Known::parse(line).expect("it is readable");
        assert_eq!((known.topology, known.digest), (9, None));
        assert!(known.is(9, 1) && known.is(9, 2) && !known.is(10, 1));
        let known = Known { digest: Some(1), ..known };
        assert_eq!(Known::parse(&known.line()), Some(known.clone()));
        assert!(known.is(9, 1) && !known.is(9, 2));
    }
}
