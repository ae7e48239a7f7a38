//! What needs an operator, and telling it by a webhook.
//!
//! Each node that was given a webhook looks; the first living one of these, by name, tells. If it
//! is lost, the next one knows what was told before, and tells what was told lately again: the lost
//! one may not have sent it.

use crate::bus;
use crate::shared::Shared;
use crate::show::{self, DatabaseShown, MachineShown};
use crate::site::Site;
use crate::store::{Problem, Store};
use cluster::coordinator::{Health, Member};
use console::telling::{Alert, Alerts, Level, Notice, Sight, Webhook};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks of the nodes that tell first and second.
const LOOK: Duration = Duration::from_secs(5);

/// Between two looks of the others: each reads all topologies.
const SELDOM: Duration = Duration::from_secs(30);

/// Nodes that look often.
const LOOKING: usize = 2;

/// What was told in this time is told again by a node that becomes the first.
const LATELY: Duration = Duration::from_secs(60);

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
    /// What needs an operator. A title has no number that changes while the problem lasts.
    pub alerts: Vec<Alert>,
}

impl Found {
    /// Returns a line for each problem.
    pub fn problems(&self) -> Vec<String> {
        let line = |alert: &Alert| match alert.detail.is_empty() {
            true => alert.title.clone(),
            false => format!("{}: {}", alert.title, alert.detail),
        };
        self.alerts.iter().map(line).collect()
    }
}

/// Looks at the cluster.
///
/// # Errors
/// etcd does not answer.
pub fn look(store: &mut Store, site: &Site) -> Result<Found, Problem> {
    let (health, members) = store.health()?;
    let databases = show::databases(store, site)?;
    let machines = show::machines(site);
    let said = site.warnings(&store.keys).into_iter().chain(bus::warnings(site));
    let said = said.chain(etcd::version_warning(&health.version));
    let mut alerts: Vec<Alert> = said.map(|text| split(&text)).collect();
    alerts.extend(machines.iter().filter_map(of_machine));
    databases.iter().filter(|it| it.stage == "ready").for_each(|it| of_database(it, &mut alerts));
    Ok(Found { health, members, machines, databases, alerts })
}

fn alert(level: Level, title: String, detail: &str) -> Alert {
    Alert { level, title, detail: detail.to_owned() }
}

/// Makes a problem of a line. What comes behind its colon may change.
fn split(text: &str) -> Alert {
    let (title, detail) = text.split_once(": ").unwrap_or((text, ""));
    alert(Level::Warning, title.to_owned(), detail)
}

fn of_machine(MachineShown { name, is_alive, disk_error, .. }: &MachineShown) -> Option<Alert> {
    if !is_alive {
        let title = format!("The node of machine '{name}' is down");
        return Some(alert(Level::Warning, title, ""));
    }
    let is_well = disk_error.is_empty();
    (!is_well).then(|| alert(Level::Warning, format!("Machine '{name}'"), disk_error))
}

/// Adds what is wrong with a database. That clients cannot use it is worse than anything else.
fn of_database(it: &DatabaseShown, alerts: &mut Vec<Alert>) {
    let (name, level) = match it.is_available {
        true => (&it.name, Level::Warning),
        false => (&it.name, Level::Alarm),
    };
    if it.health != "ok" {
        alerts.push(alert(level, format!("Database '{name}'"), &it.health));
    }
    for shard in it.shards.iter().filter(|shard| !shard.waiting.text.is_empty()) {
        let title = format!("Shard {} of database '{name}' has no primary", shard.number);
        alerts.push(alert(Level::Alarm, title, &shard.waiting.text));
    }
}

/// Tells of problems until `is_over`.
pub fn tell(shared: &Shared, hook: &Webhook, is_over: &AtomicBool) {
    let (mut store, mut turns) = (shared.store(CALL), Turns::default());
    let (mut alerts, subject) = (Alerts::default(), format!("cluster {}", shared.cluster));
    let rank = || shared.site().webhook_rank(&shared.machine);
    while !is_over.load(Ordering::Relaxed) {
        let (began, rank_now) = (Instant::now(), rank());
        let notices = alerts.look(Instant::now(), sight(shared, &mut store));
        for notice in turns.take(Instant::now(), rank_now == Some(0), notices) {
            hook.tell(&subject, &notice);
        }
        let period = if rank_now.is_some_and(|it| it >= LOOKING) { SELDOM } else { LOOK };
        while began.elapsed() < period && rank() == rank_now && !is_over.load(Ordering::Relaxed) {
            sleep(STEP);
        }
    }
}

/// Returns what is wrong now. While etcd does not answer nothing is known of the rest.
fn sight(shared: &Shared, store: &mut Store) -> Sight {
    let found = match shared.trouble() {
        Some(why) => Err(why),
        None => look(store, &shared.site()).map_err(|why| why.to_string()),
    };
    match found {
        Ok(found) => Sight::All(found.alerts),
        Err(why) => Sight::Blind(alert(Level::Alarm, "etcd does not answer".to_owned(), &why)),
    }
}

/// Whether this node is the one that tells, and what was told lately.
#[derive(Default)]
struct Turns {
    is_first: bool,
    lately: VecDeque<(Instant, Notice)>,
}

impl Turns {
    /// Takes what is to be told. Returns what this node tells.
    fn take(&mut self, now: Instant, is_first: bool, notices: Vec<Notice>) -> Vec<Notice> {
        let was_first = std::mem::replace(&mut self.is_first, is_first);
        self.lately.retain(|(at, _)| now.saturating_duration_since(*at) < LATELY);
        self.lately.extend(notices.iter().map(|notice| (now, notice.clone())));
        match (was_first, is_first) {
            (_, false) => Vec::new(),
            (true, true) => notices,
            (false, true) => self.lately.iter().map(|(_, notice)| notice.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::with_database;
    use crate::site::Stage;
    use console::telling::Status;

    #[test]
    fn titles_stay_while_numbers_change() {
        let (site, _) = with_database(Stage::Ready);
        let it = show::database(&site, "d", &site.databases["d"].value, None, false);
        let found = |health: &str, is_available| {
            let it = DatabaseShown { health: health.into(), is_available, ..it.clone() };
            let mut alerts = Vec::new();
            of_database(&it, &mut alerts);
            alerts.remove(0)
        };
        let (before, after) = (found("3 copies", true), found("2 copies", true));
        assert_eq!((&before.title, &*before.detail), (&after.title, "3 copies"));
        assert_eq!(
            (before.level, found("no primary", false).level),
            (Level::Warning, Level::Alarm)
        );
        let [one, two] = ["Copies run: a on b", "Copies run: a on b, c on d"].map(split);
        assert_eq!(one.title, two.title);
    }

    #[test]
    fn the_first_living_machine_with_a_webhook_tells() {
        let (mut site, _) = with_database(Stage::Ready);
        let mut announce = |name: &str| {
            let alive = site.machines.get_mut(name).and_then(|known| known.alive.as_mut());
            alive.expect("it lives").value.has_webhook = true;
            ["a", "b"].map(|name| site.webhook_rank(name))
        };
        assert_eq!(announce("b"), [None, Some(0)]);
        assert_eq!(announce("a"), [Some(0), Some(1)]);
        site.machines.get_mut("a").expect("it is known").alive = None;
        assert_eq!(["a", "b"].map(|name| site.webhook_rank(name)), [None, Some(0)]);
    }

    #[test]
    fn a_node_that_becomes_the_first_tells_again_what_was_told_lately() {
        let (mut turns, began) = (Turns::default(), Instant::now());
        let mut take = |seconds, is_first, title: &str| {
            let alert = alert(Level::Warning, title.to_owned(), "");
            let notices = match title {
                "" => Vec::new(),
                _ => vec![Notice { status: Status::Firing, alert }],
            };
            let told = turns.take(began + Duration::from_secs(seconds), is_first, notices);
            told.into_iter().map(|notice| notice.alert.title).collect::<Vec<_>>()
        };
        assert_eq!(take(0, false, "old"), [""; 0]);
        assert_eq!(take(30, false, "new"), [""; 0]);
        assert_eq!(take(70, true, ""), ["new"]);
        assert_eq!(take(75, true, ""), [""; 0], "once");
        assert_eq!(take(80, true, "newest"), ["newest"]);
    }
}
