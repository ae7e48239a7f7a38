//! Whole stripes: visiting them one after the other, holding one or all of them.
//!
//! A visit of a stripe that is not held locks it, and a script may have it locked for as long as it
//! runs. So on a reactor a lock is only tried: a visit that fails says so in [`Db`], and dispatch
//! tries the request again later, or answers BUSY. A long command waits outside the world, and also
//! gives up once a script is busy.
#![allow(unsafe_code)]

use super::Db;
use crate::background::GAP;
use crate::error::Error;
use crate::locks::Locked;
use crate::snapshot::{AlreadyRunning, Snapshot};
use keyspace::snapshot::{Touch, Urgency};
use keyspace::world::Stopped;
use keyspace::{Entry, Key, StripeData, StripeGuard};

impl Db<'_> {
    /// Visits every stripe in turn, locking each for the visit (not if all is locked anyway).
    /// For commands with `Flags::WALKS`, whose own keys, if any, are not locked.
    /// The walk ends early when a visit [fails](Db::visit), and a long command's when its result is
    /// no longer wanted.
    pub fn for_each_stripe(&self, mut visit: impl FnMut(usize, &StripeData)) {
        for index in 0..self.engine.keyspace.stripes().len() {
            if !self.is_wanted() {
                break;
            }
            if self.visit(index, |data| visit(index, data)).is_none() {
                break;
            }
        }
    }

    /// Visits every stripe in turn, to change it. The world is stopped.
    pub fn for_each_stripe_mut(&mut self, mut visit: impl FnMut(usize, &mut StripeData)) {
        for index in 0..self.engine.keyspace.stripes().len() {
            visit(index, self.locks.data_mut(index));
        }
    }

    /// Reads one stripe, which is locked for the visit unless it is held. `None` if it cannot be
    /// had now: then the command is to return without a reply, and is run again or answered with
    /// BUSY.
    pub fn visit<R>(&self, index: usize, visit: impl FnOnce(&StripeData) -> R) -> Option<R> {
        if self.locks.held().covers(index) {
            return Some(visit(self.locks.data(index)));
        }
        let guard = if self.is_outside { None } else { self.lock_for_visit(index) };
        let Some(guard) = guard else {
            self.has_missed_stripe.set(true);
            return None;
        };
        let result = visit(&guard);
        drop(guard);
        self.end_visit();
        Some(result)
    }

    /// Looks at the entry of a key that the request does not name, in a stripe that is locked for
    /// the look unless it is held.
    ///
    /// # Errors
    /// The stripe cannot be had now, or the value is not in RAM. The command, which must not have
    /// changed anything, is run again.
    pub fn look_at<R>(
        &self,
        key: Key<'_>,
        look: impl FnOnce(Option<&Entry>) -> R,
    ) -> Result<R, Error> {
        let looked = self.visit(self.engine.keyspace.stripe_of(key), |data| {
            let entry = data.find(self.index, key).filter(|entry| !entry.is_expired(self.horizon));
            if entry.is_some_and(Entry::is_cold) {
                self.cold_met.borrow_mut().push((self.index, Box::from(key.bytes)));
                return Err(Error::Cold);
            }
            Ok(look(entry))
        });
        looked.unwrap_or(Err(Error::StripeTaken))
    }

    /// Locks the stripe of a key that the request does not name, beside those that are held, so
    /// that the command may change it. For commands with `Flags::REACHES`.
    ///
    /// # Errors
    /// As of [`Db::look_at`], or the key is held by a long command or a snapshot.
    pub fn hold_also(&mut self, key: Key<'_>) -> Result<(), Error> {
        let stripe = self.engine.keyspace.stripe_of(key);
        if !self.locks.held().covers(stripe) {
            self.locks.extend(&Locked::One(stripe)).map_err(|_| Error::StripeTaken)?;
        }
        let (index, data) = (self.index, self.locks.data_mut(stripe));
        let is_kept = data.is_held(key.hash)
            || data.is_delayed(index, key.hash, Touch::Elements, Urgency::Waiting);
        if is_kept {
            return Err(Error::StripeTaken);
        }
        self.look_at(key, |_| ())
    }

    /// Updates the listing of a value after its labels have changed.
    pub fn list_labels(&mut self, key: Key<'_>) {
        let (index, stripe) = (self.index, self.engine.keyspace.stripe_of(key));
        self.locks.data_mut(stripe).list_labels(index, key);
    }

    /// The same where a stripe that cannot be had may be left out.
    pub fn try_visit<R>(&self, index: usize, visit: impl FnOnce(&StripeData) -> R) -> Option<R> {
        if self.locks.held().covers(index) {
            return Some(visit(self.locks.data(index)));
        }
        if self.is_outside {
            return None;
        }
        self.begin_visit();
        let result = self.engine.keyspace.stripe(index).try_lock_soon().map(|data| visit(&data));
        self.end_visit();
        result
    }

    /// Locks a stripe, for a visit that has begun; none has if this fails.
    fn lock_for_visit(&self, index: usize) -> Option<StripeGuard<'static>> {
        let (engine, running) = (self.engine, &self.engine.scripts.running);
        loop {
            self.begin_visit();
            let guard = engine.keyspace.stripe(index).try_lock_soon();
            if guard.is_some() || !self.is_long() {
                return guard;
            }
            // Meanwhile the world can be stopped.
            let reader = self.held.as_ref().map(|held| held.reader()).or(self.background)?;
            reader.leave();
            let gives_up = running.is_busy() || !self.is_wanted();
            if !gives_up {
                engine.clock.rest(GAP);
            }
            if self.held.is_none() {
                reader.enter();
            }
            if gives_up {
                return None;
            }
        }
    }

    /// Whether a [visit](Db::visit) has failed since this was last asked.
    pub(crate) fn take_missed_stripe(&self) -> bool {
        self.has_missed_stripe.take()
    }

    /// Reads one stripe, which is held, or locked for the visit by a thread that is no reactor.
    pub(crate) fn with_stripe<R>(&self, index: usize, visit: impl FnOnce(&StripeData) -> R) -> R {
        if self.locks.held().covers(index) {
            return visit(self.locks.data(index));
        }
        self.begin_visit();
        let result = visit(&self.engine.keyspace.stripe(index).lock());
        self.end_visit();
        result
    }

    /// As [`Db::visit`], to change the stripe.
    pub(crate) fn visit_mut<R>(
        &mut self,
        index: usize,
        visit: impl FnOnce(&mut StripeData) -> R,
    ) -> Option<R> {
        if self.locks.held().covers(index) {
            return Some(visit(self.locks.data_mut(index)));
        }
        let Some(mut guard) = self.lock_for_visit(index) else {
            self.has_missed_stripe.set(true);
            return None;
        };
        let result = visit(&mut guard);
        drop(guard);
        self.end_visit();
        Some(result)
    }

    /// Changes one stripe, which is held or can be locked at once; `None` if it cannot.
    pub(crate) fn try_visit_mut<R>(
        &mut self,
        index: usize,
        visit: impl FnOnce(&mut StripeData) -> R,
    ) -> Option<R> {
        if self.locks.held().covers(index) {
            return Some(visit(self.locks.data_mut(index)));
        }
        self.begin_visit();
        let guard = self.engine.keyspace.stripe(index).try_lock_soon();
        let result = guard.map(|mut data| visit(&mut data));
        self.end_visit();
        result
    }

    /// Changes one stripe, which is held, or locked for the visit by a thread that is no reactor.
    pub(crate) fn with_stripe_mut<R>(
        &mut self,
        index: usize,
        visit: impl FnOnce(&mut StripeData) -> R,
    ) -> R {
        self.reach(index);
        if self.locks.held().covers(index) {
            return visit(self.locks.data_mut(index));
        }
        self.begin_visit();
        let result = visit(&mut self.engine.keyspace.stripe(index).lock());
        self.end_visit();
        result
    }

    /// A long command that holds its keys is outside the world, where no stripe may be locked.
    /// Whether it is that of a long command, which is outside the world or makes way for others.
    pub(crate) fn is_long(&self) -> bool {
        self.held.is_some() || self.background.is_some()
    }

    fn begin_visit(&self) {
        if let Some(held) = &self.held {
            assert!(!held.is_changing(), "a command that changes its keys one at a time walks");
            held.reader().enter();
        }
    }

    fn end_visit(&self) {
        if let Some(held) = &self.held {
            held.reader().leave();
        } else if let Some(reader) = self.background {
            crate::background::yield_world(reader);
        }
    }

    /// Holds all stripes because the world is stopped, until the locks are released.
    pub(crate) fn hold_world(&mut self, stopped: Stopped<'static>) {
        // SAFETY: threads lock stripes inside the world only, except those that load or save for a
        // command that holds the world, and waits for them.
        unsafe { self.locks.hold_world(stopped) }
    }

    /// Whether the world is stopped for this command.
    pub fn holds_world(&self) -> bool {
        *self.locks.held() == Locked::World
    }

    /// Takes a snapshot for a command that has stopped the world.
    ///
    /// # Errors
    /// There is one already.
    pub fn begin_snapshot(&mut self) -> Result<Snapshot, AlreadyRunning> {
        Snapshot::begin_in_stopped_world(self.engine, &mut self.locks)
    }
}

impl Db<'_> {
    /// A long command is about to change this key: the end of its part without locks.
    #[cold]
    pub(crate) fn lock_held(&mut self, key: Key<'_>) {
        let Some(held) = &mut self.held else { return };
        if !held.is_changing() {
            if !held.changes_by_stripe() {
                let held = self.held.take();
                return held.into_iter().for_each(|held| held.into_locks(&mut self.locks));
            }
            held.begin_change();
        }
        held.move_to_key(&mut self.locks, self.index, key);
    }

    /// Locks this stripe, one of those that the command has keys in, if it locks them one at a
    /// time.
    #[inline]
    pub(crate) fn reach(&mut self, stripe: usize) {
        if let Some(held) = &mut self.held
            && held.is_changing()
        {
            held.move_to(&mut self.locks, stripe);
        }
    }
}
