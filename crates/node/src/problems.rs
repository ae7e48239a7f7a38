//! What needs an operator, and telling it by a webhook.
//!
//! Each node that was given a webhook looks; the first living one, by name, tells. If it is lost,
//! the next one knows what was told before.

use crate::shared::Shared;
use crate::show::{self, DatabaseShown, MachineShown};
use crate::site::Site;
use crate::store::{Problem, Store};
use cluster::coordinator::{Health, Member};
use console::telling::{Alert, Alerts, Level, Webhook};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// How often the thread looks whether it is to end.
const STEP: Duration = Duration::from_millis(100);

/// How long a call to etcd may take.
const CALL: Duration = Duration::from_secs(5);

/// The cluster at a glance.
pub struct Found {
    /// How etcd is.
    pub health: Health,
    /// Its servers.
    pub members: Vec<Member>,
    /// All machines.
    pub machines: Vec<MachineShown>,
    /// All databases.
    pub databases: Vec<DatabaseShown>,
    /// What needs an operator.
    pub problems: Vec<String>,
}

/// Looks at the cluster.
///
/// # Errors
/// etcd does not answer.
pub fn look(store: &mut Store, site: &Site) -> Result<Found, Problem> {
    let (health, members) = store.health()?;
    let databases = show::databases(store, site)?;
    let machines = show::machines(site);
    let mut problems = site.warnings(&store.keys);
    problems.extend(etcd::version_warning(&health.version));
    let dead = machines.iter().filter(|machine| !machine.is_alive);
    problems.extend(dead.map(|it| format!("The node of machine '{}' is down", it.name)));
    let full = machines.iter().filter(|machine| !machine.disk_error.is_empty());
    problems.extend(full.map(|it| format!("Machine '{}': {}", it.name, it.disk_error)));
    let ill = databases.iter().filter(|it| it.stage == "ready" && it.health != "ok");
    problems.extend(ill.map(|it| format!("Database '{}': {}", it.name, it.health)));
    for it in databases.iter().filter(|it| it.stage == "ready") {
        let waiting = it.shards.iter().filter(|shard| !shard.waiting.text.is_empty());
        problems.extend(waiting.map(|shard| {
            let (number, text) = (shard.number, &shard.waiting.text);
            format!("Shard {number} of database '{}' has no primary: {text}", it.name)
        }));
    }
    Ok(Found { health, members, machines, databases, problems })
}

/// Tells of problems until `is_over`.
pub fn tell(shared: &Shared, hook: &Webhook, is_over: &AtomicBool) {
    let mut store = shared.store(CALL);
    let (mut alerts, subject) = (Alerts::default(), format!("cluster {}", shared.cluster));
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let found = alerts_now(&mut store);
        let notices = alerts.look(Instant::now(), found);
        if shared.site().rank(&shared.machine) == Some(0) {
            notices.iter().for_each(|notice| hook.tell(&subject, notice));
        }
        while began.elapsed() < LOOK && !is_over.load(Ordering::Relaxed) {
            sleep(STEP);
        }
    }
}

fn alerts_now(store: &mut Store) -> Vec<Alert> {
    let read = store.read().map_err(Problem::from);
    let found = read.and_then(|site| look(store, &site));
    let away = |why: Problem| {
        let title = "etcd does not answer".to_owned();
        vec![Alert { level: Level::Alarm, title, detail: why.to_string() }]
    };
    let found = match found {
        Ok(found) => found,
        Err(why) => return away(why),
    };
    // A database that clients cannot use is worse than anything else.
    let is_down = found.databases.iter().any(|it| it.stage == "ready" && !it.is_available);
    let level = if is_down { Level::Alarm } else { Level::Warning };
    let alert = |title: String| Alert { level, title, detail: String::new() };
    found.problems.into_iter().map(alert).collect()
}
