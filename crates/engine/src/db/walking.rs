//! Whole stripes: visiting them one after the other, holding one or all of them.
#![allow(unsafe_code)]

use super::Db;
use crate::locks::Locked;
use crate::snapshot::{AlreadyRunning, Snapshot};
use keyspace::world::Stopped;
use keyspace::{DbIndex, Key, StripeData};

impl Db<'_> {
    /// Visits every stripe in turn, locking each for the visit (not if all is locked anyway).
    /// For commands with `Flags::WALKS`, whose own keys, if any, are not locked.
    /// A long command's walk ends early when its result is no longer wanted.
    pub fn for_each_stripe(&self, mut visit: impl FnMut(usize, &StripeData)) {
        for index in 0..self.engine.keyspace.stripes().len() {
            if !self.is_wanted() {
                break;
            }
            self.with_stripe(index, |data| visit(index, data));
        }
    }

    /// Visits every stripe in turn, to change it. The world is stopped.
    pub fn for_each_stripe_mut(&mut self, mut visit: impl FnMut(usize, &mut StripeData)) {
        for index in 0..self.engine.keyspace.stripes().len() {
            visit(index, self.locks.data_mut(index));
        }
    }

    /// Reads one stripe, which is locked for the visit unless it is held.
    pub fn with_stripe<R>(&self, index: usize, visit: impl FnOnce(&StripeData) -> R) -> R {
        if self.locks.held().covers(index) {
            return visit(self.locks.data(index));
        }
        self.begin_visit();
        let result = visit(&self.engine.keyspace.stripe(index).lock());
        self.end_visit();
        result
    }

    /// Changes one stripe, which is locked for the visit unless it is held.
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

    /// Number of keys in a database.
    pub fn key_count(&self, db: DbIndex) -> usize {
        let mut count = 0;
        self.for_each_stripe(|_, data| count += data.key_count(db));
        count
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

    /// Locks this stripe, one of those that the command has keys in, if it locks them one at a time.
    #[inline]
    pub(crate) fn reach(&mut self, stripe: usize) {
        if let Some(held) = &mut self.held
            && held.is_changing()
        {
            held.move_to(&mut self.locks, stripe);
        }
    }
}
