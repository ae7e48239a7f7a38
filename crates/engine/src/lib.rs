//! Running commands: dispatch and its gates, transactions, blocking, publish/subscribe, tracking.
//!
//! The engine knows the command *table* but no command, and it does no I/O: a reactor feeds it
//! bytes and takes away replies, and threads reach each other's clients through [`mailbox`].

pub mod acks;
pub mod acl;
mod ahead;
pub mod append_log;
pub mod appliers;
pub mod args;
pub mod background;
mod batch;
pub mod blocking;
pub mod caching;
pub mod carrying;
pub mod clients;
pub mod clock;
pub mod cold;
pub mod cold_reads;
pub mod cold_values;
pub mod command;
pub mod commit;
pub mod commits;
pub mod cx;
pub mod db;
pub mod debug;
pub mod defrag;
pub mod dispatch;
pub mod effects;
pub mod effort;
pub mod engine;
pub mod epochs;
pub mod error;
pub mod events;
pub mod evict;
pub mod expire;
pub mod exporting;
pub mod failover;
mod field_expiry;
pub mod flash;
pub mod follow;
mod held;
pub mod holds;
pub mod hotkeys;
mod importing;
mod lanes;
pub mod limits;
pub mod load;
pub mod long;
pub mod membership;
pub mod monitor;
mod outbox;
pub mod own_keys;
pub mod peer;
pub mod persistence;
pub mod pressure;
pub mod pubsub;
mod quorum;
pub mod replay;
pub mod replicas;
pub mod request_keys;
mod roles;
pub mod scripting;
pub mod scripts;
pub mod snapshot;
pub mod stats;
pub mod table;
pub mod thread;
pub mod tier;
pub mod transaction;
pub mod upstream;
pub mod value;
pub mod votes;
pub mod watching;
mod words;
pub mod worker;

pub use clients::{interest, last_wait, mailbox, pause, session};
pub use persistence::loading;
pub use pubsub::tracking;
pub use stats::{commandlog, latency, rates};

pub use args::Args;
pub use command::{
    Arg, ArgKind, Begin, Channels, Command, Databases, Effort, Find, Flags, Group, KeyFlags,
    KeySpec, Outcome, ScriptName,
};
pub use cx::{Cx, write_string};
pub use db::Db;
pub use engine::Engine;
pub use error::Error;
pub use events::{Class, Event, event};
pub use journal;
pub use keyspace::{DbIndex, Key, Millis, locks};
pub use request_keys::{KeyUse, RequestKey, RequestKeys};
pub use resp::Protocol;
pub use scripts::VALKEY_VERSION;
pub use session::Session;
pub use spec::keys;
pub use worker::Worker;
