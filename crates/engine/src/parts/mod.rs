//! Parts that know no engine: each has state and an interface, and is given the rest as arguments.

pub mod appliers;
pub mod background;
pub mod clients;
pub mod cold_reads;
pub mod commits;
pub mod failover;
pub mod flash;
pub mod holds;
pub mod hotkeys;
pub mod membership;
pub mod own_keys;
pub mod persistence;
pub mod pressure;
pub mod pubsub;
pub mod rate_limits;
pub mod replicas;
pub mod scripts;
pub mod shedding;
pub mod slot_usage;
pub mod thread;
pub mod upstream;
pub mod votes;
