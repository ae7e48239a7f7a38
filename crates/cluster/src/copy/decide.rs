//! What a copy decides from what it sees: the role that the view says, and the transaction that is
//! due.

use super::{Action, Copy, Facts, Role, Switching};
use crate::Moment;
use crate::change;
use crate::coordinator::{Change, Transaction};
use crate::promotion::{self, Election};
use crate::topology::{Holder, Replica};
use crate::view::{self, Fence};

impl Copy {
    /// Takes the role that the view says.
    pub(super) fn follow_view(&mut self, actions: &mut Vec<Action>) {
        let Some((view, shard)) = self.shard() else { return };
        let (holder, epoch) = (shard.holder, shard.epoch);
        // The first role is taken from a view that shows the registration: what this copy said
        // before it was restarted is in that view, too, and can no longer arrive later.
        let is_new = self.role == Role::Nothing && !self.is_registered(view);
        if is_new || self.is_store_behind {
            return;
        }
        let role = match holder == self.myself() {
            true => Role::Leads(epoch),
            false => Role::Follows(holder, epoch),
        };
        if role == self.role {
            return;
        }
        self.role = role;
        self.switch = None;
        self.promises.clear();
        match role {
            Role::Leads(epoch) => actions.push(Action::Lead(epoch)),
            Role::Follows(holder, epoch) if self.accepts(epoch) => {
                actions.push(Action::Follow(holder, epoch));
            }
            Role::Follows(..) | Role::Nothing => {}
        }
    }

    /// Returns the transaction that is due.
    pub(super) fn due(
        &mut self,
        now: Moment,
        facts: &Facts,
        actions: &mut Vec<Action>,
    ) -> Option<Transaction> {
        let (view, shard) = self.shard()?;
        if self.told.is_some() {
            return None;
        }
        let is_registered = self.is_registered(view);
        // Copies of some shard have found out, so this one may have a successor that is forgotten.
        // If it led on in an epoch above that one's, positions would say that it has more.
        let is_doubtful =
            view.rolled_back.is_some() && shard.holder == self.myself() && !is_registered;
        if self.is_store_behind || is_doubtful {
            let alive = self.alive()?;
            let told =
                promotion::tell_rollback(view, shard, self.me, (self.known.as_ref()?, alive));
            let key = view.keys.topology(view.database);
            self.telling = told.changes.iter().find_map(|change| match change {
                Change::Put { key: of, value, .. } if *of == key => Some(view::digest(value)),
                _ => None,
            });
            return Some(told);
        }
        if !is_registered {
            let alive = self.alive()?;
            let is_first = shard.is_unborn() && shard.holder.id == self.me;
            let leads = (is_first || shard.holder == self.myself()) && facts.is_whole;
            return Some(match leads {
                true => promotion::retake(view, shard, alive),
                false => change::register(view, self.me, alive),
            });
        }
        if let Some(alive) = self.changed_alive(view) {
            return Some(change::register(view, self.me, alive));
        }
        if shard.holder == self.myself() {
            return self.due_of_primary(facts);
        }
        if view.is_alive(shard.holder) {
            if self.refused >= Some(shard.epoch) {
                return self.due_with_lost_fence(facts, actions);
            }
            let is_new = shard.copy(self.me)?.member != Some(self.incarnation);
            let is_level = facts.is_whole && facts.position.epoch == shard.epoch;
            let is_due = is_new && is_level && facts.is_listed && self.accepts(shard.epoch);
            return is_due.then(|| promotion::enrol(view, shard, self.myself()));
        }
        self.due_without_primary(now, facts, actions)
    }

    /// Begins the switch that an operator asks for, once, and gives it up when its time is over.
    pub(super) fn begin_switch(&mut self, now: Moment, facts: &Facts) {
        if matches!(self.switch, Some((_, Switching::Paused))) && now >= self.switch_until {
            self.switch = None;
        }
        let Role::Leads(epoch) = self.role else { return };
        let Some((view, shard)) = self.shard() else { return };
        let Some(asked) = view.switches.get(&shard.id) else { return };
        let view::Switch { to, is_for_any, .. } = asked.value;
        let revision = asked.revision;
        if asked.value.epoch != epoch || self.switch.is_some() {
            return;
        }
        if revision > self.asked.0 {
            self.asked = (revision, now, false);
        }
        let (_, seen, is_done) = self.asked;
        if is_done {
            return;
        }
        let is_late = now >= seen + self.settings.switch;
        // Clients wait for the switch itself, not for a link.
        let is_linked = facts.linked.contains(&to) || (is_for_any && !facts.linked.is_empty());
        if is_late || is_linked {
            self.asked.2 = true;
            self.switch = (!is_late).then_some((to, Switching::Paused));
            self.is_for_any = is_for_any;
            self.switch_until = now + self.settings.switch;
        }
    }

    fn due_of_primary(&mut self, facts: &Facts) -> Option<Transaction> {
        let (view, shard) = self.shard()?;
        match self.switch {
            None if promotion::is_refused(view, shard) => {
                Some(promotion::cancel_switch(view, shard))
            }
            None => {
                let Some(fence) = promotion::settled_fence(view, shard, facts.holding) else {
                    return promotion::dismiss(view, shard, &facts.silent);
                };
                let transaction = promotion::settle(view, shard, facts.holding);
                // It may take effect although its reply is lost, as long as the topology is this
                // one.
                self.lowering = Some((view.topology.revision, fence));
                transaction
            }
            // The transaction may be under way. Only after this one may writes go on.
            Some((_, Switching::Sent | Switching::Unknown)) => {
                Some(promotion::cancel_switch(view, shard))
            }
            Some((successor, Switching::Paused)) => {
                let may_lead = |copy: &&Replica| match self.is_for_any {
                    true => copy.id != self.me && !copy.is_never_promoted,
                    false => copy.id == successor,
                };
                let copies = shard.copies.iter().filter(may_lead);
                let holder =
                    |copy: &Replica| Some(Holder { id: copy.id, incarnation: copy.member? });
                let members: Vec<Holder> =
                    copies.filter_map(holder).filter(|&to| view.is_alive(to)).collect();
                if members.is_empty() {
                    self.switch = None;
                    return None;
                }
                let to = members.into_iter().find(|to| facts.level.contains(to))?;
                let transaction = promotion::switch(view, shard, to);
                self.switch = Some((to.id, Switching::Sent));
                Some(transaction)
            }
        }
    }

    /// This copy has refused the epoch of a primary that is there. Only a coordinator that has been
    /// rolled back, so that it has forgotten the fence, names such a one. The primary begins a new
    /// epoch when it sees the fence. A process that has read its own after a start is not frozen.
    fn due_with_lost_fence(&self, facts: &Facts, actions: &mut Vec<Action>) -> Option<Transaction> {
        let (view, shard) = self.shard()?;
        let epoch = shard.epoch;
        let said = view.fences.get(&(shard.id, self.me));
        if !facts.is_whole || said.is_some_and(|at| at.value.epoch >= epoch) {
            return None;
        }
        if facts.frozen < Some(epoch) {
            actions.push(Action::Freeze(epoch));
            return None;
        }
        let &Facts { position, has_keys, .. } = facts;
        let incarnation = self.incarnation;
        let fence = Fence { epoch, incarnation, position, has_keys, restored: None };
        Some(promotion::fence(view, shard, self.me, fence))
    }

    /// The primary's lease is gone: this copy refuses its epoch, says so, and takes over if it is
    /// elected.
    fn due_without_primary(
        &mut self,
        now: Moment,
        facts: &Facts,
        actions: &mut Vec<Action>,
    ) -> Option<Transaction> {
        let (view, shard) = self.shard()?;
        let is_member = shard.copy(self.me)?.member.is_some();
        if !is_member || !facts.is_whole || now < self.promise {
            return None;
        }
        let epoch = shard.epoch;
        if facts.frozen.is_none_or(|frozen| frozen < epoch) {
            self.refused = self.refused.max(Some(epoch));
            actions.push(Action::Freeze(epoch));
            return None;
        }
        let &Facts { position, has_keys, .. } = facts;
        let incarnation = self.incarnation;
        let member = shard.copy(self.me)?.member;
        let restored = member.filter(|name| facts.restored.contains(name));
        let mine = Fence { epoch, incarnation, position, has_keys, restored };
        if view.fences.get(&(shard.id, self.me)).map(|at| at.value) != Some(mine) {
            return Some(promotion::fence(view, shard, self.me, mine));
        }
        let since = match self.fenced {
            Some((of, since)) if of == epoch => since,
            _ => now,
        };
        let has_others_to_wait_for = shard.members().any(|copy| {
            let fence = view.fences.get(&(shard.id, copy.id));
            view.alive.contains_key(&copy.id) && fence.is_none_or(|at| at.value.epoch < epoch)
        });
        let (winner, patience) = match promotion::elect(view, shard) {
            // A copy that etcd has forgotten may lead until its lease ends, and the one that is
            // named until it has read that it leads no more.
            Election::Won(winner) if shard.is_rolled_back() => {
                let fence = |copy: &Replica| view.fences.get(&(shard.id, copy.id));
                let has_said =
                    |copy: &Replica| fence(copy).is_some_and(|at| at.value.epoch >= epoch);
                let have_all_said = shard.copies.iter().all(has_said);
                (winner, if have_all_said { self.settings.ttl } else { self.settings.comeback })
            }
            Election::Won(winner) if has_others_to_wait_for => (winner, self.settings.grace),
            Election::Won(winner) => (winner, Moment::ZERO),
            Election::Restored(winner) => (winner, self.settings.comeback),
            Election::Waiting { .. } | Election::Lost => {
                self.fenced = Some((epoch, since));
                return None;
            }
        };
        let is_due = winner == self.myself() && now >= since + patience;
        let transaction = is_due.then(|| promotion::promote(view, shard, winner));
        self.fenced = Some((epoch, since));
        transaction
    }
}
