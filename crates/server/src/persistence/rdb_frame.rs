//! What surrounds the entries of an RDB, wherever it is written to: header, databases, end and
//! checksum.

use super::snapshot_file::{Content, Sizes};
use engine::DbIndex;
use engine::snapshot::Cut;
use rdb::file::FUNCTIONS_SINCE;
use rdb::{Compression, Encoder};
use replication::primary::Contents;
use std::collections::HashMap;
use structs::crc64::crc64;

/// The frame of one RDB. All bytes are either made here or [noted](RdbFrame::note).
pub struct RdbFrame {
    has_checksum: bool,
    checksum: u64,
    version: u16,
    db: Option<DbIndex>,
    sizes: HashMap<u32, (u64, u64)>,
    contents: Contents,
}

impl RdbFrame {
    /// Of an RDB of this version, or what the snapshot needs, with about so many keys in each database.
    pub fn new(has_checksum: bool, version: u16, sizes: &Sizes) -> RdbFrame {
        let sizes = sizes.iter().map(|(db, keys, expiring)| (db.0, (*keys, *expiring))).collect();
        RdbFrame { has_checksum, checksum: 0, version, db: None, sizes, contents: Contents::All }
    }

    /// The same around a part of the data.
    pub fn of(self, contents: Contents) -> RdbFrame {
        RdbFrame { contents, ..self }
    }

    /// Bytes that were written.
    pub fn note(&mut self, bytes: &[u8]) {
        if self.has_checksum {
            self.checksum = crc64(self.checksum, bytes);
        }
    }

    fn noted(&mut self, encoder: &Encoder) -> Vec<u8> {
        self.note(encoder.as_bytes());
        encoder.as_bytes().to_vec()
    }

    /// The first bytes: metadata, and the libraries of functions.
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

    /// What precedes entries of a database; nothing if the last ones were of the same.
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

    /// The last bytes.
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

/// Says which moment of which history the RDB is, in the words in which Redis does: what the
/// replication stream has up to this offset is in it. Left out while the journal records nothing, as
/// Redis does without a backlog.
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
