//! The commands of the group `server`, one file each or a tight family.

mod dbsize;
mod flush;
mod shutdown;
mod swapdb;
mod time;

use engine::Command;

/// The version of Redis whose commands and replies clients may expect.
pub const REDIS_VERSION: &str = "7.2.4";

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &shutdown::SHUTDOWN,
    &swapdb::SWAPDB,
    &time::TIME,
    &dbsize::DBSIZE,
    &flush::FLUSHDB,
    &flush::FLUSHALL,
];
