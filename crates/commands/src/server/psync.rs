//! `PSYNC replicationid offset`, `SYNC`: a replica asks for the stream
//!
//! If the bytes from the offset on are kept, the reply is `+CONTINUE` and the stream follows.
//! Otherwise there is no reply yet: the thread that sends snapshots answers when one begins. A
//! replica that can take the snapshot over a second connection is told to open one, if the
//! configuration says so.
//!
//! A primary that hands over its role (FAILOVER) sends `PSYNC replicationid offset FAILOVER` to the
//! replica that takes it: that one is promoted, and the old primary follows it.

use engine::replicas::Begun;
use engine::routing::{Refusal, Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use replication::wire::Wanted;

const FLAGS: Flags =
    Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI);

/// `PSYNC`.
pub static PSYNC: Command = Command {
    name: "psync",
    arity: -3,
    categories: &["nodes"],
    flags: FLAGS,
    group: Group::Server,
    since: "2.8.0",
    complexity: "",
    summary: "How a replica asks for what it lacks, or for everything.",
    args: &[Arg::new("replicationid", ArgKind::String), Arg::new("offset", ArgKind::Integer)],
    // A promotion stops the world.
    needs_world: Some(|words| words.len() > 3),
    routing: Routing::by(Way::Refused(Refusal::Replica)),
    run: psync,
    ..Command::ROW
};

/// `SYNC`.
pub static SYNC: Command = Command {
    name: "sync",
    arity: 1,
    categories: &["nodes"],
    flags: FLAGS,
    group: Group::Server,
    since: "1.0.0",
    complexity: "",
    summary: "How an old replica asks for everything.",
    routing: Routing::by(Way::Refused(Refusal::Replica)),
    run: sync,
    ..Command::ROW
};

fn psync(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Some(wanted) = Wanted::parse(args[1], args[2]) else {
        if let Some(host) = cx.engine.host() {
            let replica = &cx.session.client.addr;
            host.warn(&format!(
                "Replica {replica} asks for synchronization but with a wrong offset"
            ));
        }
        return Err(Error::NotInteger);
    };
    if args.len() > 3 && args.is(3, "failover") {
        take_over(cx, args[1])?;
    }
    begin(cx, wanted)
}

/// The primary hands over its role.
fn take_over(cx: &Cx<'_>, id: &[u8]) -> Outcome {
    if !cx.engine.upstream.is_replica() {
        return Err(Error::text("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    if cx.engine.journal.history().id.as_str().as_bytes() != id {
        return Err(Error::text("ERR PSYNC FAILOVER replid must match my replid."));
    }
    super::replicaof::promote(cx, "failover");
    Ok(())
}

fn sync(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    begin(cx, Wanted::Everything)?;
    if let Some(link) = cx.engine.replicas.primary().link_mut(cx.session.id()) {
        // Valkey asks so for a snapshot over a second connection.
        link.is_old = !link.facts.rdb_channel;
    }
    Ok(())
}

fn begin(cx: &mut Cx<'_>, wanted: Wanted) -> Outcome {
    // A replica that asks again is ignored, as Redis does.
    if cx.session.is_replica() {
        return Ok(());
    }
    // No replica begins while the role is handed over.
    if cx.engine.failover.is_on() {
        return Err(Error::text("NOMASTERLINK Can't SYNC while failing over"));
    }
    let upstream = &cx.engine.upstream;
    if upstream.is_replica() && !upstream.is_link_up() {
        return Err(Error::text("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    let (engine, client) = (cx.engine, cx.session.id());
    let is_refused =
        engine.replicas.primary().link(client).is_some_and(|link| link.facts.is_filter_refused());
    if is_refused {
        return Err(Error::text("ERR Filtered replica requires EOF capability"));
    }
    let ip = super::replconf::ip_of(&cx.session.client);
    match engine.begin_replica(client, ip, wanted, cx.now()) {
        Begun::Stream(line) | Begun::Parallel(line) => cx.reply.raw(&line),
        Begun::AskAgain(line) => {
            cx.reply.raw(&line);
            return Ok(());
        }
        Begun::Snapshot => {}
    }
    cx.session.set_replica(true);
    Ok(())
}
