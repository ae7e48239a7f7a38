//! `RESET`: the connection is as if it were new, but for its number.

use engine::dispatch;
use engine::routing::{Local, Routing, Way};
use engine::session::ReplyMode;
use engine::{Args, Command, Cx, DbIndex, Flags, Group, Outcome, Protocol};
use std::sync::atomic::Ordering::Relaxed;

/// `RESET`.
pub static RESET: Command = Command {
    name: "reset",
    arity: 1,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::NO_AUTH)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::NOT_QUEUED)
        .with(Flags::WHILE_SUBSCRIBED),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Puts this connection back into its first state.",
    routing: Routing::by(Way::Local(Local::Reset)),
    run: reset,
    ..Command::ROW
};

fn reset(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    dispatch::deliver_last_pushes(cx);
    cx.track_no_more_elsewhere();
    dispatch::release_everything(&mut cx.db, cx.session);
    let session = &mut *cx.session;
    session.db = DbIndex(0);
    session.protocol = Protocol::Resp2;
    session.set_authenticated(cx.engine.acl.is_open());
    session.user = cx.engine.acl.default_user();
    session.client.names().user = session.user.name().to_owned();
    session.set_reply_mode(ReplyMode::On);
    session.no_touch = false;
    session.is_import_source = false;
    session.no_evict = false;
    session.reads_replica = false;
    session.asking = false;
    session.client.live.notices.store(0, Relaxed);
    session.rename(|names| names.name.clear());
    cx.db.index = DbIndex(0);
    cx.db.touches = true;
    cx.db.set_import_source(false);
    cx.reply.set_protocol(Protocol::Resp2);
    cx.reply.simple("RESET");
    Ok(())
}
