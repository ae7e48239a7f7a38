//! `MEMORY USAGE key [SAMPLES count]`, `DOCTOR`, `MALLOC-STATS`, `PURGE`, `STATS`

use super::memory_report::{Figure, Memory};
use super::tier_report;
use engine::mailbox::Message;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `MEMORY DOCTOR`.
pub static MEMORY_DOCTOR: Command = Command {
    name: "doctor",
    arity: 2,
    flags: Flags::WALKS,
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(1)",
    summary: "Explains the use of memory in plain words.",
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
    summary: "Lists the subcommands.",
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
    complexity: "O(N) for N pages of memory",
    summary: "What the allocator says about itself.",
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
    complexity: "O(N) for N pages of memory",
    summary: "Gives free memory back to the system.",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    run: memory_purge,
    ..Command::ROW
};

/// `MEMORY STATS`.
pub static MEMORY_STATS: Command = Command {
    name: "stats",
    arity: 2,
    flags: Flags::WALKS,
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(1)",
    summary: "What the memory is used for.",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: memory_stats,
    ..Command::ROW
};

/// `MEMORY USAGE`.
pub static MEMORY_USAGE: Command = Command {
    name: "usage",
    arity: -3,
    flags: Flags::READONLY.with(Flags::NO_VALUES),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(N) for N samples",
    summary: "About how many bytes a key takes.",
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
    complexity: "That of the subcommand",
    summary: "The commands about memory.",
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
    let mut at = 3;
    while at < args.len() {
        if !args.is(at, "samples") || at + 1 == args.len() {
            return Err(Error::Syntax);
        }
        // Values know their sizes, so nothing is sampled.
        if args.integer(at + 1)? < 0 {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    match cx.db.lookup_no_stats(args.key(2)).map(|entry| entry.memory_usage()) {
        // With its place in the table.
        Some(bytes) => cx.reply.integer((bytes + size_of::<usize>()) as i64),
        None => cx.reply.null(),
    }
    Ok(())
}

fn memory_doctor(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let report = Memory::now(cx).report();
    cx.reply.verbatim("txt", report.as_bytes());
    Ok(())
}

fn memory_malloc_stats(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let text = super::memory_report::allocator();
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn memory_purge(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.engine.keyspace.collect_outgrown();
    // Every thread has a heap of its own, which no other may touch.
    cx.engine.mailboxes.iter().for_each(|mailbox| mailbox.post(Message::Purge));
    cx.reply.ok();
    Ok(())
}

fn memory_stats(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    use Figure::{Bytes, Ratio};
    let memory = Memory::now(cx);
    let rows = memory.rows(cx.engine);
    // As INFO has them: tier_value_bytes is tier.value-bytes.
    let named = |name: &str| name.replacen("tier_", "tier.", 1).replace('_', "-");
    let numbers = tier_report::numbers(cx, &memory);
    let numbers = numbers.into_iter().map(|(name, number)| (named(name), Bytes(number as i64)));
    let mut on_flash: Vec<(String, Figure)> = numbers.collect();
    if let Some(tier) = &memory.tier {
        on_flash.push((named("tier_hit_percentage"), Ratio(tier.hit_percent())));
        on_flash.push((named("tier_write_amplification"), Ratio(tier.write_amplification)));
    }
    let (before, after) = (&rows.before_databases, &rows.after_databases);
    cx.reply.map(before.len() + memory.tables.len() + after.len() + on_flash.len());
    before.iter().for_each(|row| write_figure(cx, row.in_stats, row.figure));
    for tables in &memory.tables {
        cx.reply.bulk(format!("db.{}", tables.db).as_bytes());
        cx.reply.map(2);
        write_figure(cx, "overhead.hashtable.main", Bytes(tables.entries as i64));
        write_figure(cx, "overhead.hashtable.expires", Bytes(tables.expiring as i64));
    }
    after.iter().for_each(|row| write_figure(cx, row.in_stats, row.figure));
    on_flash.iter().for_each(|(name, figure)| write_figure(cx, name, *figure));
    Ok(())
}

fn write_figure(cx: &mut Cx<'_>, name: &str, figure: Figure) {
    cx.reply.bulk(name.as_bytes());
    match figure {
        Figure::Bytes(bytes) => cx.reply.integer(bytes),
        Figure::Ratio(ratio) => cx.reply.double(ratio),
    }
}
