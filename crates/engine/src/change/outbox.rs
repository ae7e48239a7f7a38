//! What a command tells other clients, kept until the journal has what the command did.
//!
//! With `appendfsync always` a message is held until all that the journal had by then is on the
//! disk ([`Worker::deliver`](crate::Worker::deliver)), so that no client is told of what a crash
//! would take back. That works for changes that are in the journal before they are told: a
//! command's own when it is committed, and those of a transaction when that ends.
//!
//! The message is kept, not its receivers: they are looked up when it leaves.

use crate::engine::Engine;
use crate::events::{Class, Event};
use crate::interest::StripeInterest;
use crate::pubsub::Space;
use keyspace::DbIndex;
use std::cell::RefCell;
use std::fmt;

/// Notifications, in their order. What is left when it is dropped leaves then.
pub(crate) struct Outbox<'a> {
    engine: &'a Engine,
    waiting: RefCell<Vec<Notification>>,
}

pub(crate) enum Notification {
    /// For the listeners of a channel.
    Message { space: Space, channel: Box<[u8]>, payload: Box<[u8]> },
    /// A keyspace event, for the listeners of its channel.
    Event { channel: Box<[u8]>, payload: Box<[u8]> },
    /// A request for the other nodes of a cluster, whose clients listen, too.
    Elsewhere(Box<[u8]>),
    /// For a cache that has read a key, which a client (0 for none) has changed.
    Change { reader: u64, key: Box<[u8]>, by: u64 },
    /// For the caches that are told by prefixes.
    Broadcast { key: Box<[u8]>, db: DbIndex, by: u64 },
    /// For all caches: nothing is as it was.
    AllChanged,
}

impl<'a> Outbox<'a> {
    pub fn new(engine: &'a Engine) -> Outbox<'a> {
        Outbox { engine, waiting: RefCell::default() }
    }

    pub fn keep(&self, notification: Notification) {
        self.waiting.borrow_mut().push(notification);
    }

    /// Notes for the clients that read a key, whose stripe is locked, that it changed.
    pub fn key_changed(&self, interest: &mut StripeInterest, key: &[u8], by: u64) {
        for reader in self.engine.tracking.take_readers(interest, key) {
            self.keep(Notification::Change { reader, key: key.into(), by });
        }
    }

    /// Notes a keyspace event for the channels that the configuration asks for.
    pub fn event(&self, db: DbIndex, key: &[u8], event: Event) {
        let wanted = self.engine.config.notify_keyspace_events();
        if self.engine.leaves_events_to_primary() {
            return;
        }
        let tell = |channel: Vec<u8>, payload: &[u8]| {
            let (channel, payload) = (channel.into_boxed_slice(), Box::from(payload));
            self.keep(Notification::Event { channel, payload });
        };
        if wanted.contains(Class::KEYSPACE) {
            let mut channel = format!("__keyspace@{}__:", db.0).into_bytes();
            channel.extend_from_slice(key);
            tell(channel, event.name.as_bytes());
        }
        if wanted.contains(Class::KEYEVENT) {
            tell(format!("__keyevent@{}__:{}", db.0, event.name).into_bytes(), key);
        }
    }

    /// Notes an event of a hash's fields for the channels that the configuration asks for. Lengths
    /// stand before names, since these may have any bytes; a key with the separator of a channel's
    /// name is left out there.
    #[cold]
    pub fn field_event(&self, db: DbIndex, key: &[u8], event: Event, fields: &[Box<[u8]>]) {
        let wanted = self.engine.config.notify_keyspace_events();
        let (db, name) = (db.0, event.name);
        if self.engine.leaves_events_to_primary() {
            return;
        }
        let tell = |channel: Vec<u8>, payload: &[u8]| {
            let (channel, payload) = (channel.into_boxed_slice(), Box::from(payload));
            self.keep(Notification::Event { channel, payload });
        };
        let joined = |start: String, end: &[u8]| [start.as_bytes(), end].concat();
        let mut list = Vec::new();
        for field in fields {
            if !list.is_empty() {
                list.push(b',');
            }
            list.extend_from_slice(format!("{}:", field.len()).as_bytes());
            list.extend_from_slice(field);
        }
        if wanted.contains(Class::SUBKEYSPACE) {
            let channel = joined(format!("__subkeyspace@{db}__:"), key);
            tell(channel, &joined(format!("{name}|"), &list));
        }
        if wanted.contains(Class::SUBKEYEVENT) {
            let key = joined(format!("{}:", key.len()), key);
            let payload = [&key, b"|".as_slice(), &list].concat();
            tell(format!("__subkeyevent@{db}__:{name}").into_bytes(), &payload);
        }
        if wanted.contains(Class::SUBKEYSPACE_ITEM) && !key.contains(&b'\n') {
            let start = joined(format!("__subkeyspaceitem@{db}__:"), key);
            for field in fields {
                tell([&start, b"\n".as_slice(), field].concat(), name.as_bytes());
            }
        }
        if wanted.contains(Class::SUBKEYSPACE_EVENT) {
            tell(joined(format!("__subkeyspaceevent@{db}__:{name}|"), key), &list);
        }
    }

    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.waiting.get_mut().is_empty()
    }

    /// Forgets messages: what they tell was undone.
    pub fn drop_messages(&mut self) {
        use Notification::{Elsewhere, Event, Message};
        let is_told =
            |told: &Notification| matches!(told, Message { .. } | Event { .. } | Elsewhere(_));
        self.waiting.get_mut().retain(|waiting| !is_told(waiting));
    }

    /// Lets everything go.
    #[cold]
    pub fn send(&self) {
        let Outbox { engine, waiting } = self;
        engine.append_staged();
        for notification in waiting.borrow_mut().drain(..) {
            match notification {
                Notification::Message { space, channel, payload } => {
                    engine.pubsub.publish(&engine.mailboxes, space, &channel, &payload, None);
                }
                Notification::Event { channel, payload } => {
                    engine.pubsub.publish_event(&engine.mailboxes, &channel, &payload);
                }
                Notification::Elsewhere(request) => engine.tell_other_nodes(request),
                Notification::Change { reader, key, by } => {
                    engine.tracking.invalidate(engine.receivers(), reader, key, by);
                }
                Notification::Broadcast { key, db, by } => engine.tracking.note_change(key, db, by),
                Notification::AllChanged => engine.tracking.tell_all(engine.receivers()),
            }
        }
    }
}

impl Drop for Outbox<'_> {
    fn drop(&mut self) {
        if !self.is_empty() {
            self.send();
        }
    }
}

impl fmt::Debug for Outbox<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Outbox").field("waiting", &self.waiting.borrow().len()).finish()
    }
}
