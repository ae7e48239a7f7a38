//! Fields of hashes whose time has come.
//!
//! Readers see them as absent ([`structs::hash::Live`]). They are removed by the expiry cycle, by
//! what sets them anew, and by nothing else; so the events and what the journal gets are those of
//! the reference. See `docs/internals/field-expiry.md`.

use crate::db::Db;
use crate::effects::Cause;
use crate::events;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::{Key, Millis, TableId};
use structs::hash::Hash;

/// Hashes of a stripe that one look takes on.
const HASHES: usize = 20;
/// Fields of a hash that it removes.
const FIELDS: usize = 128;

impl Db<'_> {
    /// What expires before it is gone: the time of this command, except while the history is
    /// repeated.
    #[inline]
    pub fn horizon(&self) -> Millis {
        self.horizon
    }

    /// To be called after fields of a hash were changed, if any of them expired or expires now: its
    /// stripe looks at it in time.
    pub fn list_fields(&mut self, key: Key<'_>) {
        let index = self.index;
        let stripe = self.engine.keyspace.stripe_of(key);
        self.locks.data_mut(stripe).list_fields(index, key);
    }

    /// Counts fields that are gone because their time had come, and reports that.
    pub fn fields_expired(&mut self, key: Key<'_>, fields: &[&[u8]]) {
        self.engine.stats.expired_fields.add(fields.len() as u64);
        self.notify(key, events::HASH_FIELDS_EXPIRED);
        self.notify_fields(key, events::HASH_FIELDS_EXPIRED, fields.iter().copied());
    }

    /// Removes some fields of a hash whose time has come, with all that follows.
    fn expire_fields(&mut self, key: Key<'_>) {
        let horizon = self.horizon.0;
        let Ok(Some(hash)) = self.write::<Hash>(key) else { return };
        let mut removed: Vec<Box<[u8]>> = Vec::new();
        hash.remove_expired(horizon, FIELDS, |field| removed.push(Box::from(field)));
        self.list_fields(key);
        if removed.is_empty() {
            return;
        }
        self.engine.stats.expired_fields.add(removed.len() as u64);
        self.effects.propagate_field_deletion(
            &self.engine.journal,
            self.index,
            key.bytes,
            &removed,
        );
        // As of keys whose time has come: no client's change, and no save point counts it.
        self.effects.dirty += removed.len() as u64;
        self.effects.expired += removed.len() as u64;
        self.report(key, Some(events::HASH_FIELDS_EXPIRED), Cause::Time);
        self.notify_fields(key, events::HASH_FIELDS_EXPIRED, removed.iter().map(|field| &**field));
        self.remove_if_empty::<Hash>(key);
    }

    /// Removes some fields whose time has come from the hashes in tables of a stripe, which is
    /// locked; says whether more of them may be due.
    pub(crate) fn expire_fields_of(&mut self, stripe: usize, id: TableId) -> bool {
        let index = id.db;
        let due = self.locks.data(stripe).table(id).field_times().due(self.now(), HASHES);
        self.index = index;
        let mut has_passed_over = false;
        for &(time, hash) in &due {
            let data = self.locks.data_mut(stripe);
            let Some(name) = data.find_listed(index, hash) else {
                data.unlist(index, hash, time);
                continue;
            };
            // What a long command holds or a snapshot has no room for is dealt with later.
            if data.is_held(hash) || data.is_delayed(index, hash, Touch::Elements, Urgency::None) {
                has_passed_over = true;
                continue;
            }
            self.expire_fields(Key { bytes: &name, hash });
        }
        !due.is_empty() && !has_passed_over
    }
}
