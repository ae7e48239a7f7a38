//! The interface below `/api/v1/cluster` for what moves data.

use super::Call;
use super::carry::{Looked, Order, Planned, Subject, carry, once, order};
use super::threads::Waits;
use super::wire::{Begun, JobId, Named};
use super::work::{work, work_elsewhere};
use crate::change::{self, begin_with, is_running};
use crate::keys::SiteKeys;
use crate::reshape::surge;
use crate::settings::{Settings, Wrong};
use crate::show::{self, PlanShown};
use crate::site::{Aim, Database, Job, JobKind, Site, Stage, encode, now_ms, unchanged};
use crate::store::{Problem, Store, put};
use crate::tasks::backup::{Backup, Verify};
use crate::tasks::import::{Export, Import};
use crate::tasks::manifest::{FILE, Manifest, moment};
use crate::tasks::restart::Restart;
use crate::tasks::restore::Restore;
use crate::tasks::schedule::Schedule;
use crate::tasks::storage::{Storage, shown};
use crate::tasks::{Task, places, ready};
use axum::http::Method;
use cluster::coordinator::{Change, Transaction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use transfer::locate::{self, Keyspace, Locate as _, Part, Servers, open};
use transfer::place::ServersUrl;
use transfer::target::{Route as Way, Target};
use web::rest::{ApiError, Done, Nothing, Route};

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
        Route::get("/cluster/schedules", "Scheduled backups", schedules),
        Route::post("/cluster/schedules", "End scheduled backups", unschedule).by(Method::DELETE),
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
    /// Seconds between two backups, if they are scheduled.
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
    /// Each shard gets a copy more before one of its copies ends, so no shard has fewer copies than
    /// before; one of its copies leaves afterwards. A machine has to have room for a copy.
    #[serde(default)]
    pub surge: bool,
    /// Only look whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Begins a job with a task, or only looks whether it can begin. `plan` makes the task, and perhaps
/// something to show.
async fn start(
    call: Call,
    (kind, name, dry_run): (JobKind, String, bool),
    plan: impl FnOnce(&mut Store, &Site, bool) -> Result<(Task, Option<PlanShown>), Problem>
    + Send
    + 'static,
) -> Result<Begun, ApiError> {
    let about = Subject::database(kind, &name).dry(dry_run);
    let plan = move |store: &mut Store, site: &Site, is_dry| {
        let (task, shown) = plan(store, site, is_dry)?;
        site.check_readable(task.format())?;
        check_idle(site, &name, kind)?;
        Ok(Planned::new(shown, (name, task)))
    };
    carry(call, about, plan, move |(name, task), site, (keys, _), owner| {
        check_idle(site, name, kind)?;
        let mut transaction = Transaction::default();
        if task.changes_copies() {
            // No other job that does begins at the same time.
            let at = change::database(site, name)?;
            change::check_free(site, name, &at.value)?;
            change::set_stage(keys, name, at, Stage::Ready, &mut transaction);
        }
        let task = (Some(task.clone()), Aim::default());
        let job = begin_with(site, keys, (kind, name, ""), task, owner, &mut transaction);
        Ok((job, transaction))
    })
    .await
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
    let servers = ServersUrl::parse(text).and_then(Servers::new).map_err(Problem::Wrong)?;
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

/// Looks whether a database can follow servers elsewhere.
fn plan_import(store: &mut Store, asked: &Importing) -> Result<Task, Problem> {
    let name = &asked.database;
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
    Ok(Task::Import(Import { source: asked.source.clone(), is_finishing }))
}

async fn import(call: Call, asked: Importing) -> Result<Begun, ApiError> {
    let about = (JobKind::Import, asked.database.clone(), asked.dry_run);
    start(call, about, move |store, _, _| Ok((plan_import(store, &asked)?, None))).await
}

/// Looks whether servers elsewhere can follow a database.
fn plan_export(store: &mut Store, asked: &Exporting) -> Result<Task, Problem> {
    let database = ready(store, &asked.database)?;
    let target = look_at(&asked.target)?;
    let keys: u64 = target.keyspace.values().sum();
    if keys > 0 && !asked.replace {
        return Err(Problem::Wrong(format!(
            "the target has {keys} keys, which would be removed: say so with --replace"
        )));
    }
    check_target(&target, &keyspace(store, &database)?.into_keys().collect())?;
    let is_finishing = asked.until_caught_up;
    Ok(Task::Export(Export { target: asked.target.clone(), is_finishing }))
}

async fn export(call: Call, asked: Exporting) -> Result<Begun, ApiError> {
    let about = (JobKind::Export, asked.database.clone(), asked.dry_run);
    start(call, about, move |store, _, _| Ok((plan_export(store, &asked)?, None))).await
}

/// Makes the transaction after which an import or export ends as soon as it is in step.
fn finishing(site: &Site, keys: &SiteKeys, id: &str) -> Result<Transaction, Problem> {
    let at = site.jobs.get(id).filter(|at| is_running(at));
    let at = at.ok_or_else(|| Problem::Missing(format!("there is no job '{id}' that runs")))?;
    let task = at.value.task.as_ref().and_then(Task::finishing);
    let task = task.ok_or_else(|| {
        let why = "only an import or export is finished; others end, or are cancelled";
        Problem::Wrong(why.into())
    })?;
    let mut transaction = Transaction::default();
    let job = Job { task: Some(task), ..at.value.clone() };
    change::replace_job(keys, id, at, &job, &mut transaction);
    Ok(transaction)
}

async fn finish(call: Call, JobId { id }: JobId) -> Result<Done, ApiError> {
    once(call, Order::silent(), move |site, keys| finishing(site, keys, &id)).await
}

/// Looks whether a database can be backed up there.
fn check_backup(store: &mut Store, asked: &BackingUp, is_dry: bool) -> Result<(), Problem> {
    ready(store, &asked.database)?;
    match is_dry {
        true => Storage::check(&asked.at)?,
        false => drop(Storage::open(&asked.at, true)?),
    }
    if asked.keep == Some(0) {
        return Err(Problem::Wrong("at least one backup is kept".into()));
    }
    Ok(())
}

async fn backup(call: Call, asked: BackingUp) -> Result<Begun, ApiError> {
    if let Some(every_s) = asked.every_s {
        return schedule(call, asked, every_s).await;
    }
    let about = (JobKind::Backup, asked.database.clone(), asked.dry_run);
    start(call, about, move |store, _, is_dry| {
        check_backup(store, &asked, is_dry)?;
        let file = format!("{}/{}", asked.database, moment(now_ms()));
        Ok((Task::Backup(Backup { at: asked.at, name: file, keep: asked.keep }), None))
    })
    .await
}

/// Lets backups of a database come round.
async fn schedule(call: Call, asked: BackingUp, every_s: u64) -> Result<Begun, ApiError> {
    let is_dry = asked.dry_run || call.dry_run;
    let (name, at) = (&asked.database, shown(&asked.at));
    let event = format!("database '{name}' is backed up to {at} each {every_s} s");
    let of = Order { dry_run: is_dry, waits: Waits::Elsewhere, event: Some(event) };
    let look = move |store: &mut Store, _: &Site| {
        check_backup(store, &asked, is_dry)?;
        if every_s < 60 {
            return Err(Problem::Wrong("backups can be scheduled each minute at most".into()));
        }
        Ok(Looked { work: asked, more: String::new() })
    };
    let change = move |asked: &BackingUp, site: &Site, keys: &SiteKeys| {
        site.check_readable(JobKind::Backup.format())?;
        let name = &asked.database;
        let (at, keep) = (asked.at.clone(), asked.keep);
        let schedule = Schedule { at, every_s, keep, last_ms: 0 };
        let database = change::database(site, name)?;
        let key = keys.schedule(name);
        let revision = site.schedules.get(name).map_or(0, |at| at.revision);
        let compares = vec![
            unchanged(key.clone(), revision),
            unchanged(keys.database(name), database.revision),
        ];
        Ok(Transaction { compares, changes: vec![put(key, encode(&schedule))] })
    };
    order(call, of, look, |_, _| Ok(()), change).await?;
    Ok(Begun { job: None, plan: None })
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

/// Looks whether a backup is there, and can go.
fn check_deletion(site: &Site, asked: &BackupNamed) -> Result<Storage, Problem> {
    check_name(&asked.name)?;
    let storage = storage(&asked.at)?;
    let away = |why: String| Problem::Away(format!("{}: {why}", shown(&asked.at)));
    if storage.list(&asked.name).map_err(away)?.is_empty() {
        return Err(Problem::Missing(format!("there is no backup '{}'", asked.name)));
    }
    let is_it = |it: &Backup| it.name == asked.name && it.at == asked.at;
    let is_written = |at: &Job| matches!(&at.task, Some(Task::Backup(it)) if is_it(it));
    if site.jobs.values().any(|at| is_running(at) && is_written(&at.value)) {
        return Err(Problem::Wrong("it is being written: cancel its job first".into()));
    }
    Ok(storage)
}

async fn delete(call: Call, asked: BackupNamed) -> Result<Done, ApiError> {
    let event = Some(format!("backup {} in {} is deleted", asked.name, shown(&asked.at)));
    let of = Order { dry_run: asked.dry_run, waits: Waits::Elsewhere, event };
    let look = move |_: &mut Store, site: &Site| {
        let storage = check_deletion(site, &asked)?;
        Ok(Looked { work: (storage, asked), more: String::new() })
    };
    let act = |(storage, asked): &(Storage, BackupNamed), _: &mut Store| {
        let away = |why: String| Problem::Away(format!("{}: {why}", shown(&asked.at)));
        storage.remove(&asked.name, FILE).map_err(away)
    };
    order(call, of, look, act, |_, _, _| Ok(Transaction::default())).await?;
    Ok(Done::new())
}

async fn verify(call: Call, asked: BackupNamed) -> Result<Begun, ApiError> {
    let database = check_name(&asked.name).map_err(Problem::from)?.to_owned();
    start(call, (JobKind::Verify, database, asked.dry_run), move |_, _, _| {
        Manifest::read(&storage(&asked.at)?, &asked.name).map_err(Problem::Wrong)?;
        Ok((Task::Verify(Verify { at: asked.at, name: asked.name }), None))
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

/// Makes the transaction after which backups of a database come round no more.
fn unscheduling(site: &Site, keys: &SiteKeys, name: &str) -> Result<Transaction, Problem> {
    let at = site.schedules.get(name);
    let at =
        at.ok_or_else(|| Problem::Missing(format!("database '{name}' has no scheduled backups")))?;
    let key = keys.schedule(name);
    let compares = vec![unchanged(key.clone(), at.revision)];
    Ok(Transaction { compares, changes: vec![Change::Delete { key }] })
}

async fn unschedule(call: Call, Named { name }: Named) -> Result<Done, ApiError> {
    once(call, Order::silent(), move |site, keys| unscheduling(site, keys, &name)).await
}

/// Plans the database that a backup becomes.
fn plan_restore(site: &Site, asked: Restoring) -> Result<(Task, Option<PlanShown>), Problem> {
    check_name(&asked.name)?;
    let manifest = Manifest::read(&storage(&asked.at)?, &asked.name).map_err(Problem::Wrong)?;
    let old = manifest.settings;
    let settings = Settings {
        port: asked.port.unwrap_or(old.port),
        shards: asked.shards.unwrap_or(old.shards),
        replicas: asked.replicas.unwrap_or(old.replicas),
        memory_bytes: asked.memory_bytes.unwrap_or(old.memory_bytes),
        ..old
    };
    let plan = show::plan(site, &asked.database, &settings)?;
    let restore = Restore { at: asked.at, name: asked.name, settings, is_created: false };
    Ok((Task::Restore(restore), Some(plan)))
}

async fn restore(call: Call, asked: Restoring) -> Result<Begun, ApiError> {
    let about = (JobKind::Restore, asked.database.clone(), asked.dry_run);
    start(call, about, move |_, site, _| plan_restore(site, asked)).await
}

async fn restart(call: Call, asked: Restarting) -> Result<Begun, ApiError> {
    let name = asked.database;
    start(call, (JobKind::Restart, name.clone(), asked.dry_run), move |store, site, _| {
        ready(store, &name)?;
        let restart = Restart::plan(site, &name, asked.surge)?;
        let shown = asked.surge.then(|| surge::plan(store, site, &name)).transpose()?;
        Ok((Task::Restart(restart), shown))
    })
    .await
}
