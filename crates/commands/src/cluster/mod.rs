//! The commands of the group `cluster`, as a server answers that is no node of one.
//!
//! Clients ask (CLUSTER INFO, CLUSTER SLOTS) to find out what they talk to, and must get the words that
//! they know for "a standalone server".

mod migration;
mod modes;
mod nodes;
mod slots;

use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[&CLUSTER, &modes::ASKING, &modes::READONLY, &modes::READWRITE];

/// `CLUSTER`.
pub static CLUSTER: Command = Command {
    name: "cluster",
    arity: -2,
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for Cluster commands.",
    subcommands: &[
        &slots::CLUSTER_ADDSLOTS,
        &slots::CLUSTER_ADDSLOTSRANGE,
        &nodes::CLUSTER_BUMPEPOCH,
        &migration::CLUSTER_CANCELSLOTMIGRATIONS,
        &nodes::CLUSTER_COUNT_FAILURE_REPORTS,
        &slots::CLUSTER_COUNTKEYSINSLOT,
        &slots::CLUSTER_DELSLOTS,
        &slots::CLUSTER_DELSLOTSRANGE,
        &nodes::CLUSTER_FAILOVER,
        &slots::CLUSTER_FLUSHSLOT,
        &slots::CLUSTER_FLUSHSLOTS,
        &nodes::CLUSTER_FORGET,
        &slots::CLUSTER_GETKEYSINSLOT,
        &migration::CLUSTER_GETSLOTMIGRATIONS,
        &CLUSTER_HELP,
        &nodes::CLUSTER_INFO,
        &slots::CLUSTER_KEYSLOT,
        &nodes::CLUSTER_LINKS,
        &nodes::CLUSTER_MEET,
        &migration::CLUSTER_MIGRATESLOTS,
        &nodes::CLUSTER_MYID,
        &nodes::CLUSTER_MYSHARDID,
        &nodes::CLUSTER_NODES,
        &nodes::CLUSTER_REPLICAS,
        &nodes::CLUSTER_REPLICATE,
        &nodes::CLUSTER_RESET,
        &nodes::CLUSTER_SAVECONFIG,
        &nodes::CLUSTER_SET_CONFIG_EPOCH,
        &slots::CLUSTER_SETSLOT,
        &nodes::CLUSTER_SHARDS,
        &nodes::CLUSTER_SLAVES,
        &slots::CLUSTER_SLOT_STATS,
        &slots::CLUSTER_SLOTS,
        &migration::CLUSTER_SYNCSLOTS,
    ],
    run: disabled,
    ..Command::ROW
};

/// `CLUSTER HELP`.
pub static CLUSTER_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "5.0.0",
    summary: "Returns helpful text about the different subcommands.",
    run: disabled,
    ..Command::ROW
};

/// The answer of all that need a cluster.
fn disabled(_cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    Err(Error::text("ERR This instance has cluster support disabled"))
}
