//! `ROLE`: whether the server is a primary, how far its replication history goes, and its replicas.

use engine::{Args, Command, Cx, Flags, Group, Outcome};

/// `ROLE`.
pub static ROLE: Command = Command {
    name: "role",
    arity: 1,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST),
    group: Group::Server,
    since: "2.8.12",
    summary: "Returns the replication role.",
    run: role,
    ..Command::ROW
};

fn role(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.array(3);
    cx.reply.bulk(b"master");
    cx.reply.integer(0);
    cx.reply.array(0);
    Ok(())
}
