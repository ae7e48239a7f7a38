//! `ASKING`, `READONLY`, `READWRITE`: what a client of a cluster says of its next requests.
//!
//! READONLY and READWRITE also say whether a client that can be sent to another server (`CLIENT
//! CAPA redirect`) reads from a replica.

use engine::routing::{Local, Routing, Way};
use engine::{Args, Command, Cx, Flags, Group, Outcome, View};

/// `ASKING`.
pub static ASKING: Command = Command {
    name: "asking",
    arity: 1,
    flags: Flags::FAST,
    group: Group::Cluster,
    categories: &["connection"],
    since: "3.0.0",
    summary: "Lets the next command reach a slot that is just arriving.",
    routing: Routing::by(Way::Local(Local::Asking)),
    run: asking,
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
    summary: "Lets this connection read from a replica.",
    routing: Routing::by(Way::Local(Local::Asking)),
    run: readonly,
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
    summary: "Ends READONLY.",
    routing: Routing::by(Way::Local(Local::Asking)),
    run: readwrite,
    ..Command::ROW
};

fn readonly(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.session.reads_replica = true;
    cx.reply.ok();
    Ok(())
}

fn readwrite(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.session.reads_replica = false;
    cx.reply.ok();
    Ok(())
}

fn asking(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    if cx.view() != View::Node {
        return Err(super::DISABLED);
    }
    cx.session.asking = true;
    cx.reply.ok();
    Ok(())
}
