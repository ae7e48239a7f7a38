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
//! **All restarted.** If no member is left that was not restarted, memory has nothing to offer, and
//! the same rule is applied to what their logs had: it loses no write that a quorum had on its
//! disks. So a log counts as long as it has not been discarded since its copy was a member
//! ([`Fence::restored`]). When all members have answered, the best of what there is leads.
//!
//! **`fence` over time.** A copy that is enrolled may lack a write confirmed at that moment, so
//! `fence` rises by one, at most to the number of members, which is always enough because the
//! primary has everything. A copy that leaves may be one of the holders: `fence` stays. Only the
//! primary lowers it ([`settle`]), when it knows who has what.

use crate::coordinator::{Change, Compare, Transaction};
use crate::id::{Epoch, Id, Position};
use crate::known::Known;
use crate::topology::{Holder, ROLLED_BACK, Replica, Shard};
use crate::view::{Alive, Fence, RolledBack, View, encode};
use std::cmp::Reverse;

/// What the fences of a shard say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Election {
    /// This copy is the successor.
    Won(Holder),
    /// All that have answered were restarted, and enough of them have. This copy has the most of
    /// what is on their disks. Members that are not back yet may have more, so it waits for them
    /// for a while.
    Restored(Holder),
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

/// Where the data of a member come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// They are those with which it became a member, and all of them.
    Kept,
    /// It was restarted, and has what its log had of them. It may lack the last moments.
    Log,
    /// They are others: a snapshot, or what was left of a synchronisation.
    Other,
}

/// What a member has said of its data when it refused the present epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// The copy, and the name of its data.
    pub holder: Holder,
    /// How far they go.
    pub position: Position,
    /// There is at least one key.
    pub has_keys: bool,
    /// Where they come from.
    pub origin: Origin,
    /// The copy may become the successor.
    pub is_eligible: bool,
}

impl Vote {
    fn is_empty(&self) -> bool {
        self.position == Position::default() && !self.has_keys
    }
}

/// Returns what the members of a shard have said of the present epoch.
pub fn votes(view: &View, shard: &Shard) -> Vec<Vote> {
    let vote = |copy: &Replica| {
        let fence = view.fences.get(&(shard.id, copy.id))?.value;
        let holder = Holder { id: copy.id, incarnation: fence.incarnation };
        let origin = match copy.member {
            member if member == Some(fence.incarnation) => Origin::Kept,
            member if member == fence.restored => Origin::Log,
            _ => Origin::Other,
        };
        let is_eligible = view.is_alive(holder) && !copy.is_never_promoted;
        let Fence { position, has_keys, .. } = fence;
        let vote = Vote { holder, position, has_keys, origin, is_eligible };
        (fence.epoch >= shard.epoch).then_some(vote)
    };
    shard.members().filter_map(vote).collect()
}

/// Returns the eligible vote with the greatest position, if it is not less than that of `needed`
/// votes. Of equals the one with keys comes first, then the former primary, then the lowest id.
fn best<'a>(
    votes: impl Iterator<Item = &'a Vote> + Clone,
    former: Id,
    needed: usize,
) -> Option<&'a Vote> {
    let rank = |vote: &&Vote| {
        let id = vote.holder.id;
        (vote.position, vote.has_keys, id == former, Reverse(id))
    };
    let best = votes.clone().filter(|vote| vote.is_eligible).max_by_key(rank)?;
    (votes.filter(|vote| vote.position <= best.position).count() >= needed).then_some(best)
}

/// Returns who leads `shard` next, as far as the fences say.
pub fn elect(view: &View, shard: &Shard) -> Election {
    let votes = votes(view, shard);
    let former = shard.holder.id;
    let of = |origin| votes.iter().filter(move |vote| vote.origin == origin);
    let kept = of(Origin::Kept).count();
    if let Some(best) = best(of(Origin::Kept), former, shard.fence) {
        return Election::Won(best.holder);
    }
    let waiting = Election::Waiting { fenced: kept, needed: shard.fence };
    // If all have said what they have, nothing more can come.
    let members = shard.members().count();
    if votes.len() == members {
        return match best(votes.iter(), former, members) {
            Some(best) if best.is_empty() && !shard.slots.is_empty() => Election::Lost,
            Some(best) => Election::Won(best.holder),
            None => waiting,
        };
    }
    // A copy that was not restarted shows that not all were at once. Then one that does not answer
    // may be there, too, and have in memory what the others have lost.
    if kept > 0 {
        return waiting;
    }
    let needed = needed_from_logs(view, shard);
    match best(of(Origin::Log), former, needed) {
        Some(best) if !best.is_empty() => Election::Restored(best.holder),
        _ => Election::Waiting { fenced: of(Origin::Log).count(), needed },
    }
}

/// Returns how many restarted members have to say what their logs have before the best of them may
/// lead without the others. With a quorum each write that was confirmed by disks is in one of these
/// logs; without one they are the majority.
fn needed_from_logs(view: &View, shard: &Shard) -> usize {
    match view.topology.value.quorum {
        0 => shard.members().count() / 2 + 1,
        _ => shard.fence,
    }
}

/// Returns the vote for data that go further than those of `copy`, which would be given up if it
/// led. A copy that has said nothing is taken to have nothing.
pub fn better_than(view: &View, shard: &Shard, copy: Id) -> Option<Vote> {
    let votes = votes(view, shard);
    let rank = |vote: &Vote| (vote.position, vote.has_keys);
    let own = votes.iter().find(|vote| vote.holder.id == copy).map(rank).unwrap_or_default();
    votes.into_iter().filter(|vote| rank(vote) > own).max_by_key(rank)
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
    let is_rolled_back = shard.is_rolled_back();
    let mut transaction = lead(view, shard, winner, |shard| {
        if is_rolled_back {
            // The winner has everything. Of the others it is not known.
            shard.fence = shard.members().count();
        }
    });
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

/// Returns whether another copy of a shard refuses the epoch of its primary.
pub fn is_refused(view: &View, shard: &Shard) -> bool {
    let others = shard.copies.iter().filter(|copy| copy.id != shard.holder.id);
    let fences = others.filter_map(|copy| view.fences.get(&(shard.id, copy.id)));
    fences.into_iter().any(|at| at.value.epoch >= shard.epoch)
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

/// The transaction by which a copy says that the coordinator was rolled back, and writes again what
/// it knew of its shard: the epochs that are used up, the quorum, and its own membership. The shard
/// has no primary then, and all its copies elect one by what they have: the one that the
/// coordinator names may be one of long ago. The copy that was the primary may not have heard of it
/// yet, nor the one that is named; so the elected copy waits for their leases.
///
/// Moves of slots from and to the shard are over, and nothing is dropped for them: they may have
/// ended in another way than the coordinator knows.
pub fn tell_rollback(
    view: &View,
    shard: &Shard,
    copy: Id,
    (known, alive): (&Known, Alive),
) -> Transaction {
    let mut topology = view.topology.value.clone();
    topology.epoch = newest_epoch(view, shard).max(known.newest);
    topology.quorum = topology.quorum.max(known.quorum);
    topology.moves.retain(|job| job.from != shard.id && job.to != shard.id);
    let is_told = shard.is_rolled_back() && shard.epoch > known.newest;
    let epoch = if is_told { shard.epoch } else { topology.take_epoch() };
    let changed = topology.shard_of_mut(copy).expect("the shard is one of the view");
    changed.epoch = epoch;
    changed.holder.incarnation = ROLLED_BACK;
    for own in changed.copies.iter_mut().filter(|own| own.id == copy) {
        if known.member == Some(alive.incarnation) {
            own.member = known.member;
        }
    }
    let members = changed.members().count().max(1);
    changed.fence = changed.fence.max(known.fence).min(members);
    let mut transaction = view.replace(&topology);
    transaction.compares.push(view.alive_unchanged(copy));
    transaction.changes.push(view.put_alive(copy, alive));
    let at = RolledBack::new(known.topology, view.topology.revision);
    let at = match &view.rolled_back {
        // Others have found out, and this copy only is in doubt.
        Some(before) if !known.is_lost_in(view) => before.value.clone(),
        Some(before) => before.value.with(&at),
        None => at,
    };
    let key = view.keys.rolled_back(view.database);
    transaction.changes.push(Change::Put { key, value: encode(&at), lease: None });
    transaction
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

/// Returns the greatest epoch that any copy of a shard, or the topology, has seen. Only a
/// coordinator that was rolled back knows of a lesser one than its copies do.
fn newest_epoch(view: &View, shard: &Shard) -> Epoch {
    let fences = view.fences.iter().filter(|((of, _), _)| *of == shard.id);
    let seen = fences.map(|(_, at)| at.value.epoch.max(at.value.position.epoch));
    seen.max().unwrap_or_default().max(view.topology.value.epoch)
}

/// Begins a leadership: a new epoch, this holder, and what else changes in the shard.
fn lead(view: &View, shard: &Shard, to: Holder, change: impl Fn(&mut Shard)) -> Transaction {
    let mut topology = view.topology.value.clone();
    topology.epoch = newest_epoch(view, shard);
    let epoch = topology.take_epoch();
    let changed = topology.shard_of_mut(shard.holder.id).expect("the shard is one of the view");
    (changed.epoch, changed.holder) = (epoch, to);
    for copy in changed.copies.iter_mut().filter(|copy| copy.id == to.id) {
        copy.member = Some(to.incarnation);
    }
    change(changed);
    view.replace(&topology)
}

#[cfg(test)]
mod tests;
