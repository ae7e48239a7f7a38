//! Events of shards that another copy leads than before. The first two living nodes, by name, look
//! for them, and the first one says so: if it is lost, the second knows what was before.

use crate::site::Site;
use crate::store::Store;
use cluster::id::Id;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two looks at all topologies.
const LOOK: Duration = Duration::from_secs(10);

/// How many nodes look.
const LOOKING: usize = 2;

/// The copies that lead shards, by database and shard.
type Known = BTreeMap<(Id, Id), Id>;

/// See the head of this file.
#[derive(Default)]
pub struct Leaders {
    looked: Option<Instant>,
    known: Option<Known>,
}

impl Leaders {
    /// Looks at the next opportunity: a copy has ended.
    pub fn hurry(&mut self) {
        self.looked = None;
    }

    /// Returns what there is to say, if this node says it and it is time to look.
    pub fn look(&mut self, machine: &str, site: &Site, store: &mut Store) -> Vec<String> {
        let Some(rank) = site.rank(machine).filter(|rank| *rank < LOOKING) else {
            self.known = None;
            return Vec::new();
        };
        if self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        // That etcd is away is said elsewhere.
        let Ok(views) = store.views() else { return Vec::new() };
        let shards = views.iter().flat_map(|(database, view)| {
            let shards = view.topology.value.shards.iter();
            let with_slots = shards.filter(|shard| !shard.slots.is_empty());
            with_slots.map(|shard| ((*database, shard.id), shard.holder.id))
        });
        let now: Known = shards.collect();
        let notes = match &self.known {
            Some(known) if rank == 0 => changes(site, known, &now),
            _ => Vec::new(),
        };
        self.known = Some(now);
        notes
    }
}

/// Says which shards another copy leads. Databases that are not the site's are left out.
fn changes(site: &Site, before: &Known, now: &Known) -> Vec<String> {
    let changed =
        now.iter().filter(|(shard, copy)| before.get(*shard).is_some_and(|old| old != *copy));
    let note = |((id, _), copy): (&(Id, Id), &Id)| {
        let mut databases = site.databases.iter();
        let (name, database) = databases.find(|(_, database)| database.value.id == *id)?;
        let placed = database.value.copies.iter().find(|placed| placed.copy == *copy)?;
        let (shard, machine) = (placed.shard + 1, &placed.machine);
        Some(format!(
            "copy {copy:?} on machine '{machine}' leads shard {shard} of database '{name}' now"
        ))
    };
    changed.filter_map(note).collect()
}
