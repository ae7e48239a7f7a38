//! `CLIENT COMMIT-MODE`, `NO-EVICT`, `NO-TOUCH`, `REPLY`: how the server treats a connection

use config::CommitMode;
use engine::append_log::LogState;
use engine::session::ReplyMode;
use engine::{Arg, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `CLIENT COMMIT-MODE`, which only Dunlin has.
pub static CLIENT_COMMIT_MODE: Command = Command {
    name: "commit-mode",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "9.1.0",
    complexity: "O(1)",
    summary: "Which copies of a write must exist before its reply leaves.",
    args: &[Arg::one_of(
        "mode",
        &[
            Arg::token("memory", "MEMORY"),
            Arg::token("fsync", "FSYNC"),
            Arg::token("quorum", "QUORUM"),
            Arg::token("default", "DEFAULT"),
        ],
    )],
    run: client_commit_mode,
    ..Command::ROW
};

/// `CLIENT NO-EVICT`.
pub static CLIENT_NO_EVICT: Command = Command {
    name: "no-evict",
    arity: 3,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "7.0.0",
    complexity: "O(1)",
    summary: "Keeps this connection when clients have to be closed for memory.",
    args: &[Arg::one_of("enabled", &[Arg::token("on", "ON"), Arg::token("off", "OFF")])],
    run: client_no_evict,
    ..Command::ROW
};

/// `CLIENT NO-TOUCH`.
pub static CLIENT_NO_TOUCH: Command = Command {
    name: "no-touch",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "7.2.0",
    complexity: "O(1)",
    summary: "Makes reads of this connection leave access times alone.",
    args: &[Arg::one_of("enabled", &[Arg::token("on", "ON"), Arg::token("off", "OFF")])],
    run: client_no_touch,
    ..Command::ROW
};

/// `CLIENT REPLY`.
pub static CLIENT_REPLY: Command = Command {
    name: "reply",
    arity: 3,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::NO_MULTI)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::SETS_REPLY_MODE),
    group: Group::Connection,
    since: "3.2.0",
    complexity: "O(1)",
    summary: "Turns the replies of this connection off, or on again.",
    args: &[Arg::one_of(
        "action",
        &[Arg::token("on", "ON"), Arg::token("off", "OFF"), Arg::token("skip", "SKIP")],
    )],
    run: client_reply,
    ..Command::ROW
};

/// ON or OFF.
pub(super) fn parse_switch(args: Args<'_>) -> Result<bool, Error> {
    if args.is(2, "on") {
        Ok(true)
    } else if args.is(2, "off") {
        Ok(false)
    } else {
        Err(Error::Syntax)
    }
}

fn client_commit_mode(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mode = if args.is(2, "memory") {
        Some(CommitMode::Memory)
    } else if args.is(2, "fsync") {
        Some(CommitMode::Fsync)
    } else if args.is(2, "quorum") {
        Some(CommitMode::Quorum)
    } else if args.is(2, "default") {
        None
    } else {
        return Err(Error::Syntax);
    };
    if mode == Some(CommitMode::Fsync) && cx.engine.append_log.state() == LogState::Off {
        return Err(Error::text(
            "ERR commit mode fsync cannot be used when appendonly is disabled.",
        ));
    }
    cx.engine.set_commit_mode(cx.session, mode);
    cx.reply.ok();
    Ok(())
}

fn client_no_evict(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.session.no_evict = parse_switch(args)?;
    cx.reply.ok();
    Ok(())
}

fn client_no_touch(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.session.no_touch = parse_switch(args)?;
    cx.db.touches = !cx.session.no_touch;
    cx.reply.ok();
    Ok(())
}

fn client_reply(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mode = if args.is(2, "on") {
        cx.reply.ok();
        ReplyMode::On
    } else if args.is(2, "off") {
        ReplyMode::Off
    } else if args.is(2, "skip") {
        match cx.session.reply_mode() {
            ReplyMode::Off => ReplyMode::Off,
            _ => ReplyMode::Skip,
        }
    } else {
        return Err(Error::Syntax);
    };
    cx.session.set_reply_mode(mode);
    Ok(())
}
