//! Jobs: each look at the site says what is still missing. A node does its own, and takes up those
//! of nodes whose lease is gone.

use crate::change::{Owner, Step, ended, is_running, replace_job, set_stage};
use crate::drain;
use crate::reshape::{self, surge};
use crate::shared::Shared;
use crate::site::{Database, Job, JobKind, JobState, Placed, Site, Stage};
use crate::store::{Problem, Store};
use crate::talk::{self, Answer};
use crate::tasks::{Tasks, Way, schedule};
use crate::unplaced;
use cluster::coordinator::{Change, Outcome, Transaction};
use cluster::view::{At, View};
use process::log;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the thread waits for a change before it looks again.
const LOOK: Duration = Duration::from_millis(100);

/// How long it waits if there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

/// How long a call to etcd may take.
const CALL: Duration = Duration::from_secs(5);

/// Keys that are removed at a time.
const REMOVALS: usize = 64;

/// See the head of this file.
pub struct Jobs {
    shared: Arc<Shared>,
    store: Store,
    tasks: Tasks,
}

impl Jobs {
    /// For the jobs of this node.
    pub fn new(shared: Arc<Shared>) -> Jobs {
        let store = shared.store(CALL);
        Jobs { shared, store, tasks: Tasks::default() }
    }

    /// Does jobs until `is_over`.
    pub fn run(mut self, is_over: &AtomicBool) {
        let mut turns = 0;
        while !is_over.load(Ordering::Relaxed) {
            let site = self.shared.site();
            let has_work = site.jobs.values().any(is_running);
            if let Ok(owner) = self.shared.owner() {
                self.tasks.keep_own(&site, &owner);
                schedule::look(&mut self.store, &site, &owner);
                if has_work {
                    self.turn(&site, &owner);
                }
            }
            turns = self.shared.wait(turns, if has_work { LOOK } else { IDLE });
        }
    }

    fn turn(&mut self, site: &Site, owner: &Owner) {
        for (id, at) in site.jobs.iter().filter(|(_, at)| is_running(at)) {
            let is_mine = at.value.lease == owner.lease;
            let is_orphan = !is_mine && !site.has_node_with(at.value.lease);
            let outcome = match (is_mine, is_orphan) {
                (true, _) => self.step(site, id, at),
                (false, true) => self.take_up(id, at, owner),
                (false, false) => Ok(()),
            };
            if let Err(why) = outcome {
                log!(Warning, "Job {id} waits: {why}");
            }
        }
    }

    fn take_up(&mut self, id: &str, at: &At<Job>, owner: &Owner) -> Result<(), Problem> {
        let job = Job { owner: owner.machine.clone(), lease: owner.lease, ..at.value.clone() };
        let mut transaction = Transaction::default();
        replace_job(&self.store.keys, id, at, &job, &mut transaction);
        self.store.commit(&transaction)?;
        let text = format!("job {id} of machine '{}' is taken up", at.value.owner);
        log!(Notice, "{text}");
        self.store.note(&text);
        Ok(())
    }

    fn step(&mut self, site: &Site, id: &str, at: &At<Job>) -> Result<(), Problem> {
        let job = &at.value;
        let step = match site.databases.get(&job.database) {
            _ if let Some(task) = &job.task => match task.way() {
                Way::Steps(restart) if restart.surge => {
                    surge::look(&mut self.store, site, job, restart)?
                }
                Way::Steps(restart) => restart.look(&mut self.store, site, job)?,
                Way::Thread(run) => self.tasks.look(&self.shared, id, (job, task), run),
            },
            _ if !job.machine.is_empty() => drain::look(&mut self.store, site, job)?,
            None => Step::Fails("the database is gone".into()),
            Some(database) => self.look(job, database, site)?,
        };
        let mut transaction = Transaction::default();
        let changed = match step {
            Step::Waits(percent, text) if percent == job.percent && text == job.text => {
                return Ok(());
            }
            Step::Waits(percent, text) => Job { percent, text, ..job.clone() },
            Step::Changes(changes) => {
                transaction = changes;
                job.clone()
            }
            Step::Goes(changes, job) => {
                transaction = changes;
                *job
            }
            Step::Done(changes) => {
                transaction = changes;
                let state = if job.is_cancelled { JobState::Cancelled } else { JobState::Done };
                ended(job, state, String::new())
            }
            Step::Fails(why) => ended(job, JobState::Failed, why),
        };
        replace_job(&self.store.keys, id, at, &changed, &mut transaction);
        if self.store.commit(&transaction)? == Outcome::Conflict {
            // What was read of the job is old: the next look has what it is now.
            return Ok(());
        }
        let is_forgotten = matches!(changed.kind, JobKind::Replace | JobKind::Remove);
        if changed.state == JobState::Done && is_forgotten {
            self.store.remove_member(&changed.machine);
        }
        if changed.state != JobState::Running {
            let text = describe(&changed);
            log!(Notice, "{text}");
            self.store.note(&text);
        }
        Ok(())
    }

    fn look(&mut self, job: &Job, at: &At<Database>, site: &Site) -> Result<Step, Problem> {
        let view = self.store.view(at.value.id)?;
        let is_undone = job.is_cancelled && job.kind == JobKind::Create;
        if job.kind == JobKind::Delete || is_undone {
            return self.delete(job, at, site, view.as_ref());
        }
        let Some(view) = view else { return Ok(Step::Fails("its topology is gone".into())) };
        match job.kind {
            JobKind::Create => Ok(self.create(job, at, site, &view)),
            _ => reshape::look(&mut self.store, site, job, at, &view),
        }
    }

    fn create(&self, job: &Job, at: &At<Database>, site: &Site, view: &View) -> Step {
        let database = &at.value;
        let waiting: Vec<&Placed> =
            database.copies.iter().filter(|placed| !is_ready(database, placed, view)).collect();
        let unled =
            view.topology.value.shards.iter().filter(|it| !view.is_alive(it.holder)).count();
        let total = database.copies.len().max(1);
        if let Some(first) = waiting.first() {
            let percent = u8::try_from((total - waiting.len()) * 100 / total).unwrap_or(0);
            return Step::Waits(percent, why(site, first));
        }
        if unled > 0 {
            return Step::Waits(99, format!("{unled} shards have no primary yet"));
        }
        let behind = database.copies.iter().filter(|placed| !view.has_member(placed.copy)).count();
        if behind > 0 {
            return Step::Waits(99, format!("{behind} copies synchronise"));
        }
        let late = database.copies.iter().filter(|placed| !sees_all(database, placed)).count();
        if late > 0 {
            return Step::Waits(99, format!("{late} copies do not see all shards yet"));
        }
        let mut transaction = Transaction::default();
        set_stage(&self.store.keys, &job.database, at, Stage::Ready, &mut transaction);
        Step::Done(transaction)
    }

    fn delete(
        &self,
        job: &Job,
        at: &At<Database>,
        site: &Site,
        view: Option<&View>,
    ) -> Result<Step, Problem> {
        let (keys, copies) = (&self.store.keys, &self.store.copies);
        let mut transaction = Transaction::default();
        if at.value.stage != Stage::Deleting {
            set_stage(keys, &job.database, at, Stage::Deleting, &mut transaction);
            return Ok(Step::Changes(transaction));
        }
        let has_lease =
            |placed: &Placed| view.is_some_and(|it| it.alive.contains_key(&placed.copy));
        for placed in &at.value.copies {
            let machine = &placed.machine;
            if site.report(placed).is_some() {
                return Ok(Step::Waits(50, format!("machine '{machine}' ends its copies")));
            }
            if has_lease(placed) && !site.is_alive(machine) {
                let text =
                    format!("a copy runs on machine '{machine}', but its node does not: start it");
                return Ok(Step::Waits(50, text));
            }
            if has_lease(placed) {
                return Ok(Step::Waits(
                    60,
                    format!("a copy on machine '{machine}' gives up its lease"),
                ));
            }
        }
        let homes = at.value.copies.iter().map(|placed| copies.home(placed.copy));
        let fences = view.into_iter().flat_map(|view| {
            let fences = view.fences.keys();
            fences.map(|(shard, copy)| copies.fence(view.database, *shard, *copy))
        });
        let mut removals: Vec<String> = fences.collect();
        if removals.is_empty() {
            removals.extend(homes);
            removals.extend(cluster::shared::keys(copies, at.value.id));
            removals.push(copies.topology(at.value.id));
            removals.push(keys.database(&job.database));
            let changes = removals.into_iter().map(|key| Change::Delete { key });
            // Their nodes have not seen that the database goes away.
            let away = at.value.copies.iter().filter(|placed| !site.is_alive(&placed.machine));
            let gone = away.map(|it| unplaced::gone(keys, it.copy, &it.machine, &job.database));
            let changes = changes.chain(gone.take(REMOVALS)).collect();
            return Ok(Step::Done(Transaction { changes, ..transaction }));
        }
        removals.truncate(REMOVALS);
        let changes = removals.into_iter().map(|key| Change::Delete { key }).collect();
        Ok(Step::Changes(Transaction { changes, ..transaction }))
    }
}

/// Returns whether a copy has a lease and answers.
fn is_ready(database: &Database, placed: &Placed, view: &View) -> bool {
    let address = (&*placed.host, placed.port);
    let login = database.login();
    view.alive.contains_key(&placed.copy)
        && talk::ask(address, login, &[&["PING"]], talk::ANSWER)
            .is_ok_and(|answers| answers == [Answer::Text("PONG".into())])
}

/// Returns whether a copy has seen that all shards have a primary: it refuses requests until then.
fn sees_all(database: &Database, placed: &Placed) -> bool {
    let address = (&*placed.host, placed.port);
    let answer = talk::ask_node(address, database.login(), &["CLUSTER", "INFO"], talk::ANSWER);
    matches!(&answer, Ok(Answer::Text(info)) if talk::field(info, "cluster_state") == Some("ok"))
}

/// Says why a copy is not ready.
fn why(site: &Site, placed: &Placed) -> String {
    let Placed { copy, machine, port, .. } = placed;
    let what = format!("copy {copy:?} on machine '{machine}', port {port},");
    match site.report(placed) {
        _ if !site.is_alive(machine) => format!("{what} waits for the machine's node"),
        Some(report) if !report.note.is_empty() => format!("{what} has ended: {}", report.note),
        Some(_) => format!("{what} starts"),
        None => format!("{what} is not started yet"),
    }
}

fn describe(job: &Job) -> String {
    let (name, machine) = (&job.database, &job.machine);
    let what = match job.kind {
        JobKind::Switch => format!("the handover of what machine '{machine}' leads"),
        JobKind::Drain => format!("the move of the copies of machine '{machine}'"),
        JobKind::Replace => format!("the replacement of machine '{machine}'"),
        JobKind::Create => format!("the creation of database '{name}'"),
        JobKind::Update => format!("the change of database '{name}'"),
        JobKind::Delete => format!("the deletion of database '{name}'"),
        JobKind::Import => format!("the import into database '{name}'"),
        JobKind::Export => format!("the export of database '{name}'"),
        JobKind::Backup => format!("the backup of database '{name}'"),
        JobKind::Verify => format!("the check of a backup of '{name}'"),
        JobKind::Restore => format!("the restore of database '{name}'"),
        JobKind::Restart => format!("the restart of the copies of database '{name}'"),
        JobKind::Rebalance => format!("the rebalance of database '{name}'"),
        JobKind::Move => format!("the move of slots of database '{name}'"),
        JobKind::Remove => format!("the removal of machine '{machine}'"),
        JobKind::Fill => format!("the move of copies to machine '{machine}'"),
    };
    let time = job.ended_ms.saturating_sub(job.began_ms);
    match job.state {
        JobState::Running => format!("{what} goes on"),
        JobState::Done => format!("{what} took {time} ms"),
        JobState::Cancelled => format!("{what} was cancelled"),
        JobState::Failed => format!("{what} failed: {}", job.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_job_says_how_it_ended() {
        let job = Job {
            kind: JobKind::Create,
            database: "a".into(),
            machine: String::new(),
            state: JobState::Running,
            owner: "m".into(),
            lease: 1,
            percent: 50,
            text: String::new(),
            is_cancelled: false,
            task: None,
            aim: crate::site::Aim::default(),
            request_id: String::new(),
            began_ms: 0,
            ended_ms: 0,
        };
        let failed = ended(&job, JobState::Failed, "the disk is full".into());
        assert_eq!(describe(&failed), "the creation of database 'a' failed: the disk is full");
        assert_eq!((failed.percent, ended(&job, JobState::Done, String::new()).percent), (50, 100));
    }
}
