//! `REPLICAOF host port`, `REPLICAOF NO ONE`, and the same by its old name `SLAVEOF`
//!
//! Whatever the server was before, the role changes at once, between two commands of all clients;
//! the link follows. It runs with the world stopped, so that a promotion stands at a whole prefix
//! of the stream.

use crate::connection::list_line;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use structs::numbers::parse_i64;

const FLAGS: Flags = Flags::WORLD
    .with(Flags::ADMIN)
    .with(Flags::NOSCRIPT)
    .with(Flags::STALE)
    .with(Flags::NO_ASYNC_LOADING)
    .with(Flags::ENDS_REPLICA_LOAD)
    .with(Flags::AUDITED);

const ARGS: &[Arg] = &[Arg::one_of(
    "args",
    &[
        Arg::block(
            "host-port",
            &[Arg::new("host", ArgKind::String), Arg::new("port", ArgKind::Integer)],
        ),
        Arg::block("no-one", &[Arg::token("no", "NO"), Arg::token("one", "ONE")]),
    ],
)];

/// `REPLICAOF`.
pub static REPLICAOF: Command = Command {
    name: "replicaof",
    arity: 3,
    flags: FLAGS,
    group: Group::Server,
    since: "5.0.0",
    summary: "Makes this server the replica of another, or a primary.",
    args: ARGS,
    run: replicaof,
    ..Command::ROW
};

/// `SLAVEOF`.
pub static SLAVEOF: Command = Command {
    name: "slaveof",
    arity: 3,
    flags: FLAGS,
    group: Group::Server,
    since: "1.0.0",
    summary: "The old name of REPLICAOF.",
    deprecated: Some(("5.0.0", "`REPLICAOF`")),
    args: ARGS,
    run: replicaof,
    ..Command::ROW
};

fn replicaof(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if cx.engine.membership.is_on() {
        return Err(Error::text("ERR REPLICAOF not allowed in cluster mode."));
    }
    if cx.engine.failover.is_on() {
        return Err(Error::text("ERR REPLICAOF not allowed while failing over."));
    }
    if args.is(1, "no") && args.is(2, "one") {
        promote(cx, "user");
        cx.reply.ok();
        return Ok(());
    }
    if cx.engine.loading.is_on() || cx.engine.loading.is_beside() {
        return Err(Error::Loading);
    }
    if cx.session.is_replica() {
        return Err(Error::text("ERR Command is not valid when client is a replica."));
    }
    let port = parse_i64(args[2])
        .and_then(|port| u16::try_from(port).ok())
        .ok_or(Error::text("ERR Invalid master port"))?;
    let host = std::str::from_utf8(args[1]).map_err(|_| Error::text("ERR Invalid master host"))?;
    if cx.engine.upstream.link().primary == Some((host.to_owned(), port)) {
        cx.reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    let recorded = cx.engine.config.record_primary(Some((host, port)));
    recorded.map_err(|why| Error::format(format!("ERR {why}")))?;
    if !cx.engine.upstream.is_replica() {
        log(
            cx,
            "Before turning into a replica, using my own master parameters to synthesize a cached \
             master: I may be able to synchronize with the new master with just a partial transfer.",
        );
    }
    cx.engine.follow(host, port);
    let line = format!("REPLICAOF {host}:{port} enabled (user request from '{}')", caller(cx));
    log(cx, &line);
    cx.reply.ok();
    Ok(())
}

/// This server becomes a primary, if it is none; `by`: what asked for that, in the log. The world
/// is stopped.
pub(super) fn promote(cx: &Cx<'_>, by: &str) {
    let engine = cx.engine;
    if !engine.upstream.is_replica() {
        return;
    }
    engine.stop_following();
    engine.config.record_primary(None).expect("there need not be a primary");
    let history = engine.journal.history();
    if let Some((second, last)) = history.second {
        let line = format!(
            "Setting secondary replication ID to {second}, valid up to offset: {}. New replication \
             ID is {}",
            last.0 + 1,
            history.id
        );
        log(cx, &line);
    }
    let line = format!("MASTER MODE enabled ({by} request from '{}')", caller(cx));
    log(cx, &line);
}

fn caller(cx: &Cx<'_>) -> String {
    list_line::line(cx.engine, &cx.session.client, cx.now().0).trim_end().to_owned()
}

pub(super) fn log(cx: &Cx<'_>, line: &str) {
    if let Some(host) = cx.engine.host() {
        host.log(line);
    }
}
