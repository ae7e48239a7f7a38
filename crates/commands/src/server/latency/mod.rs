//! `LATENCY DOCTOR|GRAPH|HISTOGRAM|HISTORY|LATEST|RESET`: what was slow, and how long commands take
//!
//! Events are those that crossed `latency-monitor-threshold` (see [`engine::latency`]); histograms
//! are of every call of every command while `latency-tracking` is on.

mod doctor;
mod graph;

use engine::latency::Series;
use engine::routing::{Routing, Way};
use engine::stats::Durations;
use engine::table::Resolved;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `LATENCY DOCTOR`.
pub static LATENCY_DOCTOR: Command = Command {
    name: "doctor",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.8.13",
    complexity: "O(1)",
    summary: "Explains pauses of the server in plain words.",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: latency_doctor,
    ..Command::ROW
};

/// `LATENCY GRAPH`.
pub static LATENCY_GRAPH: Command = Command {
    name: "graph",
    arity: 3,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.8.13",
    complexity: "O(1)",
    summary: "Draws the pauses of a kind with characters.",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    args: &[Arg::new("event", ArgKind::String)],
    run: latency_graph,
    ..Command::ROW
};

/// `LATENCY HELP`.
pub static LATENCY_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.8.13",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `LATENCY HISTOGRAM`.
pub static LATENCY_HISTOGRAM: Command = Command {
    name: "histogram",
    arity: -2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "7.0.0",
    complexity: "O(N) for N commands with figures",
    summary: "How long commands have taken, in classes.",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    args: &[Arg::new("command", ArgKind::String).optional().multiple()],
    run: latency_histogram,
    ..Command::ROW
};

/// `LATENCY HISTORY`.
pub static LATENCY_HISTORY: Command = Command {
    name: "history",
    arity: 3,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.8.13",
    complexity: "O(1)",
    summary: "The pauses of a kind, with their times.",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    args: &[Arg::new("event", ArgKind::String)],
    run: latency_history,
    ..Command::ROW
};

/// `LATENCY LATEST`.
pub static LATENCY_LATEST: Command = Command {
    name: "latest",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.8.13",
    complexity: "O(1)",
    summary: "The last and the longest pause of each kind.",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: latency_latest,
    ..Command::ROW
};

/// `LATENCY RESET`.
pub static LATENCY_RESET: Command = Command {
    name: "reset",
    arity: -2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.8.13",
    complexity: "O(1)",
    summary: "Forgets the pauses of some kinds, or all.",
    tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
    args: &[Arg::new("event", ArgKind::String).optional().multiple()],
    run: latency_reset,
    ..Command::ROW
};

/// `LATENCY`.
pub static LATENCY: Command = Command {
    name: "latency",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "2.8.13",
    complexity: "That of the subcommand",
    summary: "The commands about pauses of the server.",
    subcommands: &[
        &LATENCY_DOCTOR,
        &LATENCY_GRAPH,
        &LATENCY_HELP,
        &LATENCY_HISTOGRAM,
        &LATENCY_HISTORY,
        &LATENCY_LATEST,
        &LATENCY_RESET,
    ],
    help: &[
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "GRAPH <event>",
        "    Return an ASCII latency graph for the <event> class.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HISTOGRAM [COMMAND ...]",
        "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
        "    If no commands are specified then all histograms are replied.",
    ],
    routing: Routing::by(Way::OneServer),
    ..Command::ROW
};

fn latency_doctor(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let report = doctor::report(&cx.engine.config, &cx.engine.latency.all(), cx.now().0 / 1000);
    cx.reply.verbatim("txt", report.as_bytes());
    Ok(())
}

fn latency_graph(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Some((event, series)) = cx.engine.latency.get(args[2]) else {
        let mut text = b"ERR No samples available for event '".to_vec();
        text.extend_from_slice(args[2]);
        text.push(b'\'');
        return Err(Error::Bytes(text));
    };
    let text = graph::draw(event.name(), &series, cx.now().0 / 1000);
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn latency_history(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let samples = cx.engine.latency.get(args[2]).map(|(_, series)| series.samples);
    let samples = samples.unwrap_or_default();
    cx.reply.array(samples.len());
    for sample in samples {
        cx.reply.array(2);
        cx.reply.integer(sample.at_s);
        cx.reply.integer(sample.latency_ms as i64);
    }
    Ok(())
}

fn latency_latest(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let all = cx.engine.latency.all();
    cx.reply.array(all.len());
    for (event, Series { samples, max_ms, sum_ms, count }) in all {
        let (at_s, latency_ms) = samples.back().map_or((0, 0), |s| (s.at_s, s.latency_ms));
        cx.reply.array(6);
        cx.reply.bulk(event.name().as_bytes());
        for number in [at_s, latency_ms as i64, max_ms as i64, sum_ms as i64, count as i64] {
            cx.reply.integer(number);
        }
    }
    Ok(())
}

fn latency_reset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let monitor = &cx.engine.latency;
    let forgotten = match args.from(2) {
        [] => monitor.reset(None),
        names => names.iter().map(|name| monitor.reset(Some(name))).sum(),
    };
    cx.reply.integer(forgotten as i64);
    Ok(())
}

fn latency_histogram(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let table = cx.engine.table;
    let mut wanted: Vec<&Resolved> = Vec::new();
    if args.len() == 2 {
        wanted.extend(table.all());
    }
    // Unknown names are passed over; a container stands for its subcommands.
    for row in args.from(2).iter().filter_map(|name| table.by_full_name(name)) {
        wanted.push(row);
        wanted.extend(table.subcommands(row));
    }
    let measured: Vec<(&Resolved, Durations)> = wanted
        .into_iter()
        .filter_map(|row| Some((row, Durations::of(&cx.engine.thread_stats, row.index)?)))
        .collect();
    cx.reply.map(measured.len());
    for (row, durations) in &measured {
        cx.reply.bulk(row.full_name.as_bytes());
        write_histogram(cx, durations);
    }
    Ok(())
}

fn write_histogram(cx: &mut Cx<'_>, durations: &Durations) {
    let steps = durations.cumulative();
    cx.reply.map(2);
    cx.reply.bulk(b"calls");
    cx.reply.integer(durations.calls as i64);
    cx.reply.bulk(b"histogram_usec");
    cx.reply.map(steps.len());
    for (limit_ns, calls) in steps {
        // Redis names a step by the end of its own bucket there, which is 1/128 wide; but for the
        // last step, where its histogram ends.
        let end_ns = if limit_ns < 1 << 30 { limit_ns + limit_ns / 128 } else { limit_ns };
        cx.reply.integer(((end_ns - 1) / 1000) as i64);
        cx.reply.integer(calls as i64);
    }
}
