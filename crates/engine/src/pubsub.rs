//! Publish/subscribe: who listens to which channel.
//!
//! The registry knows clients and names, nothing else. A message is put together once
//! and posted to the mailboxes of the listeners' threads, which encode it in each client's
//! protocol; messages of one publisher to one listener keep their order.

use crate::clients::Client;
use crate::engine::Engine;
use crate::mailbox::{Message, Push};
use std::collections::HashMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use structs::glob::{self, Case};
use structs::sync::{read, write};

/// What a subscription names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// A channel (SUBSCRIBE).
    Channels,
    /// A glob pattern (PSUBSCRIBE).
    Patterns,
    /// A shard channel (SSUBSCRIBE).
    ShardChannels,
}

/// Who listens to each name. Those who were killed are there until their threads have closed them, and
/// count no more.
type Names = HashMap<Box<[u8]>, Vec<Arc<Client>>>;

/// The registry.
#[derive(Default)]
pub struct PubSub {
    channels: RwLock<Names>,
    patterns: RwLock<Names>,
    shard_channels: RwLock<Names>,
}

impl PubSub {
    fn names(&self, space: Space) -> &RwLock<Names> {
        match space {
            Space::Channels => &self.channels,
            Space::Patterns => &self.patterns,
            Space::ShardChannels => &self.shard_channels,
        }
    }
    fn read(&self, space: Space) -> RwLockReadGuard<'_, Names> {
        read(self.names(space))
    }
    fn write(&self, space: Space) -> RwLockWriteGuard<'_, Names> {
        write(self.names(space))
    }

    /// Adds a listener; the caller knows that it does not listen yet.
    pub fn subscribe(&self, space: Space, name: &[u8], listener: Arc<Client>) {
        self.write(space).entry(Box::from(name)).or_default().push(listener);
    }

    /// Removes a listener. From then on nothing is posted to it for this name.
    pub fn unsubscribe(&self, space: Space, name: &[u8], client: u64) {
        let mut names = self.write(space);
        if let Some(listeners) = names.get_mut(name) {
            listeners.retain(|listener| listener.id != client);
            if listeners.is_empty() {
                names.remove(name);
            }
        }
    }

    /// Names with listeners that match a pattern, or all (PUBSUB CHANNELS).
    pub fn active(&self, space: Space, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        self.read(space)
            .iter()
            .filter(|(_, listeners)| listeners.iter().any(|listener| !listener.is_leaving()))
            .map(|(name, _)| name)
            .filter(|name| pattern.is_none_or(|p| glob::matches(p, name, Case::Sensitive)))
            .cloned()
            .collect()
    }

    /// Number of listeners of a name (PUBSUB NUMSUB).
    pub fn listeners(&self, space: Space, name: &[u8]) -> usize {
        self.read(space).get(name).map_or(0, |all| all.iter().filter(|c| !c.is_leaving()).count())
    }

    /// Number of names with listeners (PUBSUB NUMPAT, INFO).
    pub fn count(&self, space: Space) -> usize {
        self.read(space).len()
    }

    /// Publishes to a channel and the patterns that match it; returns how many clients got it.
    pub fn publish(&self, engine: &Engine, channel: &[u8], payload: &[u8]) -> usize {
        let mut count = 0;
        if let Some(listeners) = self.read(Space::Channels).get(channel) {
            let push = Push::Message { channel: channel.into(), payload: payload.into() };
            count += post_all(engine, listeners, push);
        }
        for (pattern, listeners) in self.read(Space::Patterns).iter() {
            if glob::matches(pattern, channel, Case::Sensitive) {
                let push = Push::PatternMessage {
                    pattern: pattern.clone(),
                    channel: channel.into(),
                    payload: payload.into(),
                };
                count += post_all(engine, listeners, push);
            }
        }
        count
    }

    /// Publishes to a shard channel.
    pub fn publish_shard(&self, engine: &Engine, channel: &[u8], payload: &[u8]) -> usize {
        match self.read(Space::ShardChannels).get(channel) {
            None => 0,
            Some(listeners) => {
                let push = Push::ShardMessage { channel: channel.into(), payload: payload.into() };
                post_all(engine, listeners, push)
            }
        }
    }
}

fn post_all(engine: &Engine, listeners: &[Arc<Client>], push: Push) -> usize {
    let push = Arc::new(push);
    let mut count = 0;
    for listener in listeners.iter().filter(|listener| !listener.is_leaving()) {
        let message = Message::Push(listener.id, Arc::clone(&push));
        engine.mailboxes[listener.thread].post(message);
        count += 1;
    }
    count
}
