//! Running commands: dispatch and its gates, transactions, blocking, publish/subscribe, tracking.
//!
//! The engine knows the command *table* but no command, and it does no I/O: a reactor feeds it
//! bytes and takes away replies, and threads reach each other's clients through [`mailbox`].

mod change;
mod coordinate;
mod describe;
mod drive;
mod facts;
mod parts;
mod run;
mod serve;

pub use change::{commit, cx, db, effects, load, tier};
use change::{held_keys, outbox, staging};
use coordinate::roles;
pub use coordinate::{cold_values, engine, snapshot};
pub use describe::{acl, command, request_keys, table, transaction};
use drive::batch;
pub use drive::{defrag, expire, follow, replay, worker};
pub use facts::{
    append_log, args, clock, debug, epochs, error, events, limits, peer, stats, value,
};
use facts::{special, words};
pub use parts::{
    appliers, background, clients, cold_reads, commits, failover, flash, holds, hotkeys,
    membership, own_keys, persistence, pressure, pubsub, rate_limits, replicas, scripts, shedding,
    slot_usage, thread, upstream, votes,
};
pub use run::{carrying, dispatch, exporting, long, scripting};
use run::{importing, lanes};
pub use serve::{acks, blocking, caching, cold, effort, evict, monitor, watching};

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
pub use dispatch::View;
pub use engine::Engine;
pub use error::Error;
pub use events::{Class, Event, event};
pub use journal;
pub use keyspace::{DbIndex, Key, Millis, locks};
pub use request_keys::{KeyUse, RequestKey, RequestKeys};
pub use resp::Protocol;
pub use scripts::VALKEY_VERSION;
pub use session::Session;
pub use spec::{keys, routing};
pub use worker::Worker;
