//! `CONFIG GET`, `SET`, `REWRITE`, `RESETSTAT`

use crate::cluster::{SHARED, define};
use config::{SetContext, SetError};
use engine::membership::{Definition, Request};
use engine::routing::{About, Merge, Routing};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome, dispatch};

/// `CONFIG GET`.
pub static CONFIG_GET: Command = Command {
    name: "get",
    arity: -3,
    categories: &["nodes"],
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.0.0",
    complexity: "O(N) for N options or patterns",
    summary: "The values of options whose names match.",
    history: &[("7.0.0", "Takes several patterns.")],
    args: &[Arg::new("parameter", ArgKind::String).multiple()],
    routing: Routing::all(Merge::First, About::Server),
    run: config_get,
    ..Command::ROW
};

/// `CONFIG HELP`.
pub static CONFIG_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `CONFIG RESETSTAT`.
pub static CONFIG_RESETSTAT: Command = Command {
    name: "resetstat",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "Sets the counters of INFO to zero.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: config_resetstat,
    ..Command::ROW
};

/// `CONFIG REWRITE`.
pub static CONFIG_REWRITE: Command = Command {
    name: "rewrite",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.8.0",
    complexity: "O(1)",
    summary: "Brings the configuration file up to date.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: config_rewrite,
    ..Command::ROW
};

/// `CONFIG SET`.
pub static CONFIG_SET: Command = Command {
    name: "set",
    arity: -4,
    categories: &["nodes"],
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.0.0",
    complexity: "O(N) for N options or patterns",
    summary: "Changes options while the server runs.",
    history: &[("7.0.0", "Takes several options.")],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::block(
        "data",
        &[Arg::new("parameter", ArgKind::String), Arg::new("value", ArgKind::String)],
    )
    .multiple()],
    secrets: Some(secrets),
    run: config_set,
    ..Command::ROW
};

/// `CONFIG`.
pub static CONFIG: Command = Command {
    name: "config",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "2.0.0",
    complexity: "That of the subcommand",
    summary: "The commands about options.",
    subcommands: &[&CONFIG_GET, &CONFIG_HELP, &CONFIG_RESETSTAT, &CONFIG_REWRITE, &CONFIG_SET],
    help: &[
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "REWRITE",
        "    Rewrite the configuration file.",
    ],
    ..Command::ROW
};

fn config_get(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut found = cx.engine.config.get(args.from(2));
    found.sort();
    cx.reply.map(found.len());
    for (name, value) in &found {
        cx.reply.bulk(name);
        cx.reply.bulk(value);
    }
    Ok(())
}

fn secrets(words: &[&[u8]], found: &mut dyn FnMut(usize)) {
    for at in (2..words.len()).step_by(2) {
        if config::is_sensitive(words[at]) {
            found(at + 1);
        }
    }
}

fn config_set(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let words = args.from(2);
    if !words.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let pairs: Vec<(&[u8], &[u8])> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let loading = &cx.engine.loading;
    let context = SetContext {
        is_local: cx.session.is_local,
        is_loading: loading.is_on() || loading.is_beside(),
    };
    let (engine, in_transaction) = (cx.engine, cx.in_transaction);
    // As the client writes it: CONFIG GET leaves out the `n` beside an `A`.
    let shared = match cx.shares_options() {
        true => pairs.iter().rfind(|pair| pair.0.eq_ignore_ascii_case(b"notify-keyspace-events")),
        false => None,
    };
    if shared.is_some() && in_transaction {
        return Err(SHARED);
    }
    let set = engine.config.set(&pairs, context, &mut |changed| match engine.host() {
        Some(host) => host.apply_config(changed, in_transaction),
        None => Ok(()),
    });
    match set {
        Ok(changed) => {
            let has_changed = |name| changed.iter().any(|option| option.spec.name() == name);
            if has_changed("requirepass") {
                engine.acl.require_password(&engine.config.requirepass());
            }
            if has_changed("notify-keyspace-events") {
                // Commands that have begun may yet publish what is not asked for any more.
                cx.wait_for_running_commands();
                dispatch::deliver_last_pushes(cx);
            }
            // Files that may be moved or copied with the reply.
            let has_log_ended = !engine.config.appendonly() && has_changed("appendonly");
            let has_room_ended = engine.config.aof_preallocation_size() == 0
                && has_changed("aof-preallocation-size");
            let waits = (has_log_ended || has_room_ended) && !in_transaction;
            let definition = shared
                .map(|(_, value)| Definition::Events(String::from_utf8_lossy(value).into_owned()));
            match (engine.host().filter(|_| waits), definition) {
                (Some(host), definition) => {
                    let reply = cx.late_reply();
                    host.settle_append_log(Box::new(move || match definition {
                        Some(definition) => host.operate(Request::Define(definition), reply),
                        None => reply.send(|reply| reply.ok()),
                    }));
                }
                (None, Some(definition)) => return define(cx, definition),
                (None, None) => cx.reply.ok(),
            }
            Ok(())
        }
        Err(SetError::Loading) => {
            Err(Error::text("LOADING The server is loading the dataset in memory"))
        }
        Err(error) => Err(Error::Bytes(format!("ERR {error}").into_bytes())),
    }
}

fn config_rewrite(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    if let Some(host) = cx.engine.host() {
        host.rewrite_config().map_err(|reason| Error::format(format!("ERR {reason}")))?;
    }
    cx.reply.ok();
    Ok(())
}

fn config_resetstat(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.engine.reset_stats();
    cx.reply.ok();
    Ok(())
}
