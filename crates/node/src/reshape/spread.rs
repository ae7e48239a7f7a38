//! Slots that move: planned here, moved by the jobs of the topology, which the primaries carry out.

use super::balance::{self, Part, Transfer};
use super::{BY, Next, measure};
use crate::change::{Step, draw};
use crate::members::Of;
use crate::rehash;
use crate::site::{Aim, Job};
use crate::store::Problem;
use crate::talk::{self, Answer};
use crate::tell;
use cluster::change::{self, Refused, moves};
use cluster::coordinator::{Change, Transaction};
use cluster::id::Id;
use cluster::slots::Slots;
use cluster::topology::{Move, MovePhase, Rehash, Topology};
use cluster::view::View;
use process::memory::Bytes;
use std::collections::BTreeMap;

/// How often a job plans anew what has changed meanwhile.
const MAX_ROUNDS: u32 = 3;

/// Returns the shards of a database, by number, as they will be when what moves has arrived.
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
    if let Some(step) = tell::apply(&of.at.value, of.view) {
        return Ok(Some(step));
    }
    let slotted = measure::slots(&of.at.value, of.view, BY)?;
    let transfers = balance::plan(&plain, &balance::with_floor(&slotted.weights));
    if transfers.is_empty() {
        return Ok(Some(Step::Fails("there is no shard that could take the slots".into())));
    }
    Ok(Some(begin(of, job, &parts, (&transfers, &slotted.bytes))))
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
    let slotted = measure::slots(&of.at.value, of.view, by)?;
    let transfers = balance::plan(&plain, &balance::with_floor(&slotted.weights));
    if transfers.is_empty() || job.aim.rounds >= MAX_ROUNDS {
        return Ok(Step::Done(Transaction::default()));
    }
    Ok(begin(of, job, &parts, (&transfers, &slotted.bytes)))
}

/// Moves certain slots to a shard.
///
/// # Errors
/// A primary does not say what it has.
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
    let slotted = measure::slots(&of.at.value, of.view, BY)?;
    Ok(begin(of, job, &parts, (&transfers, &slotted.bytes)))
}

/// Returns the transfers that bring slots to one shard.
pub fn towards(parts: &[Part], slots: &Slots, to: usize) -> Vec<Transfer> {
    let others = parts.iter().enumerate().filter(|(from, _)| *from != to);
    let transfers =
        others.map(|(from, part)| Transfer { from, to, slots: part.slots.within(slots) });
    transfers.filter(|transfer| !transfer.slots.is_empty()).collect()
}

/// Returns the step of a job that is cancelled: it ends the moves that have not begun, and waits
/// for the others. `None`: it is not cancelled.
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

/// Returns how far the moves of slots are, or the change of their rate and priority that users have
/// asked for. `None`: no slots move.
fn under_way(of: Of<'_>, job: &Job) -> Option<Step> {
    let moves = &of.view.topology.value.moves;
    if let Some(change) = by_rules(&of.view.topology.value) {
        return Some(rehash::waits(&of.at.value, of.view, change));
    }
    if moves.is_empty() {
        return None;
    }
    let mut paced = of.view.topology.value.clone();
    pace(&mut paced, &job.aim, |_| true);
    if paced != of.view.topology.value {
        return Some(Step::Changes(of.view.replace(&paced)));
    }
    let left: usize = moves.iter().map(|it: &Move| it.left.len()).sum();
    let planned = job.aim.planned_slots.max(left).max(1);
    let total: u64 = job.aim.planned_bytes.values().sum();
    let slots_done = (planned - left) as u64;
    // Slots without keys have nothing to send, but moving them takes time, too.
    let (done, all) = match total {
        0 => (slots_done, planned as u64),
        _ => (total.saturating_sub(bytes_left(of, &job.aim)), total),
    };
    let hundredths = u128::from(done) * 100 / u128::from(all);
    let percent = 10 + 80 * hundredths / 100;
    let slots = format!("{left} of {planned} slots are still to move");
    let text = match total {
        0 => slots,
        _ => {
            // Rounded to hundredths: each new text is written to etcd.
            let sent = u128::from(total) * hundredths / 100;
            format!("{} of {} sent, {slots}", Bytes(sent as u64), Bytes(total))
        }
    };
    Some(Step::Waits(u8::try_from(percent).unwrap_or(90), text))
}

/// Returns the change by which slots move in a database with hashing rules. It is like a change of
/// the rules and moves key by key, since the keys of such a slot are not listed.
fn by_rules(topology: &Topology) -> Option<&Rehash> {
    topology.rehash.as_ref().filter(|change| !change.slots.is_empty())
}

/// Notes in the topology which slots shards are to have in a database with hashing rules.
fn begin_by_rules(
    of: Of<'_>,
    job: &Job,
    parts: &[(usize, Id, Part)],
    transfers: &[Transfer],
) -> Step {
    let topology = &of.view.topology.value;
    let mut slots: BTreeMap<Id, Slots> =
        topology.shards.iter().map(|shard| (shard.id, shard.slots.clone())).collect();
    for Transfer { from, to, slots: moved } in transfers {
        let (from, to) = (parts[*from].1, parts[*to].1);
        let (Some(less), Some(more)) = (slots.get(&from), slots.get(&to)) else { continue };
        let (less, more) = (less.without(moved), more.with(moved));
        slots.extend([(from, less), (to, more)]);
    }
    let since_s = crate::site::now_ms() / 1000;
    match change::rehash::begin(of.view, &topology.hashing, slots, since_s) {
        Ok(transaction) => {
            let mut changed = job.clone();
            changed.aim.rounds += 1;
            Step::Goes(transaction, Box::new(changed))
        }
        Err(why) => Step::Waits(job.percent, why.to_string()),
    }
}

/// Applies the rate and the priority that a job is to have to its moves.
fn pace(topology: &mut Topology, aim: &Aim, is_meant: impl Fn(&Move) -> bool) {
    let copying = |it: &&mut Move| it.phase() == MovePhase::Copying && is_meant(it);
    for meant in topology.moves.iter_mut().filter(copying) {
        meant.rate = aim.rate.unwrap_or(meant.rate);
        meant.priority = aim.priority.unwrap_or(meant.priority);
    }
}

/// Returns the bytes that the moves of a plan have still to send. A source that does not answer has
/// sent nothing, as far as is known.
fn bytes_left(of: Of<'_>, aim: &Aim) -> u64 {
    let topology = &of.view.topology.value;
    let copying: Vec<&Move> =
        topology.moves.iter().filter(|it| it.phase() == MovePhase::Copying).collect();
    let mut sources: Vec<Id> = copying.iter().map(|it| topology.leader_of(it.from)).collect();
    sources.sort_unstable();
    sources.dedup();
    let placed = sources.into_iter().filter_map(|copy| {
        let database = &of.at.value;
        database.copies.iter().find(|placed| placed.copy == copy)
    });
    let mut sent = BTreeMap::new();
    for placed in placed {
        let question = ["CLUSTER", "MIGRATION", "STATUS", "ALL"];
        let address = (&*placed.host, placed.port);
        if let Ok(Answer::Text(text)) =
            talk::ask_node(address, of.at.value.login(), &question, talk::ANSWER)
        {
            sent.extend(sent_bytes(&text));
        }
    }
    let left = copying.iter().map(|it| {
        let name = it.id.to_string();
        let planned = aim.planned_bytes.get(&name).copied().unwrap_or(0);
        planned.saturating_sub(sent.get(&name).copied().unwrap_or(0))
    });
    left.sum()
}

/// Reads what each move has sent out of an answer to CLUSTER MIGRATION STATUS.
fn sent_bytes(text: &str) -> BTreeMap<String, u64> {
    let (mut sent, mut name) = (BTreeMap::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line {
            "id" => name = lines.next().unwrap_or_default().to_owned(),
            "sent_bytes" => {
                let bytes = lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
                sent.insert(std::mem::take(&mut name), bytes);
            }
            _ => {}
        }
    }
    sent
}

/// Notes moves in the topology. `bytes` has what each slot weighs.
fn begin(
    of: Of<'_>,
    job: &Job,
    parts: &[(usize, Id, Part)],
    (transfers, bytes): (&[Transfer], &[u64]),
) -> Step {
    if !of.view.topology.value.hashing.is_empty() {
        return begin_by_rules(of, job, parts, transfers);
    }
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
    let mut topology = match fold(of.view, steps) {
        Ok(topology) => topology,
        Err(why) => return Step::Waits(job.percent, why),
    };
    let before = &of.view.topology.value.moves;
    let is_new = |it: &Move| before.iter().all(|other| other.id != it.id);
    let mut changed = job.clone();
    let aim = &mut changed.aim;
    aim.planned_slots = transfers.iter().map(|transfer| transfer.slots.len()).sum();
    aim.rounds += 1;
    let weigh = |it: &Move| it.slots.iter().map(|slot| bytes[usize::from(slot)]).sum();
    let planned = topology.moves.iter().filter(|it| is_new(it));
    aim.planned_bytes = planned.map(|it| (it.id.to_string(), weigh(it))).collect();
    pace(&mut topology, aim, is_new);
    Step::Goes(of.view.replace(&topology), Box::new(changed))
}

/// Cancels all moves. `None`: there is nothing left to cancel.
///
/// # Errors
/// A shard has no primary.
pub fn cancel(of: Of<'_>) -> Result<Option<Transaction>, String> {
    let topology = &of.view.topology.value;
    match by_rules(topology) {
        Some(change) if change.is_cancelled => return Ok(None),
        Some(_) => return change::rehash::cancel(of.view).map(Some).map_err(|why| why.to_string()),
        None => {}
    }
    let copying = topology.moves.iter().filter(|job| job.phase() == MovePhase::Copying);
    let mut sources: Vec<Id> = copying.map(|job| job.from).collect();
    sources.sort_unstable();
    sources.dedup();
    if sources.is_empty() {
        return Ok(None);
    }
    let leaders = sources.into_iter().map(|shard| topology.leader_of(shard));
    let steps = leaders.map(|me| move |view: &View| moves::cancel(view, me));
    fold(of.view, steps).map(|after| Some(of.view.replace(&after)))
}

/// Returns the topology after several transactions that follow each other.
fn fold<F: FnOnce(&View) -> Result<Transaction, Refused>>(
    view: &View,
    steps: impl Iterator<Item = F>,
) -> Result<Topology, String> {
    let mut after = view.clone();
    let key = view.keys.topology(view.database);
    for step in steps {
        let transaction = step(&after).map_err(|refused| refused.to_string())?;
        let changed = transaction.changes.iter().find_map(|change| match change {
            Change::Put { key: other, value, .. } if *other == key => Some(value),
            _ => None,
        });
        if let Some(value) = changed {
            after.topology.value = Topology::decode(value).map_err(|invalid| invalid.0)?;
        }
    }
    Ok(after.topology.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_about_moves_is_read() {
        let text = "id\nabc\nslots\n1-2\nlast_error\n\nsent_bytes\n70\nrate\n0\n\n\n\
                    id\ndef\nsent_bytes\n5\n";
        let sent = sent_bytes(text);
        assert_eq!(sent, BTreeMap::from([("abc".into(), 70), ("def".into(), 5)]));
        assert_eq!(sent_bytes("sent_bytes\nnone"), BTreeMap::from([(String::new(), 0)]));
    }
}
