//! `ASKING`, `READONLY`, `READWRITE`: what a client of a cluster says of its next requests.
//!
//! A server that is no node serves all keys to all clients, so READONLY and READWRITE change nothing.

use engine::{Args, Command, Cx, Flags, Group, Outcome};

/// `ASKING`.
pub static ASKING: Command = Command {
    name: "asking",
    arity: 1,
    flags: Flags::FAST,
    group: Group::Cluster,
    categories: &["connection"],
    since: "3.0.0",
    summary: "Signals that a cluster client is following an -ASK redirect.",
    run: super::disabled,
    ..Command::ROW
};

/// `READONLY`.
pub static READONLY: Command = Command {
    name: "readonly",
    arity: 1,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
    group: Group::Cluster,
    categories: &["connection"],
    since: "3.0.0",
    summary: "Enables read-only queries for a connection to a Valkey replica node.",
    run: ok,
    ..Command::ROW
};

/// `READWRITE`.
pub static READWRITE: Command = Command {
    name: "readwrite",
    arity: 1,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
    group: Group::Cluster,
    categories: &["connection"],
    since: "3.0.0",
    summary: "Enables read-write queries for a connection to a Valkey replica node.",
    run: ok,
    ..Command::ROW
};

fn ok(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.ok();
    Ok(())
}
