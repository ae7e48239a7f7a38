//! What requests to the interface carry, and what answers do. The commands of `dunlin cluster` use the same types.

use crate::settings::{Commit, Persistence, Settings};
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
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// The database.
    pub name: String,
    /// The bytes that the user can store.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// What happens when the memory is full.
    #[serde(default)]
    pub eviction: Option<String>,
    /// What is written to disk.
    #[serde(default)]
    pub persistence: Option<Persistence>,
    /// When a write is confirmed.
    #[serde(default)]
    pub commit: Option<Commit>,
    /// The password of the default user; empty is none.
    #[serde(default)]
    pub password: Option<String>,
    /// The rules by which keys get their slots; none is the standard rule. Keys move while the database serves.
    #[serde(default)]
    pub hashing: Option<Vec<String>>,
    /// Only check it.
    #[serde(default)]
    pub dry_run: bool,
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
}

/// Which job.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct JobId {
    /// Its id
    pub id: String,
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
