//! Primaries, replicas and sentinels, of Dunlin and of others.

mod commit_modes;
mod dual_channel;
mod failover;
mod hostile_peers;
mod of_others;
mod replica_data;
mod replica_limits;
mod replica_swapdb;
mod sentinel;
mod shutdown;
mod slow_links;
mod sync_faults;
mod tls;
mod to_others;
