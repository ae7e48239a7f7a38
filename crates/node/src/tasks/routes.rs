//! The interface below `/api/v1/cluster` for what moves data.

use super::backup::{Backup, Verify};
use super::import::{Export, Import};
use super::manifest::{FILE, Manifest, moment};
use super::places;
use super::restart::Restart;
use super::restore::Restore;
use super::schedule::Schedule;
use super::storage::{Storage, shown};
use super::{Task, ready};
use crate::change::{self, Owner, begin_with, is_running};
use crate::rest::Call;
use crate::rest::changes::before;
use crate::rest::routes::{change_once, note_served, work, work_elsewhere};
use crate::rest::wire::{Begun, JobId, Named};
use crate::settings::{Settings, Wrong};
use crate::shared::Shared;
use crate::show;
use crate::site::{Aim, Database, Job, JobKind, Site, encode, now_ms, unchanged};
use crate::store::{Problem, Store, put};
use axum::http::Method;
use cluster::coordinator::{Change, Transaction};
use console::rest::{ApiError, Done, Nothing, Route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use transfer::locate::{self, Keyspace, Locate as _, Part, Servers, open};
use transfer::place::Place;
use transfer::target::{Route as Way, Target};

/// How long a server elsewhere may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// How long a storage may take to answer all that a request asks of it.
const STORAGE: Duration = Duration::from_secs(20);

/// Opens a storage for a request, which does not wait as a job does.
fn storage(at: &str) -> Result<Storage, Wrong> {
    Ok(Storage::open(at, false)?.within(STORAGE))
}

/// The routes.
pub fn routes() -> Vec<Route<Call>> {
    vec![
        Route::post("/cluster/import", "Let a database follow servers elsewhere", import),
        Route::post("/cluster/export", "Keep servers elsewhere as a database is", export),
        Route::post("/cluster/jobs/finish", "End an import or export that is in step", finish),
        Route::post("/cluster/backups", "Back a database up, once or regularly", backup),
        Route::post("/cluster/backups/list", "The backups in a place", backups),
        Route::post("/cluster/backups", "Delete a backup", delete).by(Method::DELETE),
        Route::post("/cluster/backups/verify", "Read and check all of a backup", verify),
        Route::get("/cluster/schedules", "Backups that come round", schedules),
        Route::post("/cluster/schedules", "End backups that come round", unschedule)
            .by(Method::DELETE),
        Route::post("/cluster/restore", "Make a new database from a backup", restore),
        Route::post("/cluster/restart", "Restart the copies of a database one by one", restart),
    ]
}

/// A database that is to follow servers elsewhere.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Importing {
    /// The database.
    pub database: String,
    /// redis://[user:password@]host:port[,…], rediss:// or redis-sentinel://host:port,…/name.
    pub source: String,
    /// What the database has is removed first; otherwise it has to be empty.
    #[serde(default)]
    pub replace: bool,
    /// It ends as soon as the database has what the source has.
    #[serde(default)]
    pub until_caught_up: bool,
    /// Only look whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Servers elsewhere that are to be kept as a database is.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exporting {
    /// The database.
    pub database: String,
    /// As the source of an import.
    pub target: String,
    /// What the target has is removed first; otherwise it has to be empty.
    #[serde(default)]
    pub replace: bool,
    /// It ends as soon as the target has what the database has.
    #[serde(default)]
    pub until_caught_up: bool,
    /// Only look whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A database that is to be backed up.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackingUp {
    /// The database.
    pub database: String,
    /// /folder or s3://bucket/prefix.
    pub at: String,
    /// Seconds between two backups, if they are to come round.
    #[serde(default)]
    pub every_s: Option<u64>,
    /// How many backups of the database are kept there.
    #[serde(default)]
    pub keep: Option<usize>,
    /// Only look whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A backup.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupNamed {
    /// /folder or s3://bucket/prefix.
    pub at: String,
    /// DATABASE/TIME.
    pub name: String,
    /// Only look whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Where backups are.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backups {
    /// /folder or s3://bucket/prefix.
    pub at: String,
    /// Only those of this database.
    #[serde(default)]
    pub database: Option<String>,
}

/// A backup, described.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct BackupShown {
    /// DATABASE/TIME.
    pub name: String,
    /// ok, or what is wrong with it. Contents are read by a verification only.
    pub state: String,
    /// The moment of its data, in milliseconds since 1970.
    pub at_ms: u64,
    /// Shards.
    pub shards: usize,
    /// Keys.
    pub keys: u64,
    /// Bytes.
    pub bytes: u64,
    /// For how long writes were paused.
    pub pause_ms: u64,
}

/// A new database from a backup.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restoring {
    /// /folder or s3://bucket/prefix.
    pub at: String,
    /// DATABASE/TIME.
    pub name: String,
    /// The name of the new database.
    pub database: String,
    /// Its port; that of the old database if it is left out.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its shards; as many as the old one had if it is left out.
    #[serde(default)]
    pub shards: Option<usize>,
    /// Its replicas, likewise.
    #[serde(default)]
    pub replicas: Option<usize>,
    /// Its memory, likewise.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Only plan it.
    #[serde(default)]
    pub dry_run: bool,
}

/// Backups that come round, described.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ScheduleShown {
    /// The database.
    pub database: String,
    /// Where they go.
    pub at: String,
    /// Seconds between two.
    pub every_s: u64,
    /// How many are kept.
    pub keep: Option<usize>,
    /// When the last one was begun, in milliseconds since 1970.
    pub last_ms: u64,
}

/// A database whose copies are to be restarted.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restarting {
    /// The database.
    pub database: String,
    /// Only look whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Begins a job with a task, unless it is a dry run.
fn start(
    (call, shared): (&Call, &Shared),
    store: &mut Store,
    (kind, name): (JobKind, &str),
    task: &Task,
    dry_run: bool,
) -> Result<Begun, Problem> {
    let check = |site: &Site| {
        check_idle(site, name, kind)?;
        check_versions(site)
    };
    if dry_run || call.dry_run {
        check(&store.read()?)?;
        return Ok(Begun { job: None, plan: None });
    }
    let owner = Owner { request_id: call.request_id.clone(), ..shared.owner()? };
    let job = store.change(|site, keys, _| {
        if let Some(job) = change::begun_before(site, &owner, kind, (name, ""))? {
            return Ok((job, Transaction::default()));
        }
        check(site)?;
        let mut transaction = Transaction::default();
        let about = (kind, name, "");
        let task = (Some(task.clone()), Aim::default());
        let job = begin_with(site, keys, about, task, &owner, &mut transaction);
        Ok((job, transaction))
    })?;
    store.note(&format!("job {job}: the {} of database '{name}' begins", show::word(&kind)));
    Ok(Begun { job: Some(job), plan: None })
}

/// An older node could neither go on with such a job nor show it.
fn check_versions(site: &Site) -> Result<(), Problem> {
    match site.older_machine() {
        None => Ok(()),
        Some(machine) => Err(Problem::Wrong(format!(
            "the node of machine '{machine}' is of an older version: start it with this one first"
        ))),
    }
}

/// Two jobs of a kind would disturb each other, and so would an import with another that writes.
fn check_idle(site: &Site, name: &str, kind: JobKind) -> Result<(), Problem> {
    let is_it = |job: &Job| job.database == name && job.kind == kind;
    match site.jobs.iter().find(|(_, at)| is_running(at) && is_it(&at.value)) {
        Some((id, _)) if kind != JobKind::Verify => {
            Err(Problem::Wrong(format!("job {id} does that for database '{name}' already")))
        }
        _ => Ok(()),
    }
}

/// Servers elsewhere that answer.
struct Found {
    servers: Servers,
    parts: Vec<Part>,
    keyspace: Keyspace,
}

fn look_at(text: &str) -> Result<Found, Problem> {
    let servers = Place::parse(text).and_then(Servers::new).map_err(Problem::Wrong)?;
    let parts = servers.parts().map_err(wrong)?;
    let keyspace = locate::keyspace(&servers, &parts, LIMIT).map_err(wrong)?;
    Ok(Found { servers, parts, keyspace })
}

/// Refuses a target without some of these databases.
fn check_target(found: &Found, databases: &BTreeSet<u32>) -> Result<(), Problem> {
    let mut links = Vec::new();
    for part in &found.parts {
        let link = open(&found.servers, &part.address, LIMIT).map_err(wrong)?;
        links.push((part.address.clone(), link));
    }
    let way = Way::One { is_one_shard: true, is_by_slot: true };
    Target::new(links, way).check_databases(databases).map_err(wrong)
}

fn wrong(problem: transfer::source::Problem) -> Problem {
    Problem::Wrong(problem.text().to_owned())
}

/// Refuses a source with keys in databases that the target does not have.
fn check_databases(name: &str, settings: &Settings, found: &Keyspace) -> Result<(), Problem> {
    match found.keys().next_back() {
        Some(&db) if db >= settings.databases => Err(Problem::Wrong(format!(
            "the source has keys in database {db}, and '{name}' has {} database{}: make one with create-db --databases \
             {}, or remove these keys at the source",
            settings.databases,
            if settings.databases == 1 { "" } else { "s" },
            u64::from(db) + 1
        ))),
        _ => Ok(()),
    }
}

/// Returns the keys of a database of the cluster.
fn keyspace(store: &mut Store, database: &Database) -> Result<Keyspace, Problem> {
    let view = store.view(database.id)?;
    let view = view.ok_or_else(|| Problem::Wrong("its topology is gone".into()))?;
    places::keyspace(database, &view)
}

async fn import(call: Call, asked: Importing) -> Result<Begun, ApiError> {
    work_elsewhere(call.clone(), move |shared, store| {
        let name = &asked.database;
        if let Some(begun) = before(&store.read()?, &call, JobKind::Import, (name, ""))? {
            return Ok(begun);
        }
        let database = ready(store, name)?;
        let source = look_at(&asked.source)?;
        check_databases(name, &database.settings, &source.keyspace)?;
        let keys: u64 = keyspace(store, &database)?.values().sum();
        if keys > 0 && !asked.replace {
            return Err(Problem::Wrong(format!(
                "the database '{name}' has {keys} keys, which would be removed: say so with --replace"
            )));
        }
        let is_finishing = asked.until_caught_up;
        let task = Task::Import(Import { source: asked.source.clone(), is_finishing });
        start((&call, shared), store, (JobKind::Import, name), &task, asked.dry_run)
    })
    .await
}

async fn export(call: Call, asked: Exporting) -> Result<Begun, ApiError> {
    work_elsewhere(call.clone(), move |shared, store| {
        let name = &asked.database;
        if let Some(begun) = before(&store.read()?, &call, JobKind::Export, (name, ""))? {
            return Ok(begun);
        }
        let database = ready(store, name)?;
        let target = look_at(&asked.target)?;
        let keys: u64 = target.keyspace.values().sum();
        if keys > 0 && !asked.replace {
            return Err(Problem::Wrong(format!(
                "the target has {keys} keys, which would be removed: say so with --replace"
            )));
        }
        check_target(&target, &keyspace(store, &database)?.into_keys().collect())?;
        let is_finishing = asked.until_caught_up;
        let task = Task::Export(Export { target: asked.target.clone(), is_finishing });
        start((&call, shared), store, (JobKind::Export, name), &task, asked.dry_run)
    })
    .await
}

async fn finish(call: Call, asked: JobId) -> Result<Done, ApiError> {
    work(call.clone(), move |_, store| {
        change_once(&call, store, |site, keys, _| {
            let at = site.jobs.get(&asked.id).filter(|at| is_running(at));
            let at = at.ok_or_else(|| {
                Problem::Missing(format!("there is no job '{}' that runs", asked.id))
            })?;
            let task = at.value.task.as_ref().and_then(Task::finishing);
            let task = task.ok_or_else(|| {
                Problem::Wrong(
                    "only an import or export is finished; others end, or are cancelled".into(),
                )
            })?;
            let mut transaction = Transaction::default();
            let job = Job { task: Some(task), ..at.value.clone() };
            change::replace_job(keys, &asked.id, at, &job, &mut transaction);
            Ok(transaction)
        })?;
        Ok(Done::new())
    })
    .await
}

async fn backup(call: Call, asked: BackingUp) -> Result<Begun, ApiError> {
    work_elsewhere(call.clone(), move |shared, store| {
        let BackingUp { database: name, at, every_s, keep, dry_run } = &asked;
        let is_dry = *dry_run || call.dry_run;
        if every_s.is_none()
            && let Some(begun) = before(&store.read()?, &call, JobKind::Backup, (name, ""))?
        {
            return Ok(begun);
        }
        ready(store, name)?;
        if is_dry {
            Storage::check(at)?
        } else {
            drop(Storage::open(at, true)?)
        }
        if *keep == Some(0) {
            return Err(Problem::Wrong("at least one backup is kept".into()));
        }
        let Some(every_s) = *every_s else {
            let file = format!("{name}/{}", moment(now_ms()));
            let task = Task::Backup(Backup { at: at.clone(), name: file, keep: *keep });
            return start((&call, shared), store, (JobKind::Backup, name), &task, is_dry);
        };
        if every_s < 60 {
            return Err(Problem::Wrong("backups come round each minute at most".into()));
        }
        let schedule = Schedule { at: at.clone(), every_s, keep: *keep, last_ms: 0 };
        let call = Call { dry_run: is_dry, ..call };
        let is_new = change_once(&call, store, |site, keys, _| {
            check_versions(site)?;
            let database = change::database(site, name)?;
            let key = keys.schedule(name);
            let revision = site.schedules.get(name).map_or(0, |at| at.revision);
            let compares = vec![
                unchanged(key.clone(), revision),
                unchanged(keys.database(name), database.revision),
            ];
            Ok(Transaction { compares, changes: vec![put(key, encode(&schedule))] })
        })?;
        if is_new {
            let at = shown(at);
            store.note(&format!("database '{name}' is backed up to {at} each {every_s} s"));
        }
        Ok(Begun { job: None, plan: None })
    })
    .await
}

async fn backups(call: Call, asked: Backups) -> Result<Vec<BackupShown>, ApiError> {
    work_elsewhere(call, move |_, _| {
        let storage = storage(&asked.at)?;
        let away = |why: String| Problem::Away(format!("{}: {why}", shown(&asked.at)));
        let mut found = Vec::new();
        for (database, _) in storage.list("").map_err(away)?.into_iter().filter(|it| it.1) {
            if asked.database.as_ref().is_some_and(|wanted| *wanted != database) {
                continue;
            }
            for (time, _) in storage.list(&database).map_err(away)?.into_iter().filter(|it| it.1) {
                found.push(describe(&storage, format!("{database}/{time}")));
            }
        }
        found.sort_by(|one, other| other.name.cmp(&one.name));
        Ok(found)
    })
    .await
}

fn describe(storage: &Storage, name: String) -> BackupShown {
    match Manifest::read(storage, &name) {
        Ok(manifest) => BackupShown {
            name,
            state: "ok".into(),
            at_ms: manifest.at_ms,
            shards: manifest.parts.len(),
            keys: manifest.keys(),
            bytes: manifest.bytes(),
            pause_ms: manifest.pause_ms,
        },
        Err(state) => {
            BackupShown { name, state, at_ms: 0, shards: 0, keys: 0, bytes: 0, pause_ms: 0 }
        }
    }
}

/// Checks the name of a backup, which becomes part of a path.
fn check_name(name: &str) -> Result<&str, Wrong> {
    let wrong = || Wrong(format!("'{name}' is no name of a backup: DATABASE/TIME"));
    let (database, time) = name.split_once('/').ok_or_else(wrong)?;
    crate::settings::check_name("database", database)?;
    crate::settings::check_name("backup", time)?;
    Ok(database)
}

async fn delete(call: Call, asked: BackupNamed) -> Result<Done, ApiError> {
    work_elsewhere(call.clone(), move |_, store| {
        check_name(&asked.name)?;
        let site = store.read()?;
        if change::served_before(&site, call.request())? {
            return Ok(Done::new());
        }
        let storage = storage(&asked.at)?;
        let away = |why: String| Problem::Away(format!("{}: {why}", shown(&asked.at)));
        if storage.list(&asked.name).map_err(away)?.is_empty() {
            return Err(Problem::Missing(format!("there is no backup '{}'", asked.name)));
        }
        let is_written = |at: &Job| {
            matches!(&at.task, Some(Task::Backup(it)) if it.name == asked.name && it.at == asked.at)
        };
        if site.jobs.values().any(|at| is_running(at) && is_written(&at.value)) {
            return Err(Problem::Wrong("it is being written: cancel its job first".into()));
        }
        if !asked.dry_run && !call.dry_run {
            storage.remove(&asked.name, FILE).map_err(away)?;
            note_served(&call, store)?;
            store.note(&format!("backup {} in {} is deleted", asked.name, shown(&asked.at)));
        }
        Ok(Done::new())
    })
    .await
}

async fn verify(call: Call, asked: BackupNamed) -> Result<Begun, ApiError> {
    work_elsewhere(call.clone(), move |shared, store| {
        let database = check_name(&asked.name)?.to_owned();
        if let Some(begun) = before(&store.read()?, &call, JobKind::Verify, (&database, ""))? {
            return Ok(begun);
        }
        let storage = storage(&asked.at)?;
        Manifest::read(&storage, &asked.name).map_err(Problem::Wrong)?;
        let task = Task::Verify(Verify { at: asked.at.clone(), name: asked.name.clone() });
        start((&call, shared), store, (JobKind::Verify, &database), &task, asked.dry_run)
    })
    .await
}

async fn schedules(call: Call, _: Nothing) -> Result<Vec<ScheduleShown>, ApiError> {
    work(call, |_, store| {
        let site = store.read()?;
        let shown = site.schedules.iter().map(|(database, at)| ScheduleShown {
            database: database.clone(),
            at: shown(&at.value.at).to_owned(),
            every_s: at.value.every_s,
            keep: at.value.keep,
            last_ms: at.value.last_ms,
        });
        Ok(shown.collect())
    })
    .await
}

async fn unschedule(call: Call, asked: Named) -> Result<Done, ApiError> {
    work(call.clone(), move |_, store| {
        change_once(&call, store, |site, keys, _| {
            let at = site.schedules.get(&asked.name);
            let at = at.ok_or_else(|| {
                Problem::Missing(format!(
                    "database '{}' has no backups that come round",
                    asked.name
                ))
            })?;
            let key = keys.schedule(&asked.name);
            let compares = vec![unchanged(key.clone(), at.revision)];
            Ok(Transaction { compares, changes: vec![Change::Delete { key }] })
        })?;
        Ok(Done::new())
    })
    .await
}

async fn restore(call: Call, asked: Restoring) -> Result<Begun, ApiError> {
    work_elsewhere(call.clone(), move |shared, store| {
        check_name(&asked.name)?;
        let about = (&*asked.database, "");
        if let Some(begun) = before(&store.read()?, &call, JobKind::Restore, about)? {
            return Ok(begun);
        }
        let storage = storage(&asked.at)?;
        let manifest = Manifest::read(&storage, &asked.name).map_err(Problem::Wrong)?;
        let old = manifest.settings;
        let settings = Settings {
            port: asked.port.unwrap_or(old.port),
            shards: asked.shards.unwrap_or(old.shards),
            replicas: asked.replicas.unwrap_or(old.replicas),
            memory_bytes: asked.memory_bytes.unwrap_or(old.memory_bytes),
            ..old
        };
        let name = &asked.database;
        let plan = Some(show::plan(&store.read()?, name, &settings)?);
        let (at, file) = (asked.at.clone(), asked.name.clone());
        let task = Task::Restore(Restore { at, name: file, settings, is_created: false });
        let begun = start((&call, shared), store, (JobKind::Restore, name), &task, asked.dry_run)?;
        Ok(Begun { plan, ..begun })
    })
    .await
}

async fn restart(call: Call, asked: Restarting) -> Result<Begun, ApiError> {
    work(call.clone(), move |shared, store| {
        let name = &asked.database;
        if let Some(begun) = before(&store.read()?, &call, JobKind::Restart, (name, ""))? {
            return Ok(begun);
        }
        ready(store, name)?;
        let task = Task::Restart(Restart::plan(&store.read()?, name)?);
        start((&call, shared), store, (JobKind::Restart, name), &task, asked.dry_run)
    })
    .await
}
