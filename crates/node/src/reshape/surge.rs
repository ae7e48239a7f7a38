//! A restart during which no shard has fewer copies than before: one look at a job of the kind
//! `restart` that has `surge`.
//!
//! Shard by shard a copy is added, which begins with the program and the options of now. When it is
//! in step the copies of before are restarted, all but one, which leaves at the end:
//!
//! ```text
//!   P R      the copies of before: P leads, R is on the fullest machine
//!   P R S    S is added (`is_surge`), and synchronises
//!   p R S    P hands its shard over to S, and is restarted
//!   p   S    R leaves, and S is a copy like others
//! ```
//!
//! So a copy's data are sent once, and one machine needs room for one copy. If S does not run
//! (`is_hopeless`), it leaves and the job fails, before a copy of before was touched. If the job is
//! cancelled S leaves, too. Like a change, the job goes on from what is true: which processes are
//! those of the beginning, and how many copies a shard has.

use super::{forecast, leave, misplaced};
use crate::change::{self, Step, placed};
use crate::members::Of;
use crate::plan::{self, Planned};
use crate::settings::{Settings, Wrong};
use crate::show::PlanShown;
use crate::site::{Database, Job, Placed, ProcessState, Site};
use crate::store::{Problem, Store};
use crate::switch;
use crate::tasks::Task;
use crate::tasks::restart::Restart;
use cluster::coordinator::Transaction;
use cluster::id::Id;
use cluster::view::At;
use std::collections::BTreeSet;

/// A copy that was added, and has ended so often, does not run.
const MAX_ENDS: u64 = 3;

/// What is known in one look.
struct Look<'a> {
    site: &'a Site,
    of: Of<'a>,
    restart: &'a Restart,
    percent: u8,
}

/// Does what is next.
///
/// # Errors
/// etcd is away.
pub fn look(store: &mut Store, site: &Site, job: &Job, restart: &Restart) -> Result<Step, Problem> {
    let at = change::database(site, &job.database)?;
    let Some(view) = store.view(at.value.id)? else {
        return Ok(Step::Fails("its topology is gone".into()));
    };
    let keys = store.keys.clone();
    let of = Of { keys: &keys, name: &job.database, at, view: &view };
    let all = restart.copies.len().max(1);
    let old = at.value.copies.iter().filter(|placed| restart.is_old(site, placed)).count();
    let percent = u8::try_from(all.saturating_sub(old) * 100 / all).unwrap_or(0).min(99);
    let look = Look { site, of, restart, percent };
    match leave(site, of)? {
        Some(Step::Waits(_, text)) => return Ok(look.waits(text)),
        Some(step) => return Ok(step),
        None => {}
    }
    if job.is_cancelled || !restart.fails.is_empty() {
        return Ok(look.give_up(store));
    }
    if let Some(behind) = restart.find_behind(site, &at.value, &view) {
        return Ok(look.wait_for(behind, job));
    }
    for shard in at.value.shards() {
        if let Some(step) = look.next(store, shard) {
            return Ok(step);
        }
    }
    Ok(Step::Done(Transaction::default()))
}

impl Look<'_> {
    fn database(&self) -> &Database {
        &self.of.at.value
    }

    fn waits(&self, text: String) -> Step {
        Step::Waits(self.percent, text)
    }

    fn leads(&self, placed: &Placed) -> bool {
        let shard = self.of.view.topology.value.shard_of(placed.copy);
        shard.is_some_and(|shard| shard.holder.id == placed.copy)
    }

    /// Waits until a copy is in step. One that was added and does not run makes the job fail.
    fn wait_for(&self, behind: &Placed, job: &Job) -> Step {
        let note = self.site.report(behind).map_or("", |report| &*report.note);
        let Placed { machine, shard, .. } = behind;
        if behind.is_surge && is_hopeless(self.site, behind) {
            let fails = format!(
                "the copy that was added to shard {} on machine '{machine}' does not run, and was \
                 taken out: {note}",
                shard + 1
            );
            let restart = Restart { fails, ..self.restart.clone() };
            let job = Job { task: Some(Task::Restart(restart)), ..job.clone() };
            return Step::Goes(Transaction::default(), Box::new(job));
        }
        self.waits(waits_for(self.site, behind))
    }

    /// Does what is next in a shard whose copies are in step. `None`: all were restarted, and there
    /// are as many as there are to be.
    fn next(&self, store: &mut Store, shard: usize) -> Option<Step> {
        let (site, database) = (self.site, self.database());
        let is_old = |placed: &&Placed| self.restart.is_old(site, placed);
        let old: Vec<&Placed> = database.kept(shard).filter(is_old).collect();
        let surge = database.kept(shard).find(|placed| placed.is_surge);
        let is_more = database.kept(shard).count() > database.settings.replicas + 1;
        if is_more && surge.is_none() && !site.moves_copies_of(database, shard) {
            return Some(self.adopt(shard));
        }
        let Some(last) = last(site, database, &old) else {
            // None is of before: the others have ended and were started by themselves.
            let surge = surge?;
            return Some(if is_more { self.dismiss(store, surge) } else { self.settle(shard) });
        };
        if !is_more {
            return Some(self.add(shard));
        }
        if surge.is_none() {
            let text = format!("another job moves a copy of shard {}", shard + 1);
            return Some(self.waits(text));
        }
        let others = || old.iter().copied().filter(|placed| placed.copy != last.copy);
        let next = others().find(|placed| !self.leads(placed)).or_else(|| others().next());
        let Some(next) = next else { return Some(self.dismiss(store, last)) };
        if self.leads(next) {
            return Some(self.hand_over(store, next));
        }
        let ends = || self.restart.end_process(database, next);
        Some(self.waits(self.still_sent_to(next).unwrap_or_else(ends)))
    }

    fn still_sent_to(&self, former: &Placed) -> Option<String> {
        switch::still_sent_to(self.database(), self.of.view, former.copy)
    }

    /// Adds a copy to a shard.
    fn add(&self, shard: usize) -> Step {
        let database = self.database();
        let planned = match place(self.site, database, shard) {
            Ok(planned) => planned,
            Err(why) => return self.waits(why.0),
        };
        let new = Placed { is_surge: true, ..placed(&planned, database.layout) };
        match self.of.add(self.site, &new) {
            Some(transaction) => Step::Changes(transaction),
            None => Step::Fails(format!("the topology has no shard {}", shard + 1)),
        }
    }

    /// Takes a copy that is too many for the one that is added: a cancelled job has left it.
    fn adopt(&self, shard: usize) -> Step {
        let mut database = self.database().clone();
        let adopted = adopted(self.site, self.restart, &database, shard);
        for placed in database.copies.iter_mut().filter(|it| Some(it.copy) == adopted) {
            placed.is_surge = true;
        }
        Step::Changes(self.put(&database))
    }

    /// Lets a copy leave whose shard has one more than it is to have. All others are in step.
    fn dismiss(&self, store: &mut Store, leaving: &Placed) -> Step {
        if self.leads(leaving) {
            return self.hand_over(store, leaving);
        }
        match self.still_sent_to(leaving) {
            Some(text) => self.waits(text),
            None => Step::Changes(self.end(leaving)),
        }
    }

    /// Hands the shard of a copy over, to one that need not be restarted if there is one.
    fn hand_over(&self, store: &mut Store, leader: &Placed) -> Step {
        let database = self.database();
        let others = database.kept(leader.shard).filter(|it| it.copy != leader.copy);
        let to = others.min_by_key(|it| {
            let is_member = self.of.view.has_member(it.copy);
            (!is_member, self.restart.is_old(self.site, it))
        });
        let what = format!("shard {}", leader.shard + 1);
        let Some(to) = to else { return self.waits(format!("{what} has no other copy")) };
        self.waits(match switch::hand_over(store, database, to) {
            Ok(()) => format!("{what} was handed over"),
            Err(why) => format!("{what}: {why}"),
        })
    }

    /// Marks a copy as leaving, and the others of its shard as copies like all.
    fn end(&self, leaving: &Placed) -> Transaction {
        let mut database = self.database().clone();
        for placed in database.copies.iter_mut().filter(|placed| placed.shard == leaving.shard) {
            placed.is_leaving |= placed.copy == leaving.copy;
            placed.is_surge = false;
        }
        self.put(&database)
    }

    /// Marks the copies of a shard as copies like all.
    fn settle(&self, shard: usize) -> Step {
        let mut database = self.database().clone();
        let here = database.copies.iter_mut().filter(|placed| placed.shard == shard);
        here.for_each(|placed| placed.is_surge = false);
        Step::Changes(self.put(&database))
    }

    fn put(&self, database: &Database) -> Transaction {
        let mut transaction = Transaction::default();
        self.of.put(database, &mut transaction);
        transaction
    }

    /// Takes out what was added, so that each shard has as many copies in step as it is to have.
    fn give_up(&self, store: &mut Store) -> Step {
        let database = self.database();
        let Some(surge) = database.copies.iter().find(|placed| placed.is_surge) else {
            return match self.restart.fails.is_empty() {
                true => Step::Done(Transaction::default()),
                false => Step::Fails(self.restart.fails.clone()),
            };
        };
        if database.kept(surge.shard).count() <= database.settings.replicas + 1 {
            return self.settle(surge.shard);
        }
        let is_member = |placed: &Placed| self.of.view.has_member(placed.copy);
        if !is_member(surge) && !self.leads(surge) {
            return Step::Changes(self.end(surge));
        }
        let mut others = database.kept(surge.shard).filter(|it| it.copy != surge.copy);
        match others.find(|placed| !is_member(placed)) {
            None => self.dismiss(store, surge),
            // It was restarted and does not come back: the copy that was added takes its place.
            Some(absent) if is_hopeless(self.site, absent) && !self.leads(absent) => {
                Step::Changes(self.end(absent))
            }
            Some(absent) => self.waits(waits_for(self.site, absent)),
        }
    }
}

/// Returns whether a copy ends each time it is started. Ends of a process that had settled are no
/// sign of that: they are those of earlier restarts.
fn is_hopeless(site: &Site, placed: &Placed) -> bool {
    let ends = |report: &crate::site::CopyReport| {
        report.state == ProcessState::Waiting && report.early_ends >= MAX_ENDS
    };
    site.report(placed).is_some_and(ends)
}

/// Says what a copy that is not in step is waited for.
fn waits_for(site: &Site, behind: &Placed) -> String {
    let Placed { copy, machine, shard, is_surge, .. } = behind;
    let shard = shard + 1;
    if !site.is_alive(machine) {
        return match is_surge {
            true => format!(
                "a copy is added to shard {shard} on machine '{machine}', whose node is down: \
                 start it, or cancel the job"
            ),
            false => format!("copy {copy:?} on machine '{machine}' is away: start its node"),
        };
    }
    let note = site.report(behind).map_or("", |report| &*report.note);
    let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
    match is_surge {
        true => format!(
            "a copy is added to shard {shard} on machine '{machine}', and synchronises{note}"
        ),
        false => format!("copy {copy:?} on machine '{machine}' gets in step{note}"),
    }
}

/// Returns the copy of a shard with one too many that counts as added: one that need not be
/// restarted if there is one, of these the last one placed.
fn adopted(site: &Site, restart: &Restart, database: &Database, shard: usize) -> Option<Id> {
    let is_new = |placed: &&Placed| !restart.is_old(site, placed);
    database.kept(shard).max_by_key(is_new).map(|placed| placed.copy)
}

/// Plans the copy that a shard gets. It need not have a zone of its own, since it may take the
/// place of the one that it shares its zone with.
fn place(site: &Site, database: &Database, shard: usize) -> Result<Planned, Wrong> {
    let settings = Settings { zones: false, ..database.settings.clone() };
    let anywhere = Database { settings, ..database.clone() };
    let number = database.kept(shard).count();
    let mut planned = plan::extend(site, &anywhere, &BTreeSet::new(), &[(shard, number)])?;
    planned.pop().ok_or_else(|| Wrong(format!("there is no place for shard {}", shard + 1)))
}

/// Returns the copy that is not restarted but leaves: the worst placed one, then one that clients
/// do not know by the database's port, then that of the fullest machine.
fn last<'a>(site: &Site, database: &Database, old: &[&'a Placed]) -> Option<&'a Placed> {
    let rank = |placed: &&&Placed| {
        let is_known = placed.port == database.settings.port;
        (misplaced(site, database, placed, true), !is_known, site.used_bytes(&placed.machine))
    };
    old.iter().max_by_key(rank).copied()
}

/// Returns what a restart of a database would add and take away.
///
/// # Errors
/// A machine has no room for a copy more, another job moves copies, or etcd is away.
pub fn plan(store: &mut Store, site: &Site, name: &str) -> Result<PlanShown, Problem> {
    let at = change::database(site, name)?;
    change::check_free(site, name, &at.value)?;
    let (added, removed) = swaps(site, name)?;
    let Some(view) = store.view(at.value.id)? else {
        return Err(Problem::Away(format!("the topology of database '{name}' is gone")));
    };
    let of = Of { keys: &store.keys, name, at, view: &view };
    Ok(forecast::exchange(of, &added, &removed))
}

/// Returns the copies that come and those that go, each shard after the other.
fn swaps(site: &Site, name: &str) -> Result<(Vec<Planned>, Vec<Placed>), Problem> {
    let mut site = site.clone();
    let mut database = change::database(&site, name)?.value.clone();
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for shard in database.shards() {
        let kept = database.kept(shard).count();
        let here = database.copies.iter().filter(|placed| placed.shard == shard).count();
        let wanted = database.settings.replicas + 1;
        let is_moved = site.moves_copies_of(&database, shard);
        if kept != here || kept < wanted || (kept > wanted && is_moved) {
            let cure = match is_moved {
                true => "wait for the job that moves them (dunlin cluster jobs)".into(),
                false => format!(
                    "dunlin cluster update-db {name} --replicas {} puts that right",
                    wanted - 1
                ),
            };
            let shard = shard + 1;
            return Err(Problem::Wrong(format!(
                "shard {shard} has {here} copies, of which {} leave, instead of {wanted}: {cure}",
                here - kept
            )));
        }
        let before: BTreeSet<Id> = database.kept(shard).map(|placed| placed.copy).collect();
        // One that a cancelled job has left counts as added.
        if kept == wanted {
            let planned = place(&site, &database, shard).map_err(|why| {
                Problem::Wrong(format!(
                    "a restart with --surge needs room for one copy more at a time: {}. Or leave \
                     out --surge",
                    why.0
                ))
            })?;
            database.copies.push(placed(&planned, database.layout));
            added.push(planned);
            replace(&mut site, name, &database);
        }
        while database.kept(shard).count() > wanted {
            let old: Vec<&Placed> =
                database.kept(shard).filter(|placed| before.contains(&placed.copy)).collect();
            let Some(goes) = last(&site, &database, &old).cloned() else { break };
            database.copies.retain(|placed| placed.copy != goes.copy);
            removed.push(goes);
            replace(&mut site, name, &database);
        }
    }
    Ok((added, removed))
}

fn replace(site: &mut Site, name: &str, database: &Database) {
    let at = At { value: database.clone(), revision: 0 };
    site.databases.insert(name.to_owned(), at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::{report, with_database};
    use crate::site::{CopyReport, JobKind, JobState, MachineAlive, Stage};

    /// A database of three shards with a replica each on two machines.
    fn on_two_machines() -> Site {
        with_database(Stage::Ready).0
    }

    fn alive<'a>(site: &'a mut Site, machine: &str) -> &'a mut MachineAlive {
        let known = site.machines.get_mut(machine).expect("it is there");
        &mut known.alive.as_mut().expect("it lives").value
    }

    fn homes(database: &Database, shard: usize) -> BTreeSet<&str> {
        database.kept(shard).map(|placed| &*placed.machine).collect()
    }

    #[test]
    fn each_shard_gets_a_copy_and_loses_the_worst_placed_one() {
        let site = on_two_machines();
        let before = &site.databases["d"].value;
        let (added, removed) = swaps(&site, "d").expect("it fits");
        assert_eq!((added.len(), removed.len()), (3, 3));
        let mut after = before.clone();
        for (new, old) in added.iter().zip(&removed) {
            assert_eq!(new.shard, old.shard);
            assert_eq!(new.machine, old.machine, "both machines have a copy of each shard");
            after.copies.retain(|placed| placed.copy != old.copy);
            after.copies.push(placed(new, 0));
        }
        assert!((0..3).all(|shard| homes(&after, shard).len() == 2), "{after:?}");
    }

    #[test]
    fn it_is_refused_without_room_and_while_copies_move() {
        let mut site = on_two_machines();
        for known in site.machines.values_mut() {
            // Three copies of 1 GiB each are there.
            known.spec.value.memory_bytes = 3 << 30;
        }
        let why = swaps(&site, "d").expect_err("there is no room").to_string();
        assert!(why.contains("--surge needs room"), "{why}");
        assert!(why.contains("replica 2 of shard 1"), "{why}");
        // One machine with room for one copy is enough, shard after shard.
        site.machines.get_mut("b").expect("it is there").spec.value.memory_bytes = 4 << 30;
        assert_eq!(swaps(&site, "d").expect("it fits").0.len(), 3);
        let mut moving = site.clone();
        let at = moving.databases.get_mut("d").expect("it is there");
        at.value.copies[0].is_leaving = true;
        let machine = at.value.copies[0].machine.clone();
        let why = |site: &Site| swaps(site, "d").expect_err("a copy leaves").to_string();
        let cure = "update-db d --replicas 1 puts that right";
        assert!(why(&moving).contains(cure), "{}", why(&moving));
        run_job(&mut moving, JobKind::Drain, &machine);
        assert!(why(&moving).contains("wait for the job"), "{}", why(&moving));
    }

    /// Makes the only job one that runs, about a machine.
    fn run_job(site: &mut Site, kind: JobKind, machine: &str) {
        let at = site.jobs.values_mut().next().expect("the one that made the database");
        let old = at.value.clone();
        at.value = Job { kind, database: String::new(), machine: machine.into(), ..old };
    }

    #[test]
    fn a_copy_that_a_cancelled_job_has_left_counts_as_added() {
        let mut site = on_two_machines();
        let mut left = site.databases["d"].value.copies[0].clone();
        left.copy = crate::change::draw();
        let shard = left.shard;
        site.databases.get_mut("d").expect("it is there").value.copies.push(left.clone());
        run_job(&mut site, JobKind::Switch, &left.machine);
        let (added, removed) = swaps(&site, "d").expect("no job moves it");
        assert_eq!((added.len(), removed.len()), (2, 3), "{added:?}");
        assert!(added.iter().all(|planned| planned.shard != shard));

        // One that was there when the restart began has to be restarted like the others.
        let database = site.databases["d"].value.clone();
        let of = |copies: &[Placed]| Restart {
            copies: copies.iter().map(|placed| (placed.copy, 7)).collect(),
            surge: true,
            fails: String::new(),
        };
        for placed in &database.copies {
            let copies = &mut alive(&mut site, &placed.machine).copies;
            copies.push(CopyReport { process_id: 7, ..report(placed) });
        }
        let (all, known) = (of(&database.copies), of(&database.copies[..6]));
        assert!(database.kept(shard).all(|placed| all.is_old(&site, placed)));
        let counts = adopted(&site, &all, &database, shard).expect("there are three");
        assert!(database.kept(shard).any(|placed| placed.copy == counts));
        for order in [1, 0] {
            let mut database = database.clone();
            database.copies.rotate_right(order);
            assert_eq!(adopted(&site, &known, &database, shard), Some(left.copy));
        }

        // One that a running job moves is not touched.
        run_job(&mut site, JobKind::Drain, &left.machine);
        assert!(site.moves_copies_of(&site.databases["d"].value, shard));
        let why = swaps(&site, "d").expect_err("it is moved").to_string();
        assert!(why.contains("wait for the job"), "{why}");
        run_job(&mut site, JobKind::Drain, "c");
        assert!(!site.moves_copies_of(&site.databases["d"].value, shard), "none is there");
        site.jobs.values_mut().for_each(|at| at.value.state = JobState::Cancelled);
        assert!(swaps(&site, "d").is_ok());
    }

    #[test]
    fn a_copy_whose_node_is_down_is_said_to_be_away() {
        let mut site = on_two_machines();
        let mut added = site.databases["d"].value.copies[0].clone();
        assert!(waits_for(&site, &added).contains("gets in step"));
        added.is_surge = true;
        assert!(waits_for(&site, &added).contains("and synchronises"));
        site.machines.get_mut(&added.machine).expect("it is there").alive = None;
        let text = waits_for(&site, &added);
        assert!(text.contains("is down: start it, or cancel the job"), "{text}");
        added.is_surge = false;
        let text = waits_for(&site, &added);
        assert!(text.contains("is away: start its node"), "{text}");
    }

    #[test]
    fn a_zone_is_shared_until_the_other_copy_leaves() {
        let mut site = on_two_machines();
        for (name, known) in &mut site.machines {
            known.spec.value.zone.clone_from(name);
        }
        let at = site.databases.get_mut("d").expect("it is there");
        at.value.settings.zones = true;
        let (added, removed) = swaps(&site, "d").expect("it fits");
        assert!(added.iter().zip(&removed).all(|(new, old)| new.machine == old.machine));
    }

    #[test]
    fn a_copy_that_clients_know_by_the_port_is_kept() {
        let site = on_two_machines();
        let mut database = site.databases["d"].value.clone();
        for moved in 0..2 {
            let here = database.copies.iter_mut().filter(|placed| placed.shard == 0);
            for (number, placed) in here.enumerate() {
                placed.port = database.settings.port + u16::from(number == moved);
            }
            let old: Vec<&Placed> = database.kept(0).collect();
            let leaves = last(&site, &database, &old).expect("there are two");
            assert_ne!(leaves.port, database.settings.port, "{old:?}");
        }
        assert_eq!(last(&site, &database, &[]), None);
    }

    #[test]
    fn a_copy_that_ends_again_and_again_does_not_run() {
        let mut site = on_two_machines();
        let placed = site.databases["d"].value.copies[0].clone();
        assert!(!is_hopeless(&site, &placed), "its node says nothing");
        let mut says = |state, early_ends| {
            let report = CopyReport { state, early_ends, restarts: 9, ..report(&placed) };
            alive(&mut site, &placed.machine).copies = vec![report];
            is_hopeless(&site, &placed)
        };
        assert!(!says(ProcessState::Waiting, MAX_ENDS - 1));
        assert!(!says(ProcessState::Running, MAX_ENDS), "it is tried again");
        assert!(says(ProcessState::Waiting, MAX_ENDS));
    }
}
