//! Logs commands that took long, and those with long requests or replies.

use crate::args::Args;
use crate::command::Flags;
use crate::commandlog::{Log, LogEntry, shortened};
use crate::engine::Engine;
use crate::session::Session;
use crate::table::Resolved;

/// Logs the command that has just run, if it exceeded a threshold.
#[inline]
pub(crate) fn log_command(
    engine: &Engine,
    session: &Session,
    row: &Resolved,
    args: Args<'_>,
    nanoseconds: u64,
    reply_bytes: usize,
) {
    let config = &engine.config;
    let slower_than = config.commandlog_execution_slower_than();
    // A negative threshold is none, and as a number without a sign larger than all others.
    if nanoseconds >= (slower_than as u64).saturating_mul(1000) {
        add(engine, session, row, args, Log::Slow, (nanoseconds / 1000) as i64);
    }
    let larger_than = config.commandlog_reply_larger_than();
    if reply_bytes as u64 > larger_than as u64 {
        add(engine, session, row, args, Log::LargeReply, reply_bytes as i64);
    }
    let larger_than = config.commandlog_request_larger_than();
    if session.request_bytes as u64 > larger_than as u64 {
        add(engine, session, row, args, Log::LargeRequest, session.request_bytes as i64);
    }
}

#[cold]
fn add(engine: &Engine, session: &Session, row: &Resolved, args: Args<'_>, log: Log, value: i64) {
    if row.command.flags.has(Flags::SKIP_COMMANDLOG) {
        return;
    }
    let config = &engine.config;
    let most = match log {
        Log::Slow => config.commandlog_slow_execution_max_len(),
        Log::LargeRequest => config.commandlog_large_request_max_len(),
        Log::LargeReply => config.commandlog_large_reply_max_len(),
    };
    let entry = LogEntry {
        id: 0,
        at_s: engine.clock.wall().0 / 1000,
        value,
        argv: shortened(&row.command.shown(args.words())),
        addr: session.client.addr.clone(),
        name: session.client.names().name.clone(),
    };
    engine.commandlogs.push(log, entry, most);
}
