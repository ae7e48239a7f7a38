//! What memory is limited, and how much of it is in use.

use super::Engine;
use config::ClientMemory;

/// A limit below this is raised to it: a server must be able to serve a client.
const MIN_LIMIT: u64 = 128 << 10;

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
        Some(limit.max(MIN_LIMIT))
    }

    /// The bytes in use that `maxmemory` limits.
    pub fn limited_bytes(&self) -> u64 {
        // What is not limited is noted before it is allocated and until it is freed: seen in between, it
        // must not look like what is.
        let before = self.unlimited_bytes();
        let used = self.keyspace.used_bytes() as u64;
        used.saturating_sub(before.max(self.unlimited_bytes()))
    }

    /// Whether more is in use than `maxmemory` allows.
    pub fn is_over_limit(&self) -> bool {
        let limit = self.config.maxmemory();
        limit > 0 && self.limited_bytes() > limit
    }

    /// The bytes in use for which no keys have to go: those of clients that were evicted but whose
    /// threads have not closed them yet; of the journal, which is long when a disk is slow; and of a
    /// snapshot. By each key that goes there would be more of the last two.
    pub fn unlimited_bytes(&self) -> u64 {
        self.client_usage.leaving_bytes() + self.held_for_files()
    }

    /// The bytes that demotion goes by before `maxmemory` asks for anything: nothing is lost by it, and all memory of the
    /// process is to stay below the limit. What is held for files counts too, up to half of `maxmemory`,
    /// and so does [waste](crate::flash::FlashTier::note_resident).
    pub fn demotable_bytes(&self) -> u64 {
        let for_files = self.held_for_files().min(self.config.maxmemory() / 2);
        self.limited_bytes() + for_files + self.tier.waste_bytes()
    }

    /// Returns the bytes that commands bring below `maxmemory` before they run. With a flash tier these
    /// are the demotable bytes, since demotion costs no key and no refusal.
    pub(crate) fn reclaimable_bytes(&self) -> u64 {
        if self.tier.get().is_some() { self.demotable_bytes() } else { self.limited_bytes() }
    }

    fn held_for_files(&self) -> u64 {
        (self.journal.held_bytes() + self.snapshots.held_bytes()) as u64
    }

    /// Evicts clients, those that take most first, until the others keep `maxmemory-clients`.
    pub fn evict_clients(&self) {
        if let Some(limit) = self.client_memory_limit() {
            self.client_usage.evict(limit, &self.clients, &self.mailboxes, &self.stats);
        }
    }
}
