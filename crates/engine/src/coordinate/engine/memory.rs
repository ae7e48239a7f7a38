//! Which memory is limited, and how much of it is in use.

use super::Engine;
use config::ClientMemory;

/// Lower limits are raised to this value, because a server must be able to serve a client.
const MIN_LIMIT: u64 = 128 << 10;

impl Engine {
    /// Returns the bytes that all clients together may take, or `None` without a limit.
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

    /// Returns the bytes in use that `maxmemory` limits.
    pub fn limited_bytes(&self) -> u64 {
        // Unlimited memory is counted before it is allocated and until it is freed. It is read
        // twice, so that a change in between does not look like limited memory.
        let before = self.unlimited_bytes();
        let used = self.keyspace.used_bytes() as u64;
        used.saturating_sub(before.max(self.unlimited_bytes()))
    }

    /// Returns whether more is in use than `maxmemory` allows.
    pub fn is_over_limit(&self) -> bool {
        let limit = self.config.maxmemory();
        limit > 0 && self.limited_bytes() > limit
    }

    /// Returns the bytes in use for which no keys are evicted: memory of evicted clients that their
    /// threads have not closed yet, of the journal, which grows while a disk is slow, and of a
    /// snapshot. Each evicted key would add to the last two.
    pub fn unlimited_bytes(&self) -> u64 {
        self.client_usage.leaving_bytes() + self.held_for_files()
    }

    /// Returns the bytes that demotion keeps below `maxmemory`. Demotion loses nothing, and all
    /// memory of the process shall stay below the limit. So memory held for files counts, too, up
    /// to half of `maxmemory`, and so does [waste](crate::flash::FlashTier::note_resident).
    pub fn demotable_bytes(&self) -> u64 {
        let for_files = self.held_for_files().min(self.config.maxmemory() / 2);
        self.limited_bytes() + for_files + self.tier.waste_bytes()
    }

    /// Returns the bytes that commands bring below `maxmemory` before they run. With a flash tier
    /// these are the demotable bytes, because demotion costs no key and no refusal.
    pub(crate) fn reclaimable_bytes(&self) -> u64 {
        if self.tier.get().is_some() { self.demotable_bytes() } else { self.limited_bytes() }
    }

    fn held_for_files(&self) -> u64 {
        (self.journal.allocated_bytes() + self.snapshots.held_bytes()) as u64
    }

    /// Evicts the clients that take most memory, until the others stay below `maxmemory-clients`.
    pub fn evict_clients(&self) {
        if let Some(limit) = self.client_memory_limit() {
            self.client_usage.evict(limit, &self.clients, &self.mailboxes, &self.stats);
        }
    }
}
