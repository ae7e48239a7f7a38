//! COMMANDLOG (and SLOWLOG): slow commands, large requests, large replies.

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

    /// Returns the newest `count` entries, or all.
    pub fn get(&self, log: Log, count: Option<usize>) -> Vec<LogEntry> {
        self.with(log, |l| l.entries.iter().take(count.unwrap_or(usize::MAX)).cloned().collect())
    }

    /// Returns the number of entries.
    pub fn len(&self, log: Log) -> usize {
        self.with(log, |l| l.entries.len())
    }

    /// Forgets all entries.
    pub fn reset(&self, log: Log) {
        self.with(log, |l| l.entries.clear());
    }

    /// Adds an entry; a log that keeps none counts none either.
    pub(crate) fn push(&self, log: Log, mut entry: LogEntry, most: usize) {
        if most == 0 {
            return;
        }
        self.with(log, |l| {
            entry.id = l.next_id;
            l.next_id += 1;
            l.entries.push_front(entry);
            l.entries.truncate(most);
        });
    }
}

/// Returns the words of a request as an entry keeps them: not too many, and none too long.
pub(crate) fn shortened(words: &[&[u8]]) -> Vec<Vec<u8>> {
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
