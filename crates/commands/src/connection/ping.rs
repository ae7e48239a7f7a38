//! `PING [message]`

use engine::routing::{Applied, Local, Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, Outcome, Protocol};

/// `PING`.
pub static PING: Command = Command {
    name: "ping",
    arity: -1,
    flags: Flags::FAST
        .with(Flags::WHILE_SUBSCRIBED)
        .with(Flags::REPORTS_HEALTH)
        .with(Flags::OUTSIDE),
    group: Group::Connection,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Answers PONG, or with its argument.",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::new("message", ArgKind::String).optional()],
    routing: Routing::by(Way::Local(Local::Ping)).applied(Applied::Skip),
    run: ping,
    ..Command::ROW
};

fn ping(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 {
        return Err(engine::Error::Arity("ping".into()));
    }
    if cx.session.is_subscribed() && cx.reply.protocol() == Protocol::Resp2 {
        cx.reply.array(2);
        cx.reply.bulk(b"pong");
        cx.reply.bulk(args.get(1).unwrap_or_default());
        return Ok(());
    }
    if cx.engine.scripts.running.is_busy() && is_sentinel(cx) {
        return Err(engine::scripting::busy_error(cx.engine));
    }
    match args.get(1) {
        Some(message) => cx.reply.bulk(message),
        None => cx.reply.simple("PONG"),
    }
    Ok(())
}

/// Whether the client is a sentinel, by the name that it gives itself. It ends a script only if it
/// is told of it by PING's reply.
#[cold]
fn is_sentinel(cx: &Cx<'_>) -> bool {
    let name = &structs::sync::lock(&cx.session.client.names).name;
    name.starts_with(b"sentinel-") && name.ends_with(b"-cmd")
}
