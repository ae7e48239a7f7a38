//! What a command tells other clients, kept until the journal has what the command did.
//!
//! With `appendfsync always` a message is held until all that the journal had by
//! then is on the disk ([`Worker::deliver`](crate::Worker::deliver)), so that no client is told of what
//! a crash would take back. That works for changes that are in the journal before they are told: a
//! command's own when it is committed, and those of a transaction when that ends.
//!
//! The message is kept, not its receivers: they are looked up when it leaves.

use crate::engine::Engine;
use crate::pubsub::Space;
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
    /// For a cache that has read a key, which a client (0 for none) has changed.
    Change { reader: u64, key: Box<[u8]>, by: u64 },
    /// For the caches that are told by prefixes.
    Broadcast { key: Box<[u8]>, by: u64 },
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

    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.waiting.get_mut().is_empty()
    }

    /// Forgets messages: what they tell was undone.
    pub fn drop_messages(&mut self) {
        self.waiting
            .get_mut()
            .retain(|notification| !matches!(notification, Notification::Message { .. }));
    }

    /// Lets everything go.
    #[cold]
    pub fn send(&self) {
        let Outbox { engine, waiting } = self;
        for notification in waiting.borrow_mut().drain(..) {
            match notification {
                Notification::Message { space, channel, payload } => {
                    engine.pubsub.publish(engine, space, &channel, &payload, None);
                }
                Notification::Change { reader, key, by } => {
                    engine.tracking.invalidate(engine, reader, key, by);
                }
                Notification::Broadcast { key, by } => engine.tracking.note_change(key, by),
                Notification::AllChanged => engine.tracking.tell_all(engine),
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
