//! The memory that clients take, and `maxmemory-clients`.
//!
//! Each thread counts its own clients' memory (buffers, queued commands, names of what they watch
//! and subscribe to) when it has served them and once in a round of housekeeping. A thread that finds
//! the sum above the limit evicts the clients that take most, whichever threads they belong to: they
//! leave the registry at once, so that they are not listed any more, and their threads close them.

use crate::clients::{Client, flag};
use crate::engine::Engine;
use crate::mailbox::Message;
use config::ClientMemory;
use std::cmp::Reverse;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::*};

/// A limit below this is raised to it: a server must be able to serve a client.
const LEAST_LIMIT: u64 = 128 << 10;

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

impl Engine {
    /// The bytes that clients may take together; `None` without a limit.
    #[inline]
    pub fn client_memory_limit(&self) -> Option<u64> {
        let limit = match self.config.maxmemory_clients() {
            ClientMemory::Unlimited => return None,
            ClientMemory::Bytes(bytes) => bytes,
            ClientMemory::Percent(percent) => {
                let of = self.config.maxmemory();
                if of == 0 {
                    return None;
                }
                (u128::from(of) * u128::from(percent) / 100) as u64
            }
        };
        Some(limit.max(LEAST_LIMIT))
    }

    /// The bytes that clients take together.
    pub fn client_memory(&self) -> u64 {
        self.client_usage.bytes.load(Relaxed).max(0).unsigned_abs()
    }

    /// The bytes in use that `maxmemory` limits.
    pub fn limited_bytes(&self) -> u64 {
        // What is not limited is noted before it is allocated and until it is freed: seen in between, it
        // must not look like what is.
        let before = self.unlimited_bytes();
        let used = self.keyspace.used_bytes() as u64;
        used.saturating_sub(before.max(self.unlimited_bytes()))
    }

    /// The bytes in use for which no keys have to go: those of clients that were evicted but whose
    /// threads have not closed them yet; of the journal, which is long when a disk is slow; and of a
    /// snapshot. By each key that goes there would be more of the last two.
    pub fn unlimited_bytes(&self) -> u64 {
        let for_files = self.journal.held_bytes() + self.snapshots.held_bytes();
        self.leaving_client_memory() + for_files as u64
    }

    /// The bytes of clients that were evicted and are not closed yet.
    fn leaving_client_memory(&self) -> u64 {
        self.client_usage.leaving.load(Relaxed).max(0).unsigned_abs()
    }

    /// Notes that a client is gone.
    pub fn forget_client_memory(&self, client: &Client) {
        self.set_client_memory(client, 0);
        let leaving = client.live.leaving_bytes.swap(GONE, SeqCst);
        self.client_usage.leaving.fetch_sub(leaving as i64, Relaxed);
    }

    /// Notes how much memory a client takes now; by its own thread.
    pub fn count_client_memory(&self, client: &Client, bytes: usize) {
        self.set_client_memory(client, bytes);
        // One that was chosen meanwhile counts no more, or another would have to go for it.
        if client.live.is_evicted.load(SeqCst) {
            self.set_client_memory(client, 0);
        }
    }

    fn set_client_memory(&self, client: &Client, bytes: usize) {
        let before = client.live.memory_bytes.swap(bytes, SeqCst);
        if before != bytes {
            self.client_usage.bytes.fetch_add(bytes as i64 - before as i64, Relaxed);
        }
    }

    /// Evicts clients, those that take most first, until the others keep the limit.
    pub fn evict_clients(&self) {
        let Some(limit) = self.client_memory_limit() else { return };
        if self.client_memory() <= limit {
            return;
        }
        let Ok(_one_at_a_time) = self.client_usage.evicting.try_lock() else { return };
        let mut clients = self.clients.all();
        clients.retain(|client| client.live.flags.load(Relaxed) & flag::NO_EVICT == 0);
        clients.sort_by_key(|client| Reverse(client.live.memory_bytes.load(Relaxed)));
        for client in clients {
            if self.client_memory() <= limit {
                break;
            }
            self.clients.remove(client.id);
            client.live.is_evicted.store(true, SeqCst);
            // What is pushed from now on is not for it.
            client.call_off_wait(self);
            let bytes = client.live.memory_bytes.load(SeqCst);
            // Unless it is closed already, for whatever reason.
            if client.live.leaving_bytes.compare_exchange(0, bytes, SeqCst, SeqCst).is_ok() {
                self.client_usage.leaving.fetch_add(bytes as i64, Relaxed);
            }
            self.set_client_memory(&client, 0);
            self.stats.evicted_clients.add(1);
            self.mailboxes[client.thread].post(Message::Evict(client.id));
        }
    }
}
