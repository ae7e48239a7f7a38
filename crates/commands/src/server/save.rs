//! `SAVE`, `BGSAVE [SCHEDULE|CANCEL]`, `LASTSAVE`
//!
//! Both write in the background: SAVE keeps only its own client waiting. It may have to wait for a
//! rewrite of the append-only file to end first, which Redis runs beside it.

use engine::engine::OnConflict;
use engine::persistence::Outcome;
use engine::routing::{About, Merge, Routing};
use engine::snapshot::AlreadyRunning;
use engine::{Arg, Args, Command, Cx, Error, Flags, Group};
use std::sync::atomic::Ordering::Relaxed;

/// `SAVE`.
pub static SAVE: Command = Command {
    name: "save",
    arity: 1,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI),
    group: Group::Server,
    since: "1.0.0",
    complexity: "O(N) for N keys in all databases",
    summary: "Writes all databases to disk, and answers when that is done.",
    run: save,
    ..Command::ROW
};

/// `BGSAVE`.
pub static BGSAVE: Command = Command {
    name: "bgsave",
    arity: -1,
    flags: Flags::WORLD.with(Flags::ADMIN).with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING),
    group: Group::Server,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Writes all databases to disk, in the background.",
    history: &[("3.2.2", "Takes `SCHEDULE`."), ("8.1.0", "Takes `CANCEL`.")],
    args: &[Arg::one_of(
        "operation",
        &[
            Arg::token("schedule", "SCHEDULE").since("3.2.2"),
            Arg::token("cancel", "CANCEL").since("8.1.0"),
        ],
    )
    .optional()],
    routing: Routing::all(Merge::First, About::Server),
    run: bgsave,
    ..Command::ROW
};

/// `LASTSAVE`.
pub static LASTSAVE: Command = Command {
    name: "lastsave",
    arity: 1,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["admin", "dangerous"],
    since: "1.0.0",
    complexity: "O(1)",
    summary: "When the databases were last written to disk.",
    tips: &["nondeterministic_output"],
    routing: Routing::all(Merge::Min, About::Server),
    run: lastsave,
    ..Command::ROW
};

const IN_PROGRESS: Error = Error::text("ERR Background save already in progress");

fn is_saving(cx: &Cx<'_>) -> bool {
    cx.engine.persistence.running_seconds().is_some()
}

fn is_rewriting(cx: &Cx<'_>) -> bool {
    cx.engine.append_log.figures.is_rewriting.load(Relaxed)
}

fn save(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<(), Error> {
    if is_saving(cx) {
        return Err(IN_PROGRESS);
    }
    let engine = cx.engine;
    let Some(host) = engine.host() else { return Err(Error::text("ERR There is no disk")) };
    let reply = cx.late_reply();
    let done = move |outcome| {
        reply.send(|reply| match outcome {
            Outcome::Saved => reply.ok(),
            Outcome::Failed | Outcome::Cancelled => reply.error("ERR"),
        });
    };
    host.save_apart(OnConflict::Wait, Box::new(done));
    Ok(())
}

fn bgsave(cx: &mut Cx<'_>, args: Args<'_>) -> Result<(), Error> {
    let is_schedule = args.len() == 2 && args.is(1, "schedule");
    if args.len() == 2 && args.is(1, "cancel") {
        return cancel(cx);
    } else if args.len() > 1 && !is_schedule {
        return Err(Error::Syntax);
    }
    if is_saving(cx) {
        return Err(IN_PROGRESS);
    }
    let engine = cx.engine;
    let Some(host) = engine.host() else { return Err(Error::text("ERR There is no disk")) };
    if cx.in_transaction {
        engine.persistence.schedule();
        host.log("Background saving scheduled to run after transaction execution");
        cx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    // A rewrite that has only just begun may have no snapshot yet.
    let begun = if is_rewriting(cx) { Err(AlreadyRunning) } else { cx.db.begin_snapshot() };
    match begun {
        Ok(snapshot) => {
            host.save_in_background(snapshot);
            cx.reply.simple("Background saving started");
        }
        Err(AlreadyRunning) if is_schedule => {
            engine.persistence.schedule();
            host.log("Background saving scheduled due to user request");
            cx.reply.simple("Background saving scheduled");
        }
        // Somebody's SAVE.
        Err(AlreadyRunning) if !is_rewriting(cx) => return Err(IN_PROGRESS),
        Err(AlreadyRunning) => {
            return Err(Error::text(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
                 SCHEDULE in order to schedule a BGSAVE whenever possible.",
            ));
        }
    }
    Ok(())
}

fn cancel(cx: &mut Cx<'_>) -> Result<(), Error> {
    let engine = cx.engine;
    let log = |line: &str| {
        if let Some(host) = engine.host() {
            host.log(line);
        }
    };
    if is_saving(cx) {
        log("Background saving will be aborted due to user request");
        engine.persistence.end_running();
        cx.reply.simple("Background saving cancelled");
    } else if engine.persistence.take_scheduled() {
        log("Scheduled background saving will be cancelled due to user request");
        cx.reply.simple("Scheduled background saving cancelled");
    } else {
        return Err(Error::text("ERR Background saving is currently not in progress or scheduled"));
    }
    Ok(())
}

fn lastsave(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<(), Error> {
    cx.reply.integer(cx.engine.persistence.last_save_s());
    Ok(())
}
