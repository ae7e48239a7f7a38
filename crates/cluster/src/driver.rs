//! One copy and its coordinator, driven on a thread: makes the calls that the copy asks for, one
//! after the other, and returns what is left for the host to do.
//!
//! A call may block for as long as the coordinator's client allows, so that should be a small part
//! of a lease's time. Threads that confirm writes need not wait for it: the answer of
//! [`crate::copy::Copy::is_alone`] changes with the clock alone.

use crate::Moment;
use crate::change;
use crate::coordinator::{Coordinator, Failure, Outcome, Revision, Transaction};
use crate::copy::{Action, Call, Copy, Facts};
use crate::id::{Id, Incarnation};
use crate::known::look_back;
use crate::stored::check_writer;
use crate::topology::Replica;
use crate::view::{self, Alive, Keys, View};
use std::sync::{Arc, Mutex, MutexGuard};
use structs::sync::lock;

/// See the head of this file.
pub struct Driver<C> {
    /// The decisions. They are not locked while a call is made.
    copy: Arc<Mutex<Copy>>,
    coordinator: C,
    keys: Keys,
    /// The copy as its own database has it when it starts for the first time.
    myself: Replica,
    incarnation: Incarnation,
    /// The last read has found the copy in no database, so the turn founds one.
    is_homeless: bool,
    /// The last read has found no topology of the copy's database, but an order to write it again:
    /// the revision of the order.
    order: Option<Revision>,
}

impl<C: Coordinator> Driver<C> {
    /// Drives `copy`, which is called `myself` and holds the data named `incarnation`.
    pub fn new(
        copy: Copy,
        coordinator: C,
        keys: Keys,
        myself: Replica,
        incarnation: Incarnation,
    ) -> Driver<C> {
        Driver {
            copy: Arc::new(Mutex::new(copy)),
            coordinator,
            keys,
            myself,
            incarnation,
            is_homeless: false,
            order: None,
        }
    }

    /// Locks the decisions.
    pub fn copy(&self) -> MutexGuard<'_, Copy> {
        lock(&self.copy)
    }

    /// Returns the decisions for other threads.
    pub fn shared(&self) -> Arc<Mutex<Copy>> {
        Arc::clone(&self.copy)
    }

    /// Does what is due at the coordinator. Returns what the host has to do. `clock` is asked
    /// before and after each call. `decided` sees the copy before a transaction is sent that may
    /// end its leadership.
    ///
    /// A transaction is not sent when a call of the same turn has failed. It rests on what was read
    /// on a connection that has ended; a coordinator that was started again with older files
    /// meanwhile may have other values at the same revisions.
    pub fn turn(
        &mut self,
        clock: &impl Fn() -> Moment,
        facts: &Facts,
        mut decided: impl FnMut(&Mutex<Copy>),
    ) -> Vec<Action> {
        let mut left = Vec::new();
        let actions = self.copy().step(clock(), facts);
        if actions.iter().any(|action| matches!(action, Action::Commit(_))) {
            decided(&self.copy);
        }
        let mut has_failed = false;
        for action in actions {
            let sent = clock();
            match action {
                Action::Lease(call) => {
                    let reply = self.coordinator.lease(call);
                    has_failed = reply.is_err();
                    self.take(clock, Call::Lease, reply, |copy, now, reply| {
                        copy.lease_replied(now, sent, reply);
                    });
                }
                Action::Read => match self.read() {
                    Err(Failure::Unreadable(why)) => {
                        self.copy().read_unreadable(clock(), sent, why);
                    }
                    view => self.take(clock, Call::Read, view, |copy, now, view| {
                        copy.read(now, sent, view);
                    }),
                },
                Action::Commit(_) if has_failed => self.copy().failed(clock(), Call::Commit),
                Action::Commit(transaction) => {
                    let outcome = self.coordinator.commit(&transaction);
                    self.take(clock, Call::Commit, outcome, |copy, now, outcome| {
                        copy.committed(now, outcome);
                    });
                }
                action => left.push(action),
            }
        }
        self.found(clock);
        self.write_again(clock);
        left
    }

    /// Waits until something in the database changes, at most so long. Returns whether it waited:
    /// if the coordinator is away it does not.
    pub fn wait(&mut self, clock: &impl Fn() -> Moment, time: Moment) -> bool {
        let place = self.copy().view().map(|view| (view.database, view.revision + 1));
        let Some((database, from)) = place else { return false };
        let prefix = self.keys.database(database);
        let changes = self.coordinator.watch(&prefix, from, time);
        match changes {
            Ok(changes) if changes.keys.is_empty() => true,
            Ok(_) | Err(Failure::Compacted(_)) => {
                self.copy().changed(clock());
                true
            }
            // Other calls find out whether the coordinator is away.
            Err(Failure::Away(_) | Failure::Unreadable(_)) => false,
        }
    }

    /// Makes an operator's transaction: `change` makes it of the newest view, and is asked again
    /// after a conflict. The error is the client's.
    pub fn operate(
        &mut self,
        change: impl Fn(&View) -> Result<Transaction, change::Refused>,
    ) -> Result<(), change::Refused> {
        const ATTEMPTS: usize = 16;
        let away = |failure| match failure {
            Failure::Unreadable(why) => change::Refused::Wrong(why),
            failure => change::Refused::Away(format!("The coordinator is away: {failure}")),
        };
        for _ in 0..ATTEMPTS {
            let Some(view) = self.read().map_err(away)? else {
                return Err(change::Refused::Wrong("The node is in no cluster yet".into()));
            };
            check_writer(view.topology.value.least_writer).map_err(change::Refused::Wrong)?;
            if let Outcome::Done(_) = self.coordinator.commit(&change(&view)?).map_err(away)? {
                return Ok(());
            }
        }
        Err(change::Refused::Wrong("Others change the cluster at the same time, try again".into()))
    }

    /// Hands the reply to a call to the copy, or says that the call has failed.
    fn take<T>(
        &mut self,
        clock: &impl Fn() -> Moment,
        call: Call,
        reply: Result<T, Failure>,
        done: impl FnOnce(&mut Copy, Moment, T),
    ) {
        match reply {
            Ok(reply) => done(&mut self.copy(), clock(), reply),
            Err(_) => self.copy().failed(clock(), call),
        }
    }

    /// Reads the copy's database. Looks first in the one that the copy was in: it leaves that one
    /// only in the transaction that brings it into another. `None`: it is in no database.
    fn read(&mut self) -> Result<Option<View>, Failure> {
        let known = self.copy().view().map(|view| view.database);
        if let Some(view) = known.map_or(Ok(None), |database| self.read_database(database))?
            && view.topology.value.copies().any(|copy| copy.id == self.myself.id)
        {
            return Ok(Some(view));
        }
        let home = self.coordinator.range(&self.keys.home(self.myself.id), None)?;
        // A copy that was in a database founds no other: its keys may have been removed by mistake.
        self.is_homeless = home.items.is_empty() && known.is_none();
        let Some(home) = home.items.first() else { return Ok(None) };
        let database = view::read_home(&home.value).map_err(|why| Failure::Unreadable(why.0))?;
        self.read_database(database)
    }

    fn read_database(&mut self, database: Id) -> Result<Option<View>, Failure> {
        let range = self.coordinator.range(&self.keys.database(database), None)?;
        let view = View::decode(&self.keys, database, &range);
        let mut view = view.map_err(|error| Failure::Unreadable(error.0))?;
        if let Some(view) = &mut view {
            let known = self.copy().known().cloned();
            look_back(&mut self.coordinator, view, known.as_ref())?;
        }
        if view.is_none() {
            let key = self.keys.write_again(database);
            let order = range.items.iter().find(|item| item.key == key);
            self.order = order.map(|item| item.revision);
        }
        Ok(view)
    }

    /// Writes the topology again that the coordinator has lost, if that is ordered.
    fn write_again(&mut self, clock: &impl Fn() -> Moment) {
        let Some(order) = self.order.take() else { return };
        let transaction = self.copy().view().map(|known| view::write_again(known, order));
        let Some(transaction) = transaction else { return };
        let outcome = self.coordinator.commit(&transaction);
        self.take(clock, Call::Commit, outcome, |copy, now, _| copy.changed(now));
    }

    /// Founds a database with this copy alone, if it is in none.
    fn found(&mut self, clock: &impl Fn() -> Moment) {
        let alive = self.copy().alive();
        let Some(alive) = alive.filter(|_| self.is_homeless) else { return };
        let alive = Alive { incarnation: self.incarnation, ..alive };
        let database = self.myself.id;
        let transaction = change::found(&self.keys, database, self.myself.clone(), alive);
        let outcome = self.coordinator.commit(&transaction);
        // What the copy remembers is of another cluster, or of one that was removed.
        self.copy().remember(None);
        self.is_homeless = false;
        self.take(clock, Call::Commit, outcome, |copy, now, _| copy.changed(now));
    }
}
