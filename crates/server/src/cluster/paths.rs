//! Notices that the port of another copy is reached no more although links use it: a firewall was
//! closed, and only in one direction perhaps. Nothing else would name it: the copy has its lease, a
//! link that was open may go on for a while, and clients of other shards notice nothing.
//!
//! A thread asks one copy after the other, as [`probe`] does before this one announces its port.

use super::probe;
use crate::log;
use cluster::copy::Door;
use cluster::topology::Replica;
use engine::Engine;
use engine::membership::Published;
use process::thread;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::sync::lock;

/// Between two copies that are asked: a handshake takes half a millisecond of both sides.
const PAUSE: Duration = Duration::from_secs(10);

/// Before one that did not answer is asked again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// So often in a row a copy does not answer before it counts as not reached: it may have ended, and
/// have its lease for another moment, or a long command keeps the thread that would answer.
const FAILURES: u32 = 5;

/// See the head of this file.
pub(super) struct Paths {
    engine: &'static Engine,
    state: Arc<Mutex<State>>,
    /// The version of what is published whose ports the thread has.
    seen: Option<u64>,
}

/// What the thread asks.
#[derive(Default)]
struct State {
    /// Without any the thread ends.
    doors: Vec<Door>,
    is_running: bool,
}

impl Paths {
    pub(super) fn new(engine: &'static Engine) -> Paths {
        Paths { engine, state: Arc::default(), seen: None }
    }

    /// Has the thread ask the copies to which links go by the bus now.
    pub(super) fn follow(&mut self) {
        let version = self.engine.membership.version();
        if self.seen == Some(version) {
            return;
        }
        self.seen = Some(version);
        let published = self.engine.membership.newest();
        let mut state = lock(&self.state);
        state.doors = published.map_or_else(Vec::new, |published| used_doors(&published));
        if !state.doors.is_empty() && !state.is_running {
            let (engine, shared) = (self.engine, Arc::clone(&self.state));
            let started = thread::spawn("cluster-paths", move || run(engine, &shared));
            state.is_running = started.is_ok();
            if !state.is_running {
                // It is tried again at the next turn.
                self.seen = None;
            }
        }
    }
}

/// Returns the ports of the other living copies by which links go; none if the bus is not used.
fn used_doors(published: &Published) -> Vec<Door> {
    let view = &published.view;
    let copies = view.topology.value.copies();
    let others = copies.filter(|copy| copy.id != published.me && view.alive.contains_key(&copy.id));
    let door = |copy: &Replica| {
        let (host, port) = (copy.address.host.clone(), published.bus.port_of(copy.id)?);
        Some(Door { copy: copy.id, host, port })
    };
    others.filter_map(door).collect()
}

fn run(engine: &Engine, shared: &Mutex<State>) {
    let mut round = Round::default();
    loop {
        let doors = {
            let mut state = lock(shared);
            if state.doors.is_empty() {
                state.is_running = false;
                round.forget(engine);
                return;
            }
            state.doors.clone()
        };
        let door = round.next(&doors);
        let answer = probe::reach(engine, &door);
        std::thread::sleep(round.note(engine, door, answer));
    }
}

/// Which copy is asked next, and which ones did not answer.
#[derive(Default)]
struct Round {
    asked: usize,
    /// These copies, and how often in a row each did not.
    failing: Vec<(Door, u32)>,
    /// The last one that was asked was one of these.
    has_asked_failing: bool,
    /// A copy is named as not reached.
    is_said: bool,
}

impl Round {
    /// Returns one that did not answer and the next of all in turns.
    fn next(&mut self, doors: &[Door]) -> Door {
        self.failing.retain(|(door, _)| doors.contains(door));
        self.has_asked_failing = !self.has_asked_failing && !self.failing.is_empty();
        if self.has_asked_failing {
            self.failing.rotate_left(1);
            return self.failing[0].0.clone();
        }
        self.asked += 1;
        doors[self.asked % doors.len()].clone()
    }

    /// Notes what came of asking a copy. Returns how long to wait.
    fn note(&mut self, engine: &Engine, door: Door, answer: io::Result<()>) -> Duration {
        let known = self.failing.iter().position(|(failing, _)| *failing == door);
        let before = known.map_or(0, |at| self.failing.swap_remove(at).1);
        if let Err(why) = answer {
            let failures = before.saturating_add(1);
            if failures == FAILURES {
                log!(
                    Warning,
                    "Cluster: the port that node {} has for other nodes, {}:{}, is not reached \
                     any more ({why}), and links to it go by that port alone: let this machine \
                     reach it",
                    door.copy,
                    door.host,
                    door.port
                );
            }
            self.failing.push((door, failures));
        }
        self.say(engine);
        if self.failing.is_empty() { PAUSE } else { PAUSE_AFTER_FAILURE }
    }

    /// Names a copy that is not reached, as long as there is one.
    fn say(&mut self, engine: &Engine) {
        let lost = self.failing.iter().find(|(_, failures)| *failures >= FAILURES);
        match lost {
            Some((Door { host, port, .. }, _)) => {
                engine.membership.set_unreached(format!("{host}:{port}"));
                self.is_said = true;
            }
            None if std::mem::take(&mut self.is_said) => {
                log!(Notice, "Cluster: the ports that other nodes have for each other are reached");
                engine.membership.set_unreached(String::new());
            }
            None => {}
        }
    }

    /// No copy is to be asked any more.
    fn forget(&mut self, engine: &Engine) {
        self.failing.clear();
        self.say(engine);
    }
}
