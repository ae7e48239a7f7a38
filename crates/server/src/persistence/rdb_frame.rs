//! The parts of an RDB around its entries, wherever it is written to: header, database selections,
//! end and checksum.

use super::snapshot_file::{Content, Sizes};
use engine::DbIndex;
use engine::snapshot::Cut;
use rdb::file::FUNCTIONS_SINCE;
use rdb::{Compression, Encoder};
use replication::primary::Contents;
use std::collections::HashMap;
use structs::crc64::crc64;

/// The frame of one RDB. All bytes are either made here or [noted](RdbFrame::note), so that the
/// checksum covers them.
pub struct RdbFrame {
    has_checksum: bool,
    checksum: u64,
    version: u16,
    db: Option<DbIndex>,
    sizes: HashMap<u32, (u64, u64)>,
    contents: Contents,
}

impl RdbFrame {
    /// Creates the frame of an RDB of at most this version, or of the version that the snapshot
    /// needs. `sizes` are the approximate numbers of keys of each database.
    pub fn new(has_checksum: bool, version: u16, sizes: &Sizes) -> RdbFrame {
        let sizes = sizes.iter().map(|(db, keys, expiring)| (db.0, (*keys, *expiring))).collect();
        RdbFrame { has_checksum, checksum: 0, version, db: None, sizes, contents: Contents::All }
    }

    /// Restricts the frame to a part of the data.
    pub fn of(self, contents: Contents) -> RdbFrame {
        RdbFrame { contents, ..self }
    }

    /// Adds written bytes to the checksum.
    pub fn note(&mut self, bytes: &[u8]) {
        if self.has_checksum {
            self.checksum = crc64(self.checksum, bytes);
        }
    }

    fn noted(&mut self, encoder: &Encoder) -> Vec<u8> {
        self.note(encoder.as_bytes());
        encoder.as_bytes().to_vec()
    }

    /// Returns the first bytes: metadata, and the function libraries.
    pub fn header(&mut self, cut: &Cut, content: Content) -> Vec<u8> {
        let mut header = Encoder::new(Compression::Off);
        let has_timed_fields = cut.has_timed_fields && self.contents == Contents::All;
        let version = match self.version {
            rdb::REDIS_TIMED_VERSION if has_timed_fields => rdb::REDIS_TIMED_VERSION,
            _ if has_timed_fields => rdb::VALKEY_VERSION,
            version => version.min(rdb::VERSION),
        };
        header.file_header_of(version);
        header.aux("redis-ver", commands::REDIS_VERSION.as_bytes());
        header.aux("dunlin-ver", process::facts::VERSION.as_bytes());
        header.aux_integer("redis-bits", 64);
        header.aux_integer("ctime", cut.time.0 / 1000);
        let used = keyspace::memory::used_bytes();
        header.aux_integer("used-mem", i64::try_from(used).unwrap_or(i64::MAX));
        place_in_history(&mut header, cut);
        header.aux_integer("aof-base", i64::from(content == Content::AofPreamble));
        if self.version >= FUNCTIONS_SINCE && self.contents != Contents::Nothing {
            cut.libraries.iter().for_each(|library| header.function(&library.source));
        }
        self.noted(&header)
    }

    /// Returns the bytes before entries of a database. They are empty if the last entries were of
    /// the same database.
    pub fn select(&mut self, db: DbIndex) -> Vec<u8> {
        if self.db == Some(db) {
            return Vec::new();
        }
        self.db = Some(db);
        let mut select = Encoder::new(Compression::Off);
        select.select_db(db.0);
        if let Some((keys, expiring)) = self.sizes.remove(&db.0) {
            select.resize_db(keys, expiring);
        }
        self.noted(&select)
    }

    /// Returns the last bytes.
    pub fn end(&mut self) -> Vec<u8> {
        let mut end = Encoder::new(Compression::Off);
        end.end_of_file();
        let mut bytes = self.noted(&end);
        end.clear();
        end.checksum(self.checksum);
        bytes.extend_from_slice(end.as_bytes());
        bytes
    }
}

/// Writes the RDB's place in the replication history, in the fields of Redis: the RDB contains the
/// stream up to this offset. They are left out while the journal records nothing, as in Redis
/// without a backlog.
fn place_in_history(header: &mut Encoder, cut: &Cut) {
    if let Some(db) = cut.stream_db {
        header.aux_integer("repl-stream-db", i64::from(db.0));
        header.aux("repl-id", cut.history.as_str().as_bytes());
        header.aux_integer("repl-offset", i64::try_from(cut.position.0).unwrap_or(i64::MAX));
        if cut.epoch > 0 {
            header.aux_integer("dunlin-epoch", i64::try_from(cut.epoch).unwrap_or(i64::MAX));
        }
    }
}
