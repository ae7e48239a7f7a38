//! Servers that form a cluster at a real etcd.

mod bus;
mod forwarding;
mod moving;
mod network;
mod one_server;
mod shards;
mod shared_definitions;
