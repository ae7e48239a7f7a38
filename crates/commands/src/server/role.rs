//! `ROLE`: the role of this server in replication, and its replicas

use engine::routing::{Routing, Way};
use engine::{Args, Command, Cx, Flags, Group, Outcome, View};
use replication::primary::Stage;
use replication::replica::Stage::Following;

/// `ROLE`.
pub static ROLE: Command = Command {
    name: "role",
    arity: 1,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["admin", "dangerous"],
    since: "2.8.12",
    summary: "Whether this is a primary or a replica, and of which servers.",
    routing: Routing::by(Way::OneServer),
    run: role,
    ..Command::ROW
};

fn role(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    // One server is a primary, and its copies are its own affair.
    let is_one = cx.described_view() == View::OneServer;
    let link = cx.engine.upstream.link().clone();
    if let Some((host, port)) = link.primary.filter(|_| !is_one) {
        let position = cx.engine.journal.position().0 as i64;
        cx.reply.array(5);
        cx.reply.bulk(b"slave");
        cx.reply.bulk(host.as_bytes());
        cx.reply.integer(i64::from(port));
        cx.reply.bulk(link.stage.name().as_bytes());
        cx.reply.integer(if link.stage == Following { position } else { -1 });
        return Ok(());
    }
    let primary = cx.engine.replicas.primary();
    let online = primary.replicas().filter(|link| link.stage == Stage::Online && !is_one);
    let online: Vec<_> = online.collect();
    cx.reply.array(3);
    cx.reply.bulk(b"master");
    cx.reply.integer(cx.engine.journal.position().0 as i64);
    cx.reply.array(online.len());
    for link in online {
        cx.reply.array(3);
        cx.reply.bulk(link.shown_ip().as_bytes());
        cx.reply.bulk(link.facts.port.to_string().as_bytes());
        cx.reply.bulk(link.acknowledged().0.to_string().as_bytes());
    }
    Ok(())
}
