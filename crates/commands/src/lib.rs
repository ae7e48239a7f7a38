//! The commands, one file each, grouped by type, and the table of their rows.
//!
//! A command reads and changes keys through `cx.db`, answers through `cx.reply` and reports its
//! changes with `cx.db.changed`. It must not hold state of its own between calls.

pub mod bitmap;
pub mod cluster;
#[cfg(test)]
mod compatibility;
pub mod connection;
mod draw;
mod effort;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod list;
pub mod pubsub;
pub mod scripting;
pub mod server;
pub mod set;
pub mod stream;
pub mod string;
pub mod table;
pub mod transactions;
pub mod zset;

pub use connection::client_line;
use engine::Command;
pub use engine::{limits, value};
pub use server::REDIS_VERSION;

/// All rows, group by group.
pub fn rows() -> Vec<&'static Command> {
    [
        string::COMMANDS,
        bitmap::COMMANDS,
        generic::COMMANDS,
        hash::COMMANDS,
        list::COMMANDS,
        set::COMMANDS,
        zset::COMMANDS,
        geo::COMMANDS,
        hyperloglog::COMMANDS,
        stream::COMMANDS,
        connection::COMMANDS,
        transactions::COMMANDS,
        pubsub::COMMANDS,
        scripting::COMMANDS,
        server::COMMANDS,
        cluster::COMMANDS,
    ]
    .concat()
}
