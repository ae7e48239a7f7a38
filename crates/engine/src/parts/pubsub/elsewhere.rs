//! Keyspace events of other nodes, for a node whose clients see one server
//! (`docs/internals/forwarding.md`).
//!
//! The names here are those that clients of this node listen to, or are about to, and that
//! keyspace events may have. One thread listens to them at the other nodes and tells its progress
//! here. Without such a name it listens nowhere.

use super::{PubSub, Space};
use crate::session::ListenRequest;
use keyspace::Millis;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
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

/// What is known of a name. Requests for it have numbers that rise.
#[derive(Default)]
struct Interest {
    /// The last request for the name, and when it began.
    asked: u64,
    asked_at: Millis,
    /// The last request that the other nodes have been asked for, and since when they are waited for.
    sent: u64,
    sent_at: Millis,
    /// The last request that they have confirmed, or took too long for.
    heard: u64,
}

impl Interest {
    /// Returns whether a request waits until now.
    fn is_late(&self, now: Millis) -> bool {
        self.heard < self.sent && now.0 - self.sent_at.0 > MAX_WAIT_MS
    }
}

/// What a node wants to hear of others.
#[derive(Default)]
pub struct Elsewhere {
    names: Mutex<HashMap<Name, Interest>>,
    is_used: AtomicBool,
    /// The number of the last request.
    last: AtomicU64,
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
    /// Begins a client's request to listen to names.
    pub fn begin(&self, now: Millis) -> ListenRequest {
        ListenRequest { number: self.last.fetch_add(1, Relaxed) + 1, since: now }
    }

    /// A client wants to listen to a name. The other nodes are asked for each request, also for
    /// names whose events they send already: only their answer says that the events from before the
    /// request have come.
    pub fn ask(&self, request: ListenRequest, space: Space, name: &[u8], now: Millis) -> Answer {
        if !may_be_event(space, name) {
            return Answer { is_new: false, is_heard: true };
        }
        let mut names = lock(&self.names);
        self.is_used.store(true, Release);
        let interest = names.entry((space, Box::from(name))).or_default();
        if interest.asked < request.number {
            (interest.asked, interest.asked_at) = (request.number, request.since);
        }
        Answer {
            is_new: interest.sent < interest.asked,
            is_heard: interest.heard >= request.number || now.0 - request.since.0 > MAX_WAIT_MS,
        }
    }

    /// Returns whether there is any name.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.is_used.load(Acquire)
    }

    /// Takes the names that the other nodes are to be asked for.
    pub fn take_new(&self) -> Vec<Name> {
        let mut names = lock(&self.names);
        let new = names.iter_mut().filter(|(_, interest)| interest.sent < interest.asked);
        let take = |(name, interest): (&Name, &mut Interest)| {
            if interest.heard == interest.sent {
                interest.sent_at = interest.asked_at;
            }
            interest.sent = interest.asked;
            name.clone()
        };
        new.map(take).collect()
    }

    /// The other nodes have confirmed all that they were asked for. Returns whether a client may
    /// wait for that.
    pub fn confirm(&self) -> bool {
        self.hear(|_| true)
    }

    /// Ends waits that are too long. Returns whether there was one.
    pub fn end_waits(&self, now: Millis) -> bool {
        self.hear(|interest| interest.is_late(now))
    }

    /// Takes what was asked for as confirmed. Returns whether there was something.
    fn hear(&self, is_heard: impl Fn(&Interest) -> bool) -> bool {
        let mut is_any = false;
        for interest in lock(&self.names).values_mut() {
            if interest.heard < interest.sent && is_heard(interest) {
                (interest.heard, is_any) = (interest.sent, true);
            }
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
        let request = self.begin(now);
        registry.for_each_listener(|space, name, _| {
            let _ = self.ask(request, space, name, now);
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

    const NAME: &[u8] = b"__keyevent@0__:expired";

    #[test]
    fn a_name_is_taken_once_confirmed_and_forgotten_without_a_listener() {
        let (elsewhere, registry) = (Elsewhere::default(), PubSub::default());
        let ask = |request, at| elsewhere.ask(request, Space::Channels, NAME, Millis(at));
        let first = elsewhere.begin(Millis(0));
        assert_eq!(ask(first, 0), Answer { is_new: true, is_heard: false });
        assert_eq!(elsewhere.take_new().len(), 1);
        assert!(elsewhere.take_new().is_empty());
        assert_eq!(ask(first, 10), Answer { is_new: false, is_heard: false });
        assert!(!elsewhere.end_waits(Millis(900)));
        assert!(elsewhere.confirm());
        assert!(!elsewhere.confirm());
        assert_eq!(ask(first, 20), Answer { is_new: false, is_heard: true });
        assert!(elsewhere.forget_unused(&registry, Millis(4000)).is_empty());
        assert!(elsewhere.is_used());
        assert_eq!(elsewhere.forget_unused(&registry, Millis(6000)).len(), 1);
        assert!(!elsewhere.is_used());
        let last = elsewhere.begin(Millis(7000));
        assert_eq!(ask(last, 7000), Answer { is_new: true, is_heard: false });
        elsewhere.take_new();
        assert!(elsewhere.end_waits(Millis(9000)), "a node that does not answer is not waited for");
        assert!(ask(last, 9000).is_heard);
    }

    /// Events from before a request are still on their way when another client listens already.
    #[test]
    fn each_request_waits_for_an_answer_from_after_it() {
        let elsewhere = Elsewhere::default();
        let ask = |request| elsewhere.ask(request, Space::Channels, NAME, Millis(5));
        let first = elsewhere.begin(Millis(0));
        assert!(ask(first).is_new);
        elsewhere.take_new();
        let second = elsewhere.begin(Millis(1));
        assert_eq!(ask(second), Answer { is_new: true, is_heard: false });
        assert!(elsewhere.confirm());
        assert!(ask(first).is_heard && !ask(second).is_heard, "only the first was asked for");
        assert_eq!(elsewhere.take_new().len(), 1);
        assert!(!ask(second).is_heard);
        assert!(elsewhere.confirm());
        assert_eq!(ask(second), Answer { is_new: false, is_heard: true });
    }
}
