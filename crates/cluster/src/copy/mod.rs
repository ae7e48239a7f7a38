//! One copy: its lease, whether it leads or follows, and how it takes over. Events and the time
//! come in, actions out.
//!
//! ```text
//!             the view names this copy                  the view names another
//!   Leads ◀──────────────────────────── Nothing ──────────────────────────────▶ Follows
//!     │                                    ▲                                        │ the primary's lease is gone
//!     │ the view names another             │ a greater epoch                        ▼
//!     └────────────────────────────────────┴──────────────────────────────────── Fenced ──▶ elected: promote
//! ```
//!
//! The host keeps the promises made here: it acknowledges nothing of an epoch that
//! [`Copy::accepts`] refuses, confirms writes only while [`Copy::may_confirm`] says so, asked at
//! that very moment, and draws a new incarnation before it discards data.

mod bus;
mod decide;
mod lease;

use crate::Moment;
use crate::coordinator::{LeaseCall, LeaseId, LeaseReply, Outcome, Revision, Transaction};
use crate::id::{Epoch, Id, Incarnation, Position};
use crate::known::Known;
use crate::stored;
use crate::topology::{Holder, Replica, Shard};
use crate::view::{Alive, View};
pub use bus::Door;
use lease::Lease;
use std::collections::BTreeMap;

/// The longest promise that a copy gives, whatever its settings are: what it promised before it was
/// restarted is over when so much time has passed.
pub const LONGEST_PROMISE: Moment = Moment::from_secs(2);

/// The times.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// How long a lease lasts.
    pub ttl: Moment,
    /// How long after a failure a call is tried again.
    pub retry: Moment,
    /// How long a successor waits for other copies that are alive and may have more.
    pub grace: Moment,
    /// How long a successor that was restarted like all others waits for members that are not back.
    pub comeback: Moment,
    /// How long a copy's promise to its primary lasts while the coordinator is away.
    pub promise: Moment,
    /// How long a switch waits for the successor's link, and then, with writes paused, until it has
    /// everything.
    pub switch: Moment,
}

/// What the host knows at the moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// How far the data goes.
    pub position: Position,
    /// There is at least one key.
    pub has_keys: bool,
    /// The names that the data had before restarts, as far as a log has brought them back.
    pub restored: Vec<Incarnation>,
    /// The data are whole: nothing is being loaded, no full synchronisation runs.
    pub is_whole: bool,
    /// The greatest epoch of which the host acknowledges nothing any more, as [`Action::Freeze`]
    /// asked.
    pub frozen: Option<Epoch>,
    /// The primary has said that its view lists this copy.
    pub is_listed: bool,
    /// For a primary: how many members, itself among them, hold all that may have been confirmed.
    /// It is counted only with acknowledgements of the present epoch and of the data with which the
    /// members were enrolled.
    pub holding: usize,
    /// For a primary: the copies that receive what it writes, and are not far behind.
    pub linked: Vec<Id>,
    /// For a primary: the copies that have acknowledged everything in the present epoch, and the
    /// data they have.
    pub level: Vec<Holder>,
    /// For a primary: the members that have acknowledged nothing for so long that they are not to
    /// be promoted.
    pub silent: Vec<Id>,
}

/// What the host is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ask about the lease, and report to [`Copy::lease_replied`].
    Lease(LeaseCall),
    /// Read [`crate::view::Keys::home`], then that database, and report to [`Copy::read`].
    Read,
    /// Make the transaction, and report to [`Copy::committed`].
    Commit(Transaction),
    /// Acknowledge nothing more of this epoch and older ones, then say so in [`Facts::frozen`].
    Freeze(Epoch),
    /// Take writes, beginning with an entry of this epoch.
    Lead(Epoch),
    /// Follow this primary, or nothing if it is this copy itself with data that are gone.
    Follow(Holder, Epoch),
    /// Ask all other copies for a promise not to fence, and report to [`Copy::promised`].
    Ask(Epoch),
}

/// What a copy does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It does not know yet.
    Nothing,
    /// It is the primary in this epoch.
    Leads(Epoch),
    /// It follows this primary.
    Follows(Holder, Epoch),
}

/// How far a planned switch is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Switching {
    /// Writes are paused. No transaction of it can take effect.
    Paused,
    /// Its transaction was sent, and the reply to it is waited for.
    Sent,
    /// The reply is lost: it may have taken effect, or still do so.
    Unknown,
}

/// What a failed or successful call was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Action::Lease`].
    Lease,
    /// [`Action::Read`].
    Read,
    /// [`Action::Commit`].
    Commit,
}

/// See the head of this file.
#[derive(Clone, Hash, Debug)]
pub struct Copy {
    me: Id,
    incarnation: Incarnation,
    /// Its port for other copies, and what is known of theirs.
    bus: bus::OwnPort,
    settings: Settings,
    lease: Lease,
    view: Option<View>,
    /// What the newest view said, or one before that said more.
    known: Option<Known>,
    /// The epoch of the last entry when this process began, or came into this database, and when
    /// the newest read was sent. An entry of a later epoch came from a primary that the coordinator
    /// knew.
    entries: (Option<Epoch>, Epoch),
    /// The coordinator has been rolled back behind what is known.
    is_store_behind: bool,
    /// The transaction that is under way tells the coordinator so, by a topology of this digest.
    telling: Option<u64>,
    /// It has been told, with this revision. No view that counts has been read since.
    told: Option<Revision>,
    role: Role,
    /// The greatest epoch that is refused.
    refused: Option<Epoch>,
    /// Until when a primary was promised that this copy does not fence.
    promise: Moment,
    /// Whether the coordinator was there at the last step. `None`: it was not yet.
    was_present: Option<bool>,
    /// Until when the others have promised it to this one, in its present epoch.
    promises: BTreeMap<Id, Moment>,
    next_ask: Moment,
    /// The revision of the topology in which fewer fences may have been written since, and how
    /// many.
    lowering: Option<(Revision, usize)>,
    /// Why the last read was of no use: a value is of a later version.
    unreadable: Option<String>,
    is_committing: bool,
    is_reading: bool,
    next_read: Moment,
    /// Only a read that was sent later shows what has changed.
    changed: Option<Moment>,
    /// When the fence was seen in the view.
    fenced: Option<(Epoch, Moment)>,
    /// The planned switch: to whom, and how far it is.
    switch: Option<(Id, Switching)>,
    /// Any other member will do as well.
    is_for_any: bool,
    /// Until when the successor may come level.
    switch_until: Moment,
    /// The switch that an operator asked for last: its revision, when it was seen, and whether it
    /// was begun or has lapsed.
    asked: (Revision, Moment, bool),
}

impl Settings {
    /// The times for a lease that lasts so long.
    pub fn of_lease(ttl: Moment) -> Settings {
        Settings {
            ttl,
            retry: (ttl / 8).min(Moment::from_millis(200)),
            grace: (ttl / 8).min(Moment::from_millis(500)),
            comeback: ttl * 2,
            promise: (ttl / 2).min(LONGEST_PROMISE),
            switch: Moment::from_secs(5),
        }
    }
}

impl Copy {
    /// A copy whose process has just been started.
    pub fn new(me: Id, incarnation: Incarnation, settings: Settings) -> Copy {
        assert!(settings.promise <= LONGEST_PROMISE, "promises outlast a restart");
        Copy {
            me,
            incarnation,
            bus: bus::OwnPort::default(),
            settings,
            lease: Lease::new(settings.ttl, settings.retry),
            view: None,
            known: None,
            entries: (None, Epoch(0)),
            is_store_behind: false,
            telling: None,
            told: None,
            role: Role::Nothing,
            refused: None,
            promise: Moment::ZERO,
            was_present: None,
            promises: BTreeMap::new(),
            next_ask: Moment::ZERO,
            lowering: None,
            unreadable: None,
            is_committing: false,
            is_reading: false,
            next_read: Moment::ZERO,
            changed: None,
            fenced: None,
            switch: None,
            is_for_any: false,
            switch_until: Moment::ZERO,
            asked: (0, Moment::ZERO, true),
        }
    }

    /// Takes what an earlier process of this copy knew last.
    pub fn remember(&mut self, known: Option<Known>) {
        self.bus.remember(known.as_ref());
        self.known = known;
    }

    /// What a later process of this copy has to know.
    pub fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    /// Returns whether the coordinator has been rolled back, and has not been told so yet.
    pub fn is_store_behind(&self) -> bool {
        self.is_store_behind
    }

    /// What it does.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The newest view.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Its lease, which may have ended.
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease.id()
    }

    /// Returns whether the coordinator is there: a renewal and a read have succeeded since the last
    /// failure.
    pub fn is_coordinator_present(&self) -> bool {
        self.lease.is_present()
    }

    /// The data that the copy holds have another name from now on. Called before data are
    /// discarded.
    pub fn reincarnate(&mut self, incarnation: Incarnation) {
        self.incarnation = incarnation;
    }

    /// Returns whether entries of a primary of this epoch may be taken and acknowledged.
    pub fn accepts(&self, epoch: Epoch) -> bool {
        self.refused.is_none_or(|refused| epoch > refused)
            && match self.role {
                Role::Nothing => false,
                Role::Leads(own) => epoch > own,
                Role::Follows(_, known) => epoch >= known,
            }
    }

    /// Returns whether the primary is provably alone: no other can have been promoted. Reads, and
    /// confirmations in the modes `memory` and `fsync`, need it. A confirmation by a quorum does
    /// not.
    pub fn is_alone(&self, now: Moment) -> bool {
        now < self.alone_until()
    }

    /// Until when [`Copy::is_alone`] holds if nothing else is heard. It may be over.
    pub fn alone_until(&self) -> Moment {
        // A switch that was sent may have been made.
        let may_be_switched =
            matches!(self.switch, Some((_, Switching::Sent | Switching::Unknown)));
        if may_be_switched { Moment::ZERO } else { self.unchallenged_until() }
    }

    /// Until when no other can be promoted unless this copy itself hands over. It may be over.
    pub fn unchallenged_until(&self) -> Moment {
        let Role::Leads(epoch) = self.role else { return Moment::ZERO };
        let Some((view, shard)) = self.shard() else { return Moment::ZERO };
        // A copy that another primary's epoch lies in between has followed that primary before it
        // leads again.
        let leads_on = shard.holder == self.myself() && shard.epoch > epoch;
        if shard.holder.id != self.me || (shard.epoch != epoch && !leads_on) {
            return Moment::ZERO;
        }
        let is_leased = self.is_registered(view);
        let lease = if is_leased { self.lease.until() } else { Moment::ZERO };
        let others = shard.copies.iter().filter(|copy| copy.id != self.me);
        let promised = |copy: &Replica| self.promises.get(&copy.id).copied().unwrap_or_default();
        let mut promised: Vec<Moment> = others.map(promised).collect();
        promised.sort_unstable();
        // As soon as `fence` of the others may fence, another may be promoted; without as many,
        // none ever.
        let fence = match self.lowering {
            Some((of, lowered)) if of == view.topology.revision => lowered.min(shard.fence),
            _ => shard.fence,
        };
        lease.max(promised.get(fence - 1).copied().unwrap_or(Moment::MAX))
    }

    /// Returns whether a write may be taken and confirmed. With a quorum, `quorum` acknowledgements
    /// of this epoch are needed besides.
    pub fn may_confirm(&self, now: Moment) -> bool {
        let has_quorum = self.view.as_ref().is_some_and(|view| view.topology.value.quorum > 0);
        let leads = matches!(self.role, Role::Leads(_));
        leads && self.switch.is_none() && (has_quorum || self.is_alone(now))
    }

    /// Returns whether the newest view names this copy as the primary, with the data that it has;
    /// its role follows.
    pub fn is_named(&self) -> bool {
        self.shard().is_some_and(|(_, shard)| shard.holder == self.myself())
    }

    /// Returns whether a planned switch is on its way, which an operator asked for in
    /// [`View::switches`]. The host pauses writes meanwhile.
    pub fn is_switching(&self) -> bool {
        self.switch.is_some()
    }

    /// A primary of `epoch` asks for a promise not to fence. Returns for how long it is given. The
    /// primary may have begun a new epoch of which one of the two has not read yet: it has to be
    /// the one that this copy follows. A fence of an epoch that is over elects nobody, so the later
    /// of the two epochs is the one that this copy must not have refused.
    pub fn promise(&mut self, now: Moment, epoch: Epoch, from: Holder) -> Option<Moment> {
        let Role::Follows(holder, known) = self.role else { return None };
        let is_refused = self.refused.is_some_and(|refused| epoch.max(known) <= refused);
        if is_refused || holder != from {
            return None;
        }
        self.promise = self.promise.max(now + self.settings.promise);
        Some(self.settings.promise)
    }

    /// Another copy has promised for `time`, on a question of `epoch` that was sent at `sent`.
    pub fn promised(&mut self, from: Id, epoch: Epoch, sent: Moment, time: Moment) {
        if self.role == Role::Leads(epoch) {
            let until = self.promises.entry(from).or_default();
            *until = (*until).max(sent + time);
        }
    }

    /// Something in the database has changed, perhaps.
    pub fn changed(&mut self, now: Moment) {
        self.changed = Some(now);
        self.next_read = now;
    }

    /// The reply to [`Action::Lease`], which was sent at `sent`.
    pub fn lease_replied(&mut self, now: Moment, sent: Moment, reply: LeaseReply) {
        if self.lease.replied(now, sent, reply) {
            self.changed(now);
        }
    }

    /// The reply to [`Action::Read`], which was sent at `sent`. `None`: the copy's home or database
    /// is not there.
    pub fn read(&mut self, now: Moment, sent: Moment, view: Option<View>) {
        self.is_reading = false;
        self.unreadable = None;
        self.lease.read(sent);
        if self.changed.is_none_or(|changed| sent > changed) {
            // The watch says what changes. This is for what it may have lost.
            self.next_read = now + 2 * self.lease.interval();
        }
        let Some(view) = view else { return self.bus.begins() };
        let (began, newest) = self.entries;
        match &mut self.known {
            Some(known) if known.database == view.database && began.is_some() => {
                if Some(newest) > began {
                    known.newest = known.newest.max(newest);
                }
            }
            _ => self.entries.0 = Some(newest),
        }
        let is_lost = self.known.as_ref().is_some_and(|known| known.is_lost_in(&view));
        // What the coordinator says from the moment on at which it was told counts.
        let is_told = self.told.is_some_and(|told| view.topology.revision >= told)
            && !view.history.is_another;
        match !is_told && (is_lost || self.is_store_behind) {
            true => self.leave_role(),
            false if is_told => {
                (self.told, self.is_store_behind) = (None, false);
                self.known = Known::of(&view, self.me, self.known.as_ref());
            }
            false => {
                let known = Known::of(&view, self.me, self.known.as_ref());
                self.known = known.or(self.known.take());
            }
        }
        if let Some(shard) = view.topology.value.shard_of(self.me)
            && let Some(fence) = view.fences.get(&(shard.id, self.me))
        {
            // Said before a restart, perhaps.
            self.refused = self.refused.max(Some(fence.value.epoch));
        }
        self.view = Some(view);
        self.note_bus();
    }

    /// The reply to [`Action::Read`] has a value that this version cannot read. The coordinator is
    /// there, so the lease goes on; the copy keeps its role and the view that it has, and makes no
    /// transaction, since each would rest on what it does not know.
    pub fn read_unreadable(&mut self, now: Moment, sent: Moment, why: String) {
        self.is_reading = false;
        self.lease.read(sent);
        self.unreadable = Some(why);
        self.next_read = now + 2 * self.lease.interval();
    }

    /// Returns why the copy makes no transactions, if it may not: a value at the coordinator is not
    /// readable, or for later versions to change.
    pub fn held_by_version(&self) -> Option<String> {
        let topology = self.view.as_ref().map(|view| &view.topology.value);
        let unreadable = self.unreadable.as_ref().map(|why| format!("{why}; it is left alone"));
        unreadable.or_else(|| stored::check_writer(topology?.least_writer).err())
    }

    /// The reply to [`Action::Commit`]. What the transaction did is seen in the next view.
    pub fn committed(&mut self, now: Moment, outcome: Outcome) {
        self.is_committing = false;
        if let Some(digest) = self.telling.take()
            && let Outcome::Done(revision) = outcome
        {
            self.told = Some(revision);
            // A coordinator that is rolled back again before the next read has never been told.
            if let Some(known) = &mut self.known {
                (known.topology, known.digest) = (revision, Some(digest));
            }
        }
        if outcome == Outcome::Conflict
            && let Some((_, switching @ Switching::Sent)) = &mut self.switch
        {
            // Nothing of it can take effect any more. The conflict of a cancellation says the
            // opposite, perhaps: that the switch was made.
            *switching = Switching::Paused;
        }
        self.changed(now);
    }

    /// A call failed, perhaps after it had taken effect.
    pub fn failed(&mut self, now: Moment, call: Call) {
        match call {
            Call::Lease => self.lease.call_failed(now),
            Call::Read => self.is_reading = false,
            Call::Commit => {
                self.is_committing = false;
                self.telling = None;
                if let Some((_, switching @ Switching::Sent)) = &mut self.switch {
                    *switching = Switching::Unknown;
                }
            }
        }
        self.lease.failed(now);
        self.next_read = now + self.settings.retry;
    }

    /// The coordinator has forgotten the primary. Nothing that this copy was told by it holds any
    /// more. What the copy itself has promised does.
    fn leave_role(&mut self) {
        (self.is_store_behind, self.told) = (true, None);
        self.role = Role::Nothing;
        self.promises.clear();
        (self.lowering, self.fenced, self.switch) = (None, None, None);
        self.asked = (0, Moment::ZERO, true);
    }

    /// Returns what is due.
    pub fn step(&mut self, now: Moment, facts: &Facts) -> Vec<Action> {
        let mut actions: Vec<Action> =
            self.lease.poll(now).map(Action::Lease).into_iter().collect();
        if !self.is_reading && now >= self.next_read {
            self.is_reading = true;
            self.entries.1 = facts.position.epoch;
            actions.push(Action::Read);
        }
        self.hold_back(now);
        self.follow_view(&mut actions);
        self.begin_switch(now, facts);
        if !self.is_committing
            && !self.is_reading
            && self.lease.is_present()
            && self.held_by_version().is_none()
            && let Some(transaction) = self.due(now, facts, &mut actions)
        {
            self.is_committing = true;
            actions.push(Action::Commit(transaction));
        }
        actions.extend(self.ask(now).map(Action::Ask));
        actions
    }

    /// Returns the epoch in which the other copies are to be asked for a promise now.
    /// [`Copy::step`] asks as well; a host whose calls to the coordinator delay the next step asks
    /// here meanwhile.
    pub fn ask(&mut self, now: Moment) -> Option<Epoch> {
        let Role::Leads(epoch) = self.role else { return None };
        let (view, shard) = self.shard()?;
        // A new lease counts only when the view shows it.
        let is_leased = self.lease.is_present() && self.is_registered(view);
        if is_leased || shard.copies.len() < 2 || now < self.next_ask {
            return None;
        }
        self.next_ask = now + self.settings.promise / 4;
        Some(epoch)
    }

    /// Takes part in no promotion for the time of a promise: the process may have given one before
    /// it was restarted, and a primary that finds the coordinator again needs as long as this copy
    /// did.
    fn hold_back(&mut self, now: Moment) {
        let is_present = self.lease.is_present();
        let time = match (is_present, self.was_present) {
            (true, None) => LONGEST_PROMISE,
            (true, Some(false)) => self.settings.promise,
            _ => Moment::ZERO,
        };
        self.promise = self.promise.max(now + time);
        self.was_present = if is_present { Some(true) } else { self.was_present.map(|_| false) };
    }

    /// The view and this copy's shard.
    fn shard(&self) -> Option<(&View, &Shard)> {
        let view = self.view.as_ref()?;
        Some((view, view.topology.value.shard_of(self.me)?))
    }

    /// This copy, with the data that it holds.
    pub fn myself(&self) -> Holder {
        Holder { id: self.me, incarnation: self.incarnation }
    }

    /// Returns what this copy says of itself while it has a lease.
    pub(crate) fn alive(&self) -> Option<Alive> {
        let lease = self.lease.id()?;
        Some(Alive { incarnation: self.incarnation, lease, bus_port: self.announced_bus() })
    }

    /// Returns whether the view shows this copy's present lease and data.
    fn is_registered(&self, view: &View) -> bool {
        let shown = view.alive.get(&self.me).map(|at| (at.value.incarnation, at.value.lease));
        shown.is_some_and(|(incarnation, lease)| {
            incarnation == self.incarnation && Some(lease) == self.lease.id()
        })
    }

    /// Returns what this copy is to say of itself if the view shows another port for other copies.
    /// Its lease counts meanwhile.
    fn changed_alive(&self, view: &View) -> Option<Alive> {
        let shown = view.alive.get(&self.me).map(|at| at.value);
        self.alive().filter(|mine| self.switch.is_none() && shown != Some(*mine))
    }
}

#[cfg(test)]
mod tests;
