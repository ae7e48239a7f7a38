//! `BGREWRITEAOF`: a snapshot becomes the new beginning of the append-only file.

use engine::routing::{About, Merge, Routing};
use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// `BGREWRITEAOF`.
pub static BGREWRITEAOF: Command = Command {
    name: "bgrewriteaof",
    arity: 1,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING),
    group: Group::Server,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Writes the append-only file anew, in the background.",
    routing: Routing::all(Merge::First, About::Server),
    run: bgrewriteaof,
    ..Command::ROW
};

fn bgrewriteaof(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let figures = &cx.engine.append_log.figures;
    if figures.is_rewriting.load(Acquire) {
        return Err(Error::text("ERR Background append only file rewriting already in progress"));
    }
    if cx.in_transaction || cx.engine.snapshots.is_running() {
        // An explicit request does not wait because of earlier failures.
        figures.consecutive_failures.store(0, Relaxed);
        figures.is_scheduled.store(true, Release);
        cx.reply.simple("Background append only file rewriting scheduled");
        return Ok(());
    }
    if !cx.engine.host().is_some_and(|host| host.rewrite_append_log()) {
        return Err(Error::text(
            "ERR Can't execute an AOF background rewriting. Please check the server logs for more \
             information.",
        ));
    }
    cx.reply.simple("Background append only file rewriting started");
    Ok(())
}
