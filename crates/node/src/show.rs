//! What the interface says: machines, databases and their copies, jobs, events. Passwords are in
//! none of it.

use crate::plan::Planned;
use crate::rollback;
use crate::settings::{Settings, Wrong};
use crate::site::{
    Database, Event, Job, JobKind, JobState, Known, Login, Placed, ProcessState, Site, Stage,
};
use crate::standing::{self, Waiting};
use crate::store::{Problem, Store};
use crate::talk;
use crate::tasks::Task;
use cluster::slots::Slots;
use cluster::view::{At, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long copies may take to say how they are.
const LIMIT: Duration = Duration::from_millis(700);

/// A machine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MachineShown {
    /// Its name.
    pub name: String,
    /// Whether its node has a lease.
    pub is_alive: bool,
    /// It gets no copies: it was drained.
    #[serde(default)]
    pub is_draining: bool,
    /// Where others reach it.
    pub host: String,
    /// The part of the site that fails together.
    pub zone: String,
    /// The bytes that copies may have.
    pub memory_bytes: u64,
    /// The bytes of these that are given away.
    pub used_bytes: u64,
    /// Processors.
    pub cores: usize,
    /// The port of its interface and console.
    pub admin_port: u16,
    /// The copies that are placed on it.
    pub copies: usize,
    /// The version of its node.
    pub version: String,
    /// What is wrong with the disk of its node's directory.
    #[serde(default)]
    pub disk_error: String,
}

/// Describes all machines.
pub fn machines(site: &Site) -> Vec<MachineShown> {
    let shown = |(name, known): (&String, &Known)| {
        let machine = known.spec.value.clone();
        MachineShown {
            name: name.clone(),
            is_alive: known.alive.is_some(),
            is_draining: known.is_draining,
            host: machine.host,
            zone: known.zone().to_owned(),
            memory_bytes: machine.memory_bytes,
            used_bytes: site.used_bytes(name),
            cores: machine.cores,
            admin_port: machine.admin_port,
            copies: site.placed_on(name).count(),
            version: machine.version,
            disk_error: known.alive.as_ref().map_or("", |at| &at.value.disk_error).to_owned(),
        }
    };
    site.machines.iter().map(shown).collect()
}

/// A copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CopyShown {
    /// Its name: 40 hexadecimal digits.
    pub id: String,
    /// The shard, counted from 1.
    pub shard: usize,
    /// primary, replica, or none if it has no lease.
    pub role: String,
    /// Whether it can take over: it has been in step with its primary since it started.
    pub is_member: bool,
    /// A restart has added it, and takes a copy of the shard out when it is done.
    #[serde(default)]
    pub is_surge: bool,
    /// The machine.
    pub machine: String,
    /// Where clients reach it.
    pub host: String,
    /// Likewise.
    pub port: u16,
    /// running, waiting, stopping, or unknown if its machine's node is down.
    pub process: String,
    /// How often it was started again.
    pub restarts: u64,
    /// Why its process ended the last time.
    pub note: String,
    /// What its disk refuses.
    #[serde(default)]
    pub disk_error: String,
    /// What is wrong with its link to its primary.
    #[serde(default)]
    pub link_error: String,
    /// Why it has no port for other copies, which keeps its database without TLS between them.
    #[serde(default)]
    pub bus_error: String,
    /// Whether it answers.
    pub answers: bool,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Commands per second.
    pub commands_per_second: u64,
    /// Connected clients.
    pub clients: u64,
    /// Bytes that a replica is behind its primary.
    pub lag_bytes: Option<u64>,
}

/// A shard.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShardShown {
    /// Counted from 1.
    pub number: usize,
    /// Its ranges of slots: 0-5460.
    pub slots: String,
    /// How many leaderships the database has had when this one began.
    pub epoch: u64,
    /// It comes or goes: it has no slots, and clients need none of it.
    #[serde(default)]
    pub is_empty: bool,
    /// Whether its primary is there.
    pub has_primary: bool,
    /// What it waits for if its primary is not there, and what its copies have.
    #[serde(default)]
    pub waiting: Waiting,
    /// Its copies.
    pub copies: Vec<CopyShown>,
}

/// A database.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DatabaseShown {
    /// Its name.
    pub name: String,
    /// creating, ready or deleting.
    pub stage: String,
    /// ok, or what is wrong.
    pub health: String,
    /// Whether all shards have a primary.
    pub is_available: bool,
    /// Its options; the password is left out.
    pub settings: Settings,
    /// Whether it has a password.
    pub has_password: bool,
    /// Users beside the default one, with their rules.
    #[serde(default)]
    pub users: BTreeMap<String, Vec<String>>,
    /// Its shards.
    pub shards: Vec<ShardShown>,
}

/// Describes all databases, of one read of their topologies. Copies are not asked.
///
/// # Errors
/// etcd does not answer.
pub fn databases(store: &mut Store, site: &Site) -> Result<Vec<DatabaseShown>, Problem> {
    let views = store.views()?;
    let shown = |(name, at): (&String, &At<Database>)| {
        database(site, name, &at.value, views.get(&at.value.id), false)
    };
    Ok(site.databases.iter().map(shown).collect())
}

/// Describes a database. Copies are asked how they are only if `asks`.
pub fn database(
    site: &Site,
    name: &str,
    database: &Database,
    view: Option<&View>,
    asks: bool,
) -> DatabaseShown {
    let mut copies: Vec<CopyShown> =
        database.copies.iter().map(|placed| copy(site, placed, view)).collect();
    if asks {
        talk::side_by_side(&mut copies, |copy| ask(copy, database.login()));
    }
    let mut numbers = database.shards();
    numbers.extend(0..database.settings.shards);
    let mut shards: Vec<ShardShown> =
        numbers.into_iter().map(|number| shard(number, &copies, (name, database), view)).collect();
    if is_updated(site, name) {
        note_empty(&mut shards);
    }
    let is_available = is_available(&shards);
    let (password, password_sha256) = (String::new(), String::new());
    DatabaseShown {
        name: name.to_owned(),
        stage: word(&database.stage),
        health: health_with_rollback(name, health(database, &shards), view),
        is_available,
        settings: Settings {
            password,
            password_sha256,
            users: database.settings.user_names(),
            ..database.settings.clone()
        },
        has_password: database.settings.has_password(),
        users: database.users.iter().map(|(name, it)| (name.clone(), it.rules.clone())).collect(),
        shards,
    }
}

/// Returns whether a job makes the database what its options say. Shards that it adds have no slots
/// before all their copies are there, those that it takes away have none any more.
fn is_updated(site: &Site, name: &str) -> bool {
    let mut jobs = site.jobs.values().map(|at| &at.value);
    jobs.any(|job| {
        job.state == JobState::Running && job.kind == JobKind::Update && job.database == name
    })
}

/// Notes which shards come or go. If none has slots, nothing is known of any.
fn note_empty(shards: &mut [ShardShown]) {
    if shards.iter().all(|shard| shard.slots.is_empty()) {
        return;
    }
    for shard in shards.iter_mut().filter(|shard| shard.slots.is_empty()) {
        (shard.is_empty, shard.waiting) = (true, Waiting::default());
    }
}

/// Returns whether all shards that clients need have a primary.
fn is_available(shards: &[ShardShown]) -> bool {
    let mut serving = shards.iter().filter(|shard| !shard.is_empty).peekable();
    serving.peek().is_some() && serving.all(|shard| shard.has_primary)
}

fn copy(site: &Site, placed: &Placed, view: Option<&View>) -> CopyShown {
    let report = site.report(placed);
    let shard = view.and_then(|view| view.topology.value.shard_of(placed.copy));
    let has_lease = view.is_some_and(|view| view.alive.contains_key(&placed.copy));
    // A former primary that was started again does not lead until it is elected.
    let leads = |view: &View| {
        shard.is_some_and(|it| it.holder.id == placed.copy && view.is_alive(it.holder))
    };
    let role = match shard {
        Some(_) if view.is_some_and(leads) => "primary",
        Some(_) if has_lease => "replica",
        _ => "none",
    };
    let is_member = view.is_some_and(|view| view.has_member(placed.copy));
    CopyShown {
        is_member,
        is_surge: placed.is_surge,
        id: placed.copy.to_string(),
        shard: placed.shard + 1,
        role: role.into(),
        machine: placed.machine.clone(),
        host: placed.host.clone(),
        port: placed.port,
        process: report.map_or("unknown".into(), |report| word(&report.state)),
        restarts: report.map_or(0, |report| report.restarts),
        note: report.map_or(String::new(), |report| report.note.clone()),
        disk_error: report.map_or(String::new(), |report| report.disk_error.clone()),
        bus_error: report.map_or(String::new(), |report| report.bus_error.clone()),
        // One that leads since has no link any more.
        link_error: report
            .filter(|_| role != "primary")
            .map_or(String::new(), |report| report.link_error.clone()),
        ..CopyShown::default()
    }
}

fn ask(copy: &mut CopyShown, login: Login<'_>) {
    let Ok(info) = talk::info((&*copy.host, copy.port), login, &["everything"], LIMIT) else {
        return;
    };
    let number = |name: &str| talk::field(&info, name).and_then(|text| text.parse::<u64>().ok());
    copy.answers = true;
    copy.used_bytes = number("used_memory").unwrap_or(0);
    copy.commands_per_second = number("instantaneous_ops_per_sec").unwrap_or(0);
    copy.clients = number("connected_clients").unwrap_or(0);
    if talk::field(&info, "role") == Some("slave") {
        let link = talk::field(&info, "master_link_status") == Some("up");
        let behind = number("slave_read_repl_offset").zip(number("slave_repl_offset"));
        copy.lag_bytes = behind.filter(|_| link).map(|(read, done)| read.saturating_sub(done));
    }
}

fn shard(
    number: usize,
    copies: &[CopyShown],
    (name, database): (&str, &Database),
    view: Option<&View>,
) -> ShardShown {
    let first = database.copies.iter().find(|placed| placed.shard == number);
    let found = view.zip(first).and_then(|(view, placed)| {
        let shard = view.topology.value.shard_of(placed.copy)?;
        Some((view, shard))
    });
    let slots = found.map_or(String::new(), |(_, shard)| ranges(&shard.slots));
    ShardShown {
        number: number + 1,
        slots,
        is_empty: false,
        epoch: found.map_or(0, |(_, shard)| shard.epoch.0),
        has_primary: found.is_some_and(|(view, shard)| view.is_alive(shard.holder)),
        waiting: found.map_or_else(Waiting::default, |(view, shard)| {
            standing::waiting(name, database, view, shard)
        }),
        copies: copies.iter().filter(|copy| copy.shard == number + 1).cloned().collect(),
    }
}

/// Adds to what `health` says what copies have found out about etcd.
fn health_with_rollback(name: &str, health: String, view: Option<&View>) -> String {
    match view.and_then(|view| rollback::warning(name, view)) {
        Some(warning) if health == "ok" => warning,
        Some(warning) => format!("{health}; {warning}"),
        None => health,
    }
}

fn health(database: &Database, shards: &[ShardShown]) -> String {
    let serving = || shards.iter().filter(|shard| !shard.is_empty);
    let unled: Vec<String> = serving()
        .filter(|shard| !shard.has_primary)
        .map(|shard| shard.number.to_string())
        .collect();
    let copies = || serving().flat_map(|shard| &shard.copies);
    let absent = copies().filter(|copy| copy.role == "none").count();
    let ill = copies().find_map(|copy| {
        let errors = [&copy.disk_error, &copy.link_error];
        Some((copy, errors.into_iter().find(|error| !error.is_empty())?))
    });
    let behind = copies().filter(|copy| copy.role == "replica" && !copy.is_member).count();
    match (database.stage, unled.len(), absent) {
        (Stage::Creating, ..) => "its copies are being started".into(),
        (Stage::Deleting, ..) => "it is going away".into(),
        (Stage::Ready, 0, 0) if ill.is_some() => {
            let text = |(copy, error): (&CopyShown, &String)| {
                format!("copy {} on machine '{}': {error}", &copy.id[..8], copy.machine)
            };
            ill.map(text).unwrap_or_default()
        }
        (Stage::Ready, 0, 0) if behind == 1 => "1 of its replicas has not synchronised yet".into(),
        (Stage::Ready, 0, 0) if behind > 0 => {
            format!("{behind} of its replicas have not synchronised yet")
        }
        (Stage::Ready, 0, 0) => "ok".into(),
        (Stage::Ready, 0, 1) => "1 of its copies is not there".into(),
        (Stage::Ready, 0, absent) => format!("{absent} of its copies are not there"),
        (Stage::Ready, 1, _) => format!("shard {} has no primary", unled[0]),
        (Stage::Ready, ..) => format!("shards {} have no primary", unled.join(", ")),
    }
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobShown {
    /// Its id.
    pub id: String,
    /// create, update, delete, rebalance, move, restart; import, export, backup, verify, restore;
    /// switch, drain, replace, remove or fill.
    pub kind: String,
    /// The database, or the machine.
    pub database: String,
    /// running, done, failed or cancelled.
    pub state: String,
    /// The machine whose node does it.
    pub machine: String,
    /// Hundredths that are done.
    pub percent: u8,
    /// What it waits for, or why it failed.
    pub text: String,
    /// It goes back to what was before.
    #[serde(default)]
    pub is_cancelled: bool,
    /// It ends as soon as both sides are in step: an import or export.
    #[serde(default)]
    pub is_finishing: bool,
    /// Bytes per second that each source sends to each target at most, 0 for no limit; none if
    /// nobody has said so.
    #[serde(default)]
    pub rate_bytes: Option<u64>,
    /// Of the moves that wait for a place at a source, those with a greater number come first; none
    /// likewise.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Milliseconds since 1970.
    pub began_ms: u64,
    /// Milliseconds since 1970, 0 while it runs.
    pub ended_ms: u64,
}

/// Describes a job.
pub fn job(id: &str, job: &Job) -> JobShown {
    JobShown {
        id: id.to_owned(),
        kind: word::<JobKind>(&job.kind),
        database: if job.database.is_empty() { &job.machine } else { &job.database }.clone(),
        state: word::<JobState>(&job.state),
        machine: job.owner.clone(),
        percent: job.percent,
        text: job.text.clone(),
        is_cancelled: job.is_cancelled,
        is_finishing: job.task.as_ref().is_some_and(Task::is_finishing),
        rate_bytes: job.aim.rate,
        priority: job.aim.priority,
        began_ms: job.began_ms,
        ended_ms: job.ended_ms,
    }
}

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventShown {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The machine that says so.
    pub machine: String,
    /// What happened.
    pub text: String,
}

/// Describes an event.
pub fn event(event: &Event) -> EventShown {
    let Event { at_ms, machine, text } = event.clone();
    EventShown { at_ms, machine, text }
}

/// A plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanShown {
    /// Where new copies go.
    pub copies: Vec<PlannedShown>,
    /// Copies that go away.
    #[serde(default)]
    pub removed: Vec<RemovedShown>,
    /// Slots that move.
    #[serde(default)]
    pub moves: Vec<MoveShown>,
    /// The bytes that are sent from machine to machine, estimated.
    #[serde(default)]
    pub bytes: u64,
    /// How long that takes, estimated at 50 MiB a second for each primary.
    #[serde(default)]
    pub minutes: f64,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A copy that is to be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlannedShown {
    /// The database, in a plan that is about several.
    #[serde(default)]
    pub database: String,
    /// The shard, counted from 1.
    pub shard: usize,
    /// primary or replica.
    pub role: String,
    /// The machine.
    pub machine: String,
    /// Its zone.
    pub zone: String,
    /// Where others reach it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The bytes that it may have.
    pub memory_bytes: u64,
}

/// A copy that goes away.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RemovedShown {
    /// The shard, counted from 1.
    pub shard: usize,
    /// Its name: 40 hexadecimal digits.
    pub copy: String,
    /// The machine.
    pub machine: String,
    /// Where clients reach it.
    pub host: String,
    /// Likewise.
    pub port: u16,
}

/// Slots that move from one shard to another.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MoveShown {
    /// The shard that has them, counted from 1.
    pub from: usize,
    /// The shard that gets them, counted from 1.
    pub to: usize,
    /// How many.
    pub slots: usize,
    /// Which: 0-99 200.
    pub ranges: String,
    /// Their keys.
    pub keys: u64,
    /// The bytes of their keys and values, estimated.
    pub bytes: u64,
}

/// Slots as text.
pub fn ranges(slots: &Slots) -> String {
    let range = |&(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    slots.ranges().iter().map(range).collect::<Vec<_>>().join(" ")
}

/// Plans a database of a new name, and describes the plan.
///
/// # Errors
/// Why it cannot be.
pub fn plan(site: &Site, name: &str, settings: &Settings) -> Result<PlanShown, Wrong> {
    let plan = crate::change::plan(site, name, settings)?;
    let copies = plan.copies.iter().map(copy_planned).collect();
    Ok(PlanShown { copies, warnings: plan.warnings, ..PlanShown::default() })
}

/// Describes a copy that is to be.
pub fn copy_planned(copy: &Planned) -> PlannedShown {
    let Planned { shard, is_primary, machine, host, zone, port, memory_bytes, .. } = copy.clone();
    let role = if is_primary { "primary".into() } else { "replica".into() };
    let database = String::new();
    PlannedShown { database, shard: shard + 1, role, machine, zone, host, port, memory_bytes }
}

/// The word that stands for a value at etcd.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|it| Some(it.as_str()?.to_owned()))
        .unwrap_or_default()
}

/// The word of a process's state.
pub fn state_word(state: ProcessState) -> String {
    word(&state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::with_database;

    fn shard(number: usize, slots: &str, has_primary: bool) -> ShardShown {
        let role = if has_primary { "primary" } else { "none" };
        let copy = CopyShown { shard: number, role: role.into(), ..CopyShown::default() };
        let waiting = Waiting { text: "no copy is there".into(), ..Waiting::default() };
        let slots = slots.to_owned();
        let copies = vec![copy];
        ShardShown { number, slots, is_empty: false, epoch: 1, has_primary, waiting, copies }
    }

    #[test]
    fn shards_that_are_added_do_no_harm_to_a_database() {
        let (mut site, job) = with_database(Stage::Ready);
        let database = site.databases["d"].value.clone();
        assert!(!is_updated(&site, "d"), "it is being created");
        let at = site.jobs.get_mut(&job).expect("it is there");
        at.value.kind = JobKind::Update;
        assert!(is_updated(&site, "d") && !is_updated(&site, "other"));

        let mut shards = [shard(1, "0-16383", true), shard(2, "", false)];
        assert_eq!(health(&database, &shards), "shard 2 has no primary");
        assert!(!is_available(&shards), "without a job nothing adds it");
        note_empty(&mut shards);
        assert_eq!(health(&database, &shards), "ok");
        assert!(is_available(&shards));
        assert_eq!(shards[1].waiting.text, "");
        shards[0] = shard(1, "0-16383", false);
        assert_eq!(health(&database, &shards), "shard 1 has no primary");
        assert!(!is_available(&shards));
    }

    #[test]
    fn a_database_of_which_nothing_is_known_is_not_well() {
        let (site, _) = with_database(Stage::Ready);
        let mut shards = [shard(1, "", false), shard(2, "", false)];
        note_empty(&mut shards);
        assert!(!is_available(&shards));
        let health = health(&site.databases["d"].value, &shards);
        assert_eq!(health, "shards 1, 2 have no primary");
    }
}
