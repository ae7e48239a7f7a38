//! `CLIENT PAUSE`, `UNPAUSE`: holds back commands, or only writes, of all connections

use engine::mailbox::recheck_all;
use engine::pause::Actions;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use keyspace::Millis;

/// `CLIENT PAUSE`.
pub static CLIENT_PAUSE: Command = Command {
    name: "pause",
    arity: -3,
    // With the world at rest: after the reply no write is still on its way.
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::WORLD)
        .with(Flags::AUDITED),
    group: Group::Connection,
    since: "3.0.0",
    complexity: "O(1)",
    summary: "Makes clients wait for a while.",
    history: &[("6.2.0", "Takes a `mode`, of which `WRITE` is new.")],
    args: &[
        Arg::new("timeout", ArgKind::Integer),
        Arg::one_of("mode", &[Arg::token("write", "WRITE"), Arg::token("all", "ALL")])
            .optional()
            .since("6.2.0"),
    ],
    run: client_pause,
    ..Command::ROW
};

/// `CLIENT UNPAUSE`.
pub static CLIENT_UNPAUSE: Command = Command {
    name: "unpause",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(N) for N clients that are paused",
    summary: "Ends CLIENT PAUSE.",
    run: client_unpause,
    ..Command::ROW
};

fn client_pause(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let actions = match args.len() {
        3 => Actions::All,
        4 if args.is(3, "write") => Actions::Writes,
        4 if args.is(3, "all") => Actions::All,
        _ => return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout = args
        .integer(2)
        .map_err(|_| Error::text("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Error::text("ERR timeout is negative"));
    }
    let until = cx.now().0.checked_add(timeout);
    let until = until.ok_or(Error::text("ERR timeout is out of range"))?;
    cx.engine.pause.begin(actions, Millis(until), cx.now());
    cx.reply.ok();
    Ok(())
}

fn client_unpause(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.engine.pause.end();
    recheck_all(&cx.engine.mailboxes);
    cx.reply.ok();
    Ok(())
}
