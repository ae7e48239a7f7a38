//! Figures that are sums of all threads' counters.

use super::Engine;
use crate::rates::Traffic;
use crate::stats::{Counter, ThreadStats};
use std::sync::atomic::Ordering::Relaxed;
use structs::sync::lock;

/// Number of error codes from which on codes made up by scripts are counted together.
const MAX_ERROR_CODES: usize = 128;
/// The code under which they are counted.
const ERRORSTATS_OVERFLOW: &str = "ERRORSTATS_OVERFLOW";

/// Number of bytes of an error's line, with its mark, within which its code has to end.
const MAX_CODE: usize = 31;

/// Returns the code under which an error is counted: its first word, without the characters that
/// would break a line of INFO. An error whose first word is longer than `MAX_CODE` counts as `ERR`.
fn code_of(line: &[u8]) -> String {
    // Line ends become spaces in the reply, too.
    let is_end = |byte: &u8| matches!(byte, b' ' | b'\r' | b'\n');
    let end = line.iter().take(MAX_CODE).position(is_end).unwrap_or(0);
    if end == 0 {
        return "ERR".to_owned();
    }
    let breaks_line = |c: char| matches!(c, '#' | ':' | '{' | '}') || c.is_control();
    String::from_utf8_lossy(&line[..end]).replace(breaks_line, "_")
}

impl Engine {
    /// Returns the number of changes of the data set since the start.
    pub fn changes(&self) -> u64 {
        self.thread_stats.iter().map(|stats| stats.dirty.get()).sum()
    }

    /// Returns the number of changes since the last successful save.
    pub fn changes_since_save(&self) -> u64 {
        self.changes().saturating_sub(self.persistence.saved_changes.load(Relaxed))
    }

    /// Returns whether writes are refused because snapshots are configured and fail.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.persistence.last_failed()
            && self.config.stop_writes_on_bgsave_error()
            && !self.config.save_points().is_empty()
    }

    /// Counts an error reply by its code.
    pub fn count_error(&self, line: &[u8]) {
        self.stats.errors.add(1);
        let code = code_of(line);
        let mut errors = lock(&self.errors);
        // A script that makes up codes must neither fill memory nor hide the codes of the server.
        let is_like_ours = code.bytes().all(|byte| byte.is_ascii_uppercase());
        let most = if is_like_ours { 2 * MAX_ERROR_CODES } else { MAX_ERROR_CODES };
        let is_made_up = errors.len() >= most && !errors.contains_key(&code);
        let code = if is_made_up { ERRORSTATS_OVERFLOW.to_owned() } else { code };
        *errors.entry(code).or_default() += 1;
    }

    /// Returns the bytes of all threads' interpreters: those of scripts, and those of functions.
    pub fn interpreter_bytes(&self) -> (u64, u64) {
        let threads = || self.thread_stats.iter();
        let of_scripts = threads().map(|thread| thread.script_bytes.get()).sum();
        let of_functions = threads().map(|thread| thread.function_bytes.get()).sum();
        (of_scripts, of_functions)
    }

    /// Resets all statistics (CONFIG RESETSTAT).
    pub fn reset_stats(&self) {
        let stats = &self.stats;
        for counter in [
            &stats.expired,
            &stats.expired_fields,
            &stats.evicted,
            &stats.evicted_clients,
            &stats.connections,
            &stats.rejected_connections,
            &stats.shed_requests,
            &stats.limited_requests,
            &stats.errors,
            &stats.query_buffer_disconnections,
            &stats.output_buffer_disconnections,
            &stats.unconfirmed_writes,
            &stats.expire_cycles_cut_short,
            &stats.expire_cycle_ms,
            &self.tier.misses,
        ] {
            counter.set(0);
        }
        self.replicas.figures.reset();
        self.slot_usage.reset(|_| true);
        for thread in &self.thread_stats {
            let counters = [&thread.commands, &thread.hits, &thread.misses, &thread.net_in];
            for counter in counters.into_iter().chain([&thread.net_out, &thread.reads]) {
                counter.set(0);
            }
            thread.writes.set(0);
            thread.turns.set(0);
            thread.repl_out.set(0);
            thread.by_command.iter().for_each(|command| command.reset());
        }
        lock(&self.errors).clear();
        self.upstream.link().received_bytes = 0;
        self.scripts.cache.reset_evicted();
        self.background.reset_freed();
        self.persistence.reset_saves();
        self.append_log.figures.reset();
        self.rates.reset();
        self.timings.reset();
        self.stale_share.reset();
        self.over_limit.reset();
        self.defrag.reset();
    }

    /// Returns the traffic since the start or since the statistics were reset.
    pub fn traffic(&self) -> Traffic {
        let total = |counter: fn(&ThreadStats) -> &Counter| -> u64 {
            self.thread_stats.iter().map(|stats| counter(stats).get()).sum()
        };
        // The link to a primary and the senders of snapshots have their own threads.
        let repl_in = self.upstream.link().received_bytes;
        let snapshots = self.replicas.figures.snapshot_bytes.load(Relaxed);
        Traffic {
            commands: total(|s| &s.commands),
            net_in: total(|s| &s.net_in) + repl_in,
            net_out: total(|s| &s.net_out) + snapshots,
            repl_in,
            repl_out: total(|s| &s.repl_out) + snapshots,
            turns: total(|s| &s.turns),
        }
    }

    /// Takes a sample of the traffic for [`Engine::rates`].
    pub fn sample_rates(&self, now: keyspace::Millis) {
        self.rates.sample(now.0, self.traffic());
    }
}
