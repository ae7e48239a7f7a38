//! The hashes of a stripe that have expiring fields, in the order in which they have to be checked.
//!
//! Such a hash is listed under a time that is not after the expiry of any of its fields. The hash
//! knows this time ([`Hash::noted_time`]), so the listing is found again when the key is removed.
//! The time may be too early: then the hash is checked and listed again. It is never too late,
//! because every function that sets an expiry calls
//! [`StripeData::list_fields`](crate::StripeData::list_fields).
//!
//! A listing is the time and the hash of the key, 16 bytes in a tree. It has no pointer that could
//! outlive its entry. Hashes without such fields are not listed.

use crate::entry::Entry;
use crate::types::Millis;
use std::collections::BTreeSet;

/// The listings. The module's documentation describes them.
#[derive(Default)]
pub struct FieldTimes(BTreeSet<(i64, u64)>);

impl FieldTimes {
    /// Returns the number of listed hashes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no hash is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether fields of any hash may have expired before `now`.
    #[inline]
    pub fn is_due(&self, now: Millis) -> bool {
        self.0.first().is_some_and(|&(time, _)| time < now.0)
    }

    /// Returns the hashes whose fields may have expired before `now`, at most `most` of them: the
    /// times under which they are listed, and the hashes of their keys.
    pub fn due(&self, now: Millis, most: usize) -> Vec<(i64, u64)> {
        self.0.iter().take_while(|&&(time, _)| time < now.0).take(most).copied().collect()
    }

    /// Updates the listing of an entry that is new or whose fields have changed.
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

    /// Removes the listing of an entry.
    pub(crate) fn remove(&mut self, hash: u64, noted: Option<i64>) {
        if let Some(time) = noted {
            self.0.remove(&(time, hash));
        }
    }
}
