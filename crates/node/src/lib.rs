//! `dunlin node` and `dunlin cluster`: machines that start and watch the copies of databases, and
//! the commands for them.
//!
//! ```text
//!   rest     commands  http        dunlin cluster …: a client of a node's REST interface
//!            up                    from options to a node that runs
//!            rest                  the admin port: REST, metrics, probes, console
//!   act      daemon    jobs        the threads of a node
//!            own_etcd  copies      processes that outlive it
//!            supervise             starts, watches and ends such a process
//!            drain     reshape     a machine gives its copies away; a database becomes as asked
//!            members   rehash      copies that come and go; rules from keys to slots that change
//!            tasks                 jobs that move data: import, export, backup, restore, restart
//!            switch    tell        a shard is handed over; copies are told options and users
//!            relay     authority   ports of databases that are elsewhere; certificates of etcd
//!   observe  show      hashing     what users are shown; rules tried on keys
//!            leaders   standing    shards that another copy leads; shards without a primary
//!            ready     disks       whether clients may be sent here; full disks, lost links
//!            rollback  talk        databases as they were once; requests to copies
//!   store    shared    store       what threads share; the site at etcd
//!            change    plan        what users ask for, as transactions; where copies go
//!            unplaced  bus         copies that no database has; copies without TLS
//!   data     site      settings  keys    values at etcd; options of a database
//!            sealed    servers   file    passwords at etcd; commands and rules of users; files
//! ```
//!
//! A floor uses those below it (`crates/tidy/lists/modules/node.txt`).
//!
//! `docs/internals/node.md` has the decisions.

mod authority;
mod bus;
pub mod change;
mod commands;
pub mod copies;
mod daemon;
mod disks;
mod drain;
mod figures;
mod file;
mod hashing;
mod http;
mod jobs;
pub mod keys;
mod leaders;
mod members;
mod own_etcd;
pub mod plan;
mod problems;
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
mod supervise;
mod switch;
mod talk;
mod tasks;
mod tell;
mod unplaced;
mod up;

pub use commands::{cluster_command, node_command, run_cluster, run_node};
pub use servers::set_commands;
