//! What a stream knows about its past, and what follows from it for the groups that read it.
//!
//! `entries-read` and `lag` count entries that may be gone. The rules here are those of the
//! reference implementation, including where it gives up: a deleted entry in the middle makes a
//! count unknown. One difference: an `entries-read` beyond what was ever added (XGROUP ENTRIESREAD,
//! XSETID ENTRIESADDED) is unknown too, where the reference has a lag below zero.

use super::StreamId;

/// `entries-read` of a group of which nothing better is known.
pub const UNKNOWN_READS: i64 = -1;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of entries.
    pub length: u64,
    /// The first entry's ID, `0-0` if there is none.
    pub first_id: StreamId,
    /// The highest ID that was ever given.
    pub last_id: StreamId,
    /// The highest ID that was deleted singly; trimming whole prefixes does not count.
    pub max_deleted_id: StreamId,
    /// Number of entries that were ever added.
    pub entries_added: u64,
}

impl Counters {
    /// Notes that an entry was deleted that others before it may survive.
    pub(super) fn note_deleted(&mut self, id: StreamId) {
        self.max_deleted_id = self.max_deleted_id.max(id);
    }

    /// Whether an entry after `start` may have been deleted.
    pub fn has_gap_after(&self, start: StreamId) -> bool {
        self.length > 0 && !self.max_deleted_id.is_zero() && start <= self.max_deleted_id
    }

    /// How many entries were added up to `id`, or [`UNKNOWN_READS`].
    pub fn reads_up_to(&self, id: StreamId) -> i64 {
        let added = self.entries_added as i64;
        if self.entries_added == 0 {
            return 0;
        }
        if self.length == 0 && id <= self.last_id {
            return added;
        }
        if !id.is_zero() && id < self.max_deleted_id {
            return UNKNOWN_READS;
        }
        if id >= self.last_id {
            return if id == self.last_id { added } else { UNKNOWN_READS };
        }
        let has_gap = !self.max_deleted_id.is_zero() && self.max_deleted_id >= self.first_id;
        if has_gap || id > self.first_id {
            return UNKNOWN_READS;
        }
        let before_first = added.wrapping_sub(self.length as i64);
        if id == self.first_id { before_first.wrapping_add(1) } else { before_first }
    }

    /// How many entries a group has yet to read that has read so many, up to `last_id`.
    pub fn lag(&self, last_id: StreamId, entries_read: i64) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let added = self.entries_added as i64;
        // More than was ever added is what a user or a file says, and no count.
        let is_count = (0..=added).contains(&entries_read);
        if is_count && !self.has_gap_after(last_id) {
            return Some(added - entries_read);
        }
        match self.reads_up_to(last_id) {
            UNKNOWN_READS => None,
            reads => Some(added.saturating_sub(reads).max(0)),
        }
    }
}
