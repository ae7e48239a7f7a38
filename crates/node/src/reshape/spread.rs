//! Slots that move: planned here, moved by the jobs of the topology, which the primaries carry out.

use super::balance::{self, Part, Transfer};
use super::{BY, Next, measure};
use crate::change::draw;
use crate::jobs::{Step, apply};
use crate::members::Of;
use crate::settings::Measure;
use crate::site::Job;
use crate::store::Problem;
use cluster::change::{Refused, moves};
use cluster::coordinator::{Change, Transaction};
use cluster::id::Id;
use cluster::slots::Slots;
use cluster::topology::{Move, MovePhase, Topology};
use cluster::view::View;

/// How often a job plans anew what has changed meanwhile.
const MAX_ROUNDS: u32 = 3;

/// The shards of a database, by number, as they will be when what moves has arrived.
pub fn parts(of: Of<'_>) -> Vec<(usize, Id, Part)> {
    let database = &of.at.value;
    let found = database.shards().into_iter().filter_map(|number| {
        let shard = of.shard(number)?;
        let mut slots = shard.slots.clone();
        for job in &of.view.topology.value.moves {
            if job.from == shard.id {
                slots = slots.without(&job.left);
            } else if job.to == shard.id {
                slots = slots.with(&job.left);
            }
        }
        Some((number, shard.id, Part { slots, stays: number < database.settings.shards }))
    });
    found.collect()
}

/// Moves slots to shards that have none, and from shards that are not wanted.
pub fn fit(of: Of<'_>, job: &Job) -> Next {
    if let Some(step) = under_way(of, job) {
        return Ok(Some(step));
    }
    let parts = parts(of);
    let plain: Vec<Part> = parts.iter().map(|(.., part)| part.clone()).collect();
    if !balance::is_needed(&plain) {
        return Ok(None);
    }
    // Shards that grow have to have the memory first.
    if let Some(step) = apply(&of.at.value, of.view) {
        return Ok(Some(step));
    }
    let weights = balance::with_floor(&measure::slots(&of.at.value, of.view, BY)?.weights);
    let transfers = balance::plan(&plain, &weights);
    if transfers.is_empty() {
        return Ok(Some(Step::Fails("there is no shard that could take the slots".into())));
    }
    Ok(Some(begin(of, job, &parts, &transfers)))
}

/// Moves slots until shards carry the same.
///
/// # Errors
/// A primary does not say what it has.
pub fn rebalance(of: Of<'_>, job: &Job) -> Result<Step, Problem> {
    if let Some(step) = cancelled(of, job).or_else(|| under_way(of, job)) {
        return Ok(step);
    }
    let parts = parts(of);
    let plain: Vec<Part> = parts.iter().map(|(.., part)| part.clone()).collect();
    let by = job.aim.by.unwrap_or_default();
    let weights = weights(of, by)?;
    let transfers = balance::plan(&plain, &weights);
    if transfers.is_empty() || job.aim.rounds >= MAX_ROUNDS {
        return Ok(Step::Done(Transaction::default()));
    }
    Ok(begin(of, job, &parts, &transfers))
}

/// What slots weigh for a plan.
///
/// # Errors
/// A primary does not say what it has.
pub fn weights(of: Of<'_>, by: Measure) -> Result<Vec<u64>, Problem> {
    Ok(balance::with_floor(&measure::slots(&of.at.value, of.view, by)?.weights))
}

/// Moves certain slots to a shard.
///
/// # Errors
/// None at present.
pub fn move_slots(of: Of<'_>, job: &Job) -> Result<Step, Problem> {
    if let Some(step) = cancelled(of, job).or_else(|| under_way(of, job)) {
        return Ok(step);
    }
    let parts = parts(of);
    let (Some(slots), Some(to)) = (&job.aim.slots, job.aim.to) else {
        return Ok(Step::Fails("the job does not say what moves".into()));
    };
    let Some(to) = parts.iter().position(|(number, ..)| *number == to) else {
        return Ok(Step::Fails("the shard is gone".into()));
    };
    let plain: Vec<Part> = parts.iter().map(|(.., part)| part.clone()).collect();
    let transfers = towards(&plain, slots, to);
    if transfers.is_empty() {
        return Ok(Step::Done(Transaction::default()));
    }
    if job.aim.rounds >= MAX_ROUNDS {
        return Ok(Step::Fails("slots did not stay where they went: other jobs move them".into()));
    }
    Ok(begin(of, job, &parts, &transfers))
}

/// The transfers that bring slots to one shard.
pub fn towards(parts: &[Part], slots: &Slots, to: usize) -> Vec<Transfer> {
    let others = parts.iter().enumerate().filter(|(from, _)| *from != to);
    let transfers =
        others.map(|(from, part)| Transfer { from, to, slots: part.slots.within(slots) });
    transfers.filter(|transfer| !transfer.slots.is_empty()).collect()
}

/// A cancelled job ends what has not begun, and waits for the rest.
fn cancelled(of: Of<'_>, job: &Job) -> Option<Step> {
    if !job.is_cancelled {
        return None;
    }
    Some(match cancel(of) {
        Ok(Some(transaction)) => Step::Changes(transaction),
        Ok(None) => under_way(of, job).unwrap_or_else(|| Step::Done(Transaction::default())),
        Err(why) => Step::Waits(job.percent, why),
    })
}

/// Says how far slots are that move.
fn under_way(of: Of<'_>, job: &Job) -> Option<Step> {
    let moves = &of.view.topology.value.moves;
    let left: usize = moves.iter().map(|it: &Move| it.left.len()).sum();
    if moves.is_empty() {
        return None;
    }
    let planned = job.aim.planned_slots.max(left).max(1);
    let percent = 10 + 80 * (planned - left) / planned;
    let text = format!("{left} of {planned} slots are still to move");
    Some(Step::Waits(u8::try_from(percent).unwrap_or(90), text))
}

/// Notes moves in the topology.
fn begin(of: Of<'_>, job: &Job, parts: &[(usize, Id, Part)], transfers: &[Transfer]) -> Step {
    let leader = |at: usize| of.view.topology.value.leader_of(parts[at].1);
    let since_s = crate::site::now_ms() / 1000;
    let steps = (0..parts.len()).filter_map(|from| {
        let of_source = transfers.iter().filter(|transfer| transfer.from == from);
        let jobs: Vec<(Slots, Id)> =
            of_source.map(|it| (it.slots.clone(), leader(it.to))).collect();
        let me = leader(from);
        let step = move |view: &View| moves::begin(view, me, &jobs, since_s, draw);
        (!transfers.iter().all(|transfer| transfer.from != from)).then_some(step)
    });
    let mut changed = job.clone();
    changed.aim.planned_slots = transfers.iter().map(|transfer| transfer.slots.len()).sum();
    changed.aim.rounds += 1;
    match fold(of.view, steps) {
        Ok(transaction) => Step::Goes(transaction, Box::new(changed)),
        Err(why) => Step::Waits(job.percent, why),
    }
}

/// Cancels all moves. `None`: there is nothing left to cancel.
///
/// # Errors
/// A shard has no primary.
pub fn cancel(of: Of<'_>) -> Result<Option<Transaction>, String> {
    let topology = &of.view.topology.value;
    let copying = topology.moves.iter().filter(|job| job.phase() == MovePhase::Copying);
    let mut sources: Vec<Id> = copying.map(|job| job.from).collect();
    sources.sort_unstable();
    sources.dedup();
    if sources.is_empty() {
        return Ok(None);
    }
    let leaders = sources.into_iter().map(|shard| topology.leader_of(shard));
    let steps = leaders.map(|me| move |view: &View| moves::cancel(view, me));
    fold(of.view, steps).map(Some)
}

/// Makes one transaction of several that follow each other.
fn fold<F: FnOnce(&View) -> Result<Transaction, Refused>>(
    view: &View,
    steps: impl Iterator<Item = F>,
) -> Result<Transaction, String> {
    let mut after = view.clone();
    let key = view.keys.topology(view.database);
    for step in steps {
        let transaction = step(&after).map_err(|refused| refused.0)?;
        let changed = transaction.changes.iter().find_map(|change| match change {
            Change::Put { key: other, value, .. } if *other == key => Some(value),
            _ => None,
        });
        if let Some(value) = changed {
            after.topology.value = Topology::decode(value).map_err(|invalid| invalid.0)?;
        }
    }
    Ok(view.replace(&after.topology.value))
}
