//! Figures of pools and servers. Each thread counts for itself; whoever reports adds them up.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A figure that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; only the owning thread may.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Takes away; only the owning thread may.
    pub fn sub(&self, less: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(less), Relaxed);
    }

    /// The figure now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One thread's figures of one pool.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "named as in Twemproxy's statistics")]
pub struct PoolStats {
    pub client_eof: Count,
    pub client_err: Count,
    pub client_connections: Count,
    pub accepted: Count,
    pub server_ejects: Count,
    pub forward_error: Count,
    pub fragments: Count,
    pub servers: Vec<ServerStats>,
}

/// One thread's figures of one server.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "named as in Twemproxy's statistics")]
pub struct ServerStats {
    pub server_eof: Count,
    pub server_err: Count,
    pub server_timedout: Count,
    pub server_connections: Count,
    pub requests: Count,
    pub request_bytes: Count,
    pub responses: Count,
    pub response_bytes: Count,
}
