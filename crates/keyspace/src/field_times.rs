//! Which hashes of a stripe have fields that expire, in the order in which to look at them.
//!
//! A hash with such fields is listed under a time that none of them is before, and knows it itself
//! ([`Hash::noted_time`]), so the listing is found again when the key goes. The time may be too early:
//! the hash is looked at then and listed anew. It is never too late, because every setter of an expiry
//! calls [`StripeData::list_fields`](crate::StripeData::list_fields).
//!
//! A listing is the time and the hash of the key, 16 bytes in a tree; there is no pointer that could
//! outlive its entry. Hashes without such fields are not listed.

use crate::entry::Entry;
use crate::types::Millis;
use std::collections::BTreeSet;

/// See the module's documentation.
#[derive(Default)]
pub struct FieldTimes(BTreeSet<(i64, u64)>);

impl FieldTimes {
    /// Number of hashes that are listed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether fields of any may have expired before `now`.
    #[inline]
    pub fn is_due(&self, now: Millis) -> bool {
        self.0.first().is_some_and(|&(time, _)| time < now.0)
    }

    /// The hashes whose fields may have expired before `now`, at most `most` of them: the times that
    /// they are listed under, and the hashes of their keys.
    pub fn due(&self, now: Millis, most: usize) -> Vec<(i64, u64)> {
        self.0.iter().take_while(|&&(time, _)| time < now.0).take(most).copied().collect()
    }

    /// An entry has come, or its fields have changed: lists it as it is now.
    pub(crate) fn add(&mut self, hash: u64, entry: &mut Entry) {
        let Some(fields) = entry.timed_hash() else { return };
        let noted = fields.noted_time();
        let wanted = fields.expiry_bound().filter(|_| fields.timed_fields() > 0);
        if noted != wanted {
            self.remove(hash, noted);
            if let Some(time) = wanted {
                self.0.insert((time, hash));
            }
            fields.note_time(wanted);
        }
        fields.drop_times();
    }

    /// What the entry was listed under is not valid any more.
    pub(crate) fn remove(&mut self, hash: u64, noted: Option<i64>) {
        if let Some(time) = noted {
            self.0.remove(&(time, hash));
        }
    }
}
