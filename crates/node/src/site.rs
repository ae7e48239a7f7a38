//! Machines, databases, jobs and events, as they are at etcd.

use crate::keys::SiteKeys;
use crate::sealed;
use crate::settings::{Measure, Settings, WORDS_FORMAT, Wrong, sha256};
use crate::tasks::Task;
use crate::tasks::schedule::Schedule;
use crate::unplaced::{self, Gone};
use cluster::coordinator::{Compare, Item, LeaseId, Range, Revision};
use cluster::id::Id;
use cluster::slots::Slots;
use cluster::stored::{Later, check_writer};
use cluster::topology::{Shard, Topology};
use cluster::view::At;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a machine is.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
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
    /// The bus port of a copy is its port and this number. 0: copies have none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bus_port_offset: u16,
    /// The port with TLS for clients, beside the plain one, is that and this number. 0: there is
    /// none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tls_port_offset: u16,
    /// The version of its node.
    pub version: String,
    /// Both of the following in one number, for nodes of version 0.1, which know no other: 2 if it
    /// can open sealed passwords, else 1.
    #[serde(default)]
    pub(crate) format: u32,
    /// What its node can read at etcd: see [`FORMAT`]. 0.1 does not say it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) reads: u32,
    /// It can open sealed passwords: see [`crate::sealed`]. 0.1 does not say it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) opens_sealed: bool,
}

/// What this version can read at etcd. It rises with each word of an enum that earlier versions do
/// not have: they cannot read a value with it at all. The word says so in its `format`, and
/// [`crate::store::Store`] writes it only when all nodes that are alive can read it.
///
/// 1: jobs that move data, and backups that come round.
/// 2: restarts with `surge`, which earlier versions would carry out as restarts without.
pub const FORMAT: u32 = if WORDS_FORMAT > JOBS_FORMAT { WORDS_FORMAT } else { JOBS_FORMAT };

/// The greatest `format` of a word of jobs and stages. A new word raises it: its format is one more
/// than [`FORMAT`].
const JOBS_FORMAT: u32 = 2;

/// What [`Machine::format`] is for a machine that can open sealed passwords.
const SEALED_FORMAT: u32 = 2;

impl Machine {
    /// Returns the same with what a node of this version can read.
    pub fn of_this_version(self, opens_sealed: bool) -> Machine {
        let format = if opens_sealed { SEALED_FORMAT } else { 1 };
        Machine { format, reads: FORMAT, opens_sealed, ..self }
    }

    /// Returns whether it can open sealed passwords.
    pub fn opens_sealed(&self) -> bool {
        self.opens_sealed || self.format >= SEALED_FORMAT
    }

    /// Returns what its node can read at etcd: see [`FORMAT`].
    pub fn reads(&self) -> u32 {
        self.reads.max(self.format.min(1))
    }
}

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
    /// Why the disk below the node's directory is no good; empty if it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub disk_error: String,
    /// It can send to a webhook.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_webhook: bool,
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
    /// How often it has ended, or could not be started, since it last ran for so long that the node
    /// waits no longer than at first before the next start.
    #[serde(default)]
    pub early_ends: u64,
    /// Why it ended the last time.
    #[serde(default)]
    pub note: String,
    /// What its disk refuses.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub disk_error: String,
    /// What is wrong with its link to its primary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link_error: String,
    /// Why it has no port for other copies although its machine gives it one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bus_error: String,
}

/// What copies say is wrong with them. A text is empty if nothing is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trouble {
    /// What the disk refuses.
    pub disk: String,
    /// What is wrong with the link to the primary.
    pub link: String,
    /// Why it announces no port for other copies.
    pub bus: String,
}

/// The trouble of each copy that has some.
pub type Troubles = BTreeMap<Id, Trouble>;

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

impl Stage {
    /// Returns the least [`FORMAT`] of nodes that can read this word.
    pub fn format(self) -> u32 {
        match self {
            Stage::Creating | Stage::Ready | Stage::Deleting => 1,
        }
    }
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
    /// A restart has added it to the copies that the shard is to have: another one of the shard
    /// leaves in its place when it was restarted, or this one does.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_surge: bool,
    /// The [`Database::layout`] that it was placed with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub layout: u32,
    /// What a later version has written, which stays.
    #[serde(flatten)]
    pub later: BTreeMap<String, Value>,
}

/// Tells a field that is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the derived code passes a reference")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

/// Tells a field that is left out.
fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// What a copy may have at least while slots move: what it had before a change.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Floor {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of flash.
    pub flash_bytes: u64,
    /// It holds for the shards below this number.
    pub shards: usize,
}

/// A user of a database beside the default one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatabaseUser {
    /// The rules, as ACL SETUSER takes them: categories, commands, keys, channels.
    pub rules: Vec<String>,
    /// The SHA-256 of the password in hexadecimal digits.
    pub password_sha256: String,
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
    /// The password of [`INTERNAL`], by which copies and nodes log in to copies.
    #[serde(with = "crate::sealed")]
    pub secret: String,
    /// The one before, which counts as well until all copies use the new one.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "crate::sealed")]
    pub old_secret: String,
    /// What copies may have at least: a change of the number of shards is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
    /// Counts the changes that a process takes only when it starts with empty files; copies of
    /// older layouts are replaced.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub layout: u32,
    /// Users beside the default one, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, DatabaseUser>,
    /// Users that copies may still have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_users: Vec<String>,
    /// What a later version has written, which stays.
    #[serde(flatten)]
    pub later: BTreeMap<String, Value>,
}

/// The user that copies and nodes are for each other.
pub const INTERNAL: &str = "dunlin-internal";

/// The user as which the pages of a copy run commands. It may do everything.
pub const CONSOLE: &str = "dunlin-console";

/// Returns the password of [`CONSOLE`] that belongs to a password of [`INTERNAL`].
pub fn console_password(secret: &str) -> String {
    sha256(&format!("{CONSOLE}:{secret}"))
}

/// The user as which nodes log in to a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Login<'a> {
    /// The name.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
    /// The copies speak TLS.
    pub is_tls: bool,
}

impl Database {
    /// How nodes log in.
    pub fn login(&self) -> Login<'_> {
        Login { user: INTERNAL, password: &self.secret, is_tls: self.settings.tls }
    }

    /// Returns the least [`FORMAT`] of nodes that can read it.
    pub fn format(&self) -> u32 {
        self.stage.format().max(self.settings.format())
    }

    /// The bytes that a copy of a shard may have.
    pub fn copy_bytes(&self, shard: usize) -> u64 {
        let floor = self.floor.filter(|floor| shard < floor.shards).unwrap_or_default();
        self.settings.copy_bytes().max(floor.memory_bytes)
    }

    /// The bytes of flash that a copy of a shard may have; 0 if it has none.
    pub fn copy_flash_bytes(&self, shard: usize) -> u64 {
        let floor = self.floor.filter(|floor| shard < floor.shards).unwrap_or_default();
        match self.settings.flash_bytes {
            0 => 0,
            _ => self.settings.copy_flash_bytes().max(floor.flash_bytes),
        }
    }

    /// The copy that leads a shard, if a machine has it.
    pub fn primary(&self, shard: &Shard) -> Option<&Placed> {
        self.copies.iter().find(|placed| placed.copy == shard.holder.id)
    }

    /// The copies that lead the shards that have slots.
    pub fn primaries(&self, topology: &Topology) -> impl Iterator<Item = &Placed> {
        let shards = topology.shards.iter().filter(|shard| !shard.slots.is_empty());
        shards.filter_map(|shard| self.primary(shard))
    }

    /// The copies of a shard that stay.
    pub fn kept(&self, shard: usize) -> impl Iterator<Item = &Placed> {
        self.copies.iter().filter(move |placed| placed.shard == shard && !placed.is_leaving)
    }

    /// Returns what the copies that there are have: less is too little until slots have moved.
    pub fn as_floor(&self) -> Floor {
        Floor {
            memory_bytes: self.copy_bytes(0),
            flash_bytes: self.copy_flash_bytes(0),
            shards: self.settings.shards,
        }
    }

    /// The numbers of the shards that have copies, in ascending order.
    pub fn shards(&self) -> BTreeSet<usize> {
        self.copies.iter().map(|placed| placed.shard).collect()
    }

    /// How nodes log in to a copy that does not know of the last change yet.
    pub fn old_login(&self) -> Login<'_> {
        let password = if self.old_secret.is_empty() { &self.secret } else { &self.old_secret };
        Login { user: INTERNAL, password, is_tls: self.settings.tls }
    }
}

/// What a job does. Earlier versions cannot read a job of a new kind, and leave it alone
/// ([`JobKind::format`]). `docs/internals/node.md` says what a new kind needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Starts the copies of a new database.
    Create,
    /// Makes a database as its options say: copies, shards, slots, what copies are told.
    Update,
    /// Moves slots until shards carry the same.
    Rebalance,
    /// Moves certain slots to a shard.
    Move,
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
    /// Gives the copies of a machine away, ends its node, and forgets it.
    Remove,
    /// Moves copies of other machines to one that has fewer.
    Fill,
}

impl JobKind {
    /// Returns the least [`FORMAT`] of nodes that can read a job of this kind. A job begins only if
    /// all nodes that are alive can.
    pub fn format(self) -> u32 {
        match self {
            // Those of version 0.1.
            JobKind::Create
            | JobKind::Update
            | JobKind::Rebalance
            | JobKind::Move
            | JobKind::Delete
            | JobKind::Switch
            | JobKind::Drain
            | JobKind::Replace
            | JobKind::Import
            | JobKind::Export
            | JobKind::Backup
            | JobKind::Verify
            | JobKind::Restore
            | JobKind::Restart
            | JobKind::Remove
            | JobKind::Fill => 1,
        }
    }
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

impl JobState {
    /// Returns the least [`FORMAT`] of nodes that can read this word.
    pub fn format(self) -> u32 {
        match self {
            JobState::Running | JobState::Done | JobState::Failed | JobState::Cancelled => 1,
        }
    }
}

/// What a job about a database is to reach, beyond what the database says.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Aim {
    /// The options before the change, to which a cancelled job goes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Settings>,
    /// What shards are to carry the same of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Measure>,
    /// The slots that are to move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<Slots>,
    /// The shard that they go to, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<usize>,
    /// How many slots were to move when that was planned last.
    pub planned_slots: usize,
    /// What each of the moves that were planned last has to send, by the move's name: an estimate,
    /// in bytes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub planned_bytes: BTreeMap<String, u64>,
    /// Bytes per second that each move sends at most, 0 for no limit; `None`: as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Of the moves of a source, those with a greater number come first; `None`: as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// How often slots were planned to move.
    pub rounds: u32,
    /// It is going back: see `before`.
    pub is_undone: bool,
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
    /// What else was asked for, of the jobs with a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// See there.
    #[serde(default)]
    pub aim: Aim,
    /// What the request was named by its sender: the same request again finds this job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// In milliseconds since 1970.
    pub began_ms: u64,
    /// In milliseconds since 1970, 0 while it runs.
    #[serde(default)]
    pub ended_ms: u64,
}

impl Job {
    /// Returns the least [`FORMAT`] of nodes that can read it.
    pub fn format(&self) -> u32 {
        let Aim { before, by, .. } = &self.aim;
        let of_aim = before.as_ref().map(Settings::format).max(by.map(Measure::format));
        let of_task = self.task.as_ref().map(Task::format);
        self.kind.format().max(self.state.format()).max(of_aim.max(of_task).unwrap_or_default())
    }
}

/// A request with a name that was served, and began no job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Served {
    /// How its sender named it.
    pub id: String,
    /// What it was: another request of this name is refused.
    pub what: String,
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
    /// Its node ends itself.
    pub is_removed: bool,
    /// The zone that an operator has given it since its node started.
    pub zone: Option<String>,
    /// Ports that are given away to copies that are planned.
    pub ports: BTreeSet<u16>,
}

impl Known {
    /// The part of the site that fails together with it, perhaps empty.
    pub fn zone(&self) -> &str {
        self.zone.as_deref().unwrap_or(&self.spec.value.zone)
    }
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
    /// The last requests with a name that began no job, the oldest first.
    pub requests: Vec<Served>,
    /// The revision of their key.
    pub requests_revision: Revision,
    /// The oldest first.
    pub events: Vec<Event>,
    /// The revision of the events' key.
    pub events_revision: Revision,
    /// The revision of the last placement.
    pub placement: Revision,
    /// Copies that their nodes are to end although no database has them.
    pub gone: BTreeMap<Id, At<Gone>>,
    /// Databases that nodes are to write again, with the revision of the order.
    pub taken_up: BTreeMap<String, Revision>,
    /// Values with a password in clear that is to be sealed, with what they are to become.
    pub clear: Vec<(String, Revision, Vec<u8>)>,
    /// See [`SiteKeys::least_writer`].
    pub least_writer: u32,
    /// Keys whose values cannot be read.
    pub unreadable: BTreeSet<String>,
    /// There are keys that this version does not know: of a later one, or of another program.
    pub has_unknown_keys: bool,
    /// Values that cannot be read. They are left alone.
    pub problems: Vec<String>,
}

impl Site {
    /// Reads the keys. What cannot be read is left out and said in [`Site::problems`].
    pub fn decode(keys: &SiteKeys, range: &Range) -> Site {
        let mut site = Site { revision: range.revision, ..Site::default() };
        let (mut alive, mut draining) = (BTreeMap::new(), Vec::new());
        let (mut removed, mut zones) = (Vec::new(), Vec::new());
        for item in &range.items {
            let name = item.key.strip_prefix(keys.all()).unwrap_or_default();
            let parts: Vec<&str> = name.split('/').collect();
            let problems = &mut Problems { said: &mut site.problems, keys: &mut site.unreadable };
            match parts[..] {
                ["machine", name, "spec"] => {
                    if let Some(spec) = read(item, problems) {
                        site.machines.insert(
                            name.to_owned(),
                            Known {
                                spec,
                                alive: None,
                                is_draining: false,
                                is_removed: false,
                                zone: None,
                                ports: BTreeSet::new(),
                            },
                        );
                    }
                }
                ["machine", name, "alive"] => {
                    if let Some(value) = read::<MachineAlive>(item, problems) {
                        alive.insert(name.to_owned(), value);
                    }
                }
                ["machine", name, "draining"] => draining.push(name),
                ["machine", name, "removed"] => removed.push(name),
                ["machine", name, "zone"] => {
                    zones.push((name, String::from_utf8_lossy(&item.value).into_owned()));
                }
                ["database", name] => {
                    let value = read_sealed(item, problems, &mut site.clear);
                    site.databases.extend(value.map(|value| (name.to_owned(), value)));
                }
                ["job", id] => {
                    let value = read_sealed(item, problems, &mut site.clear);
                    site.jobs.extend(value.map(|value| (id.to_owned(), value)));
                }
                ["backup", database] => {
                    let value = read_sealed(item, problems, &mut site.clear);
                    site.schedules.extend(value.map(|value| (database.to_owned(), value)));
                }
                ["requests"] => {
                    site.requests_revision = item.revision;
                    site.requests = read(item, problems).map(|at| at.value).unwrap_or_default();
                }
                ["events"] => {
                    site.events_revision = item.revision;
                    site.events = read(item, problems).map(|at| at.value).unwrap_or_default();
                }
                ["gone", copy] => {
                    let value = copy.parse().ok().zip(read(item, problems));
                    site.gone.extend(value);
                }
                ["taken-up", name] => {
                    site.taken_up.insert(name.to_owned(), item.revision);
                }
                ["placement"] => site.placement = item.revision,
                ["least-writer"] => {
                    // A number that cannot be read is greater than those of now.
                    let number = read::<u32>(item, problems);
                    site.least_writer = number.map_or(u32::MAX, |at| at.value);
                }
                _ => site.has_unknown_keys = true,
            }
        }
        for (name, known) in &mut site.machines {
            known.is_draining = draining.contains(&&**name);
            known.is_removed = removed.contains(&&**name);
            let zone = zones.iter().find(|(machine, _)| machine == name);
            known.zone = zone.map(|(_, zone)| zone.clone());
        }
        for (name, at) in alive {
            if let Some(known) = site.machines.get_mut(&name) {
                known.alive = (known.spec.value.id == at.value.id).then_some(at);
            }
        }
        site
    }

    /// Says what needs an operator: values that cannot be read, keys that are not known, and copies
    /// that no database has.
    pub fn warnings(&self, keys: &SiteKeys) -> Vec<String> {
        let below = keys.all();
        let unknown = self.has_unknown_keys.then(|| {
            format!("There are keys at etcd below {below} that this version does not know; they are left alone")
        });
        let unplaced = unplaced::warnings(self);
        let held = check_writer(self.least_writer).err();
        let said = self.problems.iter().cloned().chain(held);
        said.chain(unknown).chain(unplaced).collect()
    }

    /// Returns whether a lease is one of a node that is alive.
    pub fn has_node_with(&self, lease: LeaseId) -> bool {
        let mut alive = self.machines.values().filter_map(|known| known.alive.as_ref());
        alive.any(|at| at.value.lease == lease)
    }

    /// Returns whether all machines, those that are down as well, can open sealed passwords.
    pub fn can_seal(&self) -> bool {
        self.machines.values().all(|known| known.spec.value.opens_sealed())
    }

    /// Refuses what needs this [`FORMAT`] of nodes while one lives that cannot read it.
    ///
    /// # Errors
    /// Which one.
    pub fn check_readable(&self, format: u32) -> Result<(), Wrong> {
        match self.older_machine(format) {
            None => Ok(()),
            Some(machine) => Err(Wrong(format!(
                "the node of machine '{machine}' is of an older version: start it with this one \
                 first"
            ))),
        }
    }

    /// Returns the least that a living node can read: see [`FORMAT`].
    pub fn least_format(&self) -> u32 {
        let living = self.machines.values().filter(|known| known.alive.is_some());
        living.map(|known| known.spec.value.reads()).min().unwrap_or(FORMAT)
    }

    /// Returns a machine whose node is alive and cannot read what needs this [`FORMAT`].
    pub fn older_machine(&self, format: u32) -> Option<&str> {
        let is_old = |known: &Known| known.alive.is_some() && known.spec.value.reads() < format;
        self.machines.iter().find(|(_, known)| is_old(known)).map(|(name, _)| &**name)
    }

    /// Returns whether a machine's node has a lease.
    pub fn is_alive(&self, machine: &str) -> bool {
        self.machines.get(machine).is_some_and(|known| known.alive.is_some())
    }

    /// The place of a machine among those whose nodes have a lease, by name.
    pub fn rank(&self, machine: &str) -> Option<usize> {
        let mut living = self.machines.keys().filter(|name| self.is_alive(name));
        living.position(|name| name == machine)
    }

    /// Returns the place of a machine among those whose nodes have a lease and a webhook, by name.
    pub fn webhook_rank(&self, machine: &str) -> Option<usize> {
        let has_hook = |known: &Known| known.alive.as_ref().is_some_and(|at| at.value.has_webhook);
        let mut living = self.machines.iter().filter(|(_, known)| has_hook(known));
        living.position(|(name, _)| name == machine)
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

    /// Returns whether a restart of a database runs that adds copies.
    pub fn is_restarted_with_surge(&self, name: &str) -> bool {
        self.jobs.values().map(|at| &at.value).any(|job| {
            let has_surge = matches!(&job.task, Some(Task::Restart(restart)) if restart.surge);
            has_surge && job.state == JobState::Running && job.database == name
        })
    }

    /// Returns whether a running job about a machine moves copies of a shard.
    pub fn moves_copies_of(&self, database: &Database, shard: usize) -> bool {
        let mut homes =
            database.copies.iter().filter(|it| it.shard == shard).map(|it| &*it.machine);
        homes.any(|machine| {
            self.jobs.values().map(|at| &at.value).any(|job| {
                let moves = job.state == JobState::Running && job.kind != JobKind::Switch;
                moves && job.machine == machine
            })
        })
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
        let bytes = self.placed_on(machine).map(|(_, it, placed)| it.copy_bytes(placed.shard));
        bytes.fold(0, u64::saturating_add)
    }
}

/// Values that cannot be read are named up to this number.
const MAX_PROBLEMS: usize = 8;

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

/// Reads a value that has passwords in it, and notes those in clear.
fn read_sealed<T: Serialize + for<'a> Deserialize<'a>>(
    item: &Item,
    problems: &mut Problems<'_>,
    clear: &mut Vec<(String, Revision, Vec<u8>)>,
) -> Option<At<T>> {
    sealed::take_clear();
    let at = read(item, problems)?;
    if sealed::take_clear() {
        clear.push((item.key.clone(), item.revision, encode(&at.value)));
    }
    Some(at)
}

/// What cannot be read.
struct Problems<'a> {
    said: &'a mut Vec<String>,
    keys: &'a mut BTreeSet<String>,
}

fn read<T: for<'a> Deserialize<'a>>(item: &Item, problems: &mut Problems<'_>) -> Option<At<T>> {
    match serde_json::from_slice(&item.value) {
        Ok(value) => Some(At { value, revision: item.revision }),
        Err(error) => {
            let (said, key) = (&mut *problems.said, &item.key);
            problems.keys.insert(key.clone());
            match said.len() {
                MAX_PROBLEMS.. => {}
                len if len + 1 == MAX_PROBLEMS => {
                    said.push("More values at etcd are not readable".into());
                }
                _ => said.push(format!(
                    "The value of {key} at etcd is not readable, and is left alone: {error}"
                )),
            }
            None
        }
    }
}

/// Returns the least [`FORMAT`] of nodes that can read a value. What a node says of itself is not
/// asked: it has to say that it is alive.
pub fn format_of(keys: &SiteKeys, key: &str, value: &[u8]) -> u32 {
    fn of<T: for<'a> Deserialize<'a>>(value: &[u8], format: fn(&T) -> u32) -> u32 {
        // What this version cannot read, it does not write either.
        serde_json::from_slice(value).as_ref().map_or(0, format)
    }
    let name = key.strip_prefix(keys.all()).unwrap_or_default();
    match name.split('/').collect::<Vec<_>>()[..] {
        ["database", _] => of(value, Database::format),
        ["job", _] => of(value, Job::format),
        _ => 0,
    }
}

/// Returns what of a value this version does not understand: it is kept when the value is changed.
pub fn later(keys: &SiteKeys, item: &Item) -> Later {
    let name = item.key.strip_prefix(keys.all()).unwrap_or_default();
    let value = &item.value;
    match name.split('/').collect::<Vec<_>>()[..] {
        ["machine", _, "spec"] => Later::read::<Machine>(value),
        ["database", _] => Later::read::<Database>(value),
        ["job", _] => Later::read::<Job>(value),
        ["backup", _] => Later::read::<Schedule>(value),
        ["requests"] => Later::read::<Vec<Served>>(value),
        ["events"] => Later::read::<Vec<Event>>(value),
        ["gone", _] => Later::read::<Gone>(value),
        // One machine alone writes what is there while its node is.
        _ => Later::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::site;

    #[test]
    fn a_machine_says_what_it_reads_and_what_it_opens() {
        let said = |more: &str| {
            let text = format!(
                r#"{{"id":"","host":"","memory_bytes":0,"cores":0,"admin_port":0,"version":""{more}}}"#
            );
            let machine: Machine = serde_json::from_str(&text).expect("it is one");
            (machine.reads(), machine.opens_sealed())
        };
        assert_eq!(said(""), (0, false));
        assert_eq!(said(r#","format":1"#), (1, false));
        assert_eq!(said(r#","format":2"#), (1, true));
        assert_eq!(said(r#","format":1,"reads":7"#), (7, false), "a later version without the key");
        for opens_sealed in [false, true] {
            let machine = Machine::default().of_this_version(opens_sealed);
            assert_eq!((machine.reads(), machine.opens_sealed()), (FORMAT, opens_sealed));
            // What 0.1 takes for one that opens sealed passwords.
            assert_eq!(machine.format >= 2, opens_sealed);
        }
    }

    #[test]
    fn a_living_node_that_cannot_read_it_is_named() {
        let mut site = site(&[("a", "", 8), ("b", "", 8)]);
        assert_eq!(site.older_machine(FORMAT), None);
        assert_eq!(site.older_machine(FORMAT + 1), Some("a"));
        let old = site.machines.get_mut("b").expect("it is there");
        old.spec.value = Machine { format: 0, reads: 0, ..old.spec.value.clone() };
        assert_eq!(site.older_machine(JobKind::Create.format()), Some("b"));
        assert_eq!((site.least_format(), site.check_readable(0)), (0, Ok(())));
        assert!(site.check_readable(1).is_err_and(|why| why.0.contains("machine 'b'")));
        site.machines.get_mut("b").expect("it is there").alive = None;
        assert_eq!(site.least_format(), FORMAT);
        assert_eq!(site.older_machine(JobKind::Create.format()), None);
    }
}
