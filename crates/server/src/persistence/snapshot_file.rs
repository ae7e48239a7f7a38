//! A snapshot's file on its way to the disk, RDB or commands: written beside the old one, forced to the disk, and put into
//! its place in one step. Whatever goes wrong, the old file stays as it was.

use super::aof_records::command;
pub use super::rdb_frame::RdbFrame;
use super::unbuffered::UnbufferedFile;
use engine::DbIndex;
use engine::journal::push_select;
use engine::snapshot::{Cut, Output};
use replication::{Place, wire};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

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
    /// RDB of this version at most, for replicas, or by `rdb-version`.
    Replica {
        /// The version.
        version: u16,
    },
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
    frame: RdbFrame,
    db: Option<DbIndex>,
    /// What comes behind the last of the commands.
    end: Vec<u8>,
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

    /// Whether it holds commands, and not the form of an RDB file.
    pub fn has_commands(&self) -> bool {
        matches!(self.options.content, Content::Commands { .. })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.has_commands() {
            self.frame.note(bytes);
        }
        self.write(bytes)
    }

    /// Writes what the frame has noted already, or need not.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().expect("it is not complete").append(bytes)
    }

    /// Ends the file and forces it to the disk; how many bytes it has.
    pub fn complete(&mut self) -> io::Result<u64> {
        let end =
            if self.has_commands() { std::mem::take(&mut self.end) } else { self.frame.end() };
        self.write(&end)?;
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

/// Where in the replication stream the commands of a snapshot end, and for which database the stream goes
/// on: an increment behind them may be empty.
fn place_of(cut: &Cut) -> Vec<u8> {
    let mut end = Vec::new();
    if let Some(db) = cut.stream_db {
        push_select(&mut end, db);
        if cut.epoch > 0 {
            end.extend_from_slice(&wire::epoch_entry(cut.epoch));
        }
        end.extend_from_slice(Place { id: cut.history, position: cut.position }.line().as_bytes());
    }
    end
}

impl Content {
    /// The version of its RDB.
    pub fn version(self) -> u16 {
        if let Content::Replica { version } = self { version } else { rdb::VERSION }
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
            // A file that does no harm if it cannot be removed.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
