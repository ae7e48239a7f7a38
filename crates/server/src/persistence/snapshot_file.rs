//! A snapshot's file on its way to the disk, RDB or commands: written beside the old one, forced to the disk, and put into
//! its place in one step. Whatever goes wrong, the old file stays as it was.

use super::aof_records::command;
use super::unbuffered::UnbufferedFile;
use engine::DbIndex;
use engine::snapshot::{Cut, Output};
use rdb::{Compression, Encoder};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use structs::crc64::crc64;

/// What a file is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// `rdbchecksum`
    pub checksum: bool,
    /// `rdb-save-incremental-fsync`
    pub incremental_fsync: bool,
    /// What the file is made of.
    pub content: Content,
}

/// What a file is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// RDB.
    Rdb,
    /// RDB that an append-only file begins with.
    AofPreamble,
    /// Commands, behind the time if `aof-timestamp-enabled` says so.
    Commands {
        /// Whether the time comes first.
        timestamp: bool,
    },
}

/// Keys and expiring keys by database.
pub type Sizes = Vec<(DbIndex, u64, u64)>;

/// A file that is being written.
pub struct SnapshotFile {
    /// `None` once it is complete.
    file: Option<UnbufferedFile>,
    temporary: PathBuf,
    /// It is not the temporary file any more.
    has_name: bool,
    options: Options,
    checksum: u64,
    db: Option<DbIndex>,
    sizes: HashMap<u32, (u64, u64)>,
}

impl SnapshotFile {
    /// Creates the temporary file and writes the header.
    pub fn create(
        temporary: PathBuf,
        options: Options,
        cut: &Cut,
        sizes: &Sizes,
    ) -> io::Result<SnapshotFile> {
        let mut this = SnapshotFile {
            file: Some(UnbufferedFile::create(&temporary, options.incremental_fsync)?),
            temporary,
            has_name: false,
            checksum: 0,
            db: None,
            sizes: sizes.iter().map(|(db, keys, expiring)| (db.0, (*keys, *expiring))).collect(),
            options,
        };
        if let Content::Commands { timestamp } = this.options.content {
            this.options.checksum = false;
            if timestamp {
                this.append(format!("#TS:{}\r\n", cut.time.0 / 1000).as_bytes())?;
            }
            return Ok(this);
        }
        let mut header = Encoder::new(Compression::Off);
        header.file_header();
        header.aux("redis-ver", commands::REDIS_VERSION.as_bytes());
        header.aux("dunlin-ver", crate::process::facts::VERSION.as_bytes());
        header.aux_integer("redis-bits", 64);
        header.aux_integer("ctime", cut.time.0 / 1000);
        let used = keyspace::memory::used_bytes();
        header.aux_integer("used-mem", i64::try_from(used).unwrap_or(i64::MAX));
        if this.options.content == Content::Rdb {
            place_in_history(&mut header, cut);
        }
        header.aux_integer("aof-base", i64::from(this.options.content == Content::AofPreamble));
        this.append(header.as_bytes())?;
        Ok(this)
    }

    /// Whether it holds commands, and not the form of an RDB file.
    pub fn has_commands(&self) -> bool {
        matches!(self.options.content, Content::Commands { .. })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.options.checksum {
            self.checksum = crc64(self.checksum, bytes);
        }
        self.file.as_mut().expect("it is not complete").append(bytes)
    }

    /// Ends the file and forces it to the disk; how many bytes it has.
    pub fn complete(&mut self) -> io::Result<u64> {
        if !self.has_commands() {
            let mut end = Encoder::new(Compression::Off);
            end.end_of_file();
            self.append(end.as_bytes())?;
            end.clear();
            end.checksum(if self.options.checksum { self.checksum } else { 0 });
            self.append(end.as_bytes())?;
        }
        let file = self.file.take().expect("it is completed once");
        let bytes = file.len();
        file.finish()?;
        Ok(bytes)
    }

    /// Gives the complete file its name, for good.
    pub fn rename(mut self, target: &Path) -> io::Result<()> {
        assert!(self.file.is_none(), "it is complete");
        std::fs::rename(&self.temporary, target)?;
        self.has_name = true;
        sync_folder_of(target)
    }
}

/// Says which moment of which history the file is, in the words in which Redis does: what the
/// replication stream has up to this offset is in it. Left out while nobody reads the journal, as
/// Redis does without a backlog.
fn place_in_history(header: &mut Encoder, cut: &Cut) {
    if let Some(db) = cut.stream_db {
        header.aux_integer("repl-stream-db", i64::from(db.0));
        header.aux("repl-id", cut.history.as_str().as_bytes());
        header.aux_integer("repl-offset", i64::try_from(cut.position.0).unwrap_or(i64::MAX));
    }
}

/// Makes a rename in this file's folder last.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

impl Output for SnapshotFile {
    fn write(&mut self, db: DbIndex, bytes: &[u8]) -> io::Result<()> {
        if self.db != Some(db) && self.has_commands() {
            let mut select = Vec::new();
            command(&mut select, &[b"SELECT", db.0.to_string().as_bytes()]);
            self.append(&select)?;
            self.db = Some(db);
        }
        if self.db != Some(db) {
            let mut select = Encoder::new(Compression::Off);
            select.select_db(db.0);
            if let Some((keys, expiring)) = self.sizes.remove(&db.0) {
                select.resize_db(keys, expiring);
            }
            self.append(select.as_bytes())?;
            self.db = Some(db);
        }
        self.append(bytes)
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if !self.has_name {
            // A file that is in nobody's way if it cannot be removed.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
