//! Telling of changes: what `commit` turns into journal entries, notifications and wake-ups.

use super::Db;
use crate::effects::{Cause, Change, deletion};
use crate::events::Event;
use crate::journal::Effect;
use keyspace::{Entry, Key};

impl Db<'_> {
    /// Reports that `key` was changed by this event. Call it once a key and change, after it.
    #[inline]
    pub fn changed(&mut self, key: Key<'_>, event: Event) {
        self.changed_in(key, event, 1);
    }

    /// As [`Db::changed`], in so many elements: each counts as a change since the last save.
    #[inline]
    pub fn changed_in(&mut self, key: Key<'_>, event: Event, elements: u64) {
        self.effects.dirty += elements;
        self.report(key, Some(event), Cause::Command);
    }

    /// Reports a change without an event of its own (the old key's clients must still forget it).
    pub fn changed_silently(&mut self, key: Key<'_>) {
        self.report(key, None, Cause::Command);
    }

    #[inline]
    pub(crate) fn report(&mut self, key: Key<'_>, event: Option<Event>, cause: Cause) {
        let stripe = self.engine.keyspace.stripe_of(key);
        self.reach(stripe);
        if self.notes_own_keys {
            self.note_own_key(key);
        }
        let event = event.filter(|_| !self.is_import);
        if self.locks.data(stripe).has_attachment() || self.engine.has_global_interest() {
            self.effects.changes.push(Change {
                db: self.index,
                key: Box::from(key.bytes),
                stripe,
                event,
                cause,
                is_event_only: false,
                fields: None,
            });
        }
    }

    #[cold]
    fn note_own_key(&self, key: Key<'_>) {
        let end = self.find(key).and_then(Entry::expiry);
        self.engine.own_keys.note(self.index, key.bytes, end);
    }

    /// A further event of a key whose change is reported by [`Db::changed`] (SET with an expiry
    /// is `set` and `expire`). Events are published in the order they were reported in.
    #[inline]
    pub fn notify(&mut self, key: Key<'_>, event: Event) {
        if self.engine.notifies(event.class) && !self.is_import {
            self.note_event(key, event, None);
        }
    }

    fn note_event(&mut self, key: Key<'_>, event: Event, fields: Option<Vec<Box<[u8]>>>) {
        let stripe = self.engine.keyspace.stripe_of(key);
        self.effects.changes.push(Change {
            db: self.index,
            key: Box::from(key.bytes),
            stripe,
            event: Some(event),
            cause: Cause::Command,
            is_event_only: true,
            fields,
        });
    }

    /// Whether events of fields are published ([`Db::notify_fields`]).
    #[inline]
    pub fn publishes_fields(&self) -> bool {
        self.engine.config.notify_keyspace_events().publishes_fields()
    }

    /// Tells which fields of a hash an event is about, behind [`Db::changed`] or [`Db::notify`].
    #[inline]
    pub fn notify_fields<'f>(
        &mut self,
        key: Key<'_>,
        event: Event,
        fields: impl IntoIterator<Item = &'f [u8]>,
    ) {
        if !self.publishes_fields() {
            return;
        }
        let fields: Vec<Box<[u8]>> = fields.into_iter().map(Box::from).collect();
        if !fields.is_empty() {
            self.note_event(key, event, Some(fields));
        }
    }

    /// Adds to the count of changes since the last save what no report counts.
    pub fn add_dirty(&mut self, changes: u64) {
        self.effects.dirty += changes;
    }

    /// What goes into the journal in place of the request itself: the same effect in commands
    /// that need no clock and no chance. `write` runs only if the journal has a reader.
    pub fn propagate_as(&mut self, write: impl FnOnce(&mut Effect<'_>)) {
        if self.effects.is_recorded(&self.engine.journal) {
            let index = self.index;
            self.effects.propagate_as(index, write);
        }
    }

    /// The journal gets the deletion of the key in place of the request; `is_lazy`: a replica may
    /// free it in the background.
    pub fn propagate_as_deletion(&mut self, key: Key<'_>, is_lazy: bool) {
        self.propagate_as(|p| p.command(&[deletion(is_lazy), key.bytes]));
    }

    /// Whether the command has changed anything so far.
    pub fn is_dirty(&self) -> bool {
        self.effects.dirty > 0
    }
}
