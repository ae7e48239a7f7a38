//! `WATCH key [key …]`, `UNWATCH`

use engine::routing::{self, Routing, Way};
use engine::watching;
use engine::{Arg, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `WATCH`.
pub static WATCH: Command = Command {
    name: "watch",
    arity: -2,
    flags: Flags::NOT_QUEUED
        .with(Flags::NO_VALUES)
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::NO_MULTI)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::WATCHES),
    keys: &[KeySpec::rest(1, 1, KeyFlags::RO)],
    group: Group::Transactions,
    since: "2.2.0",
    complexity: "O(N) for N keys",
    effort: Effort::Words(8),
    summary: "Makes EXEC fail if one of these keys changes before it.",
    args: &[Arg::key("key", 0).multiple()],
    routing: Routing::by(Way::Session(routing::Session::Watch)),
    run: watch,
    ..Command::ROW
};

/// `UNWATCH`.
pub static UNWATCH: Command = Command {
    name: "unwatch",
    arity: 1,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::ALLOW_BUSY),
    group: Group::Transactions,
    since: "2.2.0",
    complexity: "O(1)",
    summary: "Ends WATCH.",
    routing: Routing::by(Way::Session(routing::Session::Unwatch)),
    run: unwatch,
    ..Command::ROW
};

fn watch(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if cx.session.multi().is_some() {
        return Err(Error::text("ERR WATCH inside MULTI is not allowed"));
    }
    for index in 1..args.len() {
        watching::watch(cx, args.key(index));
    }
    cx.reply.ok();
    Ok(())
}

fn unwatch(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    watching::unwatch(&mut cx.db, cx.session);
    cx.reply.ok();
    Ok(())
}
