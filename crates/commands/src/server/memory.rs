//! `MEMORY USAGE key [SAMPLES count]`, `DOCTOR`, `MALLOC-STATS`, `PURGE`, `STATS`

use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};

/// `MEMORY DOCTOR`.
pub static MEMORY_DOCTOR: Command = Command {
    name: "doctor",
    arity: 2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(1)",
    summary: "Outputs a memory problems report.",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: memory_doctor,
    ..Command::ROW
};

/// `MEMORY HELP`.
pub static MEMORY_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(1)",
    summary: "Returns helpful text about the different subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `MEMORY MALLOC-STATS`.
pub static MEMORY_MALLOC_STATS: Command = Command {
    name: "malloc-stats",
    arity: 2,
    flags: Flags::LOADING,
    group: Group::Server,
    since: "4.0.0",
    complexity: "Depends on how much memory is allocated, could be slow",
    summary: "Returns the allocator statistics.",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: memory_malloc_stats,
    ..Command::ROW
};

/// `MEMORY PURGE`.
pub static MEMORY_PURGE: Command = Command {
    name: "purge",
    arity: 2,
    flags: Flags::LOADING,
    group: Group::Server,
    since: "4.0.0",
    complexity: "Depends on how much memory is allocated, could be slow",
    summary: "Asks the allocator to release memory.",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    run: memory_purge,
    ..Command::ROW
};

/// `MEMORY STATS`.
pub static MEMORY_STATS: Command = Command {
    name: "stats",
    arity: 2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(1)",
    summary: "Returns details about memory usage.",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: memory_stats,
    ..Command::ROW
};

/// `MEMORY USAGE`.
pub static MEMORY_USAGE: Command = Command {
    name: "usage",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(N) where N is the number of samples.",
    effort: Effort::Elements(2),
    summary: "Estimates the memory usage of a key.",
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).after("SAMPLES").optional()],
    run: memory_usage,
    ..Command::ROW
};

/// `MEMORY`.
pub static MEMORY: Command = Command {
    name: "memory",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for memory diagnostics commands.",
    subcommands: &[
        &MEMORY_DOCTOR,
        &MEMORY_HELP,
        &MEMORY_MALLOC_STATS,
        &MEMORY_PURGE,
        &MEMORY_STATS,
        &MEMORY_USAGE,
    ],
    help: &[
        "DOCTOR",
        "    Return memory problems reports.",
        "MALLOC-STATS",
        "    Return internal statistics report from the memory allocator.",
        "PURGE",
        "    Attempt to purge dirty pages for reclamation by the allocator.",
        "STATS",
        "    Return information about the memory usage of the server.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value. Nested values are",
        "    sampled up to <count> times (default: 5, 0 means sample all).",
    ],
    ..Command::ROW
};

fn memory_usage(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        if args.len() != 5 || !args.is(3, "samples") {
            return Err(Error::Syntax);
        }
        // Sizes are exact, so the number of samples does not matter.
        if args.integer(4)? < 0 {
            return Err(Error::Syntax);
        }
    }
    match cx.db.peek(args.key(2)).map(|entry| entry.memory_usage()) {
        Some(bytes) => cx.reply.integer(bytes as i64 + 8),
        None => cx.reply.null(),
    }
    Ok(())
}

fn memory_doctor(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.verbatim("txt", b"Nothing stands out in this instance's use of memory.");
    Ok(())
}

fn memory_malloc_stats(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let text = format!(
        "mimalloc: {} bytes in blocks, {} at the most\n",
        keyspace::memory::used_bytes(),
        keyspace::memory::peak_bytes()
    );
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn memory_purge(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.engine.keyspace.collect_outgrown();
    cx.reply.ok();
    Ok(())
}

fn memory_stats(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let (used, peak) = (keyspace::memory::used_bytes(), keyspace::memory::peak_bytes());
    let mut keys = 0;
    for db in 0..cx.engine.keyspace.databases() {
        keys += cx.engine.key_count(engine::DbIndex(db), &cx.db);
    }
    let figures = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", 0),
        ("aof.buffer", 0),
        ("overhead.total", 0),
        ("keys.count", keys),
        ("keys.bytes-per-key", used / keys.max(1)),
        ("dataset.bytes", used),
    ];
    cx.reply.map(figures.len());
    for (name, figure) in figures {
        cx.reply.bulk(name.as_bytes());
        cx.reply.integer(figure as i64);
    }
    Ok(())
}
