//! The options of a database: what a user asks for, checked.

pub mod fields;
#[cfg(test)]
mod guide;

use crate::servers::check_rules;
use cluster::hashing::Hashing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// The most copies of a database: each has keys in one transaction, of which etcd takes 128.
const MAX_COPIES: usize = 100;

/// The most databases that SELECT chooses from: each takes some memory at each copy.
const MAX_DATABASES: u32 = 1024;

/// The least memory of a shard.
const MIN_SHARD_BYTES: u64 = 4 << 20;

/// The greatest `format` of a word of options. A new word raises it, and with it
/// [`crate::site::FORMAT`]: its format is one more than that.
pub const WORDS_FORMAT: u32 = 1;

/// What is written to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Persistence {
    /// nothing
    #[schemars(extend("x-enterprise" = "disabled"))]
    None,
    /// a snapshot from time to time
    #[schemars(extend("x-enterprise" = "snapshot"))]
    Rdb,
    /// each write
    Aof,
}

impl Persistence {
    /// Returns the least [`crate::site::FORMAT`] of nodes that can read this word.
    pub fn format(self) -> u32 {
        match self {
            Persistence::None | Persistence::Rdb | Persistence::Aof => 1,
        }
    }
}

/// When a write is confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Commit {
    /// when it is in memory
    Memory,
    /// when it is on the primary's disk
    Fsync,
    /// when more than half of the copies have it
    Quorum,
}

impl Commit {
    /// Returns the least [`crate::site::FORMAT`] of nodes that can read this word.
    pub fn format(self) -> u32 {
        match self {
            Commit::Memory | Commit::Fsync | Commit::Quorum => 1,
        }
    }
}

/// How clients see the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// one server
    Single,
    /// one server, on the machines without a copy, too
    All,
    /// a Redis Cluster
    Cluster,
}

impl Endpoint {
    /// Returns the least [`crate::site::FORMAT`] of nodes that can read this word.
    pub fn format(self) -> u32 {
        match self {
            Endpoint::Single | Endpoint::All | Endpoint::Cluster => 1,
        }
    }

    /// Returns whether clients speak the protocol of Redis Cluster.
    pub fn is_cluster(self) -> bool {
        self == Endpoint::Cluster
    }

    /// Returns whether machines without a copy listen for clients, too.
    pub fn is_everywhere(self) -> bool {
        self == Endpoint::All
    }
}

/// What shards are to carry the same of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Bytes in memory.
    #[default]
    Bytes,
    /// Time of processors.
    Cpu,
    /// Bytes from and to clients.
    Network,
    /// Keys.
    Keys,
}

impl Measure {
    /// Returns the least [`crate::site::FORMAT`] of nodes that can read this word.
    pub fn format(self) -> u32 {
        match self {
            Measure::Bytes | Measure::Cpu | Measure::Network | Measure::Keys => 1,
        }
    }
}

/// The policies that a full database can have.
fn policies() -> Vec<&'static str> {
    config::MaxmemoryPolicy::CHOICES.iter().map(|(name, _)| *name).collect()
}

/// The options of a database. Arguments, files, requests, forms, the chart's schema and the tables
/// of the guide are made of this type's schema by [`fields`]; the comment of a field is its help.
///
/// A new field is left out of JSON while it has its default: earlier versions refuse to change a
/// database with an option that they do not know ([`Settings::check`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// What can be stored, in all shards together. Replicas come on top
    #[schemars(
        range(min = 1),
        extend("x-option" = "memory", "x-unit" = "bytes", "x-changes" = true),
        extend("examples" = [1 << 30])
    )]
    pub memory_bytes: u64,
    /// Shards, each with a part of the keys
    #[serde(default = "one")]
    #[schemars(
        range(min = 1, max = MAX_COPIES),
        extend("x-changes" = true, "x-enterprise" = "shards_count", "examples" = [3])
    )]
    pub shards: usize,
    /// Copies of each shard beside its primary
    #[serde(default)]
    #[schemars(
        range(min = 0, max = MAX_COPIES),
        extend("x-changes" = true, "x-enterprise" = "replicas_count", "examples" = [1])
    )]
    pub replicas: usize,
    /// The port of its clients
    #[schemars(range(min = 1, max = 65535), extend("x-enterprise" = "port", "examples" = [12000]))]
    pub port: u16,
    /// What is written to disk
    #[serde(default = "aof")]
    #[schemars(extend("x-changes" = true, "x-enterprise" = "data_persistence"))]
    pub persistence: Persistence,
    /// Databases that SELECT chooses from
    #[serde(default = "one_database", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = MAX_DATABASES), extend("default" = 1))]
    pub databases: u32,
    /// What happens when the memory is full: a maxmemory-policy
    #[serde(default = "noeviction")]
    #[schemars(
        extend("enum" = policies(), "x-changes" = true, "x-enterprise" = "eviction_policy")
    )]
    pub eviction: String,
    /// When a write is confirmed
    #[serde(default = "memory")]
    #[schemars(extend("x-changes" = true, "x-enterprise" = "commit"))]
    pub commit: Commit,
    /// Flash for values that have gone cold, in all shards together; 0 is none
    #[serde(default)]
    #[schemars(extend("x-option" = "flash", "x-unit" = "bytes", "x-changes" = true))]
    pub flash_bytes: u64,
    /// How clients see it
    #[serde(default = "default_endpoint")]
    #[schemars(extend("x-changes" = true))]
    pub endpoint: Endpoint,
    /// The password of its default user; empty is none. Only its hash is kept
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        extend("format" = "password", "x-env" = "DUNLIN_DB_PASSWORD", "x-changes" = true)
    )]
    pub password: String,
    /// The SHA-256 of the password in hexadecimal digits, which may be given in its place
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-of-requests" = true))]
    pub password_sha256: String,
    /// Users that it begins with, each a name and rules: `app on >secret ~app:* +@all`. Only hashes
    /// of passwords are kept
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-element" = "user", "x-secret" = true))]
    pub users: Vec<String>,
    /// Clients and copies speak TLS, with the certificates of the machines: tls/ca.pem of a machine
    /// is the authority
    #[serde(default)]
    pub tls: bool,
    /// Copies of a shard must be in different zones
    #[serde(default)]
    #[schemars(extend("x-changes" = true, "x-enterprise" = "rack_aware"))]
    pub zones: bool,
    /// Rules by which keys get their slots: up to 32 regular expressions with a group 'tag', as in
    /// 'user:(?<tag>[0-9]+)'. The first that matches wins; none is the standard rule. When they
    /// change, keys move while the database serves
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        extend("x-element" = "hashing-rule", "x-none" = "standard", "x-changes" = true)
    )]
    pub hashing: Vec<String>,
    /// Options that a later version has written. They stay as they are; users cannot give them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

/// Why something cannot be: a text for the user, which says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

fn one() -> usize {
    1
}

fn one_database() -> u32 {
    1
}

/// Earlier versions do not know the field.
fn is_one(databases: &u32) -> bool {
    *databases == 1
}

fn aof() -> Persistence {
    Persistence::Aof
}

fn noeviction() -> String {
    "noeviction".into()
}

fn memory() -> Commit {
    Commit::Memory
}

fn default_endpoint() -> Endpoint {
    Settings::default_endpoint()
}

impl Settings {
    /// The options of a database that says only its port; it has no memory yet.
    pub fn plain(port: u16) -> Settings {
        let given = serde_json::json!({ "memory_bytes": 0, "port": port });
        serde_json::from_value(given).expect("all other options have defaults")
    }

    /// The endpoint of a database that does not say which: one server, where servers can do that.
    pub fn default_endpoint() -> Endpoint {
        match Settings::has_single_endpoint() {
            true => Endpoint::Single,
            false => Endpoint::Cluster,
        }
    }

    /// Returns the least [`crate::site::FORMAT`] of nodes that can read all words of the options.
    /// Fields that they do not know, they keep.
    pub fn format(&self) -> u32 {
        self.persistence.format().max(self.commit.format()).max(self.endpoint.format())
    }

    /// Returns whether servers know the option `cluster-endpoint`.
    pub fn has_single_endpoint() -> bool {
        config::find(b"cluster-endpoint").is_some()
    }

    /// The bytes that one copy may have.
    pub fn copy_bytes(&self) -> u64 {
        self.memory_bytes.div_ceil(u64::try_from(self.shards.max(1)).unwrap_or(1))
    }

    /// The bytes of flash that one copy may have.
    pub fn copy_flash_bytes(&self) -> u64 {
        self.flash_bytes.div_ceil(u64::try_from(self.shards.max(1)).unwrap_or(1))
    }

    /// Returns whether the default user has a password.
    pub fn has_password(&self) -> bool {
        !self.password.is_empty() || !self.password_sha256.is_empty()
    }

    /// The same with the password's hash in place of the password.
    pub fn sealed(mut self) -> Settings {
        if !self.password.is_empty() {
            self.password_sha256 = sha256(&std::mem::take(&mut self.password));
        }
        let hashed = |word: &str| match word.strip_prefix('>') {
            Some(password) => format!("#{}", sha256(password)),
            None => word.to_owned(),
        };
        for user in &mut self.users {
            *user = user.split_whitespace().map(hashed).collect::<Vec<_>>().join(" ");
        }
        self
    }

    /// The names of its users, without their rules.
    pub fn user_names(&self) -> Vec<String> {
        let name = |user: &String| user.split_whitespace().next().unwrap_or_default().to_owned();
        self.users.iter().map(name).collect()
    }

    /// How many copies hold a write before it is confirmed by a quorum; 0 in the other modes.
    pub fn quorum(&self) -> usize {
        if self.commit == Commit::Quorum { self.replicas.div_ceil(2) + 1 } else { 0 }
    }

    /// Checks what does not depend on machines.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn check(&self) -> Result<(), Wrong> {
        let refuse = |is_wrong: bool, why: String| if is_wrong { Err(Wrong(why)) } else { Ok(()) };
        let copies = self.shards.saturating_mul(self.replicas.saturating_add(1));
        if let Some(name) = self.later.keys().next() {
            return Err(Wrong(format!("'{name}' is no option of a database in this version")));
        }
        fields::check_limits(self)?;
        refuse(
            copies > MAX_COPIES,
            format!("{copies} copies are more than {MAX_COPIES}: take fewer shards or replicas"),
        )?;
        refuse(
            self.copy_bytes() < MIN_SHARD_BYTES,
            format!(
                "a shard would have {} bytes of memory: take fewer shards, or more than 4mb for each",
                self.copy_bytes()
            ),
        )?;
        refuse(
            self.commit == Commit::Quorum && self.replicas == 0,
            "the commit mode quorum needs at least 1 replica: add --replicas 1, or take fsync"
                .into(),
        )?;
        refuse(
            self.commit == Commit::Fsync && self.persistence != Persistence::Aof,
            "the commit mode fsync needs --persistence aof".into(),
        )?;
        refuse(
            !self.endpoint.is_cluster() && !Settings::has_single_endpoint(),
            "servers of this version speak the cluster protocol only: take --endpoint cluster"
                .into(),
        )?;
        refuse(
            self.password.bytes().any(|byte| byte < 0x20) || self.password.len() > 512,
            "a password has at most 512 characters, and no control characters".into(),
        )?;
        self.check_users()?;
        let is_hash = |text: &str| {
            text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        refuse(
            !self.password_sha256.is_empty() && !is_hash(&self.password_sha256),
            "password_sha256 has 64 digits, 0 to 9 and a to f".into(),
        )?;
        Hashing::new(&self.hashing).map_err(|flaw| Wrong(flaw.to_string()))?;
        refuse(
            !self.hashing.is_empty() && self.endpoint.is_cluster(),
            "clients of --endpoint cluster compute slots by the standard rule: take --endpoint single, or \
             --hashing standard"
                .into(),
        )
    }

    /// Checks the users that it begins with.
    fn check_users(&self) -> Result<(), Wrong> {
        let refuse = |is_wrong: bool, why: String| if is_wrong { Err(Wrong(why)) } else { Ok(()) };
        let names = self.user_names();
        for (at, (user, name)) in self.users.iter().zip(&names).enumerate() {
            refuse(
                user.bytes().any(|byte| byte < 0x20 || b"\"'\\".contains(&byte)),
                format!(
                    "the rules of user '{name}' have quotes, backslashes or control characters"
                ),
            )?;
            refuse(
                name.is_empty() || name == "default" || name.starts_with("dunlin-"),
                format!(
                    "'{name}' is no name for a user of --user: the default user has --password"
                ),
            )?;
            refuse(names[..at].contains(name), format!("user '{name}' is there twice"))?;
            check_rules(user.split_whitespace().skip(1)).map_err(Wrong)?;
        }
        Ok(())
    }
}

/// The SHA-256 of a text in hexadecimal digits, as rules of users have it.
pub fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the name of a database, machine or cluster.
///
/// # Errors
/// What is wrong.
pub fn check_name(what: &str, name: &str) -> Result<(), Wrong> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_fine = (1..=63).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    match is_fine {
        true => Ok(()),
        false => Err(Wrong(format!(
            "'{name}' is no name for a {what}: it has 1 to 63 letters, digits, '-', '_' and '.', and begins \
             with a letter or digit"
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Three shards with a replica each, as a user asks for them.
    pub(crate) fn settings() -> Settings {
        Settings { memory_bytes: 3 << 30, shards: 3, replicas: 1, ..Settings::plain(12000) }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        assert_eq!(settings().check(), Ok(()));
        type Case = (fn(&mut Settings), &'static str);
        let cases: [Case; 12] = [
            (|it| it.shards = 0, "shards is a number from 1 to 100"),
            (|it| it.shards = 51, "102 copies are more than 100"),
            (|it| it.shards = usize::MAX, "from 1 to 100"),
            (|it| it.port = 0, "from 1 to 65535"),
            (|it| it.memory_bytes = 1 << 20, "take fewer shards"),
            (|it| it.databases = 0, "databases is a number from 1 to 1024"),
            (|it| it.eviction = "some".into(), "eviction: 'some' is none of volatile-lru"),
            (|it| (it.commit, it.replicas) = (Commit::Quorum, 0), "add --replicas 1"),
            (|it| it.password = "a\nb".into(), "no control characters"),
            (|it| it.password_sha256 = "ab".into(), "64 digits"),
            (|it| it.hashing = vec!["(.*)".into()], "no group 'tag'"),
            (
                |it| {
                    (it.hashing, it.endpoint) = (vec!["(?<tag>.*)".into()], Endpoint::Cluster);
                },
                "compute slots by the standard rule",
            ),
        ];
        for (change, expected) in cases {
            let mut settings = settings();
            change(&mut settings);
            let why = settings.check().expect_err("it is wrong").0;
            assert!(why.contains(expected), "{why}: {expected}");
        }
    }

    #[test]
    fn what_a_later_version_wrote_is_kept() {
        let mut value = serde_json::to_value(settings()).unwrap();
        value["colour"] = "red".into();
        let read: Settings = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
        assert!(read.check().expect_err("it is unknown").0.contains("'colour'"));
    }

    #[test]
    fn a_sealed_password_is_a_hash() {
        let sealed = Settings { password: "abc".into(), ..settings() }.sealed();
        let text = serde_json::to_string(&sealed).unwrap();
        assert!(!text.contains("abc\"") && sealed.has_password(), "{text}");
        assert!(sealed.password_sha256.starts_with("ba7816bf8f01cfea414140de5dae2223"));
        assert_eq!((sealed.check(), sealed.clone().sealed()), (Ok(()), sealed));
    }

    #[test]
    fn names_are_plain() {
        assert!(["a", "sessions-1", "A.b_c"].iter().all(|name| check_name("x", name).is_ok()));
        let long = "a".repeat(64);
        assert!(
            ["", "-a", "a/b", "a b", "é", &long].iter().all(|name| check_name("x", name).is_err())
        );
    }

    #[test]
    fn a_quorum_is_more_than_half_of_the_copies() {
        let quorum =
            |replicas| Settings { replicas, commit: Commit::Quorum, ..settings() }.quorum();
        assert_eq!([1, 2, 3, 4].map(quorum), [2, 2, 3, 3]);
    }
}
