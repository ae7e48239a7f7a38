//! A snapshot's file on its way to the disk, RDB or commands: written beside the old one, forced to the disk, and put into
//! its place in one step. Whatever goes wrong, the old file stays as it was.
#![allow(unsafe_code)] // sync_file_range(2)

use super::aof_records::command;
use engine::DbIndex;
use engine::snapshot::{Cut, Output};
use rdb::{Compression, Encoder};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use structs::crc64::crc64;

/// Bytes after which the kernel is asked to begin writing (`rdb-save-incremental-fsync`), so that
/// the fsync at the end finds little left to do.
const SYNC_EVERY: u64 = 4 << 20;

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
    /// Commands.
    Commands,
}

/// Keys and expiring keys by database.
pub type Sizes = Vec<(DbIndex, u64, u64)>;

/// A file that is being written.
pub struct SnapshotFile {
    file: File,
    temporary: PathBuf,
    options: Options,
    checksum: u64,
    written: u64,
    synced: u64,
    db: Option<DbIndex>,
    sizes: HashMap<u32, (u64, u64)>,
    is_finished: bool,
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
            file: File::create(&temporary)?,
            temporary,
            checksum: 0,
            written: 0,
            synced: 0,
            db: None,
            sizes: sizes.iter().map(|(db, keys, expiring)| (db.0, (*keys, *expiring))).collect(),
            options,
            is_finished: false,
        };
        if this.options.content == Content::Commands {
            this.options.checksum = false;
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
        header.aux_integer("aof-base", i64::from(this.options.content == Content::AofPreamble));
        this.append(header.as_bytes())?;
        Ok(this)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if self.options.checksum {
            self.checksum = crc64(self.checksum, bytes);
        }
        self.written += bytes.len() as u64;
        if self.options.incremental_fsync && self.written - self.synced >= SYNC_EVERY {
            let len = self.written - self.synced;
            // SAFETY: the descriptor is open; the call has no effect but on the disk's queue. It is
            // a hint: what it cannot do, the fsync at the end does.
            unsafe {
                libc::sync_file_range(
                    self.file.as_raw_fd(),
                    self.synced as libc::off64_t,
                    len as libc::off64_t,
                    libc::SYNC_FILE_RANGE_WRITE,
                );
            }
            self.synced = self.written;
        }
        Ok(())
    }

    /// Ends the file, forces it to the disk and gives it its name; how many bytes it has.
    pub fn finish(mut self, target: &Path) -> io::Result<u64> {
        if self.options.content != Content::Commands {
            let mut end = Encoder::new(Compression::Off);
            end.end_of_file();
            self.append(end.as_bytes())?;
            end.clear();
            end.checksum(if self.options.checksum { self.checksum } else { 0 });
            self.append(end.as_bytes())?;
        }
        self.file.sync_all()?;
        std::fs::rename(&self.temporary, target)?;
        self.is_finished = true;
        sync_folder_of(target)?;
        Ok(self.written)
    }
}

/// Makes a rename in this file's folder last.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

impl Output for SnapshotFile {
    fn write(&mut self, db: DbIndex, bytes: &[u8]) -> io::Result<()> {
        if self.db != Some(db) && self.options.content == Content::Commands {
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
        if !self.is_finished {
            // A file that is in nobody's way if it cannot be removed.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
