//! The commands of the group `cluster`.
//!
//! `answers` says what the coordinator's newest view says; `operate` asks the coordinator for a
//! change. The other files have the rows. A server that is no node of a cluster answers with the
//! words that clients know for that.

mod answers;
mod migration;
mod modes;
mod nodes;
mod operate;
mod scan;
mod slot_stats;
mod slots;

pub(crate) use operate::{SHARED, define, operate_together};
pub(crate) use slot_stats::slot_number;

use engine::routing::{Applied, Refusal, Routing, Way};
use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};

/// The rows of this group.
pub static COMMANDS: &[&Command] =
    &[&CLUSTER, &scan::CLUSTERSCAN, &modes::ASKING, &modes::READONLY, &modes::READWRITE];

/// `CLUSTER`.
pub static CLUSTER: Command = Command {
    name: "cluster",
    arity: -2,
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "That of the subcommand",
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
        &migration::CLUSTER_MIGRATION,
        &nodes::CLUSTER_REPLICATE,
    ],
    routing: Routing::by(Way::Refused(Refusal::Cluster)).applied(Applied::Skip),
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
    run: help,
    ..Command::ROW
};

fn help(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if cx.engine.membership.is_on() { crate::table::help(cx, args) } else { Err(DISABLED) }
}

/// The answer of all that need a cluster, where there is none.
const DISABLED: Error = Error::NoCluster;

/// The answer of what no node of a cluster does yet.
fn disabled(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    match cx.engine.membership.is_on() {
        true => Err(Error::text("ERR This version does not have this CLUSTER command yet")),
        false => Err(DISABLED),
    }
}
