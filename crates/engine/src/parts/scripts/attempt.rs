//! One run of a script: what it may do, where it runs, and how it has ended.

use super::cache::Script;
use super::functions::{Function, Library};
use super::learned::{Learned, Shape};
use super::running::{Kind, RunningScript};
use crate::clock::Ticks;
use crate::error::NotNow;
use keyspace::locks::Locked;
use std::sync::Arc;
use std::time::Duration;

/// What a script may do; it is in `Cx::script` while the script runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScriptRules {
    /// It must not write.
    pub is_read_only: bool,
    /// There was too little memory when it began, and it has not said that it can do with that.
    pub is_out_of_memory: bool,
    /// It has changed something: from then on it comes to its end, whatever the state of the
    /// server.
    pub has_written: bool,
    /// The time of day that TIME tells it, once it has asked: time stands still for a script.
    pub time: Option<Duration>,
    /// It has run for longer than `busy-reply-threshold`: time goes on for it.
    pub is_overdue: bool,
    /// On a node of a cluster all its keys are to be in one slot.
    pub keeps_to_slot: bool,
    /// The slot of its first key.
    pub slot: Option<u16>,
}

/// Where a script runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunsOn {
    /// On the thread of its client's connection.
    Reactor,
    /// On a background thread.
    Background,
    /// Within a transaction or a history that is repeated, where it cannot begin again.
    Queue,
}

/// Why a script was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It touches a key that it has not declared.
    NeedsWorld,
    /// It takes too long for a reactor.
    TakesLong,
    /// It cannot go on at this moment.
    Retry(NotNow),
    /// SCRIPT KILL, FUNCTION KILL.
    Killed,
}

/// What is to run.
#[derive(Clone)]
pub(crate) enum Target {
    Script(Arc<Script>),
    Function(Arc<Library>, Arc<Function>),
}

impl Target {
    /// The name of a function.
    pub fn name(&self) -> &[u8] {
        match self {
            Target::Script(_) => b"",
            Target::Function(_, function) => function.spec.name.as_bytes(),
        }
    }

    /// What is known from its runs.
    pub fn learned(&self) -> &Learned {
        match self {
            Target::Script(script) => &script.learned,
            Target::Function(_, function) => &function.learned,
        }
    }
}

/// One run of a script.
pub(crate) struct Attempt {
    pub target: Option<Target>,
    pub shape: Shape,
    pub place: RunsOn,
    /// The stripes of the keys that it declares.
    pub declared: Locked,
    pub touched_undeclared: bool,
    /// The hashes of the keys that it declares, if slots move key by key.
    pub declared_keys: Vec<u64>,
    /// It can no longer be undone, and may wait for stripes.
    pub holds_turn: bool,
    pub verdict: Option<Verdict>,
    pub started: Ticks,
    /// Memory is over its limit.
    pub is_out_of_memory: bool,
    pub kind: Kind,
    pub running: Option<Arc<RunningScript>>,
    /// For so long it does not make way for the world. An attempt that always would could be undone
    /// for ever, so this is what the attempts before it have taken together, up to 100 ms.
    pub min_time: Duration,
    /// What monitors are shown when it has come to its end: an attempt that is undone has not
    /// happened.
    pub monitored: Vec<Box<[u8]>>,
}

impl Attempt {
    /// One that begins.
    pub(crate) fn new(
        target: Option<Target>,
        place: RunsOn,
        declared: &Locked,
        is_out_of_memory: bool,
    ) -> Attempt {
        Attempt {
            target,
            shape: Shape::default(),
            place,
            declared: declared.clone(),
            touched_undeclared: false,
            declared_keys: Vec::new(),
            holds_turn: false,
            verdict: None,
            started: Ticks::default(),
            is_out_of_memory,
            kind: Kind::Script,
            running: None,
            min_time: Duration::ZERO,
            monitored: Vec::new(),
        }
    }
}
