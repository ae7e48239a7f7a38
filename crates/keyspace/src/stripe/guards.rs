//! Reports changes before they are made: to a running snapshot, and to the holds of long commands.

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

    /// Returns whether a snapshot needs something of the stripe.
    #[cfg(test)]
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Calls `work` with the snapshot's hook, if there is one.
    pub(crate) fn with_snapshot<R>(
        &mut self,
        work: impl FnOnce(&mut StripeSnapshot, &StripeData) -> R,
    ) -> Option<R> {
        let mut hook = self.snapshot.take()?;
        let result = work(&mut hook, self);
        self.snapshot = Some(hook);
        Some(result)
    }

    /// Returns whether a change of this key should wait for a snapshot, because at this moment it
    /// would hand over too many bytes, or because its value is too big to be handed over. Returns
    /// `false` if the key can be changed at once. If a client waits, the value is streamed next.
    pub fn is_delayed(&mut self, db: DbIndex, hash: u64, touch: Touch, urgency: Urgency) -> bool {
        let delays = self.with_snapshot(|hook, data| hook.delays(data, db, hash, touch, urgency));
        delays.unwrap_or(false)
    }

    /// Returns the next entries that a snapshot's walk takes, or `None` if the walk through this
    /// stripe has ended.
    pub fn walk_snapshot(&mut self) -> Option<Chunk> {
        let chunk = self.with_snapshot(StripeSnapshot::walk)?;
        if chunk.is_none() {
            self.end_snapshot_if_done();
        }
        chunk
    }

    /// Appends the next piece of a snapshot's big value, of about `most` bytes. Returns `false` if
    /// it is the last one.
    pub fn stream_snapshot(&mut self, value: BigRef, out: &mut Vec<u8>, most: usize) -> bool {
        let goes_on = self.with_snapshot(|hook, data| hook.stream(data, value, out, most));
        if goes_on == Some(false) {
            self.end_snapshot_if_done();
        }
        goes_on.unwrap_or(false)
    }

    /// Takes the entry with this hash whose cold value a snapshot has marked at this location.
    /// Returns its token and its database. The mark is cleared. Returns `None` if there was no
    /// mark.
    pub fn take_marked(&mut self, hash: u64, location: ColdLocation) -> Option<Chunk> {
        let taken = self.with_snapshot(|hook, data| hook.take_marked(data, hash, location));
        self.end_snapshot_if_done();
        taken.flatten()
    }

    /// Ends a snapshot in this stripe early.
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

    /// Returns the holds for adding or removing. [`StripeData::drop_empty_holds`] is called after
    /// removing.
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

    /// Prepares for the value of an entry with this hash leaving RAM or returning.
    #[inline]
    pub(crate) fn before_move(&mut self, db: DbIndex, hash: u64) {
        if self.is_guarded {
            assert!(!self.is_held(hash), "a value was moved that a long command holds");
            self.with_snapshot(|hook, data| hook.before_move(data, db, hash));
        }
    }

    /// Returns whether the entry with this hash and its value are only read under the lock: no long
    /// command holds it and no snapshot streams it.
    pub(crate) fn is_free_to_move(&self, db: DbIndex, hash: u64) -> bool {
        !self.is_held(hash) && !self.is_streamed(db, hash)
    }

    /// Returns whether a snapshot is streaming the value of an entry with this hash from RAM.
    pub(crate) fn is_streamed(&self, db: DbIndex, hash: u64) -> bool {
        self.snapshot.as_ref().is_some_and(|hook| hook.streams(self, db, hash))
    }

    #[cold]
    fn ask_guards(&mut self, db: DbIndex, hash: u64, touch: Touch) {
        assert!(!self.is_held(hash), "a key was changed that a long command holds");
        self.with_snapshot(|hook, data| hook.before_change(data, db, hash, touch));
    }
}
