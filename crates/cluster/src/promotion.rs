//! Fail-over: who may lead next, and the transactions that make it so.
//!
//! **The rule.** Each confirmed write is held by more than `members - fence` members. A promotion
//! counts members that refuse the old epoch; if there are `fence` of them, each confirmed write is
//! held by at least one. The successor's position is not less than any of theirs, so it has them
//! all. No clock is part of this.
//!
//! A member is counted only with the data with which it became a member. A member that restarts
//! without all it has acknowledged, or begins a full synchronisation, has another incarnation and
//! is not counted until it is enrolled again.
//!
//! **`fence` over time.** A copy that is enrolled may lack a write confirmed at that moment, so
//! `fence` rises by one, at most to the number of members, which is always enough because the
//! primary has everything. A copy that leaves may be one of the holders: `fence` stays. Only the
//! primary lowers it ([`settle`]), when it knows who has what.

use crate::coordinator::{Change, Compare, Transaction};
use crate::id::{Id, Position};
use crate::topology::{Holder, Replica, Shard};
use crate::view::{Alive, Fence, View, encode};
use std::cmp::Reverse;

/// What the fences of a shard say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Election {
    /// This copy is the successor.
    Won(Holder),
    /// Too few copies have been fenced, or all that lead the others are gone for now.
    Waiting {
        /// How many count.
        fenced: usize,
        /// How many it takes.
        needed: usize,
    },
    /// All copies are here and none has data. Only an operator may go on ([`recover`]).
    Lost,
}

/// A fence of a member at the present epoch.
struct Vote {
    holder: Holder,
    position: Position,
    /// The copy has the data with which it became a member.
    is_intact: bool,
    /// The copy may become the successor.
    is_eligible: bool,
}

fn votes(view: &View, shard: &Shard) -> Vec<Vote> {
    let vote = |copy: &Replica| {
        let Fence { epoch, incarnation, position } = view.fences.get(&(shard.id, copy.id))?.value;
        let holder = Holder { id: copy.id, incarnation };
        let is_eligible = view.is_alive(holder) && !copy.is_never_promoted;
        let is_intact = copy.member == Some(incarnation);
        (epoch >= shard.epoch).then_some(Vote { holder, position, is_intact, is_eligible })
    };
    shard.members().filter_map(vote).collect()
}

/// Returns the eligible vote with the greatest position; of equals the former primary, then the
/// lowest id.
fn best<'a>(votes: impl Iterator<Item = &'a Vote>, former: Id) -> Option<&'a Vote> {
    let rank = |vote: &&Vote| {
        let id = vote.holder.id;
        (vote.position, id == former, Reverse(id))
    };
    votes.filter(|vote| vote.is_eligible).max_by_key(rank)
}

/// Returns who leads `shard` next, as far as the fences say.
pub fn elect(view: &View, shard: &Shard) -> Election {
    let votes = votes(view, shard);
    let intact = || votes.iter().filter(|vote| vote.is_intact);
    let waiting = Election::Waiting { fenced: intact().count(), needed: shard.fence };
    if let Some(best) = best(intact(), shard.holder.id)
        && intact().filter(|vote| vote.position <= best.position).count() >= shard.fence
    {
        return Election::Won(best.holder);
    }
    // Without a quorum's promise, all copies may have been restarted with what their files had. If
    // all have said what that is, and nothing more can come, the best of it is the database.
    if view.topology.value.quorum > 0 || votes.len() < shard.members().count() {
        return waiting;
    }
    let Some(best) = best(votes.iter(), shard.holder.id) else { return waiting };
    if votes.iter().any(|vote| vote.position > best.position) {
        return waiting;
    }
    match best.position == Position::default() && !shard.slots.is_empty() {
        true => Election::Lost,
        false => Election::Won(best.holder),
    }
}

/// The transaction by which a copy says that it refuses the shard's epoch. It cannot take effect in
/// a later epoch, nor after the copy's data became others.
pub fn fence(view: &View, shard: &Shard, copy: Id, fence: Fence) -> Transaction {
    let key = view.keys.fence(view.database, shard.id, copy);
    Transaction {
        compares: vec![view.unchanged(), view.alive_unchanged(copy)],
        changes: vec![Change::Put { key, value: encode(&fence), lease: None }],
    }
}

/// The transaction that makes `winner` the primary. Everything that [`elect`] looked at has to be
/// unchanged.
pub fn promote(view: &View, shard: &Shard, winner: Holder) -> Transaction {
    let mut transaction = lead(view, shard, winner, |_| {});
    transaction.compares.push(view.alive_unchanged(shard.holder.id));
    for copy in shard.members().filter(|copy| copy.id != shard.holder.id) {
        transaction.compares.push(view.alive_unchanged(copy.id));
    }
    for ((_, copy), at) in view.fences.iter().filter(|((of, _), _)| *of == shard.id) {
        let key = view.keys.fence(view.database, shard.id, *copy);
        transaction.compares.push(Compare { key, revision: at.revision });
    }
    transaction
}

/// The transaction by which a primary whose lease has ended leads on with a new one, in a new
/// epoch. It needs no fence: with the same data it has everything that it ever confirmed, and the
/// topology says that there was no other. The same begins the first leadership of a shard
/// ([`Shard::planned`]), with the data that the copy has.
pub fn retake(view: &View, shard: &Shard, alive: Alive) -> Transaction {
    let copy = shard.holder.id;
    let holder = Holder { id: copy, incarnation: alive.incarnation };
    let mut transaction = lead(view, shard, holder, |_| {});
    transaction.compares.push(view.alive_unchanged(copy));
    transaction.changes.push(view.put_alive(copy, alive));
    transaction
}

/// The transaction of a planned switch, which a primary makes when it has paused all writes and
/// `to` has everything. It may take effect late: the primary goes on only when [`cancel_switch`]
/// has won.
pub fn switch(view: &View, shard: &Shard, to: Holder) -> Transaction {
    let mut transaction = lead(view, shard, to, |_| {});
    transaction.compares.push(view.alive_unchanged(shard.holder.id));
    transaction.compares.push(view.alive_unchanged(to.id));
    transaction
}

/// The transaction after which no switch of the present epoch can take effect any more.
pub fn cancel_switch(view: &View, shard: &Shard) -> Transaction {
    let mut transaction = lead(view, shard, shard.holder, |_| {});
    transaction.compares.push(view.alive_unchanged(shard.holder.id));
    transaction
}

/// The transaction by which an operator makes a copy the primary of a shard that cannot elect one.
/// What only others had is given up: they are members again when they have synchronised. `None`:
/// the copy is not alive, or the primary is.
pub fn recover(view: &View, shard: &Shard, copy: Id) -> Option<Transaction> {
    let incarnation = view.alive.get(&copy)?.value.incarnation;
    if view.is_alive(shard.holder) || shard.copy(copy).is_none() {
        return None;
    }
    let mut transaction = lead(view, shard, Holder { id: copy, incarnation }, |shard| {
        shard.fence = 1;
        for other in &mut shard.copies {
            other.member = (other.id == copy).then_some(incarnation);
        }
    });
    transaction.compares.push(view.alive_unchanged(copy));
    transaction.compares.push(view.alive_unchanged(shard.holder.id));
    Some(transaction)
}

/// The transaction by which a copy that is in step with the present primary becomes a member, with
/// these data.
pub fn enrol(view: &View, shard: &Shard, copy: Holder) -> Transaction {
    let quorum = view.topology.value.quorum;
    let mut topology = view.topology.value.clone();
    let changed = topology.shard_of_mut(copy.id).expect("the shard is one of the view");
    for other in changed.copies.iter_mut().filter(|other| other.id == copy.id) {
        other.member = Some(copy.incarnation);
    }
    changed.fence = match quorum {
        0 => 1,
        _ => (changed.fence + 1).min(changed.members().count()),
    };
    let mut transaction = view.replace(&topology);
    transaction.compares.push(view.alive_unchanged(copy.id));
    transaction.compares.push(view.alive_unchanged(shard.holder.id));
    transaction
}

/// The transaction by which the primary makes copies that have been silent for long no members any
/// more, so that none of them is promoted with old data. They are enrolled again when they are in
/// step. With a quorum nothing is to be done: the copy that is promoted has all that was confirmed.
/// `None`: none of them is a member.
pub fn dismiss(view: &View, shard: &Shard, silent: &[Id]) -> Option<Transaction> {
    if view.topology.value.quorum > 0 || silent.is_empty() {
        return None;
    }
    let mut topology = view.topology.value.clone();
    let copies = &mut topology.shard_of_mut(shard.holder.id)?.copies;
    let is_dismissed = |copy: &&mut Replica| {
        copy.member.is_some() && copy.id != shard.holder.id && silent.contains(&copy.id)
    };
    let mut is_any = false;
    for copy in copies.iter_mut().filter(is_dismissed) {
        (copy.member, is_any) = (None, true);
    }
    let mut transaction = is_any.then(|| view.replace(&topology))?;
    transaction.compares.push(view.alive_unchanged(shard.holder.id));
    Some(transaction)
}

/// The transaction by which the primary lowers the number of fences, when `holding` members, itself
/// among them, hold all that may have been confirmed. `None`: it is low enough.
pub fn settle(view: &View, shard: &Shard, holding: usize) -> Option<Transaction> {
    let fence = settled_fence(view, shard, holding)?;
    let mut topology = view.topology.value.clone();
    topology.shard_of_mut(shard.holder.id)?.fence = fence;
    let mut transaction = view.replace(&topology);
    transaction.compares.push(view.alive_unchanged(shard.holder.id));
    Some(transaction)
}

/// The number of fences that [`settle`] writes.
pub fn settled_fence(view: &View, shard: &Shard, holding: usize) -> Option<usize> {
    let quorum = view.topology.value.quorum;
    let enough = (shard.members().count() + 1).saturating_sub(holding.max(1));
    let fence = enough.max(shard.wanted_fence(quorum));
    (fence < shard.fence).then_some(fence)
}

/// Begins a leadership: a new epoch, this holder, and what else changes in the shard.
fn lead(view: &View, shard: &Shard, to: Holder, change: impl Fn(&mut Shard)) -> Transaction {
    let mut topology = view.topology.value.clone();
    let epoch = topology.take_epoch();
    let changed = topology.shard_of_mut(shard.holder.id).expect("the shard is one of the view");
    (changed.epoch, changed.holder) = (epoch, to);
    for copy in changed.copies.iter_mut().filter(|copy| copy.id == to.id) {
        copy.member = Some(to.incarnation);
    }
    change(changed);
    view.replace(&topology)
}
