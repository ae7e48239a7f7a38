//! What dispatch does before and after a command: waiting, caches, watched keys, eviction, cold
//! values.

pub mod acks;
pub mod blocking;
pub mod caching;
pub mod cold;
pub mod effort;
pub mod evict;
pub mod monitor;
pub mod watching;
