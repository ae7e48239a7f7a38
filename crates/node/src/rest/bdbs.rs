//! Databases as objects with the fields of Redis Enterprise's API, for programs that speak it.
//! Fields mean the same there and here: `memory_size` counts replicas, and flash if there is some;
//! `bigstore_ram_size` is the part of it that is memory.

use super::Call;
use super::changes::change_database;
use super::routes::{all_databases, begin_creation, begin_deletion, work};
use super::wire::{Begun, Creation, Deletion};
use crate::change;
use crate::settings::{Commit, Endpoint, Persistence, Settings};
use crate::show::DatabaseShown;
use crate::store::Problem;
use axum::http::Method;
use console::rest::{ApiError, Route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The routes.
pub fn routes() -> Vec<Route<Call>> {
    vec![
        Route::get("/bdbs", "Databases, with the fields of Redis Enterprise", list),
        Route::post("/bdbs", "Create a database, or only plan it", create),
        Route::post("/bdbs", "Change a database while it runs, or only plan it", update)
            .by(Method::PUT),
        Route::post("/bdbs", "Delete a database with its data", delete).by(Method::DELETE),
    ]
}

/// What is written to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DataPersistence {
    /// Nothing.
    Disabled,
    /// Each write.
    Aof,
    /// A snapshot from time to time.
    Snapshot,
}

/// Where clients reach a database.
#[derive(Serialize, JsonSchema)]
struct EndpointShown {
    /// The host.
    addr: String,
    /// The port.
    port: u16,
}

/// A database.
#[derive(Serialize, JsonSchema)]
struct Bdb {
    /// Its name, which no other database has.
    uid: String,
    /// Its name.
    name: String,
    /// active, pending, active-change-pending or delete-pending.
    status: String,
    /// The port of its clients.
    port: u16,
    /// Where they reach it: the machines with a copy that has this port.
    endpoints: Vec<EndpointShown>,
    /// The bytes of all copies together.
    memory_size: u64,
    /// Whether it has more than one shard.
    sharding: bool,
    /// Shards without their replicas.
    shards_count: usize,
    /// Whether shards have replicas.
    replication: bool,
    /// Replicas of each shard.
    replicas_count: usize,
    /// What is written to disk.
    data_persistence: DataPersistence,
    /// What happens when the memory is full.
    eviction_policy: String,
    /// Whether clients see a Redis Cluster.
    oss_cluster: bool,
    /// Whether cold values go to flash.
    bigstore: bool,
    /// The part of `memory_size` that is memory; the rest is flash.
    bigstore_ram_size: u64,
    /// Whether copies of a shard are in different zones.
    rack_aware: bool,
    /// When a write is confirmed.
    commit: Commit,
}

/// A database that is asked for, or what is to change of one: fields that are left out stay.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BdbChange {
    /// Its name.
    name: String,
    /// The port of its clients; cannot be changed.
    port: Option<u16>,
    /// The bytes of all copies together.
    memory_size: Option<u64>,
    /// Shards without their replicas: any number.
    shards_count: Option<usize>,
    /// Whether shards have replicas: one, if `replicas_count` does not say how many.
    replication: Option<bool>,
    /// Replicas of each shard.
    replicas_count: Option<usize>,
    /// What is written to disk.
    data_persistence: Option<DataPersistence>,
    /// What happens when the memory is full.
    eviction_policy: Option<String>,
    /// Whether clients see a Redis Cluster.
    oss_cluster: Option<bool>,
    /// The part of `memory_size` that is memory; the rest is flash.
    bigstore_ram_size: Option<u64>,
    /// Whether copies of a shard are in different zones.
    rack_aware: Option<bool>,
    /// When a write is confirmed.
    commit: Option<Commit>,
    /// The password of the default user; empty is none.
    authentication_redis_pass: Option<String>,
}

/// Which database.
#[derive(Deserialize, JsonSchema)]
struct Filter {
    /// Only the database of this name
    #[serde(default)]
    name: Option<String>,
}

fn copies(settings: &Settings) -> u64 {
    u64::try_from(settings.replicas).unwrap_or(u64::MAX).saturating_add(1)
}

fn describe(shown: DatabaseShown, is_changing: bool) -> Bdb {
    let DatabaseShown { name, stage, settings, shards, .. } = shown;
    let status = match (&*stage, is_changing) {
        ("creating", _) => "pending",
        ("deleting", _) => "delete-pending",
        (_, true) => "active-change-pending",
        _ => "active",
    };
    let all = shards.iter().flat_map(|shard| &shard.copies);
    let endpoints = all.filter(|copy| copy.port == settings.port);
    let flash = settings.flash_bytes;
    Bdb {
        uid: name.clone(),
        name,
        status: status.into(),
        port: settings.port,
        endpoints: endpoints
            .map(|copy| EndpointShown { addr: copy.host.clone(), port: copy.port })
            .collect(),
        memory_size: settings.memory_bytes.saturating_add(flash).saturating_mul(copies(&settings)),
        sharding: settings.shards > 1,
        shards_count: settings.shards,
        replication: settings.replicas > 0,
        replicas_count: settings.replicas,
        data_persistence: match settings.persistence {
            Persistence::None => DataPersistence::Disabled,
            Persistence::Aof => DataPersistence::Aof,
            Persistence::Rdb => DataPersistence::Snapshot,
        },
        eviction_policy: settings.eviction.clone(),
        oss_cluster: settings.endpoint == Endpoint::Cluster,
        bigstore: flash > 0,
        bigstore_ram_size: settings.memory_bytes.saturating_mul(copies(&settings)),
        rack_aware: settings.zones,
        commit: settings.commit,
    }
}

/// Options after a change. What is not named stays as the user sees it: `memory_size` does, so more
/// replicas leave less for each.
fn changed(old: &Settings, change: &BdbChange) -> Settings {
    let mut new = old.clone();
    new.port = change.port.unwrap_or(old.port);
    new.shards = change.shards_count.unwrap_or(old.shards);
    new.replicas = match (change.replicas_count, change.replication) {
        (_, Some(false)) => 0,
        (Some(count), _) => count,
        (None, Some(true)) => old.replicas.max(1),
        (None, None) => old.replicas,
    };
    let (before, after) = (copies(old), copies(&new));
    let whole = old.memory_bytes.saturating_add(old.flash_bytes).saturating_mul(before);
    let whole = change.memory_size.unwrap_or(whole);
    let memory = match (change.bigstore_ram_size, old.flash_bytes) {
        (Some(bytes), _) => bytes.min(whole),
        (None, 0) => whole,
        (None, _) => old.memory_bytes.saturating_mul(before).min(whole),
    };
    (new.memory_bytes, new.flash_bytes) = (memory / after, (whole - memory) / after);
    if let Some(persistence) = change.data_persistence {
        new.persistence = match persistence {
            DataPersistence::Disabled => Persistence::None,
            DataPersistence::Aof => Persistence::Aof,
            DataPersistence::Snapshot => Persistence::Rdb,
        };
    }
    if let Some(is_cluster) = change.oss_cluster {
        new.endpoint = match (is_cluster, old.endpoint) {
            (true, _) => Endpoint::Cluster,
            (false, Endpoint::Cluster) => Endpoint::Single,
            (false, single) => single,
        };
    }
    if let Some(policy) = &change.eviction_policy {
        new.eviction.clone_from(policy);
    }
    new.zones = change.rack_aware.unwrap_or(old.zones);
    new.commit = change.commit.unwrap_or(old.commit);
    if let Some(password) = &change.authentication_redis_pass {
        new.password.clone_from(password);
        new.password_sha256.clear();
    }
    new
}

async fn list(call: Call, asked: Filter) -> Result<Vec<Bdb>, ApiError> {
    work(call, move |_, store| {
        let site = store.read()?;
        let all = all_databases(store, &site)?;
        let wanted = |it: &DatabaseShown| asked.name.as_ref().is_none_or(|name| *name == it.name);
        let is_changing = |name: &str| {
            let mut jobs = site.jobs.values().filter(|at| change::is_running(at));
            jobs.any(|at| at.value.database == name)
        };
        let shown = all.into_iter().filter(wanted).map(|it| {
            let is_changing = is_changing(&it.name);
            describe(it, is_changing)
        });
        Ok(shown.collect())
    })
    .await
}

async fn create(call: Call, asked: BdbChange) -> Result<Begun, ApiError> {
    let (Some(port), Some(_)) = (asked.port, asked.memory_size) else {
        return Err(Problem::Wrong("a new database needs port and memory_size".into()).into());
    };
    let settings = changed(&Settings::plain(port), &asked);
    let name = asked.name;
    begin_creation(call, Creation { name, settings, dry_run: false }).await
}

async fn update(call: Call, asked: BdbChange) -> Result<Begun, ApiError> {
    work(call.clone(), move |shared, store| {
        change_database(&call, shared, store, &asked.name, false, |old| {
            Ok(change::with_settings(old, &changed(&old.settings, &asked)))
        })
    })
    .await
}

async fn delete(call: Call, asked: Deletion) -> Result<Begun, ApiError> {
    begin_deletion(call, asked).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    fn change(text: &str) -> BdbChange {
        serde_json::from_str(text).expect("it is a change")
    }

    #[test]
    fn memory_counts_replicas_and_flash() {
        let old = settings();
        let same = changed(&old, &change(r#"{"name":"d"}"#));
        assert_eq!(same, old);
        let more =
            changed(&old, &change(r#"{"name":"d","memory_size":12884901888,"shards_count":5}"#));
        assert_eq!((more.memory_bytes >> 30, more.shards, more.replicas), (6, 5, 1));
        let alone = changed(&old, &change(r#"{"name":"d","replication":false}"#));
        assert_eq!((alone.memory_bytes >> 30, alone.replicas), (6, 0));
        let flash = changed(&old, &change(r#"{"name":"d","bigstore_ram_size":2147483648}"#));
        assert_eq!((flash.memory_bytes >> 30, flash.flash_bytes >> 30), (1, 2));
        let text = r#"{"name":"d","data_persistence":"snapshot","oss_cluster":true,"authentication_redis_pass":"x"}"#;
        let other = changed(&old, &change(text));
        assert_eq!((other.persistence, other.endpoint), (Persistence::Rdb, Endpoint::Cluster));
        assert_eq!(other.password, "x");
        assert!(serde_json::from_str::<BdbChange>(r#"{"name":"d","shard_count":1}"#).is_err());
    }
}
