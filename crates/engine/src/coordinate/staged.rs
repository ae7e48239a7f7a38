//! Entries that are staged ([`crate::staging`]), as threads meet them that do not run their batch.

use crate::engine::Engine;

impl Engine {
    /// Appends what the calling thread has staged, because another thread is to be told something.
    #[inline]
    pub(crate) fn append_staged(&self) {
        if self.journal.has_staged() {
            self.journal.append_staged();
            self.note_held_late();
        }
    }

    /// Appends the entry that a mark on a stripe, which was just locked, tells of. Returns whether
    /// the mark is needed no longer.
    pub(crate) fn settle_change(&self, mark: u32) -> bool {
        let is_settled = self.journal.settle(mark);
        self.note_held_late();
        is_settled
    }

    /// Lets later reads wait for what was staged when replies began to be held: no stripe tells of
    /// its position.
    #[inline]
    pub(crate) fn note_held_late(&self) {
        if self.safe.holds_replies() {
            self.safe.note_written_anywhere(self.journal.position());
        }
    }
}
