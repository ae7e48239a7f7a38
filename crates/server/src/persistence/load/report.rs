//! Handles a file's metadata, and logs the result of a load.

use super::Report;
use crate::log;
use engine::Engine;
use std::sync::atomic::Ordering::Relaxed;

impl Report {
    /// Handles a field of metadata.
    pub(super) fn aux(&mut self, engine: &Engine, name: &[u8], value: &[u8]) {
        let text = String::from_utf8_lossy(value);
        let number = || text.parse::<i64>().unwrap_or(0);
        match name.to_ascii_lowercase().as_slice() {
            [b'%', ..] => log!(Notice, "RDB '{}': {text}", String::from_utf8_lossy(name)),
            b"repl-stream-db" => self.stream_db = text.parse().ok(),
            b"repl-id" if text.len() == 40 => self.replication_id = Some(text.into_owned()),
            b"repl-offset" => self.replication_offset = text.parse().ok(),
            b"dunlin-epoch" => self.epoch = u64::try_from(number()).unwrap_or(0),
            b"redis-ver" => log!(Notice, "Loading RDB produced by version {text}"),
            b"valkey-ver" => log!(Notice, "Loading RDB produced by Valkey version {text}"),
            b"ctime" => {
                let age = engine::clock::now_s().saturating_sub(number()).max(0);
                log!(Notice, "RDB age {age} seconds");
            }
            b"used-mem" => {
                let bytes = u64::try_from(number()).unwrap_or(0);
                log!(
                    Notice,
                    "RDB memory usage when created {:.2} Mb",
                    bytes as f64 / f64::from(1 << 20)
                );
                engine.loading.rdb_used_bytes.store(bytes, Relaxed);
            }
            b"aof-preamble" if number() != 0 => {
                self.has_aof_tail = true;
                log!(Notice, "RDB has an AOF tail");
            }
            b"aof-base" if number() != 0 => {
                self.is_aof_base = true;
                log!(Notice, "RDB is base AOF");
            }
            _ => {}
        }
    }

    /// Logs what was loaded.
    pub(super) fn log(&self, engine: &Engine) {
        let counts = &self.counts;
        for key in &counts.empty_keys {
            if engine.config.hide_user_data_from_log() {
                log!(Notice, "RDB: skipping an empty key");
            } else {
                log!(Notice, "RDB: skipping empty key: {}", key.escape_ascii());
            }
        }
        let mut line = format!(
            "Done loading RDB, keys loaded: {}, keys expired: {}",
            counts.loaded, counts.expired
        );
        if counts.empty > 0 {
            line += &format!(", empty keys skipped: {}", counts.empty);
        }
        if self.skipped > 0 {
            line += &format!(", unknown things skipped: {}", self.skipped);
        }
        log!(Notice, "{line}.");
        if self.skipped > 0 {
            log!(
                Warning,
                "The next snapshot or rewrite replaces what was loaded, without what was skipped: keep \
                 a copy"
            );
        }
    }
}
