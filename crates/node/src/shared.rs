//! What the threads of a node share: the newest site, and whether etcd is there.

use crate::change::Owner;
use crate::settings::Wrong;
use crate::site::{Site, Troubles};
use crate::store::{Problem, Store};
use cluster::coordinator::LeaseId;
use etcd::Way;
use process::disk::Space;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use structs::sync::lock;

/// What changes.
#[derive(Clone, Default)]
struct State {
    site: Arc<Site>,
    lease: Option<LeaseId>,
    was_read: bool,
    /// Why etcd counts as away.
    trouble: Option<String>,
    /// Counts the changes.
    turns: u64,
}

/// The disk below the node's directory, which has its log, the copies' files and an etcd of its
/// own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disk {
    /// What it has; `None`: it could not be asked.
    pub space: Option<Space>,
    /// What is wrong with it; empty if nothing is.
    pub error: String,
}

/// See the head of this file.
pub struct Shared {
    /// The cluster's name.
    pub cluster: String,
    /// The machine's name.
    pub machine: String,
    /// The way to etcd.
    pub way: Way,
    state: Mutex<State>,
    changed: Condvar,
    has_webhook: AtomicBool,
    is_leaving: AtomicBool,
    ends_copies: AtomicBool,
    troubles: Mutex<Troubles>,
    disk: Mutex<Disk>,
}

impl Shared {
    /// Nothing is known yet.
    pub fn new(cluster: &str, machine: &str, way: Way) -> Shared {
        Shared {
            cluster: cluster.to_owned(),
            machine: machine.to_owned(),
            way,
            state: Mutex::new(State {
                trouble: Some("nothing was read yet".into()),
                ..State::default()
            }),
            changed: Condvar::new(),
            has_webhook: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            ends_copies: AtomicBool::new(false),
            troubles: Mutex::default(),
            disk: Mutex::default(),
        }
    }

    /// Returns a way to etcd for one thread, with a limit for each call.
    pub fn store(&self, limit: Duration) -> Store {
        Store::new(&self.cluster, self.way.client(limit), &self.machine)
    }

    /// Publishes what was read under a lease.
    pub fn publish(&self, site: Arc<Site>, lease: Option<LeaseId>) {
        let mut state = lock(&self.state);
        *state = State { site, lease, was_read: true, trouble: None, turns: state.turns + 1 };
        drop(state);
        self.changed.notify_all();
    }

    /// etcd counts as away.
    pub fn lose(&self, why: String) {
        let mut state = lock(&self.state);
        state.trouble = Some(why);
        state.turns += 1;
    }

    /// Returns the newest site, which may be old if etcd is away.
    pub fn site(&self) -> Arc<Site> {
        Arc::clone(&lock(&self.state).site)
    }

    /// Returns whether the site was read since the node started.
    pub fn was_read(&self) -> bool {
        lock(&self.state).was_read
    }

    /// Returns why etcd counts as away.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.state).trouble.clone()
    }

    /// Notes that the node can send to a webhook, which other nodes are to know.
    pub fn announce_webhook(&self) {
        self.has_webhook.store(true, Ordering::Relaxed);
    }

    /// Returns whether it can.
    pub fn has_webhook(&self) -> bool {
        self.has_webhook.load(Ordering::Relaxed)
    }

    /// The node is about to end with its copies: it counts as not ready, and takes over no shards.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Returns whether the node is about to end with its copies.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// The copies are to end now.
    pub fn end_copies(&self) {
        self.ends_copies.store(true, Ordering::Relaxed);
    }

    /// Returns whether the copies are to end now.
    pub fn ends_copies(&self) -> bool {
        self.ends_copies.load(Ordering::Relaxed)
    }

    /// Returns what is wrong with the copies of this machine.
    pub fn troubles(&self) -> Troubles {
        lock(&self.troubles).clone()
    }

    /// Sets what is wrong with them.
    pub fn set_troubles(&self, troubles: Troubles) {
        *lock(&self.troubles) = troubles;
    }

    /// Returns how the disk below the node's directory is.
    pub fn disk(&self) -> Disk {
        lock(&self.disk).clone()
    }

    /// Sets how it is.
    pub fn set_disk(&self, disk: Disk) {
        *lock(&self.disk) = disk;
    }

    /// Returns who makes changes: this machine under its present lease.
    ///
    /// # Errors
    /// etcd is away, so there may be no lease.
    pub fn owner(&self) -> Result<Owner, Problem> {
        let state = lock(&self.state);
        match (state.lease, &state.trouble) {
            (Some(lease), None) => {
                let machine = self.machine.clone();
                Ok(Owner { machine, lease, request_id: String::new() })
            }
            (_, Some(why)) => Err(Problem::Away(format!("etcd is away: {why}"))),
            (None, None) => Err(Problem::Away("this node has no lease yet, try again".into())),
        }
    }

    /// Waits until something is published after `turns`, at most so long. Returns the new count.
    pub fn wait(&self, turns: u64, time: Duration) -> u64 {
        let state = lock(&self.state);
        let is_old = |state: &mut State| state.turns <= turns;
        let waited = self.changed.wait_timeout_while(state, time, is_old);
        waited.map_or(turns, |(state, _)| state.turns)
    }
}

impl From<Problem> for Wrong {
    fn from(problem: Problem) -> Wrong {
        Wrong(problem.to_string())
    }
}
