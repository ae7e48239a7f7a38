//! `CLUSTER` subcommands about slots: which node has them, and the keys in them.

use engine::routing::{Applied, Routing};
use engine::{Arg, ArgKind, Args, Command, Cx, Databases, Error, Flags, Group, Outcome};

/// A range of slots.
pub(super) const RANGE: Arg = Arg::block(
    "range",
    &[Arg::new("start-slot", ArgKind::Integer), Arg::new("end-slot", ArgKind::Integer)],
);

/// `CLUSTER ADDSLOTS`.
pub static CLUSTER_ADDSLOTS: Command = Command {
    name: "addslots",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N slots that are named",
    summary: "Makes this node serve more slots.",
    args: &[Arg::new("slot", ArgKind::Integer).multiple()],
    run: super::operate::add_slots,
    ..Command::ROW
};

/// `CLUSTER ADDSLOTSRANGE`.
pub static CLUSTER_ADDSLOTSRANGE: Command = Command {
    name: "addslotsrange",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "7.0.0",
    complexity: "O(N) for N slots in the ranges",
    summary: "Makes this node serve more ranges of slots.",
    args: &[RANGE.multiple()],
    run: super::operate::add_ranges,
    ..Command::ROW
};

/// `CLUSTER COUNTKEYSINSLOT`.
pub static CLUSTER_COUNTKEYSINSLOT: Command = Command {
    name: "countkeysinslot",
    arity: 3,
    flags: Flags::STALE,
    group: Group::Cluster,
    since: "3.0.0",
    summary: "How many keys a slot holds.",
    args: &[Arg::new("slot", ArgKind::Integer)],
    run: super::answers::count_keys_in_slot,
    ..Command::ROW
};

/// `CLUSTER DELSLOTS`.
pub static CLUSTER_DELSLOTS: Command = Command {
    name: "delslots",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N slots that are named",
    summary: "Makes this node serve some slots no more.",
    args: &[Arg::new("slot", ArgKind::Integer).multiple()],
    run: super::operate::delete_slots,
    ..Command::ROW
};

/// `CLUSTER DELSLOTSRANGE`.
pub static CLUSTER_DELSLOTSRANGE: Command = Command {
    name: "delslotsrange",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "7.0.0",
    complexity: "O(N) for N slots in the ranges",
    summary: "Makes this node serve some ranges of slots no more.",
    args: &[RANGE.multiple()],
    run: super::operate::delete_ranges,
    ..Command::ROW
};

/// `CLUSTER FLUSHSLOT`.
pub static CLUSTER_FLUSHSLOT: Command = Command {
    name: "flushslot",
    arity: -3,
    flags: Flags::WORLD
        .with(Flags::WRITE)
        .with(Flags::ADMIN)
        .with(Flags::NO_ASYNC_LOADING)
        .with(Flags::AUDITED),
    categories: &["keyspace"],
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N) for N keys in the slot",
    summary: "Deletes the keys of a slot.",
    args: &[
        Arg::new("slot", ArgKind::Integer),
        Arg::one_of("flush-type", &[Arg::token("async", "ASYNC"), Arg::token("sync", "SYNC")])
            .optional(),
    ],
    databases: Databases::All,
    routing: Routing::USUAL.applied(Applied::FlushSlot),
    run: super::answers::flush_slot,
    ..Command::ROW
};

/// `CLUSTER FLUSHSLOTS`.
pub static CLUSTER_FLUSHSLOTS: Command = Command {
    name: "flushslots",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Makes this node serve no slot.",
    run: super::operate::flush_slots,
    ..Command::ROW
};

/// `CLUSTER GETKEYSINSLOT`.
pub static CLUSTER_GETKEYSINSLOT: Command = Command {
    name: "getkeysinslot",
    arity: 4,
    flags: Flags::STALE,
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N keys that are asked for",
    summary: "Some keys of a slot.",
    tips: &["nondeterministic_output"],
    args: &[Arg::new("slot", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
    run: super::answers::get_keys_in_slot,
    ..Command::ROW
};

/// `CLUSTER KEYSLOT`.
pub static CLUSTER_KEYSLOT: Command = Command {
    name: "keyslot",
    arity: 3,
    flags: Flags::STALE,
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for a key of N bytes",
    summary: "Which slot a key belongs to.",
    args: &[Arg::new("key", ArgKind::String)],
    run: keyslot,
    ..Command::ROW
};

/// `CLUSTER SETSLOT`.
pub static CLUSTER_SETSLOT: Command = Command {
    name: "setslot",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "3.0.0",
    summary: "Says which node a slot belongs to, or moves to.",
    history: &[("8.0.0", "Takes `TIMEOUT`.")],
    args: &[
        Arg::new("slot", ArgKind::Integer),
        Arg::one_of(
            "subcommand",
            &[
                Arg::new("importing", ArgKind::String).after("IMPORTING").shown_as("node-id"),
                Arg::new("migrating", ArgKind::String).after("MIGRATING").shown_as("node-id"),
                Arg::new("node", ArgKind::String).after("NODE").shown_as("node-id"),
                Arg::token("stable", "STABLE"),
            ],
        ),
        Arg::new("timeout", ArgKind::Integer).after("TIMEOUT").since("8.0.0").optional(),
    ],
    run: super::operate::set_slot,
    ..Command::ROW
};

/// `CLUSTER SLOTS`.
pub static CLUSTER_SLOTS: Command = Command {
    name: "slots",
    arity: 2,
    categories: &["nodes"],
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(N) for N nodes of the cluster",
    summary: "Ranges of slots, with the nodes that serve them.",
    history: &[
        ("4.0.0", "The reply has the nodes' IDs."),
        ("7.0.0", "The reply has more of the nodes' addresses."),
        ("9.1.0", "The nodes' addresses have an `availability-zone`."),
    ],
    tips: &["nondeterministic_output"],
    run: super::answers::slots,
    ..Command::ROW
};

/// `CLUSTER SLOT-STATS`.
pub static CLUSTER_SLOT_STATS: Command = Command {
    name: "slot-stats",
    arity: -4,
    categories: &["nodes"],
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Cluster,
    since: "8.0.0",
    complexity: "O(N) for N slots, O(N*log(N)) if they are sorted (ORDERBY)",
    summary: "Figures about each slot that this node serves.",
    tips: &["nondeterministic_output", "request_policy:all_shards"],
    args: &[Arg::one_of(
        "filter",
        &[
            Arg::block(
                "slotsrange",
                &[Arg::new("start-slot", ArgKind::Integer), Arg::new("end-slot", ArgKind::Integer)],
            )
            .after("SLOTSRANGE"),
            Arg::block(
                "orderby",
                &[
                    Arg::new("metric", ArgKind::String),
                    Arg::new("limit", ArgKind::Integer).after("LIMIT").optional(),
                    Arg::one_of("order", &[Arg::token("asc", "ASC"), Arg::token("desc", "DESC")])
                        .optional(),
                ],
            )
            .after("ORDERBY"),
        ],
    )],
    run: super::slot_stats::slot_stats,
    ..Command::ROW
};

fn keyslot(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let slot = match cx.membership() {
        Some(published) => {
            published.slot_of(args.key(2)).ok_or_else(|| Error::unmatched(args[2]))?
        }
        None => structs::crc16::key_slot(args[2]),
    };
    cx.reply.integer(i64::from(slot));
    Ok(())
}
