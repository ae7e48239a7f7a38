//! `MONITOR`: from now on the client is told of every command.

use engine::routing::{Refusal, Routing, Way};
use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};

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
    if !cx.session.set_monitor(true) {
        cx.engine.add_monitor();
        cx.session.publish(cx.now().0);
    }
    cx.reply.ok();
    Ok(())
}
