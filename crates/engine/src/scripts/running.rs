//! The scripts that run for longer than a moment: to name them, and to end them.

use crate::clock::{Clock, Ticks};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use structs::sync::lock;

/// What a script is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One of EVAL.
    Script,
    /// A function.
    Function,
}

/// A script that runs.
#[derive(Debug)]
pub struct RunningScript {
    /// What it is.
    pub kind: Kind,
    /// The function's name.
    pub name: Vec<u8>,
    /// The request.
    pub words: Vec<Box<[u8]>>,
    /// When it began.
    pub since: Ticks,
    has_written: AtomicBool,
    is_killed: AtomicBool,
    is_busy: AtomicBool,
}

impl RunningScript {
    /// One that began then.
    pub(crate) fn new(kind: Kind, name: &[u8], words: &[Box<[u8]>], since: Ticks) -> RunningScript {
        RunningScript {
            kind,
            name: name.to_vec(),
            words: words.to_vec(),
            since,
            has_written: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
        }
    }

    /// How long it has run, in milliseconds.
    pub fn elapsed_ms(&self, clock: &Clock) -> u64 {
        clock.nanoseconds(self.since, clock.now()) / 1_000_000
    }

    /// It changes something now.
    pub(crate) fn note_write(&self) {
        self.has_written.store(true, SeqCst);
    }

    /// What it has changed was undone.
    pub(crate) fn forget_write(&self) {
        self.has_written.store(false, SeqCst);
    }

    /// Whether it is to end.
    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(SeqCst) && !self.has_written.load(SeqCst)
    }
}

/// What became of an attempt to end a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kill {
    /// It will end.
    Done,
    /// No script runs.
    NotBusy,
    /// It has written.
    Unkillable,
    /// What runs is of the other kind.
    OtherKind,
}

/// See the module.
#[derive(Default)]
pub struct Running {
    scripts: Mutex<Vec<Arc<RunningScript>>>,
    busy: AtomicUsize,
}

impl Running {
    pub(crate) fn add(&self, script: &Arc<RunningScript>) {
        lock(&self.scripts).push(Arc::clone(script));
    }

    pub(crate) fn remove(&self, script: &Arc<RunningScript>) {
        lock(&self.scripts).retain(|other| !Arc::ptr_eq(other, script));
        if script.is_busy.swap(false, SeqCst) {
            self.busy.fetch_sub(1, SeqCst);
        }
    }

    /// It has run for longer than `busy-reply-threshold`; `true` if that is new.
    pub(crate) fn note_busy(&self, script: &RunningScript) -> bool {
        let is_new = !script.is_busy.swap(true, SeqCst);
        if is_new {
            self.busy.fetch_add(1, SeqCst);
        }
        is_new
    }

    /// Whether a script has run for longer than `busy-reply-threshold`.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(SeqCst) > 0
    }

    /// The script that has run longest.
    pub fn longest(&self) -> Option<Arc<RunningScript>> {
        lock(&self.scripts).iter().min_by_key(|script| script.since).cloned()
    }

    /// Ends the scripts of a kind that have not written.
    pub fn kill(&self, kind: Kind) -> Kill {
        let scripts = lock(&self.scripts);
        let (of_kind, others): (Vec<_>, Vec<_>) =
            scripts.iter().partition(|script| script.kind == kind);
        if of_kind.is_empty() {
            return if others.is_empty() { Kill::NotBusy } else { Kill::OtherKind };
        }
        let mut outcome = Kill::Unkillable;
        for script in of_kind {
            if !script.has_written.load(SeqCst) {
                script.is_killed.store(true, SeqCst);
                outcome = Kill::Done;
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_has_written_is_not_killed() {
        let running = Running::default();
        assert_eq!(running.kill(Kind::Script), Kill::NotBusy);
        let script = Arc::new(RunningScript::new(Kind::Script, b"", &[], Ticks::default()));
        running.add(&script);
        assert_eq!(running.kill(Kind::Function), Kill::OtherKind);
        assert_eq!(running.kill(Kind::Script), Kill::Done);
        assert!(script.is_killed());
        script.note_write();
        assert!(!script.is_killed(), "it has come first");
        assert_eq!(running.kill(Kind::Script), Kill::Unkillable);
        assert!(running.note_busy(&script) && !running.note_busy(&script) && running.is_busy());
        running.remove(&script);
        assert!(!running.is_busy() && running.longest().is_none());
    }
}
