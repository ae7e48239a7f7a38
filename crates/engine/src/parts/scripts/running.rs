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
    orders: Mutex<Orders>,
}

/// The orders to end a script that wait for its end.
#[derive(Default)]
struct Orders {
    waiting: Vec<Arc<Order>>,
    has_ended: bool,
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} orders", self.waiting.len())
    }
}

/// Answers an order to end scripts.
pub type Answer = Box<dyn FnOnce(Ended) + Send>;

/// What has become of the scripts that were to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All have ended.
    Yes,
    /// One of them has come to write before it was stopped.
    HasWritten,
}

/// An order to end scripts, each of which refers to it until its end. It is answered once.
struct Order(Mutex<Option<Answer>>);

impl Order {
    fn answer(&self, ended: Ended) {
        let answer = lock(&self.0).take();
        if let Some(answer) = answer {
            answer(ended);
        }
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.answer(Ended::Yes);
    }
}

/// Has an order answered when all these scripts have ended, which are to end.
pub fn answer_at_end(scripts: &[Arc<RunningScript>], answer: Answer) {
    let order = Arc::new(Order(Mutex::new(Some(answer))));
    scripts.iter().for_each(|script| script.keep_order(&order));
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
            orders: Mutex::default(),
        }
    }

    fn keep_order(&self, order: &Arc<Order>) {
        let mut orders = lock(&self.orders);
        if self.has_written.load(SeqCst) {
            drop(orders);
            order.answer(Ended::HasWritten);
        } else if !orders.has_ended {
            orders.waiting.push(Arc::clone(order));
        }
    }

    /// How long it has run, in milliseconds.
    pub fn elapsed_ms(&self, clock: &Clock) -> u64 {
        clock.nanoseconds(self.since, clock.now()) / 1_000_000
    }

    /// It changes something now.
    pub(crate) fn note_write(&self) {
        self.has_written.store(true, SeqCst);
        if self.is_killed.swap(false, SeqCst) {
            let orders = std::mem::take(&mut lock(&self.orders).waiting);
            orders.iter().for_each(|order| order.answer(Ended::HasWritten));
        }
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
#[derive(Clone, Debug)]
pub enum Kill {
    /// These will end.
    Done(Vec<Arc<RunningScript>>),
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
        let mut orders = lock(&script.orders);
        orders.has_ended = true;
        let waiting = std::mem::take(&mut orders.waiting);
        drop(orders);
        drop(waiting);
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

    /// Whether another script than this one has.
    pub(crate) fn is_busy_beside(&self, script: &RunningScript) -> bool {
        self.busy.load(SeqCst) > usize::from(script.is_busy.load(SeqCst))
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
        let mut to_end = Vec::new();
        for script in of_kind.into_iter().filter(|script| !script.has_written.load(SeqCst)) {
            script.is_killed.store(true, SeqCst);
            to_end.push(Arc::clone(script));
        }
        if to_end.is_empty() { Kill::Unkillable } else { Kill::Done(to_end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_has_written_is_not_killed() {
        let running = Running::default();
        assert!(matches!(running.kill(Kind::Script), Kill::NotBusy));
        let script = Arc::new(RunningScript::new(Kind::Script, b"", &[], Ticks::default()));
        running.add(&script);
        assert!(matches!(running.kill(Kind::Function), Kill::OtherKind));
        assert!(matches!(running.kill(Kind::Script), Kill::Done(_)));
        assert!(script.is_killed());
        script.note_write();
        assert!(!script.is_killed(), "it has come first");
        assert!(matches!(running.kill(Kind::Script), Kill::Unkillable));
        assert!(running.note_busy(&script) && !running.note_busy(&script) && running.is_busy());
        running.remove(&script);
        assert!(!running.is_busy() && running.longest().is_none());
    }

    #[test]
    fn an_order_is_answered_when_all_scripts_have_ended() {
        let running = Running::default();
        let new = || Arc::new(RunningScript::new(Kind::Script, b"", &[], Ticks::default()));
        let (first, second) = (new(), new());
        let (send, receive) = std::sync::mpsc::channel();
        let order = || {
            let Kill::Done(scripts) = running.kill(Kind::Script) else { panic!("they can end") };
            let send = send.clone();
            let answer = move |ended| send.send(ended).expect("the test listens");
            answer_at_end(&scripts, Box::new(answer));
        };
        running.add(&first);
        running.add(&second);
        order();
        running.remove(&first);
        assert!(receive.try_recv().is_err(), "one runs on");
        running.remove(&second);
        assert_eq!(receive.try_recv(), Ok(Ended::Yes));
        // One that comes to write before it was stopped runs on.
        running.add(&first);
        lock(&first.orders).has_ended = false;
        order();
        first.note_write();
        assert_eq!(receive.try_recv(), Ok(Ended::HasWritten));
        assert!(receive.try_recv().is_err());
    }
}
