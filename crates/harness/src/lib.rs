//! Black-box tests of a running server: everything here talks to it as any client would.
//!
//! - [`server`] starts and stops the server under test and the reference it is compared with, at
//!   ports that no other test takes;
//! - [`contents`] is all that a server holds, to be compared;
//! - [`module_types`] is the table of the types that Redis has in modules;
//! - [`client`] and [`reply`] are a small, strict client of both protocols;
//! - [`crowd`] is many of them that keep a server busy;
//! - [`script`], [`expect`] and [`notation`] run the command scripts in `tests/commands`;
//! - [`differential`] sends random requests to two servers and compares;
//! - [`replicas`] makes primaries and replicas, [`gate`] a link that is held at a point of a
//!   synchronisation;
//! - [`info`] is what INFO says;
//! - [`http`] is a small HTTP client;
//! - [`history`] checks what concurrent clients saw;
//! - [`preload`] puts a library under a server; [`faults`] lets a machine's disk and clock fail by
//!   one, [`power_loss`] makes up what a power cut leaves;
//! - [`environment`] is what a run is told from outside;
//! - [`cluster`] makes clusters at a real etcd, [`registers`] are clients of one whose history is
//!   checked, [`objects`] what they change and read;
//! - [`proxy`] is a running `dunlin proxy`;
//! - [`ledger`] is a load that notes what is confirmed to it, and looks for it later;
//! - [`network`] is machines in network namespaces, which can be cut off from each other;
//! - [`sentinel`] runs stock sentinels;
//! - [`sessions`] sends random sessions to one server and to what looks like one, and compares;
//! - [`tap`] is a port that keeps what passes to another;
//! - [`tls`] makes certificates, and is a client that trusts them;
//! - [`wait`] waits for what comes sooner or later;
//! - [`stalls`] measures what one client's long command does to the latency of others.
//!
//! The crate is used by tests only and depends on no other crate of the workspace.

pub mod client;
pub mod cluster;
pub mod contents;
pub mod crowd;
pub mod differential;
pub mod environment;
pub mod expect;
pub mod faults;
pub mod gate;
pub mod history;
pub mod http;
pub mod info;
pub mod ledger;
pub mod list_transactions;
pub mod memory_limit;
pub mod module_types;
pub mod network;
pub mod notation;
pub mod objects;
mod ports;
pub mod power_loss;
pub mod preload;
pub mod proxy;
pub mod registers;
pub mod replicas;
pub mod reply;
pub mod rng;
pub mod script;
pub mod seccomp;
pub mod sentinel;
pub mod server;
pub mod sessions;
pub mod slot_jobs;
pub mod small_disk;
pub mod stalls;
pub mod tap;
pub mod tls;
pub mod wait;
pub mod way_in;
