//! Databases as objects with the fields of Redis Enterprise's API, for programs that speak it.
//! Fields mean the same there and here: `memory_size` counts replicas, and flash if there is some;
//! `bigstore_ram_size` is the part of it that is memory.

use super::Call;
use super::changes::change_database;
use super::routes::{begin_creation, begin_deletion};
use super::wire::{Begun, Creation, Deletion};
use super::work::work;
use crate::change;
use crate::settings::fields::{self, Changes, Field, Kind};
use crate::settings::{Endpoint, Settings, Wrong};
use crate::show::{self, DatabaseShown};
use crate::store::Problem;
use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use web::rest::{ApiError, Route};

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
    /// Where clients reach it: the machines with a copy that has this port.
    endpoints: Vec<EndpointShown>,
    /// The bytes of all copies together.
    memory_size: u64,
    /// Whether it has more than one shard.
    sharding: bool,
    /// Whether shards have replicas.
    replication: bool,
    /// Whether clients see a Redis Cluster.
    oss_cluster: bool,
    /// Whether cold values go to flash.
    bigstore: bool,
    /// The part of `memory_size` that is memory; the rest is flash.
    bigstore_ram_size: u64,
    /// Options that mean the same here and there.
    #[serde(flatten)]
    options: BdbsOptions,
}

/// A database that is asked for, or what is to change of one: fields that are left out stay.
#[derive(Clone, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
struct BdbChange {
    /// Its name.
    name: String,
    /// The bytes of all copies together.
    memory_size: Option<u64>,
    /// Whether shards have replicas: one, if `replicas_count` does not say how many.
    replication: Option<bool>,
    /// Whether clients see a Redis Cluster.
    oss_cluster: Option<bool>,
    /// The part of `memory_size` that is memory; the rest is flash.
    bigstore_ram_size: Option<u64>,
    /// The password of the default user; empty is none.
    authentication_redis_pass: Option<String>,
    /// Options that mean the same here and there.
    #[serde(flatten)]
    options: BdbsOptions,
}

/// Options that mean the same here and there, by their names there: see `x-enterprise` in
/// [`fields`].
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Value>")]
struct BdbsOptions(BTreeMap<String, Value>);

/// Returns the fields that mean the same here and there, by their names there.
fn shared_fields() -> impl Iterator<Item = (&'static str, &'static Field)> {
    fields::all().iter().filter_map(|field| Some((field.schema["x-enterprise"].as_str()?, field)))
}

impl TryFrom<BTreeMap<String, Value>> for BdbsOptions {
    type Error = Wrong;

    fn try_from(mut map: BTreeMap<String, Value>) -> Result<BdbsOptions, Wrong> {
        map.retain(|_, value| !value.is_null());
        let options = BdbsOptions(map);
        // Says which of them is unknown, or has a value of another type.
        options.changes()?.apply(&Settings::plain(1))?;
        Ok(options)
    }
}

impl BdbsOptions {
    /// Returns those of a database.
    fn of(settings: &Settings) -> BdbsOptions {
        let values = fields::values(settings);
        let options = shared_fields().map(|(name, field)| {
            let mut value = values.get(&field.key).or(field.default.as_ref()).cloned();
            if let Kind::Words(words) = &field.kind
                && let Some(word) =
                    words.iter().find(|it| value.as_ref() == Some(&it.word.as_str().into()))
            {
                value = Some(word.enterprise.as_str().into());
            }
            (name.to_owned(), value.unwrap_or_default())
        });
        BdbsOptions(options.collect())
    }

    /// Returns them as changes of fields.
    fn changes(&self) -> Result<Changes, Wrong> {
        let change = |(name, value): (&String, &Value)| {
            let (_, field) = shared_fields().find(|(known, _)| known == name).ok_or_else(|| {
                let known: Vec<&str> = shared_fields().map(|(name, _)| name).collect();
                Wrong(format!("unknown field `{name}`: others are {}", known.join(", ")))
            })?;
            let mut value = value.clone();
            if let Kind::Words(words) = &field.kind {
                let word = words.iter().find(|it| value == *it.enterprise).ok_or_else(|| {
                    let known: Vec<&str> = words.iter().map(|it| &*it.enterprise).collect();
                    Wrong(format!("{name}: {value} is none of {}", known.join(", ")))
                })?;
                value = word.word.as_str().into();
            }
            Ok((field.key.clone(), value))
        };
        Ok(Changes::new(self.0.iter().map(change).collect::<Result<Vec<_>, Wrong>>()?))
    }
}

impl JsonSchema for BdbsOptions {
    fn schema_name() -> Cow<'static, str> {
        "BdbsOptions".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let properties = shared_fields().map(|(name, field)| {
            let mut schema = json!({ "description": field.help });
            match &field.kind {
                Kind::Words(words) => {
                    schema["enum"] = words.iter().map(|it| json!(it.enterprise)).collect();
                }
                _ => schema["type"] = field.schema["type"].clone(),
            }
            (name.to_owned(), schema)
        });
        let properties: Map<String, Value> = properties.collect();
        schemars::json_schema!({ "type": "object", "properties": properties })
    }
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
        endpoints: endpoints
            .map(|copy| EndpointShown { addr: copy.host.clone(), port: copy.port })
            .collect(),
        memory_size: settings.memory_bytes.saturating_add(flash).saturating_mul(copies(&settings)),
        sharding: settings.shards > 1,
        replication: settings.replicas > 0,
        oss_cluster: settings.endpoint.is_cluster(),
        bigstore: flash > 0,
        bigstore_ram_size: settings.memory_bytes.saturating_mul(copies(&settings)),
        options: BdbsOptions::of(&settings),
    }
}

/// Options after a change. What is not named stays as the user sees it: `memory_size` does, so more
/// replicas leave less for each.
fn changed(old: &Settings, change: &BdbChange) -> Result<Settings, Wrong> {
    let mut new = change.options.changes()?.apply(old)?;
    new.replicas = match change.replication {
        Some(false) => 0,
        Some(true) if !change.options.0.contains_key("replicas_count") => old.replicas.max(1),
        _ => new.replicas,
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
    if let Some(is_cluster) = change.oss_cluster {
        new.endpoint = match is_cluster {
            true => Endpoint::Cluster,
            false if old.endpoint.is_cluster() => Endpoint::Single,
            false => old.endpoint,
        };
    }
    if let Some(password) = &change.authentication_redis_pass {
        new.password.clone_from(password);
        new.password_sha256.clear();
    }
    Ok(new)
}

async fn list(call: Call, asked: Filter) -> Result<Vec<Bdb>, ApiError> {
    work(call, move |_, store| {
        let site = store.read()?;
        let all = show::databases(store, &site)?;
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
    if !asked.options.0.contains_key("port") || asked.memory_size.is_none() {
        return Err(Problem::Wrong("a new database needs port and memory_size".into()).into());
    }
    let settings = changed(&Settings::plain(0), &asked).map_err(Problem::from)?;
    let name = asked.name;
    begin_creation(call, Creation { name, settings, dry_run: false }).await
}

async fn update(call: Call, asked: BdbChange) -> Result<Begun, ApiError> {
    change_database(call, (asked.name.clone(), false), move |old| {
        Ok(change::with_settings(old, &changed(&old.settings, &asked)?))
    })
    .await
}

async fn delete(call: Call, asked: Deletion) -> Result<Begun, ApiError> {
    begin_deletion(call, asked).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Persistence;
    use crate::settings::tests::settings;

    fn change(text: &str) -> BdbChange {
        serde_json::from_str(text).expect("it is a change")
    }

    fn changed_by(old: &Settings, text: &str) -> Settings {
        changed(old, &change(text)).expect("they can change")
    }

    #[test]
    fn memory_counts_replicas_and_flash() {
        let old = settings();
        let same = changed_by(&old, r#"{"name":"d"}"#);
        assert_eq!(same, old);
        let more = changed_by(&old, r#"{"name":"d","memory_size":12884901888,"shards_count":5}"#);
        assert_eq!((more.memory_bytes >> 30, more.shards, more.replicas), (6, 5, 1));
        let alone = changed_by(&old, r#"{"name":"d","replication":false}"#);
        assert_eq!((alone.memory_bytes >> 30, alone.replicas), (6, 0));
        let flash = changed_by(&old, r#"{"name":"d","bigstore_ram_size":2147483648}"#);
        assert_eq!((flash.memory_bytes >> 30, flash.flash_bytes >> 30), (1, 2));
        let text = r#"{"name":"d","data_persistence":"snapshot","oss_cluster":true,"authentication_redis_pass":"x"}"#;
        let other = changed_by(&old, text);
        assert_eq!((other.persistence, other.endpoint), (Persistence::Rdb, Endpoint::Cluster));
        assert_eq!(other.password, "x");
        let shown = serde_json::to_value(BdbsOptions::of(&other)).expect("it is JSON");
        assert_eq!(
            (&shown["data_persistence"], &shown["rack_aware"]),
            (&json!("snapshot"), &json!(false))
        );
        assert!(serde_json::from_str::<BdbChange>(r#"{"name":"d","commit":"some"}"#).is_err());
        assert!(serde_json::from_str::<BdbChange>(r#"{"name":"d","shard_count":1}"#).is_err());
    }
}
