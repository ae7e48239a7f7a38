//! `CLUSTER` subcommands about nodes: their names, and how they stand to each other.

use engine::{Arg, ArgKind, Command, Flags, Group};

/// `CLUSTER BUMPEPOCH`.
pub static CLUSTER_BUMPEPOCH: Command = Command {
    name: "bumpepoch",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Raises the epoch of the configuration.",
    tips: &["nondeterministic_output"],
    run: super::operate::bump_epoch,
    ..Command::ROW
};

/// `CLUSTER COUNT-FAILURE-REPORTS`.
pub static CLUSTER_COUNT_FAILURE_REPORTS: Command = Command {
    name: "count-failure-reports",
    arity: 3,
    flags: Flags::ADMIN.with(Flags::STALE),
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N reports of failures",
    summary: "How many nodes believe that a node has failed.",
    history: &[("9.0.0", "A failed node gathers no more reports.")],
    tips: &["nondeterministic_output"],
    args: &[Arg::new("node-id", ArgKind::String)],
    run: super::answers::count_failure_reports,
    ..Command::ROW
};

/// `CLUSTER FAILOVER`.
pub static CLUSTER_FAILOVER: Command = Command {
    name: "failover",
    arity: -2,
    categories: &["nodes"],
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Makes this replica take the place of its primary.",
    args: &[Arg::one_of(
        "options",
        &[Arg::token("force", "FORCE"), Arg::token("takeover", "TAKEOVER")],
    )
    .optional()],
    run: super::operate::failover,
    ..Command::ROW
};

/// `CLUSTER FORGET`.
pub static CLUSTER_FORGET: Command = Command {
    name: "forget",
    arity: 3,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Takes a node off the list of nodes.",
    args: &[Arg::new("node-id", ArgKind::String)],
    run: super::operate::forget,
    ..Command::ROW
};

/// `CLUSTER INFO`.
pub static CLUSTER_INFO: Command = Command {
    name: "info",
    arity: 2,
    categories: &["nodes"],
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "The state of the cluster, as this node sees it.",
    tips: &["nondeterministic_output"],
    run: super::answers::info,
    ..Command::ROW
};

/// `CLUSTER LINKS`.
pub static CLUSTER_LINKS: Command = Command {
    name: "links",
    arity: 2,
    flags: Flags::STALE,
    group: Group::Cluster,
    since: "7.0.0",
    complexity: "O(N) for N nodes of the cluster",
    summary: "The connections to and from other nodes.",
    tips: &["nondeterministic_output"],
    run: super::answers::links,
    ..Command::ROW
};

/// `CLUSTER MEET`.
pub static CLUSTER_MEET: Command = Command {
    name: "meet",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Makes this node known to another one.",
    history: &[("4.0.0", "Takes `cluster_bus_port`.")],
    args: &[
        Arg::new("ip", ArgKind::String),
        Arg::new("port", ArgKind::Integer),
        Arg::new("cluster-bus-port", ArgKind::Integer).since("4.0.0").optional(),
    ],
    run: super::operate::meet,
    ..Command::ROW
};

/// `CLUSTER MYID`.
pub static CLUSTER_MYID: Command = Command {
    name: "myid",
    arity: 2,
    categories: &["nodes"],
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "The name of this node.",
    run: super::answers::myid,
    ..Command::ROW
};

/// `CLUSTER MYSHARDID`.
pub static CLUSTER_MYSHARDID: Command = Command {
    name: "myshardid",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "7.2.0",
    summary: "The name of the shard that this node is in.",
    tips: &["nondeterministic_output"],
    run: super::answers::myshardid,
    ..Command::ROW
};

/// `CLUSTER NODES`.
pub static CLUSTER_NODES: Command = Command {
    name: "nodes",
    arity: 2,
    categories: &["nodes"],
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N nodes of the cluster",
    summary: "All nodes, one a line, as this node sees them.",
    tips: &["nondeterministic_output"],
    run: super::answers::nodes,
    ..Command::ROW
};

/// `CLUSTER REPLICAS`.
pub static CLUSTER_REPLICAS: Command = Command {
    name: "replicas",
    arity: 3,
    flags: Flags::ADMIN.with(Flags::STALE),
    group: Group::Cluster,
    since: "5.0.0",
    complexity: "O(N) for N replicas",
    summary: "The replicas of a primary.",
    tips: &["nondeterministic_output"],
    args: &[Arg::new("node-id", ArgKind::String)],
    run: super::answers::replicas,
    ..Command::ROW
};

/// `CLUSTER REPLICATE`.
pub static CLUSTER_REPLICATE: Command = Command {
    name: "replicate",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Makes this node the replica of another, or of none.",
    history: &[("9.0.0", "`NO ONE` in place of a node detaches a replica.")],
    args: &[Arg::one_of(
        "args",
        &[
            Arg::new("node-id", ArgKind::String),
            Arg::block("no-one", &[Arg::token("no", "NO"), Arg::token("one", "ONE")])
                .since("9.0.0"),
        ],
    )],
    run: super::operate::replicate,
    ..Command::ROW
};

/// `CLUSTER RESET`.
pub static CLUSTER_RESET: Command = Command {
    name: "reset",
    arity: -2,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N known nodes, and that of FLUSHALL if data are removed",
    summary: "Makes a node forget the cluster.",
    args: &[Arg::one_of("reset-type", &[Arg::token("hard", "HARD"), Arg::token("soft", "SOFT")])
        .optional()],
    run: super::operate::reset,
    ..Command::ROW
};

/// `CLUSTER SAVECONFIG`.
pub static CLUSTER_SAVECONFIG: Command = Command {
    name: "saveconfig",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Writes the node's view of the cluster to disk.",
    run: super::operate::save_config,
    ..Command::ROW
};

/// `CLUSTER SET-CONFIG-EPOCH`.
pub static CLUSTER_SET_CONFIG_EPOCH: Command = Command {
    name: "set-config-epoch",
    arity: 3,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Gives a new node its first epoch.",
    args: &[Arg::new("config-epoch", ArgKind::Integer)],
    run: super::operate::set_config_epoch,
    ..Command::ROW
};

/// `CLUSTER SHARDS`.
pub static CLUSTER_SHARDS: Command = Command {
    name: "shards",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "7.0.0",
    complexity: "O(N) for N nodes of the cluster",
    summary: "The shards, with their slots and nodes.",
    history: &[("9.1.0", "Shards have an `id`, nodes an `availability-zone`.")],
    tips: &["nondeterministic_output"],
    run: super::answers::shards,
    ..Command::ROW
};

/// `CLUSTER SLAVES`.
pub static CLUSTER_SLAVES: Command = Command {
    name: "slaves",
    arity: 3,
    flags: Flags::ADMIN.with(Flags::STALE),
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N replicas",
    summary: "The old name of CLUSTER REPLICAS.",
    deprecated: Some(("5.0.0", "`CLUSTER REPLICAS`")),
    tips: &["nondeterministic_output"],
    args: &[Arg::new("node-id", ArgKind::String)],
    run: super::answers::replicas,
    ..Command::ROW
};
