//! Servers that form a cluster at a real etcd.

mod forwarding;
mod network;
mod shards;
mod shared_definitions;
