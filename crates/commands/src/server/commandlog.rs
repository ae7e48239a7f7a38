//! `SLOWLOG GET|LEN|RESET` and `COMMANDLOG GET|LEN|RESET … slow|large-request|large-reply`

use crate::table::wrong_subcommand;
use engine::commandlog::Log;
use engine::routing::{Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `SLOWLOG GET`.
pub static SLOWLOG_GET: Command = Command {
    name: "get",
    arity: -2,
    flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.2.12",
    complexity: "O(N) for N entries in the reply",
    summary: "The commands that took long, the newest first.",
    history: &[("4.0.0", "Entries have the client's address and name.")],
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    args: &[Arg::new("count", ArgKind::Integer).optional()],
    run: slowlog_get,
    ..Command::ROW
};

/// `SLOWLOG HELP`.
pub static SLOWLOG_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `SLOWLOG LEN`.
pub static SLOWLOG_LEN: Command = Command {
    name: "len",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.2.12",
    complexity: "O(1)",
    summary: "How many commands the slow log holds.",
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    run: slowlog_len,
    ..Command::ROW
};

/// `SLOWLOG RESET`.
pub static SLOWLOG_RESET: Command = Command {
    name: "reset",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.2.12",
    complexity: "O(N) for N entries that are removed",
    summary: "Empties the slow log.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: slowlog_reset,
    ..Command::ROW
};

/// `SLOWLOG`.
pub static SLOWLOG: Command = Command {
    name: "slowlog",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "2.2.12",
    complexity: "That of the subcommand",
    summary: "The commands about requests that took long.",
    subcommands: &[&SLOWLOG_GET, &SLOWLOG_HELP, &SLOWLOG_LEN, &SLOWLOG_RESET],
    help: &[
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
    ],
    routing: Routing::by(Way::OneServer),
    ..Command::ROW
};

/// `COMMANDLOG GET`.
pub static COMMANDLOG_GET: Command = Command {
    name: "get",
    arity: 4,
    flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "8.1.0",
    complexity: "O(N) for N entries in the reply",
    summary: "Requests that were slow, or large, or had large replies.",
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    args: &[
        Arg::new("count", ArgKind::Integer),
        Arg::one_of(
            "type",
            &[
                Arg::token("slow", "SLOW"),
                Arg::token("large-request", "LARGE-REQUEST"),
                Arg::token("large-reply", "LARGE-REPLY"),
            ],
        ),
    ],
    run: commandlog_get,
    ..Command::ROW
};

/// `COMMANDLOG HELP`.
pub static COMMANDLOG_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "8.1.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `COMMANDLOG LEN`.
pub static COMMANDLOG_LEN: Command = Command {
    name: "len",
    arity: 3,
    flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "8.1.0",
    complexity: "O(1)",
    summary: "How many entries a command log has.",
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    args: &[Arg::one_of(
        "type",
        &[
            Arg::token("slow", "SLOW"),
            Arg::token("large-request", "LARGE-REQUEST"),
            Arg::token("large-reply", "LARGE-REPLY"),
        ],
    )],
    run: commandlog_len,
    ..Command::ROW
};

/// `COMMANDLOG RESET`.
pub static COMMANDLOG_RESET: Command = Command {
    name: "reset",
    arity: 3,
    flags: Flags::ADMIN
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "8.1.0",
    complexity: "O(N) for N entries that are removed",
    summary: "Empties a command log.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "type",
        &[
            Arg::token("slow", "SLOW"),
            Arg::token("large-request", "LARGE-REQUEST"),
            Arg::token("large-reply", "LARGE-REPLY"),
        ],
    )],
    run: commandlog_reset,
    ..Command::ROW
};

/// `COMMANDLOG`.
pub static COMMANDLOG: Command = Command {
    name: "commandlog",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "8.1.0",
    complexity: "That of the subcommand",
    summary: "The commands about requests that stood out.",
    subcommands: &[&COMMANDLOG_GET, &COMMANDLOG_HELP, &COMMANDLOG_LEN, &COMMANDLOG_RESET],
    help: &[
        "GET <count> <type>",
        "    Return top <count> entries of the specified <type> from the commandlog (-1 mean all).",
        "    Entries are made of:",
        "    id, timestamp,",
        "        time in microseconds for type of slow,",
        "        or size in bytes for type of large-request,",
        "        or size in bytes for type of large-reply",
        "    arguments array, client IP and port,",
        "    client name",
        "LEN <type>",
        "    Return the length of the specified type of commandlog.",
        "RESET <type>",
        "    Reset the specified type of commandlog.",
    ],
    routing: Routing::by(Way::OneServer),
    ..Command::ROW
};

fn parse_log(args: Args<'_>, index: usize) -> Result<Log, Error> {
    for (name, log) in [
        ("slow", Log::Slow),
        ("large-request", Log::LargeRequest),
        ("large-reply", Log::LargeReply),
    ] {
        if args.is(index, name) {
            return Ok(log);
        }
    }
    Err(Error::text("ERR type should be one of the following: slow, large-request, large-reply"))
}

/// −1 asks for all entries.
fn parse_count(args: Args<'_>, index: usize) -> Result<Option<usize>, Error> {
    let count =
        args.integer_in(index, -1..=i64::MAX, "count should be greater than or equal to -1")?;
    Ok(usize::try_from(count).ok())
}

fn get(cx: &mut Cx<'_>, log: Log, count: Option<usize>) -> Outcome {
    let entries = cx.engine.commandlogs.get(log, count);
    cx.reply.array(entries.len());
    for entry in &entries {
        cx.reply.array(6);
        cx.reply.integer(entry.id as i64);
        cx.reply.integer(entry.at_s);
        cx.reply.integer(entry.value);
        cx.reply.array(entry.argv.len());
        entry.argv.iter().for_each(|word| cx.reply.bulk(word));
        cx.reply.bulk(entry.addr.as_bytes());
        cx.reply.bulk(&entry.name);
    }
    Ok(())
}

fn len(cx: &mut Cx<'_>, log: Log) -> Outcome {
    cx.reply.integer(cx.engine.commandlogs.len(log) as i64);
    Ok(())
}

fn reset(cx: &mut Cx<'_>, log: Log) -> Outcome {
    cx.engine.commandlogs.reset(log);
    cx.reply.ok();
    Ok(())
}

fn slowlog_get(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(wrong_subcommand("SLOWLOG", args));
    }
    let count = if args.len() > 2 { parse_count(args, 2)? } else { Some(10) };
    get(cx, Log::Slow, count)
}
fn slowlog_len(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    len(cx, Log::Slow)
}
fn slowlog_reset(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    reset(cx, Log::Slow)
}
fn commandlog_get(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let count = parse_count(args, 2)?;
    get(cx, parse_log(args, 3)?, count)
}
fn commandlog_len(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    len(cx, parse_log(args, 2)?)
}
fn commandlog_reset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    reset(cx, parse_log(args, 2)?)
}
