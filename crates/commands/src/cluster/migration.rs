//! `CLUSTER` subcommands that move slots with their keys.

use engine::{Arg, ArgKind, Command, Flags, Group};

/// `CLUSTER CANCELSLOTMIGRATIONS`.
pub static CLUSTER_CANCELSLOTMIGRATIONS: Command = Command {
    name: "cancelslotmigrations",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N), where N is the number of slot migration operations being cancelled.",
    summary: "Ends the moving of slots that is under way.",
    run: super::disabled,
    ..Command::ROW
};

/// `CLUSTER GETSLOTMIGRATIONS`.
pub static CLUSTER_GETSLOTMIGRATIONS: Command = Command {
    name: "getslotmigrations",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N), where N is the number of active slot import and export jobs.",
    summary: "Which slots are moving, or have moved lately.",
    run: super::disabled,
    ..Command::ROW
};

/// `CLUSTER MIGRATESLOTS`.
pub static CLUSTER_MIGRATESLOTS: Command = Command {
    name: "migrateslots",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N) where N is the total number of the slots between all start slot and end slot arguments.",
    summary: "Moves slots to other nodes.",
    args: &[Arg::block(
        "migration-group",
        &[
            Arg::token("slotsrange-token", "SLOTSRANGE"),
            Arg::block(
                "range",
                &[Arg::new("start-slot", ArgKind::Integer), Arg::new("end-slot", ArgKind::Integer)],
            )
            .multiple(),
            Arg::token("node-token", "NODE"),
            Arg::new("node-id", ArgKind::String),
        ],
    )
    .multiple()],
    run: super::disabled,
    ..Command::ROW
};

/// `CLUSTER SYNCSLOTS`.
pub static CLUSTER_SYNCSLOTS: Command = Command {
    name: "syncslots",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::SYSCMD),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "Depends on subcommand.",
    summary: "What nodes send each other while slots move.",
    run: super::disabled,
    ..Command::ROW
};
