//! A snapshot's file while it is written, RDB or commands. It is written beside the old one, forced
//! to the disk, and renamed. After any failure, the old file is unchanged.

use super::aof_records::command;
pub use super::rdb_frame::RdbFrame;
use super::unbuffered::UnbufferedFile;
use engine::DbIndex;
use engine::journal::push_select;
use engine::snapshot::{Cut, Output};
use replication::{StreamPlace, wire};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// How a file is written.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// `rdbchecksum`
    pub checksum: bool,
    /// `rdb-save-incremental-fsync`
    pub incremental_fsync: bool,
    /// The file's content.
    pub content: Content,
}

/// The content of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// RDB.
    Rdb,
    /// RDB of at most this version, for replicas, or by `rdb-version`.
    Replica {
        /// The version.
        version: u16,
    },
    /// RDB at the beginning of an append-only file.
    AofPreamble,
    /// Commands, after an annotation of the time if `aof-timestamp-enabled` is set.
    Commands {
        /// Whether the annotation comes first.
        timestamp: bool,
    },
}

/// Numbers of keys and of expiring keys by database.
pub type Sizes = Vec<(DbIndex, u64, u64)>;

/// A file that is being written.
pub struct SnapshotFile {
    /// `None` once it is complete.
    file: Option<UnbufferedFile>,
    temporary: PathBuf,
    /// Whether it has its final name.
    has_name: bool,
    options: SnapshotOptions,
    frame: RdbFrame,
    db: Option<DbIndex>,
    /// Bytes after the last command.
    end: Vec<u8>,
}

impl SnapshotFile {
    /// Creates the temporary file and writes the header.
    pub fn create(
        temporary: PathBuf,
        options: SnapshotOptions,
        cut: &Cut,
        sizes: &Sizes,
    ) -> io::Result<SnapshotFile> {
        let mut this = SnapshotFile {
            file: Some(UnbufferedFile::create(&temporary, options.incremental_fsync)?),
            temporary,
            has_name: false,
            frame: RdbFrame::new(options.checksum, options.content.version(), sizes),
            db: None,
            options,
            end: Vec::new(),
        };
        if let Content::Commands { timestamp } = this.options.content {
            if timestamp {
                this.append(format!("#TS:{}\r\n", cut.time.0 / 1000).as_bytes())?;
            }
            let mut libraries = Vec::new();
            for library in cut.libraries.iter() {
                command(&mut libraries, &[b"FUNCTION", b"LOAD", &library.source]);
            }
            this.append(&libraries)?;
            this.end = place_of(cut);
            return Ok(this);
        }
        let header = this.frame.header(cut, this.options.content);
        this.write(&header)?;
        Ok(this)
    }

    /// Returns whether the content is commands and not RDB.
    pub fn has_commands(&self) -> bool {
        matches!(self.options.content, Content::Commands { .. })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.has_commands() {
            self.frame.note(bytes);
        }
        self.write(bytes)
    }

    /// Writes bytes that the frame has noted already or need not note.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().expect("it is not complete").append(bytes)
    }

    /// Ends the file and forces it to the disk. Returns its size in bytes.
    pub fn complete(&mut self) -> io::Result<u64> {
        let end =
            if self.has_commands() { std::mem::take(&mut self.end) } else { self.frame.end() };
        self.write(&end)?;
        let file = self.file.take().expect("it is completed once");
        let bytes = file.len();
        file.finish()?;
        Ok(bytes)
    }

    /// Renames the complete file durably.
    pub fn rename(mut self, target: &Path) -> io::Result<()> {
        assert!(self.file.is_none(), "it is complete");
        std::fs::rename(&self.temporary, target)?;
        self.has_name = true;
        sync_folder_of(target)
    }
}

/// Returns the end of a snapshot of commands: its place in the replication stream, and the database
/// in which the stream continues. They are needed because the following increment may be empty.
fn place_of(cut: &Cut) -> Vec<u8> {
    let mut end = Vec::new();
    if let Some(db) = cut.stream_db {
        push_select(&mut end, db);
        if cut.epoch > 0 {
            end.extend_from_slice(&wire::epoch_entry(cut.epoch));
        }
        end.extend_from_slice(
            StreamPlace { id: cut.history, position: cut.position }.line().as_bytes(),
        );
    }
    end
}

impl Content {
    /// Returns the greatest version of the content's RDB.
    pub fn version(self) -> u16 {
        if let Content::Replica { version } = self { version } else { rdb::VERSION }
    }
}

/// Forces the folder of this file to the disk, so that a rename in it is durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

impl Output for SnapshotFile {
    fn write(&mut self, db: DbIndex, bytes: &[u8]) -> io::Result<()> {
        if self.db != Some(db) && self.has_commands() {
            let mut select = Vec::new();
            push_select(&mut select, db);
            self.append(&select)?;
            self.db = Some(db);
        }
        if !self.has_commands() {
            let select = self.frame.select(db);
            self.write(&select)?;
        }
        self.append(bytes)
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if !self.has_name {
            // If the file cannot be removed, it does no harm.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
