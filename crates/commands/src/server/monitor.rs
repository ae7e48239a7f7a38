//! `MONITOR`: from now on the client is told of every command.

use engine::routing::{Refusal, Routing, Way};
use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::Relaxed;

/// `MONITOR`.
pub static MONITOR: Command = Command {
    name: "monitor",
    arity: 1,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Server,
    since: "1.0.0",
    complexity: "",
    summary: "Shows every request as it comes.",
    routing: Routing::by(Way::Refused(Refusal::WholeConnection)),
    run: monitor,
    ..Command::ROW
};

fn monitor(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    if cx.in_transaction {
        return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !std::mem::replace(&mut cx.session.is_monitor, true) {
        cx.engine.monitors().fetch_add(1, Relaxed);
        cx.session.publish(cx.now().0);
    }
    cx.reply.ok();
    Ok(())
}
