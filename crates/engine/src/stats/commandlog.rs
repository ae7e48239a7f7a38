//! COMMANDLOG (and SLOWLOG): slow commands, large requests, large replies.

use crate::args::Args;
use crate::command::Flags;
use crate::engine::Engine;
use crate::session::Session;
use crate::table::Resolved;
use std::collections::VecDeque;
use std::sync::Mutex;
use structs::sync::lock;

/// Words of a request that an entry keeps, and bytes of each.
const MAX_WORDS: usize = 32;
const MAX_WORD_BYTES: usize = 128;

/// What is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Log {
    /// Commands that took long.
    Slow,
    /// Requests of many bytes.
    LargeRequest,
    /// Replies of many bytes.
    LargeReply,
}

/// An entry of a log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Its number.
    pub id: u64,
    /// Seconds since the epoch.
    pub at_s: i64,
    /// Microseconds, or bytes.
    pub value: i64,
    /// The request, shortened.
    pub argv: Vec<Vec<u8>>,
    /// The client's address.
    pub addr: String,
    /// The client's name.
    pub name: Vec<u8>,
}

#[derive(Default)]
struct Entries {
    next_id: u64,
    /// Newest first.
    entries: VecDeque<LogEntry>,
}

/// The three logs.
#[derive(Default)]
pub struct CommandLogs {
    logs: [Mutex<Entries>; 3],
}

impl CommandLogs {
    fn with<R>(&self, log: Log, work: impl FnOnce(&mut Entries) -> R) -> R {
        work(&mut lock(&self.logs[log as usize]))
    }

    /// The newest `count` entries, or all.
    pub fn get(&self, log: Log, count: Option<usize>) -> Vec<LogEntry> {
        self.with(log, |l| l.entries.iter().take(count.unwrap_or(usize::MAX)).cloned().collect())
    }

    /// Number of entries.
    pub fn len(&self, log: Log) -> usize {
        self.with(log, |l| l.entries.len())
    }

    /// Forgets all entries.
    pub fn reset(&self, log: Log) {
        self.with(log, |l| l.entries.clear());
    }

    fn push(&self, log: Log, mut entry: LogEntry, most: usize) {
        self.with(log, |l| {
            entry.id = l.next_id;
            l.next_id += 1;
            l.entries.push_front(entry);
            l.entries.truncate(most);
        });
    }
}

/// Logs the command that has just run, if it crossed a threshold.
#[inline]
pub(crate) fn note(
    engine: &Engine,
    session: &Session,
    row: &Resolved,
    args: Args<'_>,
    nanoseconds: u64,
    reply_bytes: usize,
) {
    let config = &engine.config;
    let slower_than = config.commandlog_execution_slower_than();
    if slower_than >= 0 && nanoseconds / 1000 >= slower_than as u64 {
        add(engine, session, row, args, Log::Slow, (nanoseconds / 1000) as i64);
    }
    let larger_than = config.commandlog_reply_larger_than();
    if larger_than >= 0 && reply_bytes as i64 > larger_than {
        add(engine, session, row, args, Log::LargeReply, reply_bytes as i64);
    }
    let larger_than = config.commandlog_request_larger_than();
    let request_bytes = session.request_bytes as i64;
    if larger_than >= 0 && request_bytes > larger_than {
        add(engine, session, row, args, Log::LargeRequest, request_bytes);
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

fn shortened(words: &[&[u8]]) -> Vec<Vec<u8>> {
    let kept = if words.len() > MAX_WORDS { MAX_WORDS - 1 } else { words.len() };
    let mut argv: Vec<Vec<u8>> = words[..kept].iter().map(|word| shorten(word)).collect();
    if kept < words.len() {
        argv.push(format!("... ({} more arguments)", words.len() - kept).into_bytes());
    }
    argv
}

fn shorten(word: &[u8]) -> Vec<u8> {
    if word.len() <= MAX_WORD_BYTES {
        return word.to_vec();
    }
    let mut short = word[..MAX_WORD_BYTES].to_vec();
    short.extend_from_slice(format!("... ({} more bytes)", word.len() - MAX_WORD_BYTES).as_bytes());
    short
}
