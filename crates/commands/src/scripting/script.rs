//! `SCRIPT DEBUG|EXISTS|FLUSH|KILL|LOAD|SHOW`

use engine::routing::{About, Applied, Merge, Refusal, Routing, Texts, Way};
use engine::scripting::add_script;
use engine::scripts::{Ended, Kill, Kind, answer_at_end};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

const SUB: Command = Command { group: Group::Scripting, since: "2.6.0", ..Command::ROW };

static DEBUG: Command = Command {
    name: "debug",
    arity: -3,
    flags: Flags::NOSCRIPT,
    since: "3.2.0",
    complexity: "O(1)",
    summary: "Chooses the debugger of scripts, which is not there.",
    args: &[
        Arg::one_of(
            "mode",
            &[Arg::token("yes", "YES"), Arg::token("sync", "SYNC"), Arg::token("no", "NO")],
        ),
        Arg::new("engine", ArgKind::String).optional().since("9.1.0"),
    ],
    routing: Routing::by(Way::Refused(Refusal::WholeConnection)),
    run: debug,
    ..SUB
};

static EXISTS: Command = Command {
    name: "exists",
    arity: -3,
    flags: Flags::NOSCRIPT.with(Flags::STALE),
    complexity: "O(N) for N hashes",
    summary: "Which scripts the server knows.",
    tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
    args: &[Arg::new("sha1", ArgKind::String).multiple()],
    run: exists,
    ..SUB
};

static FLUSH: Command = Command {
    name: "flush",
    arity: -2,
    flags: Flags::NOSCRIPT.with(Flags::STALE),
    complexity: "O(N) for N scripts that are kept",
    summary: "Forgets all scripts.",
    history: &[("6.2.0", "Takes `ASYNC` and `SYNC`.")],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::one_of("flush-type", &[Arg::token("async", "ASYNC"), Arg::token("sync", "SYNC")])
        .since("6.2.0")
        .optional()],
    routing: Routing::all(Merge::First, About::Scripts(Texts::Flush)),
    run: flush,
    ..SUB
};

static HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..SUB
};

static KILL: Command = Command {
    name: "kill",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
    complexity: "O(1)",
    summary: "Ends the script that runs, if it has not written.",
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    run: kill,
    ..SUB
};

static LOAD: Command = Command {
    name: "load",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::STALE),
    complexity: "O(N) for a script of N bytes",
    summary: "Keeps a script for EVALSHA, without a run.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::new("script", ArgKind::String)],
    routing: Routing::all(Merge::First, About::Scripts(Texts::Load)),
    run: load,
    ..SUB
};

static SHOW: Command = Command {
    name: "show",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::STALE),
    since: "8.0.0",
    complexity: "O(1).",
    summary: "The text of a script that the server knows.",
    args: &[Arg::new("sha1", ArgKind::String)],
    run: show,
    ..SUB
};

/// `SCRIPT`.
pub static SCRIPT: Command = Command {
    name: "script",
    arity: -2,
    complexity: "That of the subcommand",
    summary: "The commands about scripts that the server knows.",
    subcommands: &[&DEBUG, &EXISTS, &FLUSH, &HELP, &KILL, &LOAD, &SHOW],
    help: &[
        "DEBUG (YES|SYNC|NO) [<engine_name>]",
        "    Set the debug mode for subsequent scripts executed of the specified engine.",
        "    Default engine name: 'lua'",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Flush the Lua scripts cache. Very dangerous on replicas.",
        "    When called without the optional mode argument, the behavior is determined",
        "     by the lazyfree-lazy-user-flush configuration directive. Valid modes are:",
        "    * ASYNC: Asynchronously flush the scripts cache.",
        "    * SYNC: Synchronously flush the scripts cache.",
        "KILL",
        "    Kill the currently executing Lua script.",
        "LOAD <script>",
        "    Load a script into the scripts cache without executing it.",
        "SHOW <sha1>",
        "    Show a script from the scripts cache.",
    ],
    routing: Routing::USUAL.applied(Applied::Skip),
    ..SUB
};

/// There is no debugger; that a client switches it off is fine.
fn debug(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.is(2, "no") {
        cx.reply.ok();
        return Ok(());
    }
    if args.is(2, "yes") || args.is(2, "sync") {
        return Err(Error::text("ERR This server has no debugger for scripts"));
    }
    Err(Error::text("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

fn exists(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.reply.array(args.len() - 2);
    for word in args.from(2) {
        let found = engine::scripts::parse_sha(word)
            .is_some_and(|sha| cx.engine.scripts.cache.get(&sha).is_some());
        cx.reply.integer(i64::from(found));
    }
    Ok(())
}

fn flush(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_mode = args.is(2, "async") || args.is(2, "sync");
    if args.len() > 3 || (args.len() == 3 && !is_mode) {
        return Err(Error::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    cx.engine.scripts.cache.flush();
    cx.reply.ok();
    Ok(())
}

fn unkillable() -> Error {
    Error::text(
        "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
         either wait the script termination or kill the server in a hard way using the SHUTDOWN \
         NOSAVE command.",
    )
}

/// Ends running scripts of a kind. The reply comes when they have ended, so that no other client is
/// told after it that the server is busy.
pub(super) fn kill_running(cx: &mut Cx<'_>, kind: Kind) -> Outcome {
    match cx.engine.scripts.running.kill(kind) {
        Kill::Done(_) if cx.in_transaction => {
            cx.reply.ok();
            Ok(())
        }
        Kill::Done(scripts) => {
            let reply = cx.late_reply();
            let answer = move |ended| {
                reply.send(|reply| match ended {
                    Ended::Yes => reply.ok(),
                    Ended::HasWritten => {
                        reply.error_bytes(&unkillable().line());
                    }
                });
            };
            answer_at_end(&scripts, Box::new(answer));
            Ok(())
        }
        Kill::NotBusy => Err(Error::text("NOTBUSY No scripts in execution right now.")),
        Kill::Unkillable => Err(unkillable()),
        Kill::OtherKind => Err(engine::scripting::busy_error(cx.engine)),
    }
}

fn kill(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    kill_running(cx, Kind::Script)
}

fn load(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let script = add_script(cx, args[2], true)?;
    let digits: String = script.sha.iter().map(|byte| format!("{byte:02x}")).collect();
    cx.reply.bulk(digits.as_bytes());
    Ok(())
}

fn show(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let found =
        engine::scripts::parse_sha(args[2]).and_then(|sha| cx.engine.scripts.cache.get(&sha));
    let script = found.ok_or(Error::text("NOSCRIPT No matching script."))?;
    cx.reply.bulk(&script.source);
    Ok(())
}
