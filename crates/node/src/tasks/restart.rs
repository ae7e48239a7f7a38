//! A rolling restart: one copy after the other ends and is started again, replicas first; a primary
//! hands its shard over before. So a database gets a new version of the program, or options that
//! need a start, while it serves. With `surge` the looks are those of `reshape/surge.rs`.

use crate::change::{self, Step};
use crate::site::{Database, Job, Placed, ProcessState, Site, is_false};
use crate::store::{Problem, Store};
use crate::{switch, talk};
use cluster::coordinator::Transaction;
use cluster::id::Id;
use cluster::view::View;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a copy may take to end.
const ANSWER: Duration = Duration::from_secs(8);

/// What a restart was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restart {
    /// The copies, and their processes at that time. A copy with another process was restarted.
    pub copies: Vec<(Id, u32)>,
    /// A shard gets a copy more before one of its copies ends: see `reshape/surge.rs`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub surge: bool,
    /// Why a restart with `surge` fails: it ends when the copy that it has added is gone. Empty: it
    /// goes on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fails: String,
}

impl Restart {
    /// Of all copies of a database.
    ///
    /// # Errors
    /// It would cost data, or a copy is not there.
    pub fn plan(site: &Site, name: &str, surge: bool) -> Result<Restart, Problem> {
        let database = &change::database(site, name)?.value;
        let settings = &database.settings;
        let is_in_memory = settings.persistence == crate::settings::Persistence::None;
        if settings.replicas == 0 && is_in_memory && !surge {
            return Err(Problem::Wrong(
                "the data are in memory only, without a replica: a restart would lose them. Add \
                 --surge, and another copy has them before"
                    .into(),
            ));
        }
        let mut copies = Vec::new();
        for placed in &database.copies {
            let report = site.report(placed).filter(|it| it.state == ProcessState::Running);
            let Some(report) = report else {
                let Placed { copy, machine, .. } = placed;
                return Err(Problem::Wrong(format!(
                    "copy {copy:?} on machine '{machine}' does not run: see dunlin cluster status"
                )));
            };
            copies.push((placed.copy, report.process_id));
        }
        Ok(Restart { copies, surge, fails: String::new() })
    }

    /// Returns whether the process of a copy is still that of the beginning.
    pub(crate) fn is_old(&self, site: &Site, placed: &Placed) -> bool {
        let old = self.copies.iter().find(|(copy, _)| *copy == placed.copy);
        let report = site.report(placed).map(|report| report.process_id);
        // A copy that was placed later is new.
        old.is_some_and(|(_, process)| report == Some(*process))
    }

    /// Does what is next.
    ///
    /// # Errors
    /// etcd is away.
    pub(crate) fn look(&self, store: &mut Store, site: &Site, job: &Job) -> Result<Step, Problem> {
        if job.is_cancelled {
            return Ok(Step::Done(Transaction::default()));
        }
        let database = &change::database(site, &job.database)?.value;
        let Some(view) = store.view(database.id)? else {
            return Ok(Step::Fails("its topology is gone".into()));
        };
        let old: Vec<&Placed> =
            database.copies.iter().filter(|placed| self.is_old(site, placed)).collect();
        let all = database.copies.len().max(1);
        let percent = u8::try_from((all - old.len()) * 100 / all).unwrap_or(0);
        let waits = |text: String| Ok(Step::Waits(percent.min(99), text));
        if let Some(placed) = self.find_behind(site, database, &view) {
            let Placed { copy, machine, .. } = placed;
            return waits(format!("copy {copy:?} on machine '{machine}' gets in step"));
        }
        let leads = |placed: &&Placed| {
            let shard = view.topology.value.shard_of(placed.copy);
            shard.is_some_and(|shard| shard.holder.id == placed.copy)
        };
        let next = old.iter().find(|it| !leads(it)).or(old.first());
        let Some(next) = next.copied() else { return Ok(Step::Done(Transaction::default())) };
        if leads(&next)
            && let Some(to) = successor(database, next)
        {
            return match switch::hand_over(store, database, to) {
                Ok(()) => waits(format!("shard {} was handed over", next.shard + 1)),
                Err(why) => waits(format!("shard {}: {why}", next.shard + 1)),
            };
        }
        waits(self.end_process(database, next))
    }

    /// Ends the process of a copy if it is still that of the beginning; its node starts another.
    /// Returns what is waited for.
    pub(crate) fn end_process(&self, database: &Database, placed: &Placed) -> String {
        let address = (&*placed.host, placed.port);
        let Placed { copy, machine, .. } = placed;
        let what = format!("copy {copy:?} on machine '{machine}'");
        // The site may be older than the process.
        let info = talk::info(address, database.login(), &["server"], ANSWER).unwrap_or_default();
        let process = talk::field(&info, "process_id").and_then(|text| text.parse::<u32>().ok());
        if process.is_none_or(|process| !self.copies.contains(&(*copy, process))) {
            return format!("{what} is started again");
        }
        let words: &[&[&str]] = &[&["SHUTDOWN"]];
        // A copy that ends does not answer.
        match talk::ask(address, database.login(), words, ANSWER).as_deref() {
            Ok([talk::Answer::Error(why)]) => format!("{what} refuses to end: {why}"),
            _ => format!("{what} is started again"),
        }
    }

    /// Returns a copy that does not run, is not in step, or was restarted and does not know its
    /// role again.
    pub(crate) fn find_behind<'a>(
        &self,
        site: &Site,
        database: &'a Database,
        view: &View,
    ) -> Option<&'a Placed> {
        let serves = |placed: &Placed| self.is_old(site, placed) || serves(database, placed, view);
        database.copies.iter().find(|placed| !(is_well(site, placed, view) && serves(placed)))
    }
}

/// Whether a copy runs, and has all that it should.
fn is_well(site: &Site, placed: &Placed, view: &View) -> bool {
    let runs = site.report(placed).is_some_and(|it| it.state == ProcessState::Running);
    runs && view.alive.contains_key(&placed.copy)
        && view.topology.value.shard_of(placed.copy).is_some_and(|shard| {
            view.is_alive(shard.holder)
                && (shard.holder.id == placed.copy || view.has_member(placed.copy))
        })
}

/// Whether a copy that was restarted knows its role again. Its lease may still be that of the
/// process before.
fn serves(database: &Database, placed: &Placed, view: &View) -> bool {
    let address = (&*placed.host, placed.port);
    let info = talk::info(address, database.login(), &["replication"], ANSWER);
    let Ok(info) = info else { return false };
    let shard = view.topology.value.shard_of(placed.copy);
    match shard.is_some_and(|shard| shard.holder.id == placed.copy) {
        true => talk::field(&info, "role") == Some("master"),
        false => talk::field(&info, "master_link_status") == Some("up"),
    }
}

/// A copy of the same shard, if there is one. All are in step.
fn successor<'a>(database: &'a Database, old: &Placed) -> Option<&'a Placed> {
    let is_other = |it: &&Placed| it.shard == old.shard && it.copy != old.copy && !it.is_leaving;
    database.copies.iter().find(is_other)
}
