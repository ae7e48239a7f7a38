//! What users ask for, as transactions of what was read. No I/O.

use crate::keys::SiteKeys;
use crate::plan::{self, Plan};
use crate::settings::{Settings, Wrong, check_name};
use crate::site::{Database, Job, JobKind, JobState, Placed, Site, Stage};
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

/// Databases whose copies get a new address in one transaction, of which etcd takes 128 changes.
const MAX_RELOCATED: usize = 50;

/// The node that makes a change and does its job.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The machine.
    pub machine: String,
    /// The node's lease.
    pub lease: LeaseId,
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
    let placed: Vec<Placed> = plan.copies.iter().map(placed).collect();
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
        old_password: String::new(),
        later: BTreeMap::new(),
    };
    let mut transaction = view::plan(copies, id, &topology);
    transaction.compares.push(unchanged(keys.database(name), 0));
    transaction.compares.push(unchanged(keys.placement(), site.placement));
    transaction.changes.push(put(keys.database(name), encode(&database)));
    transaction.changes.push(put(keys.placement(), name.into()));
    let job = begin(site, keys, (JobKind::Create, name, ""), owner, &mut transaction);
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
    plan::place(site, settings)
}

pub(crate) fn placed(planned: &plan::Planned) -> Placed {
    Placed {
        copy: draw(),
        shard: planned.shard,
        machine: planned.machine.clone(),
        host: planned.host.clone(),
        port: planned.port,
        threads: planned.threads,
        is_leaving: false,
        later: BTreeMap::new(),
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
    let job = begin(site, keys, (JobKind::Delete, name, ""), owner, &mut transaction);
    Ok((job, transaction))
}

/// Makes the transaction that changes options of a database, and names the job.
///
/// # Errors
/// Why it cannot be.
pub fn update(
    site: &Site,
    keys: &SiteKeys,
    (name, settings): (&str, &Settings),
    owner: &Owner,
) -> Result<(String, Transaction), Problem> {
    let at = database(site, name)?;
    check_update(site, name, &at.value, settings)?;
    let old = &at.value;
    // That of an earlier version gets a secret with its first change.
    let secret = if old.secret.is_empty() { draw().to_string() } else { old.secret.clone() };
    let (settings, old_password) = (settings.clone().sealed(), old.settings.password.clone());
    let database = Database { settings, secret, old_password, ..old.clone() };
    let mut transaction = Transaction {
        compares: vec![
            unchanged(keys.database(name), at.revision),
            unchanged(keys.placement(), site.placement),
        ],
        changes: vec![
            put(keys.database(name), encode(&database)),
            put(keys.placement(), name.into()),
        ],
    };
    let job = begin(site, keys, (JobKind::Update, name, ""), owner, &mut transaction);
    Ok((job, transaction))
}

/// Checks that options can be changed, and that machines have the memory.
///
/// # Errors
/// Why not.
pub fn check_update(
    site: &Site,
    name: &str,
    database: &Database,
    settings: &Settings,
) -> Result<(), Problem> {
    settings.check()?;
    if database.stage != Stage::Ready {
        let why = format!("the database '{name}' is not ready: see dunlin cluster jobs");
        return Err(Problem::Wrong(why));
    }
    let old = &database.settings;
    let fixed = [
        ("shards", old.shards == settings.shards),
        ("replicas", old.replicas == settings.replicas),
        ("port", old.port == settings.port),
        ("endpoint", old.endpoint == settings.endpoint),
        ("flash", old.flash_bytes == settings.flash_bytes),
        ("commit", (old.quorum() == 0) == (settings.quorum() == 0)),
    ];
    if let Some((option, _)) = fixed.iter().find(|(_, is_same)| !is_same) {
        let why = format!("{option} cannot be changed while the database runs");
        return Err(Problem::Wrong(why));
    }
    let more = settings.copy_bytes().saturating_sub(old.copy_bytes());
    for (machine, known) in &site.machines {
        let copies = database.copies.iter().filter(|placed| placed.machine == *machine).count();
        let needed = more.saturating_mul(u64::try_from(copies).unwrap_or(u64::MAX));
        let free = known.spec.value.memory_bytes.saturating_sub(site.used_bytes(machine));
        if copies > 0 && needed > free {
            return Err(Problem::Wrong(format!(
                "machine '{machine}' has {} free, and its {copies} copies need {} more",
                process::memory::Bytes(free),
                process::memory::Bytes(needed)
            )));
        }
    }
    Ok(())
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
    if matches!(at.value.kind, JobKind::Update | JobKind::Delete) {
        let why = "the change and the deletion of a database cannot be cancelled";
        return Err(Problem::Wrong(why.into()));
    }
    let mut transaction = Transaction::default();
    replace_job(keys, id, at, &Job { is_cancelled: true, ..at.value.clone() }, &mut transaction);
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
    let gone = [keys.machine(machine), keys.draining(machine)];
    let changes = gone.into_iter().map(|key| Change::Delete { key }).collect();
    Ok(Transaction { compares, changes })
}

/// Makes the transaction that begins to give away what a machine has, and names the job. The machine gets no copies until
/// [`undo_drain`].
///
/// # Errors
/// There is no such machine, or such a job runs.
pub fn drain(
    site: &Site,
    keys: &SiteKeys,
    (machine, kind): (&str, JobKind),
    owner: &Owner,
) -> Result<(String, Transaction), Problem> {
    let Some(known) = site.machines.get(machine) else {
        return Err(Problem::Missing(format!("there is no machine '{machine}'")));
    };
    if kind == JobKind::Replace && known.alive.is_some() {
        let why = format!("machine '{machine}' is alive: use drain-node");
        return Err(Problem::Wrong(why));
    }
    let is_it = |at: &At<Job>| is_running(at) && at.value.machine == machine;
    if let Some((job, _)) = site.jobs.iter().find(|(_, at)| is_it(at)) {
        return Err(Problem::Wrong(format!("job {job} is at work on machine '{machine}'")));
    }
    let mut transaction = Transaction::default();
    transaction.compares.push(unchanged(keys.machine(machine), known.spec.revision));
    transaction.changes.push(put(keys.draining(machine), Vec::new()));
    let job = begin(site, keys, (kind, "", machine), owner, &mut transaction);
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

/// Makes the transaction that gives the copies of a machine the address that it has now, if one of them has another.
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
    (kind, name, machine): (JobKind, &str, &str),
    owner: &Owner,
    transaction: &mut Transaction,
) -> String {
    begin_with(site, keys, (kind, name, machine), None, owner, transaction)
}

/// The same for a job with a task.
pub(crate) fn begin_with(
    site: &Site,
    keys: &SiteKeys,
    (kind, name, machine): (JobKind, &str, &str),
    task: Option<Task>,
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
mod tests;
