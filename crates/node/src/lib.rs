//! `dunlin node` and `dunlin cluster`: machines that start and watch the copies of databases, and
//! the commands for them.
//!
//! ```text
//!   commands  http              dunlin cluster …: a client of a node's REST interface
//!   up                          from options to a node that runs
//!   rest      show              the admin port: REST, metrics, probes, console
//!   daemon    jobs              the threads of a node
//!   leaders   standing          shards that another copy leads, as events; shards without a primary
//!   disks                       whether copies can write to their disks
//!   tasks                       jobs that move data: import, export, backup, restore, restart
//!   copies    own_etcd          processes that outlive it
//!   authority  sealed           certificates for an etcd of our own; passwords at etcd
//!   ready     relay             whether clients may be sent here; ports of databases without a copy here
//!   switch    drain             a shard is handed over; a machine gives its copies away
//!   reshape   members           a database becomes what its options say; copies that come and go
//!   unplaced                    copies that run although no database has them
//!   rollback                    databases that etcd knows as they were once
//!   change    plan              what users ask for, as transactions; where copies go
//!   hashing   rehash            rules from keys to slots: tried on keys; changed
//!   shared    store             what threads share; the site at etcd
//!   servers                     commands and rules of users, as the program says
//!   site  settings  keys  talk  values at etcd; options of a database; requests to copies
//! ```
//!
//! `docs/internals/node.md` has the decisions.

mod authority;
pub mod change;
mod commands;
pub mod copies;
mod daemon;
mod disks;
mod drain;
mod hashing;
mod http;
mod jobs;
pub mod keys;
mod leaders;
mod members;
mod own_etcd;
pub mod plan;
mod ready;
mod rehash;
mod relay;
mod reshape;
pub mod rest;
mod rollback;
mod sealed;
mod servers;
pub mod settings;
pub mod shared;
mod show;
pub mod site;
mod standing;
pub mod store;
mod switch;
mod talk;
mod tasks;
mod unplaced;
mod up;

pub use commands::{cluster_command, node_command, run_cluster, run_node};
pub use servers::set_commands;
