//! Keyspace events of other nodes, for a node whose clients see one server
//! (`docs/internals/forwarding.md`).
//!
//! The names here are those that clients of this node listen to, or are about to, and that
//! keyspace events may have. One thread listens to them at the other nodes and tells its progress
//! here. Without such a name it listens nowhere.

use super::{PubSub, Space};
use keyspace::Millis;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use structs::sync::lock;

/// How the channels of keyspace events begin.
const EVENTS: [&[u8]; 6] = [
    b"__keyspace@",
    b"__keyevent@",
    b"__subkeyspace@",
    b"__subkeyevent@",
    b"__subkeyspaceitem@",
    b"__subkeyspaceevent@",
];

/// A subscriber waits so long for other nodes at most.
const MAX_WAIT_MS: i64 = 1000;

/// A name without a listener is kept so long: its client may still be about to subscribe.
const UNUSED_MS: i64 = 5000;

/// A channel or a pattern.
pub type Name = (Space, Box<[u8]>);

/// Whether the other nodes send the events of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The listening thread does not know the name.
    New,
    /// The other nodes have been asked.
    Asked,
    /// They have confirmed it, or took too long.
    Heard,
}

struct Interest {
    stage: Stage,
    /// When a client last asked for the name.
    asked_at: Millis,
}

/// What a node wants to hear of others.
#[derive(Default)]
pub struct Elsewhere {
    names: Mutex<HashMap<Name, Interest>>,
    is_used: AtomicBool,
}

/// Returns whether keyspace events may have this name, or a name that matches this pattern.
fn may_be_event(space: Space, name: &[u8]) -> bool {
    match space {
        Space::Channels => EVENTS.iter().any(|event| name.starts_with(event)),
        Space::Patterns => {
            let literal = name.iter().position(|byte| b"*?[\\".contains(byte));
            let literal = &name[..literal.unwrap_or(name.len())];
            EVENTS.iter().any(|event| literal.starts_with(event) || event.starts_with(literal))
        }
        Space::ShardChannels | Space::Events | Space::EventPatterns => false,
    }
}

/// What is to be told to the listening thread, and to the client that asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The listening thread has to take the name.
    pub is_new: bool,
    /// The client does not have to wait for other nodes.
    pub is_heard: bool,
}

impl Elsewhere {
    /// A client wants to listen to a name.
    pub fn ask(&self, space: Space, name: &[u8], now: Millis) -> Answer {
        if !may_be_event(space, name) {
            return Answer { is_new: false, is_heard: true };
        }
        let mut names = lock(&self.names);
        self.is_used.store(true, Release);
        let fresh = Interest { stage: Stage::New, asked_at: now };
        let interest = names.entry((space, Box::from(name))).or_insert(fresh);
        if interest.stage == Stage::Heard {
            interest.asked_at = now;
        }
        Answer {
            is_new: interest.stage == Stage::New,
            is_heard: interest.stage == Stage::Heard || now.0 - interest.asked_at.0 > MAX_WAIT_MS,
        }
    }

    /// Returns whether there is any name.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.is_used.load(Acquire)
    }

    /// Takes the names that the listening thread does not know.
    pub fn take_new(&self) -> Vec<Name> {
        let mut names = lock(&self.names);
        let new = names.iter_mut().filter(|(_, interest)| interest.stage == Stage::New);
        let take = |(name, interest): (&Name, &mut Interest)| {
            interest.stage = Stage::Asked;
            name.clone()
        };
        new.map(take).collect()
    }

    /// The other nodes have confirmed all that they were asked for. Returns whether a client may
    /// wait for that.
    pub fn confirm(&self) -> bool {
        let mut is_any = false;
        for interest in lock(&self.names).values_mut() {
            if interest.stage == Stage::Asked {
                (interest.stage, is_any) = (Stage::Heard, true);
            }
        }
        is_any
    }

    /// Ends waits that are too long. Returns whether there was one.
    pub fn end_waits(&self, now: Millis) -> bool {
        let is_late = |interest: &Interest| {
            interest.stage == Stage::Asked && now.0 - interest.asked_at.0 > MAX_WAIT_MS
        };
        let mut is_any = false;
        for interest in lock(&self.names).values_mut().filter(|interest| is_late(interest)) {
            (interest.stage, is_any) = (Stage::Heard, true);
        }
        is_any
    }

    /// Forgets the names without a listener. Returns them.
    pub fn forget_unused(&self, registry: &PubSub, now: Millis) -> Vec<Name> {
        let mut names = lock(&self.names);
        let is_unused = |(space, name): &Name, interest: &Interest| {
            now.0 - interest.asked_at.0 > UNUSED_MS && registry.listeners(*space, name) == 0
        };
        let unused = names.extract_if(|name, interest| is_unused(name, interest));
        let unused: Vec<Name> = unused.map(|(name, _)| name).collect();
        self.is_used.store(!names.is_empty(), Release);
        unused
    }

    /// Asks for the names that clients have begun to listen to before they saw one server.
    pub fn ask_for_all(&self, registry: &PubSub, now: Millis) {
        registry.for_each_listener(|space, name, _| {
            let _ = self.ask(space, name, now);
        });
    }

    /// Forgets all names, because clients see a cluster, and returns them.
    pub fn clear(&self) -> Vec<Name> {
        self.is_used.store(false, Release);
        lock(&self.names).drain().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_may_match_an_event_are_told_apart() {
        for pattern in ["*", "__*", "__key*", "__key[es]*@0__:*", "__keyevent@*__:expired", "?"] {
            assert!(may_be_event(Space::Patterns, pattern.as_bytes()), "{pattern}");
        }
        for pattern in ["news.*", "_a*", "__keyx*", "__keyspace:*"] {
            assert!(!may_be_event(Space::Patterns, pattern.as_bytes()), "{pattern}");
        }
        assert!(may_be_event(Space::Channels, b"__subkeyspaceitem@0__:a\nb"));
        assert!(!may_be_event(Space::Channels, b"__key*"));
    }

    #[test]
    fn a_name_is_taken_once_confirmed_and_forgotten_without_a_listener() {
        let (elsewhere, registry) = (Elsewhere::default(), PubSub::default());
        let name = b"__keyevent@0__:expired";
        let ask = |at| elsewhere.ask(Space::Channels, name, Millis(at));
        assert_eq!(ask(0), Answer { is_new: true, is_heard: false });
        assert_eq!(elsewhere.take_new().len(), 1);
        assert!(elsewhere.take_new().is_empty());
        assert_eq!(ask(10), Answer { is_new: false, is_heard: false });
        assert!(!elsewhere.end_waits(Millis(900)));
        assert!(elsewhere.confirm());
        assert!(!elsewhere.confirm());
        assert_eq!(ask(20), Answer { is_new: false, is_heard: true });
        assert!(elsewhere.forget_unused(&registry, Millis(4000)).is_empty());
        assert!(elsewhere.is_used());
        assert_eq!(elsewhere.forget_unused(&registry, Millis(6000)).len(), 1);
        assert!(!elsewhere.is_used());
        assert_eq!(ask(7000), Answer { is_new: true, is_heard: false });
        elsewhere.take_new();
        assert!(elsewhere.end_waits(Millis(9000)), "a node that does not answer is not waited for");
    }
}
