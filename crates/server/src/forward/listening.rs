//! Keyspace events of other nodes, for clients that see one server: what the hub of the first
//! thread listens to, and how clients get it.

use super::Forwarder;
use engine::Engine;
use engine::mailbox::recheck_all;
use engine::pubsub::Space;
use engine::pubsub::elsewhere::Name;
use forward::network::Reach;
use keyspace::Millis;

/// How often names without a listener are looked for.
const FORGET_EVERY_MS: i64 = 1000;

/// How far listening is.
#[derive(Default)]
pub struct Listens {
    /// Whether clients saw one server at the last tick.
    sees_one_server: bool,
    /// Whether there were names at the last tick.
    is_used: bool,
    state: State,
    forget_at: Millis,
}

/// What is known of the other nodes' confirmations.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Clients know of all of them.
    #[default]
    Settled,
    /// Some are missing.
    Waiting,
    /// None is missing, and clients may wait to be told.
    Complete,
}

/// As the hub writes a name: its kind, and itself.
fn of_hub((space, name): Name) -> (usize, Vec<u8>) {
    (usize::from(space == Space::Patterns), name.into_vec())
}

impl Forwarder {
    /// Listens to what clients have begun to ask for.
    pub fn listen<R: Reach>(&mut self, reach: &mut R) {
        self.follow();
        let new = self.shared.engine.pubsub.elsewhere.take_new();
        if !new.is_empty() {
            let new = new.into_iter().map(of_hub).collect();
            self.with(reach, |hub, wires| hub.listen_to(wires, new));
            self.listen_on(reach);
        }
    }

    /// Makes connections that are missing.
    fn listen_on<R: Reach>(&mut self, reach: &mut R) {
        let others = self.shared.others();
        let is_complete = self.with(reach, |hub, wires| hub.listen_at(wires, &others));
        self.listens.state = if is_complete { State::Complete } else { State::Waiting };
    }

    /// The end of a turn: confirmations may have come, and clients go on when none is missing. What
    /// was [heard](hear) before them has been given out: a client that goes on would get it.
    pub fn look_for_confirmations<R: Reach>(&mut self, reach: &mut R) {
        if self.listens.state == State::Waiting {
            self.listen_on(reach);
        }
        let engine = self.shared.engine;
        if self.listens.state == State::Complete {
            self.listens.state = State::Settled;
            if engine.pubsub.elsewhere.confirm() {
                recheck_all(&engine.mailboxes);
            }
        }
    }

    /// Time has passed, on the first thread.
    pub fn tick_of_listening<R: Reach>(&mut self, reach: &mut R, now: Millis) {
        let (registry, engine) = (&self.shared.engine.pubsub, self.shared.engine);
        let sees_one_server = engine.is_one_address();
        if sees_one_server != self.listens.sees_one_server {
            self.listens.sees_one_server = sees_one_server;
            match sees_one_server {
                true => registry.elsewhere.ask_for_all(registry, now),
                false => {
                    let names: Vec<_> =
                        registry.elsewhere.clear().into_iter().map(of_hub).collect();
                    self.with(reach, |hub, wires| hub.listen_no_more_to(wires, &names));
                }
            }
        }
        if !registry.elsewhere.is_used() && !self.listens.is_used {
            return;
        }
        self.listens.is_used = registry.elsewhere.is_used();
        self.listen(reach);
        if now >= self.listens.forget_at {
            self.listens.forget_at = Millis(now.0 + FORGET_EVERY_MS);
            let unused = registry.elsewhere.forget_unused(registry, now);
            let unused: Vec<_> = unused.into_iter().map(of_hub).collect();
            self.with(reach, |hub, wires| hub.listen_no_more_to(wires, &unused));
        }
        self.listen_on(reach);
        if registry.elsewhere.end_waits(now) {
            recheck_all(&engine.mailboxes);
        }
    }
}

/// Gives this node's clients the event of another node.
pub fn hear(engine: &Engine, message: &[u8]) {
    let words = route::raw::elements(message).unwrap_or_default();
    let words: Vec<&[u8]> = words.iter().filter_map(|word| route::raw::text(word)).collect();
    let (pattern, channel, payload) = match words[..] {
        [_, channel, payload] => (None, channel, payload),
        [_, pattern, channel, payload] => (Some(pattern), channel, payload),
        _ => return,
    };
    engine.pubsub.hear(&engine.mailboxes, pattern, channel, payload);
}
