//! What is told of a change before it is made: a running snapshot, and the holds of long commands.

use super::StripeData;
use crate::cold::ColdLocation;
use crate::holds::Hold;
use crate::snapshot::{BigRef, Chunk, StripeSnapshot, Touch, Urgency};
use crate::types::DbIndex;

impl StripeData {
    /// Installs or removes a snapshot's hook.
    pub(crate) fn set_snapshot(&mut self, hook: Option<Box<StripeSnapshot>>) {
        self.snapshot = hook;
        self.note_guards();
    }

    /// Whether a snapshot needs something of the stripe.
    #[cfg(test)]
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Lets the snapshot's hook look at the stripe, if there is one.
    pub(crate) fn with_snapshot<R>(
        &mut self,
        work: impl FnOnce(&mut StripeSnapshot, &StripeData) -> R,
    ) -> Option<R> {
        let mut hook = self.snapshot.take()?;
        let result = work(&mut hook, self);
        self.snapshot = Some(hook);
        Some(result)
    }

    /// Whether a change of this key should wait for a snapshot: the bytes it would hand over are
    /// too many just now, or its value is too big to be handed over. Says so of no key that can be
    /// changed at once. If a client waits, the value's turn comes next.
    pub fn is_delayed(&mut self, db: DbIndex, hash: u64, touch: Touch, urgency: Urgency) -> bool {
        let delays = self.with_snapshot(|hook, data| hook.delays(data, db, hash, touch, urgency));
        delays.unwrap_or(false)
    }

    /// The next entries that a snapshot's walk takes; `None` if the walk through this stripe is at
    /// its end.
    pub fn walk_snapshot(&mut self) -> Option<Chunk> {
        let chunk = self.with_snapshot(StripeSnapshot::walk)?;
        if chunk.is_none() {
            self.end_snapshot_if_done();
        }
        chunk
    }

    /// The next piece of a big value of a snapshot, of about `most` bytes; `false` if it is the
    /// last.
    pub fn stream_snapshot(&mut self, value: BigRef, out: &mut Vec<u8>, most: usize) -> bool {
        let goes_on = self.with_snapshot(|hook, data| hook.stream(data, value, out, most));
        if goes_on == Some(false) {
            self.end_snapshot_if_done();
        }
        goes_on.unwrap_or(false)
    }

    /// The entry with this hash whose cold value a snapshot has marked here: its token and the database
    /// that it was in. From now on it is not marked. `None` if it was not.
    pub fn take_marked(&mut self, hash: u64, location: ColdLocation) -> Option<Chunk> {
        let taken = self.with_snapshot(|hook, data| hook.take_marked(data, hash, location));
        self.end_snapshot_if_done();
        taken.flatten()
    }

    /// Ends a snapshot in this stripe that is not through.
    pub(crate) fn abandon_snapshot(&mut self) {
        self.with_snapshot(StripeSnapshot::abandon);
        self.set_snapshot(None);
    }

    fn end_snapshot_if_done(&mut self) {
        if self.snapshot.as_mut().is_some_and(|hook| hook.ends()) {
            self.set_snapshot(None);
        }
    }

    pub(super) fn note_guards(&mut self) {
        self.is_guarded = self.snapshot.is_some() || self.holds.is_some();
    }

    pub(crate) fn holds(&self) -> &[Hold] {
        self.holds.as_deref().map_or(&[], |holds| holds)
    }

    /// To add to or take from; [`StripeData::drop_empty_holds`] after taking.
    pub(crate) fn holds_mut(&mut self) -> &mut Vec<Hold> {
        self.is_guarded = true;
        self.holds.get_or_insert_default()
    }

    pub(crate) fn drop_empty_holds(&mut self) {
        self.holds = self.holds.take().filter(|holds| !holds.is_empty());
        self.note_guards();
    }

    #[inline]
    pub(crate) fn before_change(&mut self, db: DbIndex, hash: u64, touch: Touch) {
        if self.is_guarded {
            self.ask_guards(db, hash, touch);
        }
    }

    /// The value of an entry with this hash is about to leave RAM, or to come back.
    #[inline]
    pub(crate) fn before_move(&mut self, db: DbIndex, hash: u64) {
        if self.is_guarded {
            assert!(!self.is_held(hash), "a value was moved that a long command holds");
            self.with_snapshot(|hook, data| hook.before_move(data, db, hash));
        }
    }

    /// Whether nobody reads an entry with this hash, or its value, where it is without the lock: no long command
    /// holds it and no snapshot streams it.
    pub(crate) fn is_free_to_move(&self, db: DbIndex, hash: u64) -> bool {
        !self.is_held(hash) && !self.is_streamed(db, hash)
    }

    /// Whether a snapshot is streaming the value of an entry with this hash from RAM.
    pub(crate) fn is_streamed(&self, db: DbIndex, hash: u64) -> bool {
        self.snapshot.as_ref().is_some_and(|hook| hook.streams(self, db, hash))
    }

    #[cold]
    fn ask_guards(&mut self, db: DbIndex, hash: u64, touch: Touch) {
        assert!(!self.is_held(hash), "a key was changed that a long command holds");
        self.with_snapshot(|hook, data| hook.before_change(data, db, hash, touch));
    }
}
