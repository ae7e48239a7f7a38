//! Publish/subscribe: the subscribers of each channel.
//!
//! The registry knows clients and names, nothing else. A message is put together once
//! and posted to the mailboxes of the listeners' threads, which encode it in each client's
//! protocol; messages of one publisher to one listener keep their order.

pub mod elsewhere;
mod prefixes;
pub mod tracking;

use crate::clients::Client;
use crate::mailbox::{Mailbox, Message, Push};
use elsewhere::Elsewhere;
use keyspace::HeapString;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use structs::glob::{self, Case};
use structs::own_line::OwnLine;
use structs::sync::{read, write};

/// What a subscription names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// A channel (SUBSCRIBE).
    Channels,
    /// A glob pattern (PSUBSCRIBE).
    Patterns,
    /// A shard channel (SSUBSCRIBE).
    ShardChannels,
    /// A channel of keyspace events that another node listens to for its clients.
    Events,
    /// A pattern of the same.
    EventPatterns,
}

impl Space {
    /// Returns where a name is that another node listens to for its clients: only keyspace events
    /// are published there.
    pub fn of_node(self) -> Space {
        match self {
            Space::Channels => Space::Events,
            Space::Patterns => Space::EventPatterns,
            other => other,
        }
    }
}

/// The subscribers of each name. Killed clients stay until their threads have closed them, and
/// do not count.
type Names = HashMap<Box<[u8]>, Vec<Arc<Client>>>;

/// The kinds of [`Space`].
const SPACES: usize = 5;

/// The registry.
#[derive(Default)]
pub struct PubSub {
    names: [OwnLine<RwLock<Names>>; SPACES],
    /// How many names each space has. A message that nobody can hear needs no lock, which every
    /// publisher would write to.
    counts: OwnLine<[AtomicUsize; SPACES]>,
    /// What this node's clients want to hear of other nodes.
    pub elsewhere: Elsewhere,
}

impl PubSub {
    fn read(&self, space: Space) -> RwLockReadGuard<'_, Names> {
        read(&self.names[space as usize])
    }

    /// Returns the names of a space, or `None` if there are none. A listener that was added before
    /// a message was sent is seen: the count was set before its subscription was answered.
    #[inline]
    fn read_any(&self, space: Space) -> Option<RwLockReadGuard<'_, Names>> {
        let any = self.counts[space as usize].load(Acquire) > 0;
        any.then(|| self.read(space))
    }

    /// Changes the names of a space.
    fn change<R>(&self, space: Space, work: impl FnOnce(&mut Names) -> R) -> R {
        let mut names = write(&self.names[space as usize]);
        let result = work(&mut names);
        self.counts[space as usize].store(names.len(), Release);
        result
    }

    /// Adds a listener; the caller knows that it does not listen yet.
    pub fn subscribe(&self, space: Space, name: &[u8], listener: Arc<Client>) {
        self.change(space, |names| names.entry(Box::from(name)).or_default().push(listener));
    }

    /// Removes a listener, another node's too. From then on nothing is posted to it for this name.
    pub fn unsubscribe(&self, space: Space, name: &[u8], client: u64) {
        self.remove(space, name, client);
        let of_node = space.of_node();
        if of_node != space && self.read_any(of_node).is_some() {
            self.remove(of_node, name, client);
        }
    }

    fn remove(&self, space: Space, name: &[u8], client: u64) {
        self.change(space, |names| {
            let Some(listeners) = names.get_mut(name) else { return };
            listeners.retain(|listener| listener.id != client);
            if listeners.is_empty() {
                names.remove(name);
            }
        });
    }

    /// Visits every listener of every name.
    pub fn for_each_listener(&self, mut visit: impl FnMut(Space, &[u8], &Arc<Client>)) {
        for space in [Space::Channels, Space::Patterns, Space::ShardChannels] {
            for (name, listeners) in self.read(space).iter() {
                listeners.iter().for_each(|listener| visit(space, name, listener));
            }
        }
    }

    /// Names with listeners that match a pattern, or all (PUBSUB CHANNELS).
    pub fn active(&self, space: Space, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        self.read(space)
            .iter()
            .filter(|(_, listeners)| is_heard(listeners))
            .map(|(name, _)| name)
            .filter(|name| pattern.is_none_or(|pattern| is_match(pattern, name)))
            .cloned()
            .collect()
    }

    /// Number of listeners of a name (PUBSUB NUMSUB).
    pub fn listeners(&self, space: Space, name: &[u8]) -> usize {
        self.read(space).get(name).map_or(0, |all| count(all))
    }

    /// How many clients would get a message.
    pub(crate) fn receivers(&self, space: Space, channel: &[u8]) -> usize {
        let by_name = self.listeners(space, channel);
        if space == Space::ShardChannels {
            return by_name;
        }
        let patterns = self.read(Space::Patterns);
        let matching = patterns.iter().filter(|(pattern, _)| is_match(pattern, channel));
        by_name + matching.map(|(_, listeners)| count(listeners)).sum::<usize>()
    }

    /// Number of names with listeners (PUBSUB NUMPAT, INFO).
    pub fn count(&self, space: Space) -> usize {
        self.read(space).values().filter(|listeners| is_heard(listeners)).count()
    }

    /// Publishes to a channel and the patterns that match it, or to a shard channel; returns how
    /// many clients got it. `block` is the payload if it came in one.
    pub(crate) fn publish(
        &self,
        mailboxes: &[Mailbox],
        space: Space,
        channel: &[u8],
        payload: &[u8],
        block: Option<HeapString>,
    ) -> usize {
        let mut count = 0;
        let mut message = Published { channel, payload, block };
        if let Some(names) = self.read_any(space)
            && let Some(listeners) = names.get(channel)
        {
            count += post_all(mailboxes, listeners, message.of(space));
        }
        if space == Space::ShardChannels {
            return count;
        }
        count + self.publish_to_patterns(mailboxes, Space::Patterns, &mut message)
    }

    fn publish_to_patterns(
        &self,
        mailboxes: &[Mailbox],
        patterns: Space,
        message: &mut Published<'_>,
    ) -> usize {
        let mut count = 0;
        let Some(names) = self.read_any(patterns) else { return count };
        for (pattern, listeners) in names.iter() {
            if is_match(pattern, message.channel) {
                count += post_all(mailboxes, listeners, message.of_pattern(pattern));
            }
        }
        count
    }

    /// Publishes a keyspace event, to other nodes that listen for their clients, too.
    pub(crate) fn publish_event(&self, mailboxes: &[Mailbox], channel: &[u8], payload: &[u8]) {
        self.publish(mailboxes, Space::Channels, channel, payload, None);
        let mut message = Published { channel, payload, block: None };
        if let Some(names) = self.read_any(Space::Events)
            && let Some(listeners) = names.get(channel)
        {
            post_all(mailboxes, listeners, message.of(Space::Channels));
        }
        self.publish_to_patterns(mailboxes, Space::EventPatterns, &mut message);
    }

    /// Gives the listeners of a channel, or of a pattern, the event of another node, which has
    /// matched the pattern.
    pub fn hear(
        &self,
        mailboxes: &[Mailbox],
        pattern: Option<&[u8]>,
        channel: &[u8],
        payload: &[u8],
    ) {
        let mut message = Published { channel, payload, block: None };
        let (space, name) = match pattern {
            Some(pattern) => (Space::Patterns, pattern),
            None => (Space::Channels, channel),
        };
        if let Some(listeners) = self.read(space).get(name) {
            let push = match pattern {
                Some(pattern) => message.of_pattern(pattern),
                None => message.of(space),
            };
            post_all(mailboxes, listeners, push);
        }
    }
}

/// What is published.
struct Published<'a> {
    channel: &'a [u8],
    payload: &'a [u8],
    /// The payload once there is a subscriber; all that is posted refers to it if it is long.
    block: Option<HeapString>,
}

impl Published<'_> {
    fn payload(&mut self) -> HeapString {
        let payload = self.payload;
        self.block.get_or_insert_with(|| HeapString::from_bytes(payload)).clone()
    }

    fn of(&mut self, space: Space) -> Push {
        let (channel, payload) = (self.channel.into(), self.payload());
        match space {
            Space::ShardChannels => Push::ShardMessage { channel, payload },
            _ => Push::Message { channel, payload },
        }
    }

    fn of_pattern(&mut self, pattern: &[u8]) -> Push {
        let (channel, payload) = (self.channel.into(), self.payload());
        Push::PatternMessage { pattern: pattern.into(), channel, payload }
    }
}

fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    glob::matches(pattern, name, Case::Sensitive)
}

fn is_heard(listeners: &[Arc<Client>]) -> bool {
    listeners.iter().any(|listener| !listener.is_leaving())
}

fn count(listeners: &[Arc<Client>]) -> usize {
    listeners.iter().filter(|listener| !listener.is_leaving()).count()
}

fn post_all(mailboxes: &[Mailbox], listeners: &[Arc<Client>], push: Push) -> usize {
    let push = Arc::new(push);
    let mut count = 0;
    for listener in listeners.iter().filter(|listener| !listener.is_leaving()) {
        let message = Message::Push(listener.id, Arc::clone(&push));
        mailboxes[listener.thread].post(message);
        count += 1;
    }
    count
}
