//! `MULTI`, `EXEC`, `DISCARD`
//!
//! EXEC runs with the locks of every key that any queued command names, and of the watched keys (or
//! with the world stopped, if a queued command needs that), so the transaction is one step for
//! everybody else.

use crate::cluster::operate_together;
use engine::dispatch;
use engine::routing::{self, Applied, Routing, Way};
use engine::transaction::Multi;
use engine::watching::{is_watch_dirty, unwatch};
use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};

/// `MULTI`.
pub static MULTI: Command = Command {
    name: "multi",
    arity: 1,
    flags: Flags::NOT_QUEUED
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::NO_MULTI)
        .with(Flags::ALLOW_BUSY),
    group: Group::Transactions,
    since: "1.2.0",
    complexity: "O(1)",
    summary: "Begins a transaction: what follows is queued.",
    routing: Routing::by(Way::Session(routing::Session::Multi)).applied(Applied::Begin),
    run: multi,
    ..Command::ROW
};

/// `EXEC`.
pub static EXEC: Command = Command {
    name: "exec",
    arity: 1,
    flags: Flags::NOT_QUEUED
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::SKIP_COMMANDLOG)
        .with(Flags::RUNS_QUEUE),
    group: Group::Transactions,
    since: "1.2.0",
    complexity: "Those of the commands in the transaction",
    summary: "Runs what was queued, with nothing in between.",
    routing: Routing::by(Way::Session(routing::Session::Exec)).applied(Applied::End),
    run: exec,
    ..Command::ROW
};

/// `DISCARD`.
pub static DISCARD: Command = Command {
    name: "discard",
    arity: 1,
    flags: Flags::NOT_QUEUED
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::ALLOW_BUSY),
    group: Group::Transactions,
    since: "2.0.0",
    complexity: "O(N) for N queued commands",
    summary: "Drops what was queued.",
    routing: Routing::by(Way::Session(routing::Session::Discard)),
    run: discard,
    ..Command::ROW
};

fn multi(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    if cx.session.multi().is_some() {
        return Err(Error::text("ERR MULTI calls can not be nested"));
    }
    cx.session.set_multi(Some(Box::<Multi>::default()));
    cx.reply.ok();
    Ok(())
}

fn discard(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    if cx.session.take_multi().is_none() {
        return Err(Error::text("ERR DISCARD without MULTI"));
    }
    unwatch(&mut cx.db, cx.session);
    cx.reply.ok();
    Ok(())
}

fn exec(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let Some(multi) = cx.session.take_multi() else {
        return Err(Error::text("ERR EXEC without MULTI"));
    };
    let is_dirty = is_watch_dirty(&cx.db, cx.session);
    unwatch(&mut cx.db, cx.session);
    if multi.is_broken {
        return Err(Error::ExecAborted);
    }
    if is_dirty {
        cx.reply.null_array();
        return Ok(());
    }
    if operate_together(cx, &multi)? {
        return Ok(());
    }
    let exec = cx.resolved;
    cx.reply.array(multi.len());
    cx.begin_transaction();
    for queued in multi.queue() {
        let words = queued.words();
        if let Err(error) = dispatch::check_queued(cx, queued.row, Args::new(&words)) {
            cx.reply.error_bytes(&error.line());
            continue;
        }
        // A command that fails does not keep the others from running; the error is its reply.
        let _ = dispatch::run_nested(cx, queued.row, Args::new(&words));
    }
    cx.end_transaction();
    cx.resolved = exec;
    Ok(())
}
