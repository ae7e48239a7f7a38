//! The wait for replicas before a shutdown, as INFO knows it, and the clients whose SHUTDOWN is
//! under way.

use super::Clients;
use super::late_reply::LateReply;
use keyspace::Millis;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use structs::sync::lock;

/// The wait; see the module's documentation.
#[derive(Default)]
pub struct LastWait {
    /// When it ends at the latest, in milliseconds since the epoch; 0 if there is none.
    until_ms: AtomicI64,
    /// They get a reply only if the server goes on.
    replies: Mutex<Vec<LateReply>>,
}

impl LastWait {
    /// The wait begins.
    pub fn begin(&self, until: Millis) {
        self.until_ms.store(until.0, SeqCst);
    }

    /// It is over.
    pub fn end(&self) {
        self.until_ms.store(0, SeqCst);
    }

    /// Milliseconds until it ends, if there is one.
    pub fn left_ms(&self, now: Millis) -> Option<i64> {
        let until = self.until_ms.load(SeqCst);
        (until != 0).then(|| Millis(until).left(now))
    }

    /// A client waits for the end of the server.
    pub fn add(&self, reply: LateReply) {
        lock(&self.replies).push(reply);
    }

    /// The replies to the clients that wait: the server goes on.
    pub fn take_replies(&self) -> Vec<LateReply> {
        std::mem::take(&mut lock(&self.replies))
    }

    /// How many clients wait that are still connected.
    pub fn blocked(&self, clients: &Clients) -> i64 {
        lock(&self.replies).iter().filter(|reply| reply.is_awaited(clients)).count() as i64
    }
}
