//! The commands of the group `server`, one file each or a tight family.

mod acl;
mod bgrewriteaof;
mod command;
pub(crate) mod command_docs;
mod command_info;
mod commandlog;
mod config;
mod dbsize;
mod debug;
mod failover;
mod flush;
mod hotkeys;
mod info;
mod latency;
mod lolwut;
mod memory;
mod memory_report;
pub(crate) mod module;
mod monitor;
mod psync;
mod replconf;
mod replicaof;
mod role;
mod save;
mod shutdown;
mod swapdb;
mod tier_report;
mod time;

pub(crate) use info::mode;
pub use info::report_info;

use engine::Command;

/// The version of Redis that HELLO and INFO name, for clients that decide by it what they use: the
/// newest whose commands are all here, but for search, which MODULE LIST does not name.
pub const REDIS_VERSION: &str = "8.6.0";

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &acl::ACL,
    &memory::MEMORY,
    &debug::DEBUG,
    &hotkeys::HOTKEYS,
    &latency::LATENCY,
    &lolwut::LOLWUT,
    &module::MODULE,
    &monitor::MONITOR,
    &role::ROLE,
    &command::COMMAND,
    &commandlog::COMMANDLOG,
    &commandlog::SLOWLOG,
    &info::INFO,
    &config::CONFIG,
    &bgrewriteaof::BGREWRITEAOF,
    &save::SAVE,
    &save::BGSAVE,
    &save::LASTSAVE,
    &shutdown::SHUTDOWN,
    &swapdb::SWAPDB,
    &psync::PSYNC,
    &psync::SYNC,
    &replconf::REPLCONF,
    &failover::FAILOVER,
    &replicaof::REPLICAOF,
    &replicaof::SLAVEOF,
    &time::TIME,
    &dbsize::DBSIZE,
    &flush::FLUSHDB,
    &flush::FLUSHALL,
];
