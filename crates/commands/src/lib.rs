//! The commands, one file each, grouped by type, and the table of their rows.
//!
//! A command reads and changes keys through `cx.db`, answers through `cx.reply` and reports its
//! changes with `cx.db.changed`. It must not hold state of its own between calls.

pub mod bitmap;
pub mod bloom;
pub mod cluster;
pub mod cms;
#[cfg(test)]
mod compatibility;
pub mod connection;
pub mod cuckoo;
mod draw;
mod effort;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod json;
pub mod list;
pub mod pubsub;
pub mod scripting;
pub mod series;
pub mod server;
pub mod set;
pub mod stream;
pub mod string;
pub mod table;
pub mod tdigest;
pub mod topk;
pub mod transactions;
mod typed;
pub mod vectors;
pub mod zset;

pub use connection::client_line;
use engine::Command;
use engine::table::CommandTable;
pub use engine::{limits, value};
pub use server::{REDIS_VERSION, report_info};
use std::sync::OnceLock;

/// Checks the rules of a user as ACL SETUSER does, without a server.
///
/// # Errors
/// What is wrong with the first that would be refused.
pub fn check_user(rules: &[&[u8]]) -> Result<(), String> {
    static TABLE: OnceLock<CommandTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| CommandTable::build(&rows(), &[]));
    engine::acl::rules::check(table, rules)
}

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
        json::COMMANDS,
        bloom::COMMANDS,
        cuckoo::COMMANDS,
        cms::COMMANDS,
        topk::COMMANDS,
        vectors::COMMANDS,
        tdigest::COMMANDS,
        series::COMMANDS,
        connection::COMMANDS,
        transactions::COMMANDS,
        pubsub::COMMANDS,
        scripting::COMMANDS,
        server::COMMANDS,
        cluster::COMMANDS,
    ]
    .concat()
}
