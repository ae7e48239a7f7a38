//! Where the keys of nodes and databases are at etcd. `docs/internals/node.md` has the table.

use cluster::id::Id;

/// What stands behind the beginning that all keys have in common: folders, and names of single keys.
pub const PARTS: [&str; 10] = [
    "machine/",
    "database/",
    "backup/",
    "job/",
    "gone/",
    "taken-up/",
    "placement",
    "requests",
    "events",
    "least-writer",
];

/// The keys of one cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteKeys {
    root: String,
}

impl SiteKeys {
    /// Returns the keys of the cluster with this name.
    pub fn new(cluster: &str) -> SiteKeys {
        SiteKeys { root: format!("/dunlin/{cluster}/site/") }
    }

    /// The beginning of all of them.
    pub fn all(&self) -> &str {
        &self.root
    }

    /// The beginning of the keys of a machine.
    pub fn of_machine(&self, name: &str) -> String {
        format!("{}machine/{name}/", self.root)
    }

    /// What a machine is.
    pub fn machine(&self, name: &str) -> String {
        format!("{}machine/{name}/spec", self.root)
    }

    /// What is there while a machine's node has a lease.
    pub fn alive(&self, name: &str) -> String {
        format!("{}machine/{name}/alive", self.root)
    }

    /// What is there while a machine gives its copies away.
    pub fn draining(&self, name: &str) -> String {
        format!("{}machine/{name}/draining", self.root)
    }

    /// What is there when a machine's node is to end itself.
    pub fn removed(&self, name: &str) -> String {
        format!("{}machine/{name}/removed", self.root)
    }

    /// The zone that an operator has given a machine.
    pub fn zone(&self, name: &str) -> String {
        format!("{}machine/{name}/zone", self.root)
    }

    /// A database.
    pub fn database(&self, name: &str) -> String {
        format!("{}database/{name}", self.root)
    }

    /// A job.
    pub fn job(&self, id: &str) -> String {
        format!("{}job/{id}", self.root)
    }

    /// The backups of a database that come round.
    pub fn schedule(&self, database: &str) -> String {
        format!("{}backup/{database}", self.root)
    }

    /// What is there until a copy that no database has is ended.
    pub fn gone(&self, copy: Id) -> String {
        format!("{}gone/{copy}", self.root)
    }

    /// What is there until a node has written a database again.
    pub fn taken_up(&self, name: &str) -> String {
        format!("{}taken-up/{name}", self.root)
    }

    /// What every placement writes.
    pub fn placement(&self) -> String {
        format!("{}placement", self.root)
    }

    /// The last requests with a name that began no job.
    pub fn requests(&self) -> String {
        format!("{}requests", self.root)
    }

    /// The least [`cluster::stored::WRITER`] of nodes that may change anything but what their own
    /// machine says: a number. Without the key all may.
    pub fn least_writer(&self) -> String {
        format!("{}least-writer", self.root)
    }

    /// The last events.
    pub fn events(&self) -> String {
        format!("{}events", self.root)
    }
}
