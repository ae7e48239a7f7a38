//! A machine gets copies of machines that have more: one look at a job of the kind `fill`.
//!
//! A copy moves if the fuller machine still has at least as much as this one afterwards. A shard
//! that has a copy here and one too many is on its way: the copy of its fullest machine goes, as
//! soon as the one here is a member. A shard that has one too many because of a restart is left
//! alone.

use crate::change::{Step, placed};
use crate::members::Of;
use crate::plan;
use crate::show::{PlannedShown, copy_planned};
use crate::site::{Database, Job, Placed, Site, Stage};
use crate::store::{Problem, Store};
use crate::switch;
use cluster::coordinator::Transaction;
use cluster::view::At;

/// Does what is next.
///
/// # Errors
/// etcd is away.
pub fn look(store: &mut Store, site: &Site, job: &Job) -> Result<Step, Problem> {
    let machine = &*job.machine;
    for (name, at) in &site.databases {
        let here: Vec<usize> =
            at.value.copies.iter().filter(|it| it.machine == *machine).map(|it| it.shard).collect();
        for shard in here {
            if let Some(step) = go_on(store, site, (name, at), (shard, machine))? {
                return Ok(step);
            }
        }
    }
    if job.is_cancelled {
        return Ok(Step::Done(Transaction::default()));
    }
    let Some((name, shard)) = next(site, machine) else {
        return Ok(Step::Done(Transaction::default()));
    };
    let at = crate::change::database(site, &name)?;
    let Some(view) = store.view(at.value.id)? else {
        return Ok(Step::Waits(0, format!("the topology of '{name}' is gone")));
    };
    let planned = plan::place_on(site, &at.value, shard, machine)?;
    let of = Of { keys: &store.keys, name: &name, at, view: &view };
    Ok(match of.add(site, &placed(&planned, at.value.layout)) {
        Some(transaction) => Step::Changes(transaction),
        None => Step::Fails(format!("the topology of '{name}' has no shard {}", shard + 1)),
    })
}

/// Goes on with a shard that has a copy here and one too many.
fn go_on(
    store: &mut Store,
    site: &Site,
    (name, at): (&str, &At<Database>),
    (shard, machine): (usize, &str),
) -> Result<Option<Step>, Problem> {
    let database = &at.value;
    let leaving = database.copies.iter().find(|it| it.shard == shard && it.is_leaving);
    let has_added = database.kept(shard).any(|placed| placed.is_surge);
    if has_added && site.is_restarted_with_surge(name) {
        // The restart that has added it takes one out itself.
        return Ok(None);
    }
    let kept = database.kept(shard).count();
    if leaving.is_none() && kept <= database.settings.replicas + 1 {
        return Ok(None);
    }
    let Some(view) = store.view(database.id)? else { return Ok(None) };
    let keys = store.keys.clone();
    let of = Of { keys: &keys, name, at, view: &view };
    let what = format!("shard {} of '{name}'", shard + 1);
    let waits = |text: String| Ok(Some(Step::Waits(50, text)));
    if let Some(old) = leaving {
        if site.report(old).is_some() || view.alive.contains_key(&old.copy) {
            return waits(format!("the old copy of {what} ends"));
        }
        return match of.take_out(site, old.copy) {
            Some(transaction) => Ok(Some(Step::Changes(transaction))),
            None => waits(format!("{what} has no primary")),
        };
    }
    let Some(new) = database.kept(shard).find(|it| it.machine == machine) else { return Ok(None) };
    if !view.has_member(new.copy) {
        return waits(format!("a new copy of {what} synchronises"));
    }
    let others = database.kept(shard).filter(|it| it.machine != machine);
    let Some(old) = others.max_by_key(|it| site.used_bytes(&it.machine)) else { return Ok(None) };
    let leads = of.shard(shard).is_some_and(|shard| shard.holder.id == old.copy);
    if !leads {
        return Ok(Some(of.let_go(old.copy, 50)));
    }
    match switch::hand_over(store, database, new) {
        Ok(()) => waits(format!("{what} was handed over")),
        Err(why) => waits(format!("{what}: {why}")),
    }
}

/// The shard of which a copy moves to a machine next.
fn next(site: &Site, machine: &str) -> Option<(String, usize)> {
    let here = site.used_bytes(machine);
    let mut others: Vec<&String> =
        site.machines.keys().filter(|name| *name != machine && site.is_alive(name)).collect();
    others.sort_by_key(|name| std::cmp::Reverse(site.used_bytes(name)));
    others.into_iter().find_map(|other| {
        let helps = |name: &str, database: &Database, placed: &Placed| {
            let bytes = database.copy_bytes(placed.shard);
            let is_restarted = site.is_restarted_with_surge(name);
            let is_fit = database.stage == Stage::Ready && !placed.is_leaving && !is_restarted;
            is_fit && here + bytes <= site.used_bytes(other).saturating_sub(bytes)
        };
        let mut copies =
            site.placed_on(other).filter(|(name, database, it)| helps(name, database, it));
        let found = copies.find(|(_, database, it)| {
            // The copy that goes does not count for zones.
            let mut without = (*database).clone();
            without.copies.retain(|placed| placed.copy != it.copy);
            plan::place_on(site, &without, it.shard, machine).is_ok()
                && plan::place_on(site, database, it.shard, machine).is_ok()
        });
        found.map(|(name, _, placed)| (name.clone(), placed.shard))
    })
}

/// Plans which copies a machine gets.
pub fn plan(site: &Site, machine: &str) -> Vec<PlannedShown> {
    let mut site = site.clone();
    let mut shown = Vec::new();
    while let Some((name, shard)) = next(&site, machine) {
        let Some(at) = site.databases.get(&name) else { break };
        let Ok(planned) = plan::place_on(&site, &at.value, shard, machine) else { break };
        let new = PlannedShown { database: name.clone(), ..copy_planned(&planned) };
        let layout = at.value.layout;
        let used: Vec<u64> =
            at.value.copies.iter().map(|placed| site.used_bytes(&placed.machine)).collect();
        let old = at.value.copies.iter().zip(used).filter(|(placed, _)| placed.shard == shard);
        let old = old.max_by_key(|(_, used)| *used).map(|(placed, _)| placed.copy);
        if let Some(at) = site.databases.get_mut(&name) {
            at.value.copies.retain(|placed| Some(placed.copy) != old);
            at.value.copies.push(placed(&planned, layout));
        }
        shown.push(new);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::with_database;
    use crate::site::{JobKind, JobState};
    use crate::tasks::Task;
    use crate::tasks::restart::Restart;

    #[test]
    fn copies_of_a_database_stay_while_a_restart_adds_some() {
        let (mut site, job) = with_database(Stage::Ready);
        let mut empty = site.machines["a"].clone();
        empty.spec.value.id = "c".into();
        site.machines.insert("c".into(), empty);
        let at = site.databases.get_mut("d").expect("it is there");
        // What was added by a restart that a node of an earlier version has ended.
        at.value.copies[0].is_surge = true;
        let restart = |surge| Restart { copies: Vec::new(), surge, fails: String::new() };
        let mut moves = |kind, state, surge| {
            let job = &mut site.jobs.get_mut(&job).expect("it is there").value;
            (job.kind, job.state) = (kind, state);
            job.task = Some(Task::Restart(restart(surge)));
            next(&site, "c").is_some()
        };
        assert!(moves(JobKind::Restart, JobState::Running, false));
        assert!(moves(JobKind::Restart, JobState::Done, true));
        assert!(!moves(JobKind::Restart, JobState::Running, true));
    }
}
