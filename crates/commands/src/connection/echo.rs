//! `ECHO message`

use engine::routing::{Local, Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, Outcome};

/// `ECHO`.
pub static ECHO: Command = Command {
    name: "echo",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST).with(Flags::OUTSIDE),
    group: Group::Connection,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Answers with its argument.",
    args: &[Arg::new("message", ArgKind::String)],
    routing: Routing::by(Way::Local(Local::Echo)),
    run: echo,
    ..Command::ROW
};

fn echo(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.reply.bulk(args[1]);
    Ok(())
}
