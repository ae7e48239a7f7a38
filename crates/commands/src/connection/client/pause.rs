//! `CLIENT PAUSE`, `UNPAUSE`: holds back commands, or only writes, of all connections

use engine::mailbox::Message;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::Relaxed;

/// `CLIENT PAUSE`.
pub static CLIENT_PAUSE: Command = Command {
    name: "pause",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "3.0.0",
    complexity: "O(1)",
    summary: "Suspends commands processing.",
    history: &[("6.2.0", "`CLIENT PAUSE WRITE` mode added along with the `mode` option.")],
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
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(N) Where N is the number of paused clients",
    summary: "Resumes processing commands from paused clients.",
    run: client_unpause,
    ..Command::ROW
};

fn client_pause(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let timeout = args
        .integer(2)
        .map_err(|_| Error::text("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Error::text("ERR timeout is negative"));
    }
    let writes_only = match args.len() {
        3 => false,
        4 if args.is(3, "write") => true,
        4 if args.is(3, "all") => false,
        _ => return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let pause = &cx.engine.pause;
    let until = cx.now().0.saturating_add(timeout);
    // A pause is only ever made longer or stricter.
    let is_paused = pause.until_ms.load(Relaxed) > cx.now().0;
    pause
        .writes_only
        .store(writes_only && (!is_paused || pause.writes_only.load(Relaxed)), Relaxed);
    pause.until_ms.fetch_max(until, Relaxed);
    cx.reply.ok();
    Ok(())
}

fn client_unpause(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.engine.pause.until_ms.store(0, Relaxed);
    cx.engine.mailboxes.iter().for_each(|mailbox| mailbox.post(Message::Recheck));
    cx.reply.ok();
    Ok(())
}
