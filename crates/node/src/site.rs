//! Machines, databases, jobs and events, as they are at etcd.

use crate::keys::SiteKeys;
use crate::settings::Settings;
use crate::tasks::Task;
use crate::tasks::schedule::Schedule;
use cluster::coordinator::{Compare, Item, LeaseId, Range, Revision};
use cluster::id::Id;
use cluster::view::At;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a machine is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Drawn once and kept in the node's directory: two machines must not have one name.
    pub id: String,
    /// Where others reach it.
    pub host: String,
    /// The part of the site that fails together, perhaps empty.
    #[serde(default)]
    pub zone: String,
    /// The bytes that copies may have.
    pub memory_bytes: u64,
    /// Processors.
    pub cores: usize,
    /// The bytes of flash that copies may have.
    #[serde(default)]
    pub flash_bytes: u64,
    /// The port of its REST interface and console.
    pub admin_port: u16,
    /// The version of its node.
    pub version: String,
    /// What its node can read at etcd: see [`FORMAT`].
    #[serde(default)]
    pub format: u32,
}

/// What this version can read at etcd, which rises when something is written that earlier versions
/// do not understand. It is written only when all nodes that are alive can read it.
///
/// 1: jobs that move data, and backups that come round.
pub const FORMAT: u32 = 1;

/// A machine whose node has a lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MachineAlive {
    /// See [`Machine::id`].
    pub id: String,
    /// The node's lease.
    pub lease: LeaseId,
    /// The processes of its copies.
    #[serde(default)]
    pub copies: Vec<CopyReport>,
    /// It hands over what it leads, and ends with its copies.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_ending: bool,
}

/// What a copy's process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// It runs.
    Running,
    /// It has ended and will be started again.
    Waiting,
    /// It is being ended.
    Stopping,
}

/// A copy's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyReport {
    /// The copy.
    pub copy: Id,
    /// The database.
    pub database: String,
    /// See there.
    pub state: ProcessState,
    /// The process number, 0 if there is none.
    pub process_id: u32,
    /// How often it was started again.
    pub restarts: u64,
    /// Why it ended the last time.
    #[serde(default)]
    pub note: String,
}

/// How far a database is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Its copies are being started.
    Creating,
    /// It was ready once.
    Ready,
    /// It is going away.
    Deleting,
}

/// Where a copy is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placed {
    /// The copy.
    pub copy: Id,
    /// The shard, counted from 0.
    pub shard: usize,
    /// The machine.
    pub machine: String,
    /// Where others reach the machine.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Reactor threads.
    pub threads: usize,
    /// It ends, and its files go: another copy of the shard has taken its place.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_leaving: bool,
    /// What a later version has written, which stays.
    #[serde(flatten)]
    pub later: BTreeMap<String, Value>,
}

/// Tells a field that is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the derived code passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Database {
    /// Its name among the keys of the crate `cluster`.
    pub id: Id,
    /// How far it is.
    pub stage: Stage,
    /// What was asked for.
    pub settings: Settings,
    /// Its copies, by shard.
    pub copies: Vec<Placed>,
    /// When it was asked for, in milliseconds since 1970.
    pub created_ms: u64,
    /// The password of [`INTERNAL`], by which copies and nodes log in to copies. Databases of earlier versions have none:
    /// the password in their settings is that of the default user, in clear.
    #[serde(default)]
    pub secret: String,
    /// The password in clear before the last change, which copies may still have.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub old_password: String,
    /// What a later version has written, which stays.
    #[serde(flatten)]
    pub later: BTreeMap<String, Value>,
}

/// The user that copies and nodes are for each other.
pub const INTERNAL: &str = "dunlin-internal";

/// The user as which nodes log in to a copy. Without a password it is the default user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Login<'a> {
    /// The name; empty is the default user.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
    /// The copies speak TLS.
    pub is_tls: bool,
}

impl Database {
    /// How nodes log in.
    pub fn login(&self) -> Login<'_> {
        match &*self.secret {
            "" => Login { user: "", password: &self.settings.password, is_tls: self.settings.tls },
            password => Login { user: INTERNAL, password, is_tls: self.settings.tls },
        }
    }

    /// How nodes log in to a copy that does not know of the last change yet.
    pub fn old_login(&self) -> Login<'_> {
        Login { user: "", password: &self.old_password, is_tls: self.settings.tls }
    }
}

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Starts the copies of a new database.
    Create,
    /// Applies changed options to copies that run.
    Update,
    /// Stops the copies and removes their files.
    Delete,
    /// Hands over what primaries on a machine lead.
    Switch,
    /// The same, and moves the copies of the machine to others.
    Drain,
    /// Replaces the copies of a machine that does not come back, and forgets it.
    Replace,
    /// Lets a database follow servers elsewhere.
    Import,
    /// Keeps servers elsewhere as a database is.
    Export,
    /// Writes a backup.
    Backup,
    /// Reads and checks a backup.
    Verify,
    /// Makes a new database from a backup.
    Restore,
    /// Restarts the copies of a database one after the other.
    Restart,
}

/// How a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It is being done.
    Running,
    /// It was done.
    Done,
    /// It cannot be done; its text says why.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// A change that takes time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// What it does.
    pub kind: JobKind,
    /// To which database; empty if it is about a machine.
    pub database: String,
    /// About which machine; empty if it is about a database.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// How it is.
    pub state: JobState,
    /// The node that does it.
    pub owner: String,
    /// The lease under which that node does it.
    pub lease: LeaseId,
    /// Hundredths that are done.
    pub percent: u8,
    /// What it waits for, or why it failed.
    pub text: String,
    /// It is to be undone.
    #[serde(default)]
    pub is_cancelled: bool,
    /// What else was asked for, of the jobs that move data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// In milliseconds since 1970.
    pub began_ms: u64,
    /// In milliseconds since 1970, 0 while it runs.
    #[serde(default)]
    pub ended_ms: u64,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    /// The machine that says so.
    pub machine: String,
    /// What.
    pub text: String,
}

/// A machine, dead or alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// What it is.
    pub spec: At<Machine>,
    /// Its node has a lease.
    pub alive: Option<At<MachineAlive>>,
    /// It takes no copies.
    pub is_draining: bool,
}

/// Everything, read at one revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// The revision of the read.
    pub revision: Revision,
    /// By name.
    pub machines: BTreeMap<String, Known>,
    /// By name.
    pub databases: BTreeMap<String, At<Database>>,
    /// Backups that come round, by database.
    pub schedules: BTreeMap<String, At<Schedule>>,
    /// By id, which begins with the time.
    pub jobs: BTreeMap<String, At<Job>>,
    /// The oldest first.
    pub events: Vec<Event>,
    /// The revision of the events' key.
    pub events_revision: Revision,
    /// The revision of the last placement.
    pub placement: Revision,
    /// Values that cannot be read. They are left alone.
    pub problems: Vec<String>,
}

impl Site {
    /// Reads the keys. What cannot be read is left out and said in [`Site::problems`].
    pub fn decode(keys: &SiteKeys, range: &Range) -> Site {
        let mut site = Site { revision: range.revision, ..Site::default() };
        let (mut alive, mut draining) = (BTreeMap::new(), Vec::new());
        for item in &range.items {
            let name = item.key.strip_prefix(keys.all()).unwrap_or_default();
            let parts: Vec<&str> = name.split('/').collect();
            let problems = &mut site.problems;
            match parts[..] {
                ["machine", name, "spec"] => {
                    if let Some(spec) = read(item, problems) {
                        site.machines.insert(
                            name.to_owned(),
                            Known { spec, alive: None, is_draining: false },
                        );
                    }
                }
                ["machine", name, "alive"] => {
                    if let Some(value) = read::<MachineAlive>(item, problems) {
                        alive.insert(name.to_owned(), value);
                    }
                }
                ["machine", name, "draining"] => draining.push(name.to_owned()),
                ["database", name] => {
                    let value = read(item, problems);
                    site.databases.extend(value.map(|value| (name.to_owned(), value)));
                }
                ["job", id] => {
                    let value = read(item, problems);
                    site.jobs.extend(value.map(|value| (id.to_owned(), value)));
                }
                ["backup", database] => {
                    let value = read(item, problems);
                    site.schedules.extend(value.map(|value| (database.to_owned(), value)));
                }
                ["events"] => {
                    site.events_revision = item.revision;
                    site.events = read(item, problems).map(|at| at.value).unwrap_or_default();
                }
                ["placement"] => site.placement = item.revision,
                // A later version may have more.
                _ => {}
            }
        }
        for name in draining {
            if let Some(known) = site.machines.get_mut(&name) {
                known.is_draining = true;
            }
        }
        for (name, at) in alive {
            if let Some(known) = site.machines.get_mut(&name) {
                known.alive = (known.spec.value.id == at.value.id).then_some(at);
            }
        }
        site
    }

    /// Returns whether a lease is one of a node that is alive.
    pub fn has_node_with(&self, lease: LeaseId) -> bool {
        let mut alive = self.machines.values().filter_map(|known| known.alive.as_ref());
        alive.any(|at| at.value.lease == lease)
    }

    /// Returns a machine whose node is alive and cannot read what this version writes.
    pub fn older_machine(&self) -> Option<&str> {
        let is_old = |known: &Known| known.alive.is_some() && known.spec.value.format < FORMAT;
        self.machines.iter().find(|(_, known)| is_old(known)).map(|(name, _)| &**name)
    }

    /// Returns whether a machine's node has a lease.
    pub fn is_alive(&self, machine: &str) -> bool {
        self.machines.get(machine).is_some_and(|known| known.alive.is_some())
    }

    /// Returns whether a machine's node has said that it ends with its copies.
    pub fn is_ending(&self, machine: &str) -> bool {
        let alive = self.machines.get(machine).and_then(|known| known.alive.as_ref());
        alive.is_some_and(|at| at.value.is_ending)
    }

    /// Returns whether a machine gives its copies away, or has done so.
    pub fn is_draining(&self, machine: &str) -> bool {
        self.machines.get(machine).is_some_and(|known| known.is_draining)
    }

    /// Returns what a machine says of a copy's process.
    pub fn report(&self, placed: &Placed) -> Option<&CopyReport> {
        let alive = self.machines.get(&placed.machine)?.alive.as_ref()?;
        alive.value.copies.iter().find(|report| report.copy == placed.copy)
    }

    /// Returns the copies that are placed on a machine, with their databases.
    pub fn placed_on<'a>(
        &'a self,
        machine: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Database, &'a Placed)> {
        self.databases.iter().flat_map(move |(name, at)| {
            let here = at.value.copies.iter().filter(move |placed| placed.machine == machine);
            here.map(move |placed| (name, &at.value, placed))
        })
    }

    /// Returns the bytes that copies on a machine may have.
    pub fn used_bytes(&self, machine: &str) -> u64 {
        let bytes = self.placed_on(machine).map(|(_, database, _)| database.settings.copy_bytes());
        bytes.fold(0, u64::saturating_add)
    }
}

/// The condition that a key is as it was read.
pub fn unchanged(key: String, revision: Revision) -> Compare {
    Compare { key, revision }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a value for etcd.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers, texts and lists can be written")
}

fn read<T: for<'a> Deserialize<'a>>(item: &Item, problems: &mut Vec<String>) -> Option<At<T>> {
    match serde_json::from_slice(&item.value) {
        Ok(value) => Some(At { value, revision: item.revision }),
        Err(error) => {
            problems.push(format!("The value of {} at etcd is not readable: {error}", item.key));
            None
        }
    }
}
