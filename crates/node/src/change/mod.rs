//! What users ask for, as transactions of what was read. No I/O.

use crate::keys::SiteKeys;
use crate::plan::{self, Plan};
use crate::settings::{Settings, Wrong, check_name};
use crate::site::{Aim, Database, Job, JobKind, JobState, Known, Placed, Served, Site, Stage};
use crate::site::{encode, now_ms, unchanged};
use crate::store::{Problem, put};
use crate::tasks::Task;
use cluster::coordinator::{Change, LeaseId, Transaction};
use cluster::id::Id;
use cluster::slots::{COUNT, Slots};
use cluster::topology::{Address, Shard, Topology};
use cluster::view::{self, At, Keys};
use std::collections::BTreeMap;

/// Finished jobs that are kept.
const MAX_JOBS: usize = 100;

/// Requests with a name that began no job, and are kept.
const MAX_REQUESTS: usize = 100;

/// Databases whose copies get a new address in one transaction, of which etcd takes 128 changes.
const MAX_RELOCATED: usize = 50;

/// Orders to end copies that are forgotten with their machine.
const MAX_ORDERS: usize = 100;

/// The node that makes a change and does its job.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The machine.
    pub machine: String,
    /// The node's lease.
    pub lease: LeaseId,
    /// What the request was named by its sender, perhaps nothing.
    pub request_id: String,
}

/// What a look at a job led to.
pub enum Step {
    /// It waits: hundredths that are done, and for what.
    Waits(u8, String),
    /// It is done, with these changes.
    Done(Transaction),
    /// Something is to be changed, and then it goes on.
    Changes(Transaction),
    /// The same, with this job in place of the old one.
    Goes(Transaction, Box<Job>),
    /// It cannot be done.
    Fails(String),
}

/// Returns the job that a request with this name has begun before.
///
/// # Errors
/// It was another request.
pub fn begun_before(
    site: &Site,
    owner: &Owner,
    kind: JobKind,
    (database, machine): (&str, &str),
) -> Result<Option<String>, Problem> {
    if owner.request_id.is_empty() {
        return Ok(None);
    }
    if site.requests.iter().any(|served| served.id == owner.request_id) {
        return Err(used(&owner.request_id, "another request"));
    }
    let found = site.jobs.iter().find(|(_, at)| at.value.request_id == owner.request_id);
    let Some((id, at)) = found else { return Ok(None) };
    let job = &at.value;
    if (job.kind, &*job.database, &*job.machine) != (kind, database, machine) {
        return Err(used(&owner.request_id, &format!("job {id}")));
    }
    Ok(Some(id.clone()))
}

fn used(request_id: &str, by: &str) -> Problem {
    Problem::Wrong(format!("the request id '{request_id}' was used for {by} already"))
}

/// Returns whether a request with this name, which begins no job, was served before.
///
/// # Errors
/// It was another request.
pub fn served_before(site: &Site, (id, what): (&str, &str)) -> Result<bool, Problem> {
    if id.is_empty() {
        return Ok(false);
    }
    if let Some((job, _)) = site.jobs.iter().find(|(_, at)| at.value.request_id == id) {
        return Err(used(id, &format!("job {job}")));
    }
    match site.requests.iter().find(|served| served.id == id) {
        Some(served) if served.what == what => Ok(true),
        Some(_) => Err(used(id, "another request")),
        None => Ok(false),
    }
}

/// Adds to the transaction that does what a request asks for that the request is served.
pub fn note_served(
    site: &Site,
    keys: &SiteKeys,
    (id, what): (&str, &str),
    transaction: &mut Transaction,
) {
    if id.is_empty() {
        return;
    }
    let mut requests = site.requests.clone();
    requests.push(Served { id: id.to_owned(), what: what.to_owned() });
    let surplus = requests.len().saturating_sub(MAX_REQUESTS);
    requests.drain(..surplus);
    transaction.compares.push(unchanged(keys.requests(), site.requests_revision));
    transaction.changes.push(put(keys.requests(), encode(&requests)));
}

/// Makes the transaction that creates a database, and names its job.
///
/// # Errors
/// Why it cannot be.
pub fn create(
    site: &Site,
    (keys, copies): (&SiteKeys, &Keys),
    (name, settings): (&str, &Settings),
    owner: &Owner,
) -> Result<(String, Transaction), Problem> {
    let plan = plan(site, name, settings)?;
    let placed: Vec<Placed> = plan.copies.iter().map(|copy| placed(copy, 0)).collect();
    let id = draw();
    let topology = topology(settings, &placed);
    let created_ms = now_ms();
    let database = Database {
        id,
        stage: Stage::Creating,
        settings: settings.clone().sealed(),
        copies: placed,
        created_ms,
        secret: draw().to_string(),
        old_secret: String::new(),
        later: BTreeMap::new(),
        floor: None,
        layout: 0,
        users: BTreeMap::new(),
        former_users: Vec::new(),
    };
    let mut transaction = view::plan(copies, id, &topology);
    transaction.compares.push(unchanged(keys.database(name), 0));
    transaction.compares.push(unchanged(keys.placement(), site.placement));
    transaction.changes.push(put(keys.database(name), encode(&database)));
    transaction.changes.push(put(keys.placement(), name.into()));
    let job =
        begin(site, keys, (JobKind::Create, name, "", Aim::default()), owner, &mut transaction);
    Ok((job, transaction))
}

/// Plans a database of a new name.
///
/// # Errors
/// Why it cannot be.
pub fn plan(site: &Site, name: &str, settings: &Settings) -> Result<Plan, Wrong> {
    check_name("database", name)?;
    if site.databases.contains_key(name) {
        return Err(Wrong(format!("there is a database '{name}' already: take another name")));
    }
    site.check_readable(settings.format())?;
    plan::place(site, settings)
}

/// The copy of a plan, with a name, for a database of this layout.
pub(crate) fn placed(planned: &plan::Planned, layout: u32) -> Placed {
    Placed {
        copy: draw(),
        shard: planned.shard,
        machine: planned.machine.clone(),
        host: planned.host.clone(),
        port: planned.port,
        threads: planned.threads,
        is_leaving: false,
        is_surge: false,
        later: BTreeMap::new(),
        layout,
    }
}

/// The address that a copy announces.
pub fn address(settings: &Settings, placed: &Placed) -> Address {
    let host = placed.host.clone();
    let (port, tls_port) = if settings.tls { (0, placed.port) } else { (placed.port, 0) };
    Address { host, port, tls_port, ..Address::default() }
}

fn topology(settings: &Settings, copies: &[Placed]) -> Topology {
    let shards = settings.shards;
    let begin = |shard: usize| usize::from(COUNT) * shard / shards;
    let shard = |number: usize| {
        let slots =
            Slots::from_fn(|slot| (begin(number)..begin(number + 1)).contains(&usize::from(slot)));
        let copies = copies.iter().filter(|placed| placed.shard == number);
        Shard::planned(
            draw(),
            slots,
            copies.map(|placed| (placed.copy, address(settings, placed))).collect(),
        )
    };
    let planned = Topology::planned(settings.quorum(), (0..shards).filter_map(shard).collect());
    Topology { hashing: settings.hashing.clone(), ..planned }
}

/// Makes the transaction that begins to delete a database, and names the job.
///
/// # Errors
/// There is no such database.
pub fn delete(
    site: &Site,
    keys: &SiteKeys,
    name: &str,
    owner: &Owner,
) -> Result<(String, Transaction), Problem> {
    let at = database(site, name)?;
    if let Some((job, _)) = running(site, name, JobKind::Delete) {
        return Err(Problem::Wrong(format!("the database is being deleted by job {job}")));
    }
    let mut transaction = Transaction::default();
    set_stage(keys, name, at, Stage::Deleting, &mut transaction);
    for (id, job) in
        site.jobs.iter().filter(|(_, job)| is_running(job) && job.value.database == name)
    {
        let text = "the database is being deleted".to_owned();
        let value = ended(&job.value, JobState::Cancelled, text);
        transaction.compares.push(unchanged(keys.job(id), job.revision));
        transaction.changes.push(put(keys.job(id), encode(&value)));
    }
    if let Some(at) = site.schedules.get(name) {
        transaction.compares.push(unchanged(keys.schedule(name), at.revision));
        transaction.changes.push(Change::Delete { key: keys.schedule(name) });
    }
    let job =
        begin(site, keys, (JobKind::Delete, name, "", Aim::default()), owner, &mut transaction);
    Ok((job, transaction))
}

/// Returns a database with other options: what its copies have now is kept until slots have moved.
pub fn with_settings(old: &Database, settings: &Settings) -> Database {
    let settings = settings.clone().sealed();
    let takes_flash = (old.settings.flash_bytes == 0) != (settings.flash_bytes == 0);
    let is_reshaped = old.settings.shards != settings.shards;
    Database {
        floor: is_reshaped.then(|| old.as_floor()),
        layout: old.layout + u32::from(takes_flash),
        settings,
        ..old.clone()
    }
}

/// Returns a database with another password of [`crate::site::INTERNAL`].
///
/// # Errors
/// The last change of it is not finished.
pub fn with_new_secret(old: &Database) -> Result<Database, Problem> {
    if !old.old_secret.is_empty() {
        let why = "copies may still use the password before the last change: finish that first \
                   (dunlin cluster update-db with the options that it has)";
        return Err(Problem::Wrong(why.into()));
    }
    let (secret, old_secret) = (draw().to_string(), old.secret.clone());
    Ok(Database { secret, old_secret, ..old.clone() })
}

/// Makes the transaction that changes a database, and names the job.
///
/// # Errors
/// Why it cannot be.
pub fn update(
    site: &Site,
    keys: &SiteKeys,
    (name, changed): (&str, &Database),
    owner: &Owner,
) -> Result<(String, Transaction), Problem> {
    let at = database(site, name)?;
    check_update(site, name, &at.value, changed)?;
    let mut transaction = Transaction {
        compares: vec![
            unchanged(keys.database(name), at.revision),
            unchanged(keys.placement(), site.placement),
        ],
        changes: vec![
            put(keys.database(name), encode(changed)),
            put(keys.placement(), name.into()),
        ],
    };
    let aim = Aim { before: Some(at.value.settings.clone()), ..Aim::default() };
    let job = begin(site, keys, (JobKind::Update, name, "", aim), owner, &mut transaction);
    Ok((job, transaction))
}

/// Checks that a database can be changed: its options, and that nothing else changes it.
///
/// # Errors
/// Why not.
pub fn check_update(
    site: &Site,
    name: &str,
    database: &Database,
    changed: &Database,
) -> Result<(), Problem> {
    changed.settings.check()?;
    site.check_readable(changed.settings.format())?;
    check_free(site, name, database)?;
    if database.settings.port != changed.settings.port {
        let why = "the port cannot be changed while the database runs".into();
        return Err(Problem::Wrong(why));
    }
    Ok(())
}

/// Checks that a database is ready, and that no job changes it.
///
/// # Errors
/// Which job does.
pub fn check_free(site: &Site, name: &str, database: &Database) -> Result<(), Problem> {
    if database.stage != Stage::Ready {
        let why = format!("the database '{name}' is not ready: see dunlin cluster jobs");
        return Err(Problem::Wrong(why));
    }
    let changes = |at: &At<Job>| is_running(at) && at.value.database == name;
    match site.jobs.iter().find(|(_, at)| changes(at)) {
        None => Ok(()),
        Some((job, _)) => Err(Problem::Wrong(format!(
            "job {job} changes the database '{name}': wait for it, or cancel it (dunlin cluster cancel {job})"
        ))),
    }
}

/// Makes the transaction that begins to move slots, and names the job.
///
/// # Errors
/// Why it cannot be.
pub fn move_slots(
    site: &Site,
    keys: &SiteKeys,
    (name, kind, aim): (&str, JobKind, Aim),
    owner: &Owner,
) -> Result<(String, Transaction), Problem> {
    let at = database(site, name)?;
    check_free(site, name, &at.value)?;
    if let Some(to) = aim.to
        && to >= at.value.settings.shards
    {
        let why = format!("the database '{name}' has {} shards", at.value.settings.shards);
        return Err(Problem::Wrong(why));
    }
    // Two such jobs of a database do not begin at the same time.
    let mut transaction = Transaction::default();
    set_stage(keys, name, at, Stage::Ready, &mut transaction);
    let job = begin(site, keys, (kind, name, "", aim), owner, &mut transaction);
    Ok((job, transaction))
}

/// Makes the transaction that asks to cancel a job.
///
/// # Errors
/// There is no such job, it has ended, or it cannot be undone.
pub fn cancel(site: &Site, keys: &SiteKeys, id: &str) -> Result<Transaction, Problem> {
    let Some(at) = site.jobs.get(id) else {
        return Err(Problem::Missing(format!("there is no job '{id}'")));
    };
    if !is_running(at) {
        return Err(Problem::Wrong(format!("job {id} has ended")));
    }
    if at.value.kind == JobKind::Delete {
        let why = "the deletion of a database cannot be cancelled: data are gone already";
        return Err(Problem::Wrong(why.into()));
    }
    let mut transaction = Transaction::default();
    replace_job(keys, id, at, &Job { is_cancelled: true, ..at.value.clone() }, &mut transaction);
    Ok(transaction)
}

/// Makes the transaction that changes the rate and the priority of the slots that a job moves, now
/// and later.
///
/// # Errors
/// There is no such job, it has ended, it moves no slots, or nothing is to be changed.
pub fn pace(
    site: &Site,
    keys: &SiteKeys,
    id: &str,
    (rate, priority): (Option<u64>, Option<i32>),
) -> Result<Transaction, Problem> {
    let Some(at) = site.jobs.get(id) else {
        return Err(Problem::Missing(format!("there is no job '{id}'")));
    };
    if !is_running(at) {
        return Err(Problem::Wrong(format!("job {id} has ended")));
    }
    if !matches!(at.value.kind, JobKind::Update | JobKind::Rebalance | JobKind::Move) {
        return Err(Problem::Wrong(format!("job {id} moves no slots")));
    }
    if (rate, priority) == (None, None) {
        return Err(Problem::Wrong("neither a rate nor a priority is given".into()));
    }
    let mut job = at.value.clone();
    job.aim.rate = rate.or(job.aim.rate);
    job.aim.priority = priority.or(job.aim.priority);
    let mut transaction = Transaction::default();
    replace_job(keys, id, at, &job, &mut transaction);
    Ok(transaction)
}

/// Makes the transaction that forgets a machine which does not come back.
///
/// # Errors
/// There is no such machine, it is alive, or copies are placed on it.
pub fn forget(site: &Site, keys: &SiteKeys, machine: &str) -> Result<Transaction, Problem> {
    let Some(known) = site.machines.get(machine) else {
        return Err(Problem::Missing(format!("there is no machine '{machine}'")));
    };
    if known.alive.is_some() {
        let why =
            format!("machine '{machine}' is alive: stop its node first (dunlin cluster down)");
        return Err(Problem::Wrong(why));
    }
    if let Some((name, ..)) = site.placed_on(machine).next() {
        let why = format!(
            "copies of database '{name}' are placed on machine '{machine}': add --replace, and other machines get \
             new copies of these shards"
        );
        return Err(Problem::Wrong(why));
    }
    let compares = vec![unchanged(keys.machine(machine), known.spec.revision)];
    let gone =
        [keys.machine(machine), keys.draining(machine), keys.removed(machine), keys.zone(machine)];
    let orders = site.gone.iter().filter(|(_, at)| at.value.machine == machine);
    let orders = orders.take(MAX_ORDERS).map(|(copy, _)| keys.gone(*copy));
    let changes = gone.into_iter().chain(orders).map(|key| Change::Delete { key }).collect();
    Ok(Transaction { compares, changes })
}

/// Returns a machine.
///
/// # Errors
/// There is none of this name.
pub fn machine<'a>(site: &'a Site, name: &str) -> Result<&'a Known, Problem> {
    site.machines.get(name).ok_or_else(|| {
        let names: Vec<&str> = site.machines.keys().map(String::as_str).collect();
        Problem::Missing(format!("there is no machine '{name}' ({})", names.join(", ")))
    })
}

/// Checks that a job about a machine can begin.
///
/// # Errors
/// There is no such machine, it is not as it has to be, or such a job runs.
pub fn check_machine(site: &Site, name: &str, kind: JobKind) -> Result<(), Problem> {
    let known = machine(site, name)?;
    if kind == JobKind::Replace && known.alive.is_some() {
        let why = format!("machine '{name}' is alive: use drain-node");
        return Err(Problem::Wrong(why));
    }
    if kind == JobKind::Remove && known.alive.is_none() {
        let why = format!("machine '{name}' is not there: use forget --replace");
        return Err(Problem::Wrong(why));
    }
    if kind == JobKind::Fill && (known.alive.is_none() || known.is_draining) {
        let why = format!("machine '{name}' takes no copies: it is down or draining");
        return Err(Problem::Wrong(why));
    }
    let is_it = |at: &At<Job>| is_running(at) && at.value.machine == name;
    match site.jobs.iter().find(|(_, at)| is_it(at)) {
        Some((job, _)) => Err(Problem::Wrong(format!("job {job} is at work on machine '{name}'"))),
        None => Ok(()),
    }
}

/// Makes the transaction that begins a job about a machine, and names it. A machine that gives its
/// copies away gets none until [`undo_drain`].
///
/// # Errors
/// Those of [`check_machine`].
pub fn drain(
    site: &Site,
    keys: &SiteKeys,
    (name, kind): (&str, JobKind),
    owner: &Owner,
) -> Result<(String, Transaction), Problem> {
    check_machine(site, name, kind)?;
    let known = machine(site, name)?;
    let mut transaction = Transaction::default();
    transaction.compares.push(unchanged(keys.machine(name), known.spec.revision));
    if kind != JobKind::Fill {
        transaction.changes.push(put(keys.draining(name), Vec::new()));
    }
    let job = begin(site, keys, (kind, "", name, Aim::default()), owner, &mut transaction);
    Ok((job, transaction))
}

/// Makes the transaction after which a machine gets copies again.
///
/// # Errors
/// There is no such machine, or a job gives its copies away.
pub fn undo_drain(site: &Site, keys: &SiteKeys, machine: &str) -> Result<Transaction, Problem> {
    let Some(known) = site.machines.get(machine) else {
        return Err(Problem::Missing(format!("there is no machine '{machine}'")));
    };
    let is_it = |at: &At<Job>| is_running(at) && at.value.machine == machine;
    if let Some((job, _)) = site.jobs.iter().find(|(_, at)| is_it(at)) {
        return Err(Problem::Wrong(format!("cancel job {job} first")));
    }
    let compares = vec![unchanged(keys.machine(machine), known.spec.revision)];
    Ok(Transaction { compares, changes: vec![Change::Delete { key: keys.draining(machine) }] })
}

/// Makes the transaction that gives the copies of a machine the address that it has now, if one of
/// them has another.
pub fn relocate(site: &Site, keys: &SiteKeys, machine: &str, host: &str) -> Option<Transaction> {
    let is_elsewhere = |placed: &Placed| placed.machine == machine && placed.host != host;
    let mut transaction = Transaction::default();
    let moved = site.databases.iter().filter(|(_, at)| at.value.copies.iter().any(is_elsewhere));
    for (name, at) in moved.take(MAX_RELOCATED) {
        let mut database = at.value.clone();
        for placed in database.copies.iter_mut().filter(|placed| is_elsewhere(placed)) {
            host.clone_into(&mut placed.host);
        }
        transaction.compares.push(unchanged(keys.database(name), at.revision));
        transaction.changes.push(put(keys.database(name), encode(&database)));
    }
    (!transaction.changes.is_empty()).then_some(transaction)
}

/// Returns a database.
///
/// # Errors
/// There is none of this name.
pub fn database<'a>(site: &'a Site, name: &str) -> Result<&'a At<Database>, Problem> {
    site.databases.get(name).ok_or_else(|| {
        let names: Vec<&str> = site.databases.keys().map(String::as_str).collect();
        let known = if names.is_empty() { "there is none".into() } else { names.join(", ") };
        Problem::Missing(format!("there is no database '{name}' ({known})"))
    })
}

/// Adds a new stage of a database to a transaction.
pub fn set_stage(
    keys: &SiteKeys,
    name: &str,
    at: &At<Database>,
    stage: Stage,
    transaction: &mut Transaction,
) {
    let database = Database { stage, ..at.value.clone() };
    transaction.compares.push(unchanged(keys.database(name), at.revision));
    transaction.changes.push(put(keys.database(name), encode(&database)));
}

/// Adds the new value of a job to a transaction, which compares the old one.
pub fn replace_job(
    keys: &SiteKeys,
    id: &str,
    at: &At<Job>,
    job: &Job,
    transaction: &mut Transaction,
) {
    transaction.compares.push(unchanged(keys.job(id), at.revision));
    transaction.changes.push(put(keys.job(id), encode(job)));
}

/// Returns a job that has ended.
pub fn ended(job: &Job, state: JobState, text: String) -> Job {
    let percent = if state == JobState::Done { 100 } else { job.percent };
    Job { state, text, percent, ended_ms: now_ms(), ..job.clone() }
}

/// Returns whether a job has not ended.
pub fn is_running(at: &At<Job>) -> bool {
    at.value.state == JobState::Running
}

fn running<'a>(site: &'a Site, name: &str, kind: JobKind) -> Option<(&'a String, &'a At<Job>)> {
    let is_it = |at: &At<Job>| is_running(at) && at.value.kind == kind && at.value.database == name;
    site.jobs.iter().find(|(_, at)| is_it(at))
}

/// Adds a new job to a transaction, removes jobs that ended long ago, and names the new one.
fn begin(
    site: &Site,
    keys: &SiteKeys,
    (kind, name, machine, aim): (JobKind, &str, &str, Aim),
    owner: &Owner,
    transaction: &mut Transaction,
) -> String {
    begin_with(site, keys, (kind, name, machine), (None, aim), owner, transaction)
}

/// The same for a job with a task.
pub(crate) fn begin_with(
    site: &Site,
    keys: &SiteKeys,
    (kind, name, machine): (JobKind, &str, &str),
    (task, aim): (Option<Task>, Aim),
    owner: &Owner,
    transaction: &mut Transaction,
) -> String {
    let began_ms = now_ms();
    // Ids in the order of time.
    let id = format!("{began_ms:x}{}", &draw().to_string()[..4]);
    let job = Job {
        kind,
        database: name.to_owned(),
        machine: machine.to_owned(),
        state: JobState::Running,
        owner: owner.machine.clone(),
        lease: owner.lease,
        percent: 0,
        text: String::new(),
        is_cancelled: false,
        task,
        aim,
        request_id: owner.request_id.clone(),
        began_ms,
        ended_ms: 0,
    };
    transaction.compares.push(unchanged(keys.job(&id), 0));
    transaction.changes.push(put(keys.job(&id), encode(&job)));
    let ended = site.jobs.iter().filter(|(_, at)| !is_running(at));
    let surplus = ended.clone().count().saturating_sub(MAX_JOBS - 1).min(4);
    for (old, _) in ended.take(surplus) {
        transaction.changes.push(Change::Delete { key: keys.job(old) });
    }
    id
}

/// Draws a name.
pub fn draw() -> Id {
    Id::draw(structs::hashing::os_random)
}

#[cfg(test)]
pub(crate) mod tests;
