//! A node in a container: copies and etcd end with it, after the shards that it leads were handed
//! over.

use super::PATIENCE;
use crate::shared::Shared;
use crate::site::{Database, Placed, Site};
use crate::store::{Problem, Store};
use crate::switch;
use clap::Args;
use cluster::view::View;
use process::log;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a call to etcd may take.
const CALL: Duration = Duration::from_secs(2);

/// How long is waited before shards are looked at again.
const LOOK: Duration = Duration::from_millis(200);

/// How long etcd may take to start: its other members may have to be scheduled first.
const CONTAINED_PATIENCE: Duration = Duration::from_secs(600);

/// Options for a container or pod.
#[derive(Args, Clone, Debug, Default)]
pub struct ContainedOptions {
    /// End copies and etcd with the node, as a container does: SIGTERM hands shards over first.
    /// Logs go to standard output
    #[arg(long)]
    contained: bool,
    /// With --contained: how long SIGTERM waits until each shard has another copy that can lead it
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "contained")]
    drain_timeout: u64,
    /// With --contained: how long copies serve after they were handed over, until clients are sent
    /// elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = 5, requires = "contained")]
    drain_delay: u64,
    /// Machines that have a server of etcd, by names that do not change: NAME=HOST, several with
    /// commas. All share a secret, see --token-file
    #[arg(long, value_name = "NAME=HOST,…", conflicts_with_all = ["etcd", "join"])]
    pub etcd_members: Option<String>,
    /// Directory for values on flash [default: with each copy's files]
    #[arg(long, value_name = "DIR")]
    pub flash_dir: Option<PathBuf>,
}

impl ContainedOptions {
    /// Returns whether copies and etcd end with the node.
    pub fn is_contained(&self) -> bool {
        self.contained
    }

    /// How long etcd may take to start or to answer.
    pub fn patience(&self) -> Duration {
        if self.contained { CONTAINED_PATIENCE } else { PATIENCE }
    }

    /// How long a machine of `--etcd-members` waits for the others, which start when they do.
    pub fn patience_with_members(&self) -> Duration {
        CONTAINED_PATIENCE
    }

    /// Hands over all shards that copies of this machine lead, and tells the copies to end.
    pub fn leave(&self, shared: &Shared) {
        shared.leave();
        let began = Instant::now();
        let limit = Duration::from_secs(self.drain_timeout);
        let handed =
            Handover { shared, store: shared.store(CALL), gone: BTreeSet::new() }.run(limit);
        log!(
            Notice,
            "Shards were handed over in {} ms, {handed} of them",
            began.elapsed().as_millis()
        );
        if shared.site().placed_on(&shared.machine).next().is_some() {
            std::thread::sleep(Duration::from_secs(self.drain_delay));
        }
        shared.end_copies();
    }
}

/// What a look at a shard says.
enum Look {
    /// Another copy leads it, or there is no other.
    Done,
    /// It was handed over.
    Handed,
    /// No other copy can lead it yet.
    Waits(String),
}

struct Handover<'a> {
    shared: &'a Shared,
    store: Store,
    /// Machines that were seen to end themselves: they are not waited for.
    gone: BTreeSet<String>,
}

impl Handover<'_> {
    /// Returns how many shards were handed over.
    fn run(mut self, limit: Duration) -> usize {
        let (began, mut handed, mut said) = (Instant::now(), 0, String::new());
        let shared = self.shared;
        loop {
            let site = shared.site();
            let ending = site.machines.keys().filter(|name| site.is_ending(name));
            self.gone.extend(ending.cloned());
            let mut waits = None;
            for (name, database, placed) in site.placed_on(&shared.machine) {
                match self.look(&site, database, placed) {
                    Ok(Look::Done) => {}
                    Ok(Look::Handed) => handed += 1,
                    Ok(Look::Waits(why)) => {
                        waits = Some(format!("shard {} of '{name}' {why}", placed.shard + 1));
                    }
                    Err(why) => {
                        waits = Some(format!("shard {} of '{name}': {why}", placed.shard + 1));
                    }
                }
            }
            let Some(why) = waits else { return handed };
            if why != said {
                log!(Notice, "The end waits: {why}");
                said = why;
            }
            if began.elapsed() >= limit {
                log!(Warning, "The node ends although a shard could not be handed over: {said}");
                return handed;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn look(&mut self, site: &Site, database: &Database, placed: &Placed) -> Result<Look, Problem> {
        let Some(view) = self.store.view(database.id)? else { return Ok(Look::Done) };
        let shard = view.topology.value.shard_of(placed.copy);
        if shard.is_none_or(|shard| shard.holder.id != placed.copy || !view.is_alive(shard.holder))
        {
            return Ok(Look::Done);
        }
        let others = database.copies.iter().filter(|other| {
            let stays = !other.is_leaving && !self.gone.contains(&other.machine);
            other.shard == placed.shard && other.machine != placed.machine && stays
        });
        let others: Vec<&Placed> = others.collect();
        let successor = others.iter().find(|other| can_lead(site, &view, other));
        match successor {
            Some(to) => {
                switch::hand_over(&mut self.store, database, to)?;
                log!(Notice, "Copy {:?} leads shard {} now", to.copy, to.shard + 1);
                Ok(Look::Handed)
            }
            None if others.is_empty() => Ok(Look::Done),
            None => Ok(Look::Waits("has no other copy that could lead it".into())),
        }
    }
}

fn can_lead(site: &Site, view: &View, copy: &Placed) -> bool {
    view.has_member(copy.copy)
        && view.alive.contains_key(&copy.copy)
        && site.is_alive(&copy.machine)
}
