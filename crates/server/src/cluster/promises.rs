//! Promises between the copies of a shard while the coordinator is away: a primary asks in the
//! stream, a copy answers behind it (`replication::promise`). `docs/internals/cluster.md` has the
//! design.
//!
//! Three threads meet here at the decisions: the one that asks, the one that applies a stream and
//! answers, and the reactor that takes an answer. None of them waits for a call to the coordinator.

use super::data::{holder_of, voter_of};
use super::publish;
use cluster::Moment;
use cluster::copy::{Copy, LONGEST_PROMISE, Role};
use cluster::id::Epoch;
use engine::Engine;
use process::thread;
use replication::promise::{Promise, Question};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// How often the thread looks whether it is time to ask.
const LOOK: Duration = Duration::from_millis(100);

/// The decisions, as other threads than the driver's have them.
#[derive(Clone)]
pub(super) struct Promises {
    engine: &'static Engine,
    copy: Arc<Mutex<Copy>>,
    /// What the decisions' clock counts from.
    began: Instant,
}

impl Promises {
    pub(super) fn new(engine: &'static Engine, copy: Arc<Mutex<Copy>>, began: Instant) -> Promises {
        Promises { engine, copy, began }
    }

    /// Starts the thread that asks.
    pub(super) fn start(&self) -> io::Result<()> {
        let this = self.clone();
        thread::spawn("cluster-ask", move || {
            loop {
                this.ask_if_due();
                std::thread::sleep(LOOK);
            }
        })
        .map(drop)
    }

    fn ask_if_due(&self) {
        let due = lock(&self.copy).ask(self.began.elapsed());
        if let Some(epoch) = due {
            self.ask(epoch);
        }
    }

    /// Asks all copies that follow.
    pub(super) fn ask(&self, epoch: Epoch) {
        // A copy that is to take over compares positions, so nothing is added to the stream at that
        // time.
        if self.engine.epochs.last().epoch != epoch.0 || self.engine.stream_stands_still() {
            return;
        }
        // The moment is rounded down, so a promise ends no later than the copy counts.
        let sent = u64::try_from(self.began.elapsed().as_millis()).unwrap_or_default();
        let from = voter_of(lock(&self.copy).myself());
        self.engine.append_to_stream(&Question { epoch: epoch.0, sent, from }.entry());
    }

    /// Calls with the decisions.
    pub(super) fn with_copy<T>(&self, call: impl FnOnce(&Copy) -> T) -> T {
        call(&lock(&self.copy))
    }

    /// A primary asks this copy. Returns for how many milliseconds it promises.
    pub(super) fn give(&self, question: &Question) -> Option<u64> {
        let from = holder_of(&question.from)?;
        let epoch = Epoch(question.epoch);
        let time = lock(&self.copy).promise(self.began.elapsed(), epoch, from)?;
        u64::try_from(time.as_millis()).ok()
    }

    /// A copy has answered this primary.
    pub(super) fn take(&self, promise: &Promise) {
        let Some(from) = str::from_utf8(&promise.from).ok().and_then(|id| id.parse().ok()) else {
            return;
        };
        let now = self.began.elapsed();
        // No answer is older than its question, whatever it says.
        let sent = Moment::from_millis(promise.sent).min(now);
        let time = Moment::from_millis(promise.ms).min(LONGEST_PROMISE);
        let mut copy = lock(&self.copy);
        copy.promised(from, Epoch(promise.epoch), sent, time);
        if matches!(copy.role(), Role::Leads(_)) {
            publish::show_alone(self.engine, &copy, self.began, now);
        }
    }
}
