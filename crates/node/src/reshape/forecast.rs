//! What a change would do: which copies come and go, which slots move, how many bytes that is and
//! how long it takes.
//!
//! The steps of the job are made on a copy of the site, so the plan is what the job would do if
//! nothing else happened.

use super::balance::{self, Part};
use super::measure::{self, Slotted};
use super::spread::{parts, towards};
use super::{BY, leaders, missing, surplus};
use crate::change::placed;
use crate::members::Of;
use crate::plan::{self, Planned};
use crate::settings::{Measure, Wrong};
use crate::show::{MoveShown, PlanShown, PlannedShown, RemovedShown, copy_planned};
use crate::site::{Aim, Database, JobKind, Placed, Site};
use crate::store::{Problem, Store};
use cluster::id::Id;
use cluster::slots::Slots;
use cluster::topology::Shard;
use cluster::view::At;
use process::memory::Bytes;
use std::collections::BTreeSet;

/// The bytes that a primary sends in a second beside its clients: on the careful side.
const BYTES_PER_SECOND: u64 = 50 << 20;

/// Returns what an update would do.
///
/// # Errors
/// It cannot be, or a primary does not say what it has.
pub fn update(of: Of<'_>, site: &Site, changed: &Database) -> Result<PlanShown, Problem> {
    let measured = measure::slots(&of.at.value, of.view, BY);
    let (added, removed) = copies(of, site, changed)?;
    let mut parts = parts(of);
    parts.iter_mut().for_each(|(number, _, part)| part.stays = *number < changed.settings.shards);
    let there = parts.len();
    let plain: Vec<Part> = parts
        .iter()
        .map(|(.., part)| part.clone())
        .chain(
            (there..changed.settings.shards).map(|_| Part { slots: Slots::default(), stays: true }),
        )
        .collect();
    let needed = balance::is_needed(&plain);
    let (slotted, unknown) = match measured {
        Ok(slotted) => (slotted, None),
        Err(why) if needed => return Err(why),
        // No slot moves, so a primary that is away is no reason to refuse options.
        Err(why) => (Slotted::empty(), Some(format!("How much is stored is not known: {why}."))),
    };
    let weights = balance::with_floor(&slotted.weights);
    let transfers = if needed { balance::plan(&plain, &weights) } else { Vec::new() };
    let mut shown = moves(&transfers, &slotted, |at| parts.get(at).map_or(at, |it| it.0));
    describe(of, &mut shown, (&slotted, changed), (&added, &removed));
    shown.warnings.extend(unknown);
    Ok(shown)
}

/// Returns what it means that copies come and others go, while slots and options stay.
pub fn exchange(of: Of<'_>, added: &[Planned], removed: &[Placed]) -> PlanShown {
    let (slotted, unknown) = match measure::slots(&of.at.value, of.view, BY) {
        Ok(slotted) => (slotted, None),
        Err(why) => (Slotted::empty(), Some(format!("How much is stored is not known: {why}."))),
    };
    let mut shown = PlanShown::default();
    describe(of, &mut shown, (&slotted, &of.at.value), (added, removed));
    shown.warnings.extend(unknown);
    shown
}

/// Adds the copies that come and go to a plan, with the bytes that they receive.
fn describe(
    of: Of<'_>,
    shown: &mut PlanShown,
    (slotted, changed): (&Slotted, &Database),
    (added, removed): (&[Planned], &[Placed]),
) {
    // A new copy of a shard that is there receives all that its primary has.
    let of_shard = |number: usize| of.shard(number).map_or(0, |it| bytes_of(&it.slots, slotted));
    let synchronised: Vec<u64> =
        added.iter().filter(|it| !it.is_primary).map(|it| of_shard(it.shard)).collect();
    finish(shown, &synchronised);
    shown.copies = added.iter().map(copy_planned).collect();
    shown.removed = removed.iter().map(gone).collect();
    shown.warnings = warnings(of, slotted, changed, removed);
}

/// Returns what a rebalance or a move of slots would do.
///
/// # Errors
/// A primary does not say what it has, or there is no such shard.
pub fn slots(of: Of<'_>, kind: JobKind, aim: &Aim) -> Result<PlanShown, Problem> {
    let by = aim.by.unwrap_or_default();
    let slotted = measure::slots(&of.at.value, of.view, by)?;
    let parts = parts(of);
    let plain: Vec<Part> = parts.iter().map(|(.., part)| part.clone()).collect();
    let transfers = match (kind, &aim.slots, aim.to) {
        (JobKind::Move, Some(slots), Some(to)) => {
            let at = parts.iter().position(|(number, ..)| *number == to);
            let at = at.ok_or_else(|| Problem::Wrong(format!("there is no shard {}", to + 1)))?;
            towards(&plain, slots, at)
        }
        _ => balance::plan(&plain, &balance::with_floor(&slotted.weights)),
    };
    let mut shown = moves(&transfers, &slotted, |at| parts[at].0);
    if matches!(by, Measure::Cpu | Measure::Network) && slotted.used.is_none() {
        let text = "The load of a shard is spread over its keys: it is not counted by slot.";
        shown.warnings.push(text.into());
    }
    finish(&mut shown, &[]);
    Ok(shown)
}

/// Databases of a plan whose primaries are asked what they have.
const MAX_ASKED: usize = 32;

/// Returns the plan of copies of several databases, with the bytes that are sent for them.
///
/// # Errors
/// etcd is away.
pub fn of_copies(
    store: &mut Store,
    site: &Site,
    copies: Vec<PlannedShown>,
) -> Result<PlanShown, Problem> {
    let names: BTreeSet<String> = copies.iter().map(|it| it.database.clone()).collect();
    let mut shown = PlanShown { copies, ..PlanShown::default() };
    let mut synchronised = Vec::new();
    for name in names.iter().take(MAX_ASKED) {
        let at = crate::change::database(site, name)?;
        let Some(view) = store.view(at.value.id)? else { continue };
        match measure::slots(&at.value, &view, BY) {
            Ok(slotted) => {
                let of = Of { keys: &store.keys, name, at, view: &view };
                let here = shown.copies.iter().filter(|it| it.database == *name);
                let shards = here.filter_map(|it| of.shard(it.shard.checked_sub(1)?));
                synchronised.extend(shards.map(|it| bytes_of(&it.slots, &slotted)));
            }
            Err(why) => shown.warnings.push(format!("How much is stored is not known: {why}.")),
        }
    }
    finish(&mut shown, &synchronised);
    let others = names.len().saturating_sub(MAX_ASKED);
    if others > 0 {
        shown.warnings.push(format!("The bytes of {others} more databases are not counted."));
    }
    Ok(shown)
}

fn bytes_of(slots: &Slots, slotted: &Slotted) -> u64 {
    slots.iter().map(|slot| slotted.bytes[usize::from(slot)]).sum()
}

fn moves(
    transfers: &[balance::Transfer],
    slotted: &Slotted,
    number: impl Fn(usize) -> usize,
) -> PlanShown {
    let shown = transfers.iter().map(|transfer| MoveShown {
        from: number(transfer.from) + 1,
        to: number(transfer.to) + 1,
        slots: transfer.slots.len(),
        ranges: crate::show::ranges(&transfer.slots),
        keys: transfer.slots.iter().map(|slot| slotted.keys[usize::from(slot)]).sum(),
        bytes: bytes_of(&transfer.slots, slotted),
    });
    PlanShown { moves: shown.collect(), ..PlanShown::default() }
}

/// Adds bytes up: moves of one source follow each other, those of several go side by side.
fn finish(shown: &mut PlanShown, synchronised: &[u64]) {
    let sources: BTreeSet<usize> = shown.moves.iter().map(|it| it.from).collect();
    let of_source =
        |from: usize| shown.moves.iter().filter(|it| it.from == from).map(|it| it.bytes).sum();
    let slowest: u64 = sources.into_iter().map(of_source).max().unwrap_or(0);
    let copies: u64 = synchronised.iter().sum();
    shown.bytes = shown.moves.iter().map(|it| it.bytes).sum::<u64>() + copies;
    let seconds = (slowest + copies) as f64 / BYTES_PER_SECOND as f64;
    shown.minutes = (seconds / 60.0 * 100.0).ceil() / 100.0;
}

/// The copies that come and go.
fn copies(
    of: Of<'_>,
    site: &Site,
    changed: &Database,
) -> Result<(Vec<Planned>, Vec<Placed>), Wrong> {
    let mut site = site.clone();
    let mut leaders = leaders(of.view);
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    let mut new: BTreeSet<Id> = BTreeSet::new();
    site.databases.insert(of.name.to_owned(), At { value: changed.clone(), revision: 0 });
    loop {
        let database = site.databases[of.name].value.clone();
        if let Some(wanted) = missing(&site, &database) {
            let planned = plan::extend(&site, &database, &leaders, &wanted)?;
            let copies: Vec<Placed> =
                planned.iter().map(|copy| placed(copy, database.layout)).collect();
            new.extend(copies.iter().map(|copy| copy.copy));
            leaders.extend(copies.first().filter(|_| planned[0].is_primary).map(|it| it.copy));
            added.extend(planned);
            change(&mut site, of.name, |all| all.extend(copies));
            continue;
        }
        let settings = &database.settings;
        let victim = database.shards().into_iter().find_map(|shard| {
            let leader = of.shard(shard).map_or(of.at.value.id, |shard: &Shard| shard.holder.id);
            let is_member = |copy: Id| new.contains(&copy) || of.view.has_member(copy);
            let is_crowded = database.kept(shard).count() > settings.replicas + 1;
            match (shard >= settings.shards, is_crowded) {
                (true, _) => database.kept(shard).next().cloned(),
                (false, true) => surplus(&site, &database, (shard, leader), is_member).cloned(),
                (false, false) => None,
            }
        });
        let Some(victim) = victim else { break };
        change(&mut site, of.name, |all| all.retain(|placed| placed.copy != victim.copy));
        removed.push(victim);
    }
    check_memory(of, &site)?;
    Ok((added, removed))
}

fn change(site: &mut Site, name: &str, work: impl FnOnce(&mut Vec<Placed>)) {
    if let Some(at) = site.databases.get_mut(name) {
        work(&mut at.value.copies);
        at.value.copies.sort_by_key(|placed| placed.shard);
    }
}

/// Checks that machines have the memory that copies get.
fn check_memory(of: Of<'_>, after: &Site) -> Result<(), Wrong> {
    for (machine, known) in &after.machines {
        let copies = of.at.value.copies.iter().filter(|placed| placed.machine == *machine);
        let before: u64 = copies.map(|placed| of.at.value.copy_bytes(placed.shard)).sum();
        let here = after.placed_on(machine).filter(|(name, ..)| *name == of.name);
        let wanted: u64 = here.map(|(_, it, placed)| it.copy_bytes(placed.shard)).sum();
        let others = after.used_bytes(machine).saturating_sub(wanted);
        let free = known.spec.value.memory_bytes.saturating_sub(others);
        if wanted > before && wanted > free {
            return Err(Wrong(format!(
                "machine '{machine}' has {} free, and its copies of '{}' need {} more",
                Bytes(free.saturating_sub(before)),
                of.name,
                Bytes(wanted - before)
            )));
        }
    }
    Ok(())
}

fn gone(placed: &Placed) -> RemovedShown {
    RemovedShown {
        shard: placed.shard + 1,
        copy: placed.copy.to_string(),
        machine: placed.machine.clone(),
        host: placed.host.clone(),
        port: placed.port,
    }
}

fn warnings(of: Of<'_>, slotted: &Slotted, changed: &Database, removed: &[Placed]) -> Vec<String> {
    let mut warnings = Vec::new();
    let stored: u64 = slotted.bytes.iter().sum();
    let memory = changed.settings.memory_bytes;
    if stored > memory {
        warnings.push(format!(
            "{} are stored, more than {}: {}.",
            Bytes(stored),
            Bytes(memory),
            match &*changed.settings.eviction {
                "noeviction" => "writes will be refused",
                _ => "keys will be evicted",
            }
        ));
    }
    if let Some(first) = removed.first() {
        warnings.push(format!(
            "Clients of copies that go lose their connections: {} of them, the first is {}:{}.",
            removed.len(),
            first.host,
            first.port
        ));
    }
    let port = changed.settings.port;
    let loses: Vec<&str> =
        removed.iter().filter(|placed| placed.port == port).map(|placed| &*placed.host).collect();
    if !loses.is_empty() {
        warnings.push(format!(
            "Nothing will listen on port {port} of {} any more: send clients of '{}' elsewhere.",
            loses.join(", "),
            of.name
        ));
    }
    warnings
}

/// Plans where the copies of a machine go that gives them away, without changing anything.
///
/// # Errors
/// What has no place.
pub fn drain(site: &Site, machine: &str) -> Result<Vec<PlannedShown>, Problem> {
    let mut site = site.clone();
    if let Some(known) = site.machines.get_mut(machine) {
        known.is_draining = true;
    }
    let names: Vec<String> = site.databases.keys().cloned().collect();
    let mut shown = Vec::new();
    for name in names {
        let database = site.databases[&name].value.clone();
        let here = database.copies.iter().filter(|it| it.machine == machine && !it.is_leaving);
        for old in here {
            let elsewhere = database.kept(old.shard).filter(|it| !site.is_draining(&it.machine));
            if elsewhere.count() > database.settings.replicas {
                continue;
            }
            let now = &site.databases[&name].value;
            let planned = plan::place_another(&site, now, old.shard)
                .map_err(|why| Problem::Wrong(format!("database '{name}': {}", why.0)))?;
            shown.push(PlannedShown { database: name.clone(), ..copy_planned(&planned) });
            let copy = placed(&planned, database.layout);
            change(&mut site, &name, |all| all.push(copy));
        }
    }
    Ok(shown)
}
