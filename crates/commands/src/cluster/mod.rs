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
    summary: "The commands for a cluster of nodes.",
    subcommands: &[
        &slots::CLUSTER_DELSLOTSRANGE,
        &nodes::CLUSTER_FAILOVER,
        &migration::CLUSTER_GETSLOTMIGRATIONS,
        &nodes::CLUSTER_SAVECONFIG,
        &migration::CLUSTER_CANCELSLOTMIGRATIONS,
        &slots::CLUSTER_FLUSHSLOT,
        &slots::CLUSTER_KEYSLOT,
        &nodes::CLUSTER_LINKS,
        &nodes::CLUSTER_MYSHARDID,
        &nodes::CLUSTER_RESET,
        &slots::CLUSTER_SETSLOT,
        &nodes::CLUSTER_SLAVES,
        &slots::CLUSTER_DELSLOTS,
        &nodes::CLUSTER_SET_CONFIG_EPOCH,
        &slots::CLUSTER_SLOT_STATS,
        &slots::CLUSTER_SLOTS,
        &slots::CLUSTER_COUNTKEYSINSLOT,
        &CLUSTER_HELP,
        &nodes::CLUSTER_NODES,
        &nodes::CLUSTER_INFO,
        &nodes::CLUSTER_MEET,
        &migration::CLUSTER_SYNCSLOTS,
        &slots::CLUSTER_ADDSLOTS,
        &nodes::CLUSTER_COUNT_FAILURE_REPORTS,
        &nodes::CLUSTER_FORGET,
        &slots::CLUSTER_FLUSHSLOTS,
        &slots::CLUSTER_GETKEYSINSLOT,
        &nodes::CLUSTER_MYID,
        &nodes::CLUSTER_REPLICAS,
        &nodes::CLUSTER_SHARDS,
        &slots::CLUSTER_ADDSLOTSRANGE,
        &nodes::CLUSTER_BUMPEPOCH,
        &migration::CLUSTER_MIGRATESLOTS,
        &nodes::CLUSTER_REPLICATE,
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
    summary: "Lists the subcommands.",
    run: disabled,
    ..Command::ROW
};

/// The answer of all that need a cluster.
fn disabled(_cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    Err(Error::text("ERR This instance has cluster support disabled"))
}
