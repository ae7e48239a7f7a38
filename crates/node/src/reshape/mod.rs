//! A database becomes what its options say while it serves: one look at a job of the kinds
//! `update`, `rebalance` and `move`.
//!
//! ```text
//!   mod        the look at an update: what is missing, and what there is too much of
//!   spread     slots that move, by the jobs of the topology
//!   balance    which slots go where: a pure function
//!   measure    what slots weigh, as their primaries say
//!   forecast   what an update would do, before it is done
//!   surge      a restart with a copy more in each shard, which is no update
//! ```
//!
//! Nothing is noted but the aim: the options at etcd. Each look compares them with the copies and
//! slots that there are, and does the next of these: shards and copies that are missing are placed;
//! slots move; shards without slots that are not wanted go; copies that are too many go; copies are
//! told their options. So any node can go on, and a job that is cancelled goes the same way back,
//! with the options of before as its aim.

pub mod balance;
pub mod forecast;
pub mod measure;
mod spread;
pub mod surge;

use crate::change::{Step, placed};
use crate::members::Of;
use crate::plan;
use crate::rehash;
use crate::settings::Measure;
use crate::site::{Database, Floor, Job, JobKind, Placed, Site, Stage};
use crate::store::{Problem, Store};
use crate::switch;
use crate::tell;
use cluster::coordinator::Transaction;
use cluster::id::Id;
use cluster::view::{At, View};
use std::collections::BTreeSet;

/// Does what is next. `None`: nothing, the rest is as it should be.
type Next = Result<Option<Step>, Problem>;

/// Does what is next for a job: it moves slots, or makes the database as its options say.
///
/// # Errors
/// etcd is away, or a copy does not answer.
pub fn look(
    store: &mut Store,
    site: &Site,
    job: &Job,
    at: &At<Database>,
    view: &View,
) -> Result<Step, Problem> {
    let keys = store.keys.clone();
    let of = Of { keys: &keys, name: &job.database, at, view };
    if at.value.stage != Stage::Ready {
        return Ok(Step::Fails("the database is not ready".into()));
    }
    match job.kind {
        JobKind::Rebalance => return spread::rebalance(of, job),
        JobKind::Move => return spread::move_slots(of, job),
        JobKind::Update => {}
        JobKind::Create
        | JobKind::Delete
        | JobKind::Switch
        | JobKind::Drain
        | JobKind::Replace
        | JobKind::Import
        | JobKind::Export
        | JobKind::Backup
        | JobKind::Verify
        | JobKind::Restore
        | JobKind::Restart
        | JobKind::Remove
        | JobKind::Fill => {
            return Ok(Step::Fails("a job of this kind changes no database".into()));
        }
    }
    if job.is_cancelled && !job.aim.is_undone {
        return Ok(undo(of, job));
    }
    if let Some(step) = leave(site, of)? {
        return Ok(step);
    }
    if let Some(step) = grow(site, of)? {
        return Ok(step);
    }
    if let Some(text) = unsettled(site, of) {
        return Ok(Step::Waits(10, text));
    }
    if let Some(step) = spread::fit(of, job)? {
        return Ok(step);
    }
    if let Some(step) = shrink(of)? {
        return Ok(step);
    }
    if let Some(step) = thin(store, site, of)? {
        return Ok(step);
    }
    if let Some(step) = rehash::next(&at.value, view) {
        return Ok(step);
    }
    Ok(finish(of))
}

/// A cancelled change aims at what was before.
fn undo(of: Of<'_>, job: &Job) -> Step {
    let Some(before) = job.aim.before.clone() else {
        return Step::Fails("the options of before are not known".into());
    };
    let mut transaction = match spread::cancel(of) {
        Ok(transaction) => transaction.unwrap_or_default(),
        Err(why) => return Step::Waits(job.percent, why),
    };
    let old = &of.at.value;
    let layout =
        old.layout + u32::from((old.settings.flash_bytes == 0) != (before.flash_bytes == 0));
    let floor = Some(Floor { shards: usize::MAX, ..old.as_floor() });
    of.put(&Database { settings: before, floor, layout, ..old.clone() }, &mut transaction);
    let mut changed = job.clone();
    changed.aim.is_undone = true;
    Step::Goes(transaction, Box::new(changed))
}

/// Copies that are on their way out leave the topology when they have ended.
fn leave(site: &Site, of: Of<'_>) -> Next {
    let database = &of.at.value;
    let Some(leaving) = database.copies.iter().find(|placed| placed.is_leaving) else {
        return Ok(None);
    };
    let what = format!("a copy of shard {} on machine '{}'", leaving.shard + 1, leaving.machine);
    let goes_whole = database.kept(leaving.shard).next().is_none();
    let of_shard = |placed: &&Placed| placed.shard == leaving.shard && placed.is_leaving;
    let runs =
        |placed: &Placed| site.report(placed).is_some() || of.view.alive.contains_key(&placed.copy);
    let still = match goes_whole {
        true => database.copies.iter().filter(of_shard).any(runs),
        false => runs(leaving),
    };
    if still {
        return Ok(Some(Step::Waits(90, format!("{what} ends"))));
    }
    let taken = match goes_whole {
        true => of.take_out_shard(site, leaving.shard),
        false => of.take_out(site, leaving.copy),
    };
    Ok(Some(match taken {
        Some(transaction) => Step::Changes(transaction),
        None => Step::Waits(90, format!("{what} waits for the primary of its shard")),
    }))
}

/// The shards and copies that are to be and are not: a shard with the numbers of its copies, of
/// which 0 is the first primary.
pub fn missing(site: &Site, database: &Database) -> Option<Vec<(usize, usize)>> {
    let settings = &database.settings;
    (0..settings.shards).find_map(|shard| {
        let kept = database.kept(shard).count();
        if kept == 0 {
            return Some((0..=settings.replicas).map(|number| (shard, number)).collect());
        }
        let wanted = settings.replicas + 1 + usize::from(stale(site, database, shard).is_some());
        (kept < wanted).then(|| vec![(shard, kept)])
    })
}

/// A copy that another one has to replace: it was placed for another layout, or shares a zone that
/// it must not share.
pub fn stale<'a>(site: &Site, database: &'a Database, shard: usize) -> Option<&'a Placed> {
    let zone = |placed: &Placed| site.machines.get(&placed.machine).map(|known| known.zone());
    let kept: Vec<&Placed> = database.kept(shard).collect();
    let mut zones = BTreeSet::new();
    let doubled: Vec<&Placed> =
        kept.iter().copied().filter(|placed| !zones.insert(zone(placed))).collect();
    let old = kept.iter().copied().find(|placed| placed.layout != database.layout);
    // Those that are beyond the number leave anyway.
    let is_short = zones.len() < database.settings.replicas + 1;
    old.or_else(|| doubled.first().copied().filter(|_| database.settings.zones && is_short))
}

/// Places what is missing.
fn grow(site: &Site, of: Of<'_>) -> Next {
    let database = &of.at.value;
    let Some(wanted) = missing(site, database) else { return Ok(None) };
    let planned = match plan::extend(site, database, &leaders(of.view), &wanted) {
        Ok(planned) => planned,
        Err(why) => return Ok(Some(Step::Waits(0, why.0))),
    };
    let new: Vec<Placed> = planned.iter().map(|copy| placed(copy, database.layout)).collect();
    let is_new_shard = wanted[0].1 == 0;
    let transaction = match (is_new_shard, new.first()) {
        (true, _) => of.add_shard(site, &new),
        (false, Some(copy)) => of.add(site, copy),
        (false, None) => None,
    };
    Ok(Some(match transaction {
        Some(transaction) => Step::Changes(transaction),
        None => Step::Fails(format!("the topology has no shard {}", wanted[0].0 + 1)),
    }))
}

fn leaders(view: &View) -> BTreeSet<Id> {
    view.topology.value.shards.iter().map(|shard| shard.holder.id).collect()
}

/// Says which copies of machines that are there have not synchronised yet. Copies that go again are
/// not waited for: a change may have been cancelled because they cannot start.
fn unsettled(site: &Site, of: Of<'_>) -> Option<String> {
    let leader = |shard| of.shard(shard).map(|shard| shard.holder.id);
    let excess = excess(site, &of.at.value, leader, |copy| of.view.has_member(copy));
    let wanted = |placed: &&Placed| {
        let is_wanted = placed.shard < of.at.value.settings.shards
            && !placed.is_leaving
            && !excess.contains(&placed.copy);
        is_wanted && site.is_alive(&placed.machine) && !of.view.has_member(placed.copy)
    };
    let waiting: Vec<&Placed> = of.at.value.copies.iter().filter(wanted).collect();
    let first = waiting.first()?;
    let why = site.report(first).map(|report| report.note.as_str()).unwrap_or_default();
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    Some(format!(
        "{} copies synchronise, one of shard {} on machine '{}', port {}{why}",
        waiting.len(),
        first.shard + 1,
        first.machine,
        first.port
    ))
}

/// Ends shards that have no slots any more and are not wanted.
fn shrink(of: Of<'_>) -> Next {
    let database = &of.at.value;
    let Some(number) = database.shards().into_iter().rfind(|it| *it >= database.settings.shards)
    else {
        return Ok(None);
    };
    if let Some(primary) = of.shard(number).map(|shard| shard.holder.id)
        && let Some(text) = switch::still_sent_to(database, of.view, primary)
    {
        return Ok(Some(Step::Waits(90, text)));
    }
    let gone: Vec<Id> = database.kept(number).map(|placed| placed.copy).collect();
    Ok(Some(Step::Changes(of.end(&gone))))
}

/// Returns the copies beyond the number that a shard is to have, as far as they have never
/// synchronised: nothing is lost with them.
fn excess(
    site: &Site,
    database: &Database,
    leader: impl Fn(usize) -> Option<Id>,
    is_member: impl Fn(Id) -> bool,
) -> BTreeSet<Id> {
    let mut left = database.clone();
    let mut excess = BTreeSet::new();
    for number in 0..database.settings.shards {
        let Some(leader) = leader(number) else { continue };
        while left.kept(number).count() > database.settings.replicas + 1 {
            let victim = surplus(site, &left, (number, leader), &is_member).map(|it| it.copy);
            let Some(victim) = victim.filter(|copy| !is_member(*copy)) else { break };
            excess.insert(victim);
            left.copies.retain(|placed| placed.copy != victim);
        }
    }
    excess
}

/// Ends copies that are too many.
fn thin(store: &mut Store, site: &Site, of: Of<'_>) -> Next {
    let database = &of.at.value;
    let most = database.settings.replicas + 1;
    let crowded = |shard: &usize| database.kept(*shard).count() > most;
    let Some(number) = (0..database.settings.shards).find(crowded) else { return Ok(None) };
    let Some(shard) = of.shard(number) else {
        return Ok(Some(Step::Fails(format!("the topology has no shard {}", number + 1))));
    };
    let what = format!("shard {}", number + 1);
    let leader = shard.holder.id;
    // A smaller quorum is told before copies go that the larger one waits for.
    if let Some(step) = tell::apply(database, of.view) {
        return Ok(Some(step));
    }
    let is_member = |copy: Id| of.view.has_member(copy);
    let Some(victim) = surplus(site, database, (number, leader), is_member) else {
        return Ok(None);
    };
    if victim.copy != leader && !is_member(victim.copy) {
        return Ok(Some(of.let_go(victim.copy, 80)));
    }
    let others = || database.kept(number).filter(|placed| placed.copy != victim.copy);
    if let Some(waiting) = others().find(|placed| !of.view.has_member(placed.copy)) {
        let text = format!("a copy of {what} on machine '{}' synchronises", waiting.machine);
        return Ok(Some(Step::Waits(80, text)));
    }
    if victim.copy != leader {
        return Ok(Some(of.let_go(victim.copy, 80)));
    }
    let Some(to) = others().next() else { return Ok(None) };
    Ok(Some(match switch::hand_over(store, database, to) {
        Ok(()) => Step::Waits(80, format!("{what} was handed over")),
        Err(why) => Step::Waits(80, format!("{what}: {why}")),
    }))
}

/// The copy of a shard that goes first.
pub fn surplus<'a>(
    site: &Site,
    database: &'a Database,
    (shard, leader): (usize, Id),
    is_member: impl Fn(Id) -> bool,
) -> Option<&'a Placed> {
    let rank = |placed: &&Placed| {
        (misplaced(site, database, placed, is_member(placed.copy)), placed.copy != leader)
    };
    // Of equals the last one placed.
    database.kept(shard).max_by_key(rank)
}

/// Returns what speaks against a copy beside the others of its shard, the weightiest first: its
/// machine, its layout, its zone, that it is not in step, that it shares a machine.
fn misplaced(site: &Site, database: &Database, placed: &Placed, is_member: bool) -> [bool; 5] {
    let zone = |placed: &Placed| site.machines.get(&placed.machine).map(|known| known.zone());
    let shares = |same: &dyn Fn(&Placed) -> bool| {
        database.kept(placed.shard).any(|other| other.copy != placed.copy && same(other))
    };
    [
        site.is_draining(&placed.machine) || !site.is_alive(&placed.machine),
        placed.layout != database.layout,
        database.settings.zones && shares(&|other| zone(other) == zone(placed)),
        !is_member,
        shares(&|other| other.machine == placed.machine),
    ]
}

/// Copies are told their options, and have no more than these say.
fn finish(of: Of<'_>) -> Step {
    let database = &of.at.value;
    if database.floor.is_some() {
        let mut transaction = Transaction::default();
        of.put(&Database { floor: None, ..database.clone() }, &mut transaction);
        return Step::Changes(transaction);
    }
    if let Some(step) = tell::apply(database, of.view) {
        return step;
    }
    let mut transaction = Transaction::default();
    if !database.old_secret.is_empty() {
        // All copies use the new one: the old one is taken back.
        of.put(&Database { old_secret: String::new(), ..database.clone() }, &mut transaction);
        return Step::Changes(transaction);
    }
    if !database.former_users.is_empty() {
        of.put(&Database { former_users: Vec::new(), ..database.clone() }, &mut transaction);
    }
    Step::Done(transaction)
}

/// What shards are to carry the same of in an update: bytes.
const BY: Measure = Measure::Bytes;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::with_database;

    #[test]
    fn a_copy_that_never_synchronised_is_not_waited_for_when_it_goes_again() {
        let (site, _) = with_database(Stage::Ready);
        let mut database = site.databases["d"].value.clone();
        let (shard, members) = (0, database.kept(0).map(|it| it.copy).collect::<Vec<_>>());
        let leader = |_| members.first().copied();
        let is_member = |copy| members.contains(&copy);
        assert!(excess(&site, &database, leader, is_member).is_empty(), "none is too many");

        let mut new = database.kept(shard).next().unwrap().clone();
        new.copy = crate::change::draw();
        database.copies.push(new.clone());
        assert_eq!(excess(&site, &database, leader, is_member), BTreeSet::from([new.copy]));
        assert!(excess(&site, &database, leader, |_| true).is_empty(), "it may have data");

        // It takes the place of one that was placed for another layout.
        database.layout += 1;
        database.copies.last_mut().unwrap().layout = database.layout;
        assert!(excess(&site, &database, leader, is_member).is_empty(), "it is to stay");
    }
}
