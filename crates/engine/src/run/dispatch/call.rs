//! Runs a command whose locks are held: fetches its values, renders its error, counts it.

use super::logging::log_command;
use super::{auditing, refuse, slot_noting};
use crate::args::Args;
use crate::blocking::{BlockRequest, TimeoutReply, Until};
use crate::caching;
use crate::cold;
use crate::command::Flags;
use crate::commit;
use crate::cx::Cx;
use crate::error::Error;
use crate::hotkeys::Taken;
use crate::latency::Slow;
use crate::scripting;
use crate::session::Fate;
use crate::special::Special;
use crate::table::Resolved;

/// Runs a command inside a transaction or a script ([`Cx::begin_transaction`]). The locks of all
/// keys that it names, or the world, are held. It passes no gate and does not block.
///
/// Its reply is written to `cx.reply`. A caller that wants it elsewhere [captures](Cx::capture) it.
/// Its changes are committed as part of the transaction's one journal entry.
///
/// # Errors
/// The command's own error. It has been written as the reply and counted.
pub fn run_nested(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), Error> {
    cx.keys.clear();
    if row.command.script.is_some() {
        cx.script_was_shown = false;
    }
    let outcome = call(cx, row, args);
    cx.block_request = None;
    if cx.engine.monitors.any() {
        crate::monitor::feed_failed_script(cx, row, args.words());
        if cx.script.is_some() {
            if !row.command.flags.any(crate::monitor::HIDDEN) {
                scripting::note_for_monitors(cx, row, args);
            }
        } else {
            crate::monitor::feed(cx, row.command, args.words());
        }
    }
    commit::commit(cx, args);
    outcome
}

/// Runs a command whose locks are held, and writes its error as its reply.
///
/// # Errors
/// The same error.
#[inline]
pub(crate) fn call(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), Error> {
    let started = cx.reply.place();
    let before = cx.last_end;
    cx.resolved = row;
    cx.session.last_command = row.index + 1;
    let mut outcome = match cx.session.checks_slot {
        false => run_row(cx, row, args),
        true => run_if_present(cx, row, args),
    };
    if cx.db.take_missed_stripe() {
        outcome = Err(Error::StripeTaken);
    }
    let stats = cx.thread.stats();
    let command_stats = &stats.by_command[row.index];
    if let Err(error) = &outcome {
        cx.reply.truncate(started);
        match error {
            Error::TakesLong => {
                run_later(cx);
                return Ok(());
            }
            Error::StartAgain | Error::StripeTaken => return outcome,
            _ => {
                cx.block_request = None;
                command_stats.failed.add_own(1);
                refuse(cx, error);
            }
        }
    }
    let clock = &cx.thread.clock;
    cx.last_end = clock.now();
    let nanoseconds = clock.nanoseconds(before, cx.last_end);
    if let Some(request) = &mut cx.block_request {
        // A blocked command is counted when its wait ends. No audited command blocks.
        request.spent_ns = nanoseconds;
        return outcome;
    }
    command_stats.count(nanoseconds, cx.engine.config.latency_tracking());
    stats.commands.add_own(1);
    cx.session.commands += 1;
    // EXEC has run other commands.
    cx.session.last_command = row.index + 1;
    if row.command.flags.any(NOTED)
        && (cx.session.tracking().is_some() || row.command.flags.has(Flags::AUDITED))
    {
        note_effects(cx, row, args, outcome.as_ref().err());
    }
    let reply = cx.reply.len_since(started);
    if cx.engine.special.any(Special::USAGE) {
        note_usage(cx, row, args, nanoseconds, reply);
    }
    log_command(cx.engine, cx.session, row, args, nanoseconds, reply);
    if cx.is_over_output_limit() {
        overflow(cx, started);
    }
    outcome
}

/// Flags of commands that more is noted of than figures: what they read, what they changed.
const NOTED: Flags = Flags::READONLY.with(Flags::AUDITED);

/// Notes what a tracked client has read, and tells the audit log.
#[cold]
fn note_effects(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>, error: Option<&Error>) {
    // The commands of a script are tracked one by one, not the script.
    let reads = row.command.flags.has(Flags::READONLY) && row.command.script.is_none();
    if reads && cx.session.tracking().is_some() {
        caching::remember_reads(cx, row, args);
    }
    if row.command.flags.has(Flags::AUDITED) {
        auditing::note(cx, row, args, error);
    }
}

/// Counts a command for what is counted in special states only.
#[cold]
fn note_usage(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>, nanoseconds: u64, reply: usize) {
    let is_fast = row.command.flags.has(Flags::FAST);
    cx.engine.note_latency(if is_fast { Slow::FastCommand } else { Slow::Command }, nanoseconds);
    let is_nested = cx.in_transaction || cx.script.is_some();
    let request = if is_nested { args.bytes() } else { cx.session.request_bytes };
    if cx.engine.config.size_tracking() {
        cx.thread.stats().by_command[row.index].count_sizes(request, reply);
    }
    if cx.script.is_none() {
        // The reply to EXEC has those of its commands.
        let reply = if cx.in_transaction { 0 } else { reply };
        cx.engine.rate_limits.charge(cx.session, 1, request + reply);
    }
    if cx.engine.hotkeys.is_active() {
        note_hot_keys(cx, row, args, nanoseconds, reply);
    }
    if cx.engine.config.cluster_slot_stats_enabled() {
        slot_noting::note(cx, row, args, nanoseconds, reply);
    }
}

/// Counts a command for HOTKEYS. Scripts and EXEC are not counted, only the commands they run.
fn note_hot_keys(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>, nanoseconds: u64, reply: usize) {
    if row.command.script.is_some() || row.command.flags.has(Flags::RUNS_QUEUE) {
        return;
    }
    let bytes = (args.bytes() + reply) as u64;
    let is_sampled = cx.engine.hotkeys.note_command(nanoseconds, bytes);
    if !is_sampled && !cx.engine.hotkeys.has_slots() {
        return;
    }
    cx.find_keys(row, args);
    let found = cx.keys.iter().map(|key| key.key(args.words()));
    let keys: Vec<_> = found.map(|key| (key.bytes, cx.slot_of(key))).collect();
    if !keys.is_empty() {
        let now_ms = cx.db.now().0;
        cx.engine.hotkeys.note_keys(&keys, Taken { nanoseconds, bytes }, is_sampled, now_ms);
    }
}

/// Runs only the command itself, whose locks are held, after reading the cold values that it needs.
///
/// # Errors
/// The command's own error, or a value cannot be read.
#[inline(always)]
pub(crate) fn run_row(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    let started = cx.reply.place();
    if keyspace::cold::entries() > 0 && !cx.may_wait() {
        cold::read_in_place(cx, row, args)?;
    }
    cx.db.clear_slots();
    match (row.command.run)(cx, args) {
        Err(Error::Cold) => run_with_values(cx, row, args, started),
        outcome => outcome,
    }
}

/// Runs a command again after reading the cold values that it met without naming their keys.
#[cold]
fn run_with_values(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
    started: usize,
) -> Result<(), Error> {
    let mut outcome = Err(Error::Cold);
    while matches!(outcome, Err(Error::Cold)) && cold::read_met(&mut cx.db)? {
        cx.reply.truncate(started);
        outcome = (row.command.run)(cx, args);
    }
    outcome
}

/// Runs a command whose keys may have moved to another primary. For transactions and scripts, the
/// keys were checked at their begin.
#[cold]
fn run_if_present(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    if !cx.in_transaction && cx.script.is_none() {
        let found = super::open_slots::check(cx, row, args);
        if found.is_err() && row.command.flags.has(Flags::RUNS_QUEUE) {
            cx.session.take_multi();
            crate::watching::unwatch(&mut cx.db, cx.session);
        }
        found?;
    }
    run_row(cx, row, args)
}

/// Moves a long command to a background thread. It looks at its key again there, and is counted
/// there.
#[cold]
fn run_later(cx: &mut Cx<'_>) {
    // If the command reads, the key was counted as a hit, and will be again.
    if cx.resolved.command.flags.has(Flags::READONLY) {
        cx.db.hits.set(cx.db.hits.get().saturating_sub(1));
    }
    let (until, on_timeout) = (Until::Background, TimeoutReply::Null);
    cx.block_request =
        Some(BlockRequest { until, deadline: None, on_timeout, words: None, spent_ns: 0 });
}

/// Closes the client, because its reply exceeds the output limit. The client does not get the
/// reply. The rest of a transaction still runs.
#[cold]
fn overflow(cx: &mut Cx<'_>, started: usize) {
    cx.reply.truncate(started);
    cx.session.overflows = true;
    cx.session.fate = Fate::Close;
}
