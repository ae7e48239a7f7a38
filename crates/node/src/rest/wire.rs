//! What requests to the interface carry, and what answers do. The commands of `dunlin cluster` use
//! the same types.

use crate::settings::fields::Changes;
use crate::settings::{Measure, Settings};
use crate::show::{DatabaseShown, JobShown, MachineShown, PlanShown};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the cluster is.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// The machine that answers.
    pub machine: String,
    /// The version of etcd.
    pub etcd_version: String,
    /// The addresses of etcd's servers.
    pub etcd_members: Vec<String>,
    /// The bytes of etcd's database.
    pub etcd_bytes: u64,
    /// What needs an operator.
    pub problems: Vec<String>,
    /// All machines.
    pub machines: Vec<MachineShown>,
    /// All databases.
    pub databases: Vec<DatabaseShown>,
    /// Jobs that have not ended.
    pub jobs: Vec<JobShown>,
}

/// How another machine joins the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Joining {
    /// What is run on that machine. Empty: nodes in containers join by themselves.
    pub command: String,
    /// The file of the machine that answers whose copy the command reads: the join token. It gives
    /// access to the whole cluster, so it is in no answer. Empty: none is needed.
    pub token_file: String,
    /// Where that machine is reached.
    pub host: String,
}

/// Which database.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// Its name
    pub name: String,
}

/// A machine that gives its copies away.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Its name.
    pub name: String,
    /// Only hand over what it leads; its replicas stay.
    #[serde(default)]
    pub switch_only: bool,
    /// Begin although copies have no place elsewhere yet, and wait for it.
    #[serde(default)]
    pub waits: bool,
    /// Only plan it.
    #[serde(default)]
    pub dry_run: bool,
}

/// A machine, for a change of it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineChange {
    /// Its name.
    pub name: String,
    /// Only plan it.
    #[serde(default)]
    pub dry_run: bool,
}

/// The zone of a machine.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// The machine's name.
    pub name: String,
    /// The part of the site that fails together with it; empty is none.
    pub zone: String,
}

/// Shards that are to carry the same.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rebalance {
    /// The database.
    pub name: String,
    /// What they are to carry the same of.
    #[serde(default)]
    pub by: Measure,
    /// Only plan it.
    #[serde(default)]
    pub dry_run: bool,
}

/// Slots that are to move.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveSlots {
    /// The database.
    pub name: String,
    /// The slots: 0-99,200.
    pub slots: String,
    /// The shard that they go to, counted from 1.
    pub shard: usize,
    /// Only plan it.
    #[serde(default)]
    pub dry_run: bool,
}

/// A user of a database.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// The database.
    pub name: String,
    /// The user.
    pub user: String,
    /// The rules, as ACL SETUSER takes them: +@read ~cache:* &*. Those of before if they are left
    /// out.
    #[serde(default)]
    pub rules: Option<String>,
    /// The password. That of before if it is left out.
    #[serde(default)]
    pub password: Option<String>,
    /// Only check it.
    #[serde(default)]
    pub dry_run: bool,
}

/// A user that is to go.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRemoval {
    /// The database.
    pub name: String,
    /// The user.
    pub user: String,
    /// Only check that it is there.
    #[serde(default)]
    pub dry_run: bool,
}

/// What the slots of a database have.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct SlotMap {
    /// The shard of each slot, counted from 1; 0 is none.
    pub shards: Vec<usize>,
    /// The keys of each slot.
    pub keys: Vec<u64>,
    /// The bytes of the keys and values of each slot, estimated.
    pub bytes: Vec<u64>,
    /// Requests a second for each slot; none if that was not asked for, or is not counted.
    pub requests: Option<Vec<f64>>,
    /// Microseconds of CPU that each slot uses in a second, likewise.
    pub cpu_us: Option<Vec<f64>>,
    /// Bytes a second that clients send and get for each slot, likewise.
    pub network_bytes: Option<Vec<f64>>,
    /// The keys that use most, likewise; those with the most CPU first.
    #[serde(default)]
    pub hot_keys: Option<Vec<HotKeyShown>>,
}

/// A key that uses much.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct HotKeyShown {
    /// The key; bytes that are no text are shown as such.
    pub key: String,
    /// Its slot; none if no hashing rule matches it.
    pub slot: Option<u16>,
    /// Its shard, counted from 1.
    pub shard: usize,
    /// Microseconds of CPU that its commands use in a second.
    pub cpu_us: f64,
    /// Bytes a second that clients send and get for it.
    pub network_bytes: f64,
}

/// A database that is asked for.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// Its name.
    pub name: String,
    /// Its options.
    pub settings: Settings,
    /// Only plan it.
    #[serde(default)]
    pub dry_run: bool,
}

/// What is being done, or would be.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Begun {
    /// The job; none of a dry run.
    pub job: Option<String>,
    /// Where copies go.
    pub plan: Option<PlanShown>,
}

/// Options that are to change. Those that are left out stay.
#[derive(PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Update {
    /// The database.
    pub name: String,
    /// Draw a new password for the user as which nodes and copies log in. Both count until all use
    /// the new one.
    #[serde(default)]
    pub new_secret: bool,
    /// Only check it.
    #[serde(default)]
    pub dry_run: bool,
    /// The options.
    #[serde(flatten)]
    pub changes: Changes,
}

/// A database that is to go.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deletion {
    /// Its name.
    pub name: String,
    /// Only check that it is there.
    #[serde(default)]
    pub dry_run: bool,
}

/// A shard without a primary, and the copy that is to lead it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// The database.
    pub name: String,
    /// The copy, by its 40 digits.
    pub copy: String,
    /// It leads although another copy has more, which is given up.
    #[serde(default)]
    pub force: bool,
}

/// Which job.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct JobId {
    /// Its id
    pub id: String,
}

/// How fast, and before which others, the slots of a job move.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// The job's id.
    pub id: String,
    /// Bytes per second that each source sends to each target at most; 0 is no limit.
    #[serde(default)]
    pub rate_bytes: Option<u64>,
    /// Of the moves that wait for a place at a source, those with a greater number come first.
    #[serde(default)]
    pub priority: Option<i32>,
}

/// A shard that is to be led by another copy.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The database.
    pub name: String,
    /// The copy that is to lead, by its 40 digits.
    #[serde(default)]
    pub copy: Option<String>,
    /// Or a shard, counted from 1, of which a replica is taken.
    #[serde(default)]
    pub shard: Option<usize>,
}
