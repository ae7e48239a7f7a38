//! Backups that come round: what is due is made a job, by whichever node is first.

use super::{Task, backup::Backup, manifest::moment};
use crate::change::{Owner, begin_with, database, is_running};
use crate::keys::SiteKeys;
use crate::site::{Aim, JobKind, Site, Stage, encode, now_ms, unchanged};
use crate::store::{Problem, Store, put};
use cluster::coordinator::Transaction;
use serde::{Deserialize, Serialize};

/// Backups of a database that come round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// Where they go.
    #[serde(with = "crate::sealed")]
    pub at: String,
    /// The time between two, in seconds.
    pub every_s: u64,
    /// How many are kept; all if there is no number.
    #[serde(default)]
    pub keep: Option<usize>,
    /// When the last one was begun, in milliseconds since 1970.
    #[serde(default)]
    pub last_ms: u64,
}

/// Makes jobs of what is due.
pub fn look(store: &mut Store, site: &Site, owner: &Owner) {
    let now = now_ms();
    for (name, _) in site.schedules.iter().filter(|(name, _)| due(site, name, now).is_some()) {
        let begun = store.change(|site, keys, _| {
            let nothing = || Problem::Missing(String::new());
            due(site, name, now_ms()).ok_or_else(nothing)?;
            begin(site, keys, name, owner).ok_or_else(nothing)
        });
        match begun {
            Ok(job) => process::log!(Notice, "Backup of database '{name}' is due: job {job}"),
            // Another node was first.
            Err(Problem::Missing(_)) => {}
            Err(why) => process::log!(Warning, "The backup of database '{name}' waits: {why}"),
        }
    }
}

/// Returns the schedule of a database if a backup is due.
fn due<'a>(site: &'a Site, name: &str, now: u64) -> Option<&'a Schedule> {
    let schedule = &site.schedules.get(name)?.value;
    let is_ready = database(site, name).is_ok_and(|at| at.value.stage == Stage::Ready);
    let runs = site
        .jobs
        .values()
        .any(|at| is_running(at) && at.value.kind == JobKind::Backup && at.value.database == name);
    let next = schedule.last_ms.saturating_add(schedule.every_s.saturating_mul(1000));
    (is_ready && !runs && next <= now).then_some(schedule)
}

fn begin(site: &Site, keys: &SiteKeys, name: &str, owner: &Owner) -> Option<(String, Transaction)> {
    let at = site.schedules.get(name)?;
    let now = now_ms();
    let schedule = Schedule { last_ms: now, ..at.value.clone() };
    let (to, keep) = (schedule.at.clone(), schedule.keep);
    let task = Task::Backup(Backup { at: to, name: format!("{name}/{}", moment(now)), keep });
    let mut transaction = Transaction {
        compares: vec![unchanged(keys.schedule(name), at.revision)],
        changes: vec![put(keys.schedule(name), encode(&schedule))],
    };
    let about = (JobKind::Backup, name, "");
    let job = begin_with(site, keys, about, (Some(task), Aim::default()), owner, &mut transaction);
    Some((job, transaction))
}
