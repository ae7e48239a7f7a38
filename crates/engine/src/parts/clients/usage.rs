//! The memory that clients take, and `maxmemory-clients`.
//!
//! Each thread counts its own clients' memory (buffers, queued commands, names of what they watch
//! and subscribe to) when it has served them and once in a round of housekeeping. A thread that
//! finds the sum above the limit evicts the clients that take most, whichever threads they belong
//! to: they leave the registry at once, so that they are not listed any more, and their threads
//! close them.

use super::mailbox::{Mailbox, Message};
use super::{Client, Clients, Departure, flag};
use crate::stats::Stats;
use std::cmp::Reverse;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::*};

/// In the place of the bytes of a client that is closed.
const GONE: usize = usize::MAX;

/// What all clients take together.
#[derive(Default)]
pub struct ClientUsage {
    bytes: AtomicI64,
    /// Bytes of those that were evicted and are not closed yet.
    leaving: AtomicI64,
    /// Held while a thread evicts; the others do not wait for it.
    evicting: Mutex<()>,
}

impl ClientUsage {
    /// The bytes that clients take together.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed).max(0).unsigned_abs()
    }

    /// The bytes of clients that were evicted and are not closed yet.
    pub(crate) fn leaving_bytes(&self) -> u64 {
        self.leaving.load(Relaxed).max(0).unsigned_abs()
    }

    /// Notes that a client is gone.
    pub(crate) fn forget(&self, client: &Client) {
        self.set(client, 0);
        let leaving = client.live.leaving_bytes.swap(GONE, SeqCst);
        self.leaving.fetch_sub(leaving as i64, Relaxed);
    }

    /// Notes how much memory a client takes now; by its own thread.
    pub fn count(&self, client: &Client, bytes: usize) {
        self.set(client, bytes);
        // One that was chosen meanwhile counts no more, or another would have to go for it.
        if client.live.is_evicted.load(SeqCst) {
            self.set(client, 0);
        }
    }

    fn set(&self, client: &Client, bytes: usize) {
        let before = client.live.memory_bytes.swap(bytes, SeqCst);
        if before != bytes {
            self.bytes.fetch_add(bytes as i64 - before as i64, Relaxed);
        }
    }

    /// Evicts clients, those that take most first, until the others keep the limit.
    pub(crate) fn evict(
        &self,
        limit: u64,
        clients: &Clients,
        mailboxes: &[Mailbox],
        stats: &Stats,
    ) {
        if self.bytes() <= limit {
            return;
        }
        let Ok(_one_at_a_time) = self.evicting.try_lock() else { return };
        let mut all = clients.all();
        // One that has hung up takes nothing, and is listed for its last command alone.
        all.retain(|client| {
            client.live.flags.load(Relaxed) & flag::NO_EVICT == 0
                && !client.has_gone(Departure::Left)
        });
        all.sort_by_key(|client| Reverse(client.live.memory_bytes.load(Relaxed)));
        for client in all {
            if self.bytes() <= limit {
                break;
            }
            clients.remove(client.id);
            client.live.is_evicted.store(true, SeqCst);
            // What is pushed from now on is not for it.
            client.call_off_wait(stats);
            let bytes = client.live.memory_bytes.load(SeqCst);
            // Unless it is closed already, for whatever reason.
            if client.live.leaving_bytes.compare_exchange(0, bytes, SeqCst, SeqCst).is_ok() {
                self.leaving.fetch_add(bytes as i64, Relaxed);
            }
            self.set(&client, 0);
            stats.evicted_clients.add(1);
            mailboxes[client.thread].post(Message::Evict(client.id));
        }
    }
}
