//! `QUIT`: closes the connection once the replies before it are sent.

use engine::routing::{Local, Routing, Way};
use engine::session::Fate;
use engine::{Args, Command, Cx, Flags, Group, Outcome};

/// `QUIT`.
pub static QUIT: Command = Command {
    name: "quit",
    arity: -1,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::NO_AUTH)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::NOT_QUEUED)
        .with(Flags::WHILE_SUBSCRIBED),
    group: Group::Connection,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Closes this connection.",
    routing: Routing::by(Way::Local(Local::Quit)),
    run: quit,
    ..Command::ROW
};

fn quit(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.ok();
    cx.session.fate = Fate::CloseAfterReplies;
    Ok(())
}
