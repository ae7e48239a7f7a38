//! The routes below `/api/v1/cluster`.

use super::Call;
use super::carry::{Looked, Order, Planned, Subject, carry, once, order};
use super::threads::Waits;
use super::wire::{Begun, Creation, Deletion, JobId, Named, Pace, Recovery, Status, Switch};
use super::work::{work, work_of};
use crate::change::{self, Owner};
use crate::drain;
use crate::hashing::{self, Trial, Tried};
use crate::keys::SiteKeys;
use crate::problems;
use crate::reshape::forecast;
use crate::rollback;
use crate::shared::Shared;
use crate::show::{self, DatabaseShown, EventShown, JobShown, MachineShown, PlanShown};
use crate::site::{Database, JobKind, Placed, Site};
use crate::standing;
use crate::store::{Problem, Store};
use crate::switch;
use crate::talk;
use crate::unplaced;
use axum::http::Method;
use cluster::coordinator::Transaction;
use cluster::id::Id;
use cluster::promotion;
use cluster::view::{Keys, View};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::sync::OnceLock;
use web::rest::{About, ApiError, Done, MAX_REQUEST_NAME, Nothing, Route, describe, parameters};

/// All routes.
pub fn routes() -> &'static [Route<Call>] {
    static ROUTES: OnceLock<Vec<Route<Call>>> = OnceLock::new();
    ROUTES.get_or_init(|| {
        let mut routes = super::data::routes();
        routes.extend([
            Route::get("/cluster", "How the cluster is", status),
            Route::get("/cluster/machines", "All machines", machines),
            Route::get(
                "/cluster/databases",
                "All databases, without asking their copies",
                databases,
            ),
            Route::get("/cluster/database", "A database, its shards and copies", database),
            Route::post("/cluster/databases", "Create a database, or only plan it", begin_creation),
            Route::post("/cluster/databases", "Delete a database with its data", begin_deletion)
                .by(Method::DELETE),
            Route::post(
                "/cluster/unplaced/take-up",
                "Write a database again that etcd does not have, as the nodes of its copies know it",
                take_up,
            ),
            Route::post(
                "/cluster/unplaced/end",
                "End the copies of a database that etcd does not have, with their data",
                end_unplaced,
            ),
            Route::post(
                "/cluster/rollback/accept",
                "Say that what etcd has of a database is right although its files were older",
                accept_rollback,
            ),
            Route::post(
                "/cluster/recover",
                "Let a copy lead a shard that cannot elect one",
                recover,
            ),
            Route::post("/cluster/failover", "Hand a shard over to a replica", failover),
            Route::post(
                "/cluster/hashing/try",
                "Try hashing rules on keys, or on some keys of a database",
                try_rules,
            ),
            Route::get("/cluster/jobs", "Jobs, the newest first", jobs),
            Route::get("/cluster/job", "A job", job),
            Route::post(
                "/cluster/jobs/cancel",
                "Cancel a job: it goes back to what was before",
                cancel,
            ),
            Route::post(
                "/cluster/jobs/pace",
                "Change the rate and the priority of the slots that a job moves",
                pace,
            ),
            Route::get("/cluster/events", "What happened, the newest first", events),
            Route::post(
                "/cluster/machines/undo-drain",
                "Let a machine that was drained have copies again",
                undo_drain,
            ),
            Route::post(
                "/cluster/machines/replace",
                "Replace the copies of a machine that does not come back, and forget it",
                replace,
            ),
            Route::post(
                "/cluster/machines/forget",
                "Forget a machine that does not come back",
                forget,
            ),
        ]);
        routes.extend(super::history::routes());
        routes.extend(super::changes::routes());
        routes.extend(super::bdbs::routes());
        routes
    })
}

/// The OpenAPI document.
pub fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let about = About {
            title: "Dunlin cluster",
            description: "Machines, databases and jobs of a cluster. Any node answers for all of it.",
            security: json!({ "basic": { "type": "http", "scheme": "basic" } }),
            of_changes: json!([
                {
                    "name": "dry_run", "in": "query", "required": false,
                    "description": "Only look whether it can be done, and show the plan", "schema": { "type": "boolean" }
                },
                {
                    "name": "Idempotency-Key", "in": "header", "required": false,
                    "description": "A name for the request. Sent again with the same name, it does nothing more, and names the same job",
                    "schema": { "type": "string", "minLength": 1, "maxLength": MAX_REQUEST_NAME }
                },
            ]),
            failures: &[
                (400, "The request is not sound: its query or its body"),
                (401, "The user or the password is wrong"),
                (403, "The request comes from a page of another origin, or is no JSON"),
                (404, "There is no such database, machine, job or backup"),
                (405, "The path takes other methods: those of the header Allow"),
                (408, "The body does not come"),
                (413, "The body is too long"),
                (422, "It cannot be done: the message says why"),
                (429, "Too many log-ins have failed: try again in a minute"),
                (503, "etcd, a copy or a storage does not answer, or too many wait: try again"),
            ],
        };
        format!("{:#}\n", describe(about, routes()))
    })
}

async fn status(call: Call, _: Nothing) -> Result<Status, ApiError> {
    work(call, |shared, store| {
        let site = store.read()?;
        let found = problems::look(store, &site)?;
        let running = site.jobs.iter().filter(|(_, at)| change::is_running(at));
        let problems = found.problems();
        Ok(Status {
            cluster: shared.cluster.clone(),
            machine: shared.machine.clone(),
            etcd_version: found.health.version,
            etcd_members: found.members.into_iter().flat_map(|it| it.client_urls).collect(),
            etcd_bytes: found.health.size_bytes,
            problems,
            jobs: running.map(|(id, at)| show::job(id, &at.value)).collect(),
            machines: found.machines,
            databases: found.databases,
        })
    })
    .await
}

async fn machines(call: Call, _: Nothing) -> Result<Vec<MachineShown>, ApiError> {
    work(call, |_, store| Ok(show::machines(&store.read()?))).await
}

async fn databases(call: Call, _: Nothing) -> Result<Vec<DatabaseShown>, ApiError> {
    work(call, |_, store| {
        let site = store.read()?;
        show::databases(store, &site)
    })
    .await
}

async fn database(call: Call, named: Named) -> Result<DatabaseShown, ApiError> {
    work(call, move |_, store| {
        let site = store.read()?;
        let at = change::database(&site, &named.name)?;
        let view = store.view(at.value.id)?;
        Ok(show::database(&site, &named.name, &at.value, view.as_ref(), true))
    })
    .await
}

/// Creates a database, or only plans it.
pub async fn begin_creation(call: Call, asked: Creation) -> Result<Begun, ApiError> {
    let Creation { name, settings, dry_run } = asked;
    let about = Subject::database(JobKind::Create, &name).dry(dry_run);
    let plan = move |_: &mut Store, site: &Site, _| {
        if settings.tls && !talk::has_certificates() {
            return Err(Problem::Wrong(talk::NO_CERTIFICATES.into()));
        }
        let plan = show::plan(site, &name, &settings)?;
        Ok(Planned::new(Some(plan), (name, settings)))
    };
    carry(call, about, plan, |(name, settings), site, keys, owner| {
        change::create(site, keys, (name, settings), owner)
    })
    .await
}

async fn try_rules(call: Call, asked: Trial) -> Result<Tried, ApiError> {
    work(call, move |_, store| {
        let Some(name) = &asked.database else { return Ok(hashing::attempt(&asked, &[], None)?) };
        let site = store.read()?;
        let database = &change::database(&site, name)?.value;
        let view = store.view(database.id)?;
        // Wrong rules are said before a database is asked.
        let topology = view.as_ref().map(|view| &view.topology.value);
        hashing::attempt(&asked, &[], topology)?;
        let sample = hashing::sample(database, view.as_ref())?;
        Ok(hashing::attempt(&asked, &sample, topology)?)
    })
    .await
}

/// Deletes a database, or only checks that it is there.
pub async fn begin_deletion(call: Call, asked: Deletion) -> Result<Begun, ApiError> {
    let about = Subject::database(JobKind::Delete, &asked.name).dry(asked.dry_run);
    let plan = move |_: &mut Store, site: &Site, _| {
        change::database(site, &asked.name)?;
        Ok(Planned::new(None, asked.name))
    };
    let begin = |name: &String, site: &Site, (keys, _): (&SiteKeys, &Keys), owner: &Owner| {
        change::delete(site, keys, name, owner)
    };
    carry(call, about, plan, begin).await
}

async fn take_up(call: Call, Named { name }: Named) -> Result<Done, ApiError> {
    let event = Order::new(format!("database '{name}' is written again by order"));
    once(call, event, move |site, keys| unplaced::take_up(site, keys, &name)).await
}

async fn end_unplaced(call: Call, Named { name }: Named) -> Result<Done, ApiError> {
    let event = Order::new(format!("copies of '{name}' that no database has end by order"));
    once(call, event, move |site, keys| unplaced::end(site, keys, &name)).await
}

/// Reads a database and its topology.
fn viewed(store: &mut Store, site: &Site, name: &str) -> Result<(Database, View), Problem> {
    let at = change::database(site, name)?;
    let view = store.view(at.value.id)?;
    let view = view.ok_or_else(|| Problem::Wrong("its topology is gone".into()))?;
    Ok((at.value.clone(), view))
}

async fn accept_rollback(call: Call, Named { name }: Named) -> Result<Done, ApiError> {
    let event = Order::new(format!("what etcd has of database '{name}' is right, by order"));
    let look = move |store: &mut Store, site: &Site| {
        let (_, view) = viewed(store, site, &name)?;
        Ok(Looked { work: rollback::accept(&name, &view)?, more: String::new() })
    };
    order(call, event, look, |_, _| Ok(()), |accepted, _, _| Ok(accepted.clone())).await?;
    Ok(Done::new())
}

/// Looks whether a copy may lead a shard, makes the transaction, and says what is given up.
fn look_at_recovery(
    store: &mut Store,
    site: &Site,
    asked: &Recovery,
) -> Result<Looked<Transaction>, Problem> {
    let Recovery { name, copy, force } = asked;
    let wrong = |why: &str| Problem::Wrong(why.into());
    let copy: Id = copy.parse().map_err(|_| wrong("a copy's id is 40 hexadecimal digits"))?;
    let (database, view) = viewed(store, site, name)?;
    let shard = view.topology.value.shard_of(copy);
    let shard = shard.ok_or_else(|| wrong("it has no such copy: see dunlin cluster databases"))?;
    let work = promotion::recover(&view, shard, copy)
        .ok_or_else(|| wrong("its primary is there, or the copy is not, so nothing is changed"))?;
    if !force && promotion::votes(&view, shard).is_empty() {
        return Err(wrong(
            "no copy has said yet what it has: try again in some seconds, or add --force \
             (\"force\": true)",
        ));
    }
    let given_up = standing::given_up(&database, &view, shard, copy);
    if let Some(given_up) = given_up.as_ref().filter(|_| !force) {
        return Err(Problem::Wrong(format!(
            "it would give up {given_up}. Recover that copy, or add --force (\"force\": true)"
        )));
    }
    let more = given_up.map_or_else(String::new, |it| {
        format!("; it gives up {it}, which are kept there in a folder or file rescue-…")
    });
    Ok(Looked { work, more })
}

async fn recover(call: Call, asked: Recovery) -> Result<Done, ApiError> {
    let Recovery { name, copy, .. } = &asked;
    let event = Order::new(format!("copy {copy} leads a shard of database '{name}' by order"));
    let look = move |store: &mut Store, site: &Site| look_at_recovery(store, site, &asked);
    order(call, event, look, |_, _| Ok(()), |recovery, _, _| Ok(recovery.clone())).await?;
    Ok(Done::new())
}

async fn failover(call: Call, asked: Switch) -> Result<Done, ApiError> {
    let event = Order::new(format!("a shard of database '{}' is led by copy ", asked.name));
    let look = move |store: &mut Store, site: &Site| {
        let (database, view) = viewed(store, site, &asked.name)?;
        let placed = successor(&database, &view, &asked)?.clone();
        Ok(Looked { more: format!("{:?} by order", placed.copy), work: (database, placed) })
    };
    let act = |(database, placed): &(Database, Placed), store: &mut Store| {
        switch::hand_over(store, database, placed)
    };
    order(call, event, look, act, |_, _, _| Ok(Transaction::default())).await?;
    Ok(Done::new())
}

/// The replica that is to lead.
fn successor<'a>(
    database: &'a Database,
    view: &View,
    asked: &Switch,
) -> Result<&'a Placed, Problem> {
    let is_replica = |placed: &&Placed| {
        let shard = view.topology.value.shard_of(placed.copy);
        view.alive.contains_key(&placed.copy)
            && shard.is_some_and(|shard| shard.holder.id != placed.copy)
    };
    let mut replicas = database.copies.iter().filter(is_replica);
    let found = match (&asked.copy, asked.shard) {
        (Some(copy), _) => replicas.find(|placed| placed.copy.to_string() == *copy),
        (None, Some(shard)) => replicas.find(|placed| placed.shard + 1 == shard),
        (None, None) => return Err(Problem::Wrong("name a copy or a shard".into())),
    };
    found.ok_or_else(|| {
        Problem::Wrong(
            "there is no such replica that is there: see dunlin cluster databases".into(),
        )
    })
}

async fn jobs(call: Call, _: Nothing) -> Result<Vec<JobShown>, ApiError> {
    work(call, |_, store| {
        let site = store.read()?;
        Ok(site.jobs.iter().rev().map(|(id, at)| show::job(id, &at.value)).collect())
    })
    .await
}

async fn job(call: Call, asked: JobId) -> Result<JobShown, ApiError> {
    work(call, move |_, store| {
        let site = store.read()?;
        let at = site.jobs.get(&asked.id);
        let at = at.ok_or_else(|| Problem::Missing(format!("there is no job '{}'", asked.id)))?;
        Ok(show::job(&asked.id, &at.value))
    })
    .await
}

async fn cancel(call: Call, JobId { id }: JobId) -> Result<Done, ApiError> {
    once(call, Order::silent(), move |site, keys| change::cancel(site, keys, &id)).await
}

async fn pace(call: Call, asked: Pace) -> Result<Done, ApiError> {
    let wanted = (asked.rate_bytes, asked.priority);
    once(call, Order::silent(), move |site, keys| change::pace(site, keys, &asked.id, wanted)).await
}

async fn events(call: Call, _: Nothing) -> Result<Vec<EventShown>, ApiError> {
    work(call, |_, store| Ok(store.read()?.events.iter().rev().map(show::event).collect())).await
}

async fn forget(call: Call, Named { name }: Named) -> Result<Done, ApiError> {
    let event = Order::new(format!("machine '{name}' is forgotten"));
    let nothing = |_: &mut Store, _: &Site| Ok(Looked { work: (), more: String::new() });
    let machine = name.clone();
    let change = move |(): &(), site: &Site, keys: &SiteKeys| change::forget(site, keys, &machine);
    if order(call.clone(), event, nothing, |(), _| Ok(()), change).await? {
        let remove = move |_: &Shared, store: &mut Store| {
            store.remove_member(&name);
            Ok(())
        };
        work(call, remove).await?;
    }
    Ok(Done::new())
}

/// Plans a job about a machine. A plan that cannot be is an error at once if `plans`.
fn plan_of_machine(
    store: &mut Store,
    site: &Site,
    (machine, kind): (&str, JobKind),
    plans: bool,
    is_dry: bool,
) -> Result<PlanShown, Problem> {
    change::check_machine(site, machine, kind)?;
    let mut warnings = Vec::new();
    let copies = match kind {
        JobKind::Switch => Vec::new(),
        JobKind::Fill => drain::plan_fill(site, machine),
        _ => match forecast::drain(site, machine) {
            Err(why) if plans => return Err(why),
            Err(why) => {
                warnings.push(format!("The job waits until there is room: {why}"));
                Vec::new()
            }
            Ok(copies) => copies,
        },
    };
    if kind == JobKind::Remove && store.is_only_member(machine) {
        let why = "The only server of etcd is on this machine, and stays: the cluster needs it";
        warnings.push(why.into());
    }
    if !is_dry {
        return Ok(PlanShown { copies, warnings, ..PlanShown::default() });
    }
    let plan = forecast::of_copies(store, site, copies)?;
    warnings.extend(plan.warnings);
    Ok(PlanShown { warnings, ..plan })
}

/// Begins a job about a machine, or only plans it. A plan that cannot be is an error at once if
/// `plans`.
pub async fn give_away(
    call: Call,
    (machine, kind): (String, JobKind),
    dry_run: bool,
    plans: bool,
) -> Result<Begun, ApiError> {
    let about = Subject::machine(kind, &machine).dry(dry_run);
    let plan = move |store: &mut Store, site: &Site, is_dry| {
        let plan = plan_of_machine(store, site, (&machine, kind), plans, is_dry)?;
        Ok(Planned::new(Some(plan), (machine, kind)))
    };
    carry(call, about, plan, |(machine, kind), site, (keys, _), owner| {
        change::drain(site, keys, (machine, *kind), owner)
    })
    .await
}

async fn replace(call: Call, asked: Named) -> Result<Begun, ApiError> {
    give_away(call, (asked.name, JobKind::Replace), false, false).await
}

async fn undo_drain(call: Call, Named { name }: Named) -> Result<Done, ApiError> {
    let event = Order::new(format!("machine '{name}' can have copies again"));
    once(call, event, move |site, keys| change::undo_drain(site, keys, &name)).await
}

/// What a load balancer asks.
#[derive(Deserialize, JsonSchema)]
struct Question {
    /// The database
    database: String,
    /// The most bytes that a replica may be behind
    #[serde(default)]
    max_lag_bytes: Option<u64>,
}

/// Returns whether clients of a database may be sent to this machine: one of its copies answers,
/// and is a primary or close enough to one.
///
/// # Errors
/// The query is wrong, or there is no such database.
pub async fn availability(call: Call, query: &str) -> Result<bool, ApiError> {
    let asked: Question = parameters(query)?;
    work_of(Waits::Probe, call, move |shared, store| {
        // Also while etcd is away.
        let site = shared.site();
        let at = change::database(&site, &asked.database)?;
        if site.is_draining(&shared.machine) {
            return Ok(false);
        }
        let view = store.view(at.value.id).ok().flatten();
        let shown = show::database(&site, &asked.database, &at.value, view.as_ref(), true);
        let limit = asked.max_lag_bytes.unwrap_or(u64::MAX);
        let mut copies = shown.shards.iter().flat_map(|shard| &shard.copies);
        Ok(copies.any(|copy| {
            let is_close = copy.role != "replica" || copy.lag_bytes.is_some_and(|lag| lag <= limit);
            copy.machine == shared.machine && copy.answers && is_close
        }))
    })
    .await
}
