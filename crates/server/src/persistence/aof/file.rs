//! One file of the append-only log, being written: the seam at which the disk can be made to fail.
//!
//! A write that fails half-way is taken back, so that the file always ends with a whole piece; only
//! if that fails too does part of a piece stay, and the caller goes on behind it.

use engine::debug::{DebugSettings, DiskFault};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

/// A file that is appended to.
pub struct LogFile {
    file: Arc<File>,
    /// What it is called in messages.
    name: Arc<str>,
    size: u64,
    debug: &'static DebugSettings,
}

/// A failed append.
#[derive(Debug)]
pub struct AppendError {
    /// Bytes of the piece that are in the file all the same, because they could not be taken back.
    pub kept: usize,
    /// Whether that is so because cutting the file failed.
    pub cut_failed: Option<io::Error>,
    /// Why.
    pub error: io::Error,
}

impl LogFile {
    /// Opens a file to append to it, and makes it if need be.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path, debug: &'static DebugSettings) -> io::Result<LogFile> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let size = file.metadata()?.len();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into();
        Ok(LogFile { file: Arc::new(file), name, size, debug })
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What it is called in messages.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The file itself, to force it to the disk from another thread.
    pub fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// The system's, or one that was asked for.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), AppendError> {
        let delay = self.debug.log_delay();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let mut written = 0;
        let failure = loop {
            if written == piece.len() {
                self.size += written as u64;
                return Ok(());
            }
            match self.write_once(&piece[written..]) {
                Ok(0) => break io::Error::from(io::ErrorKind::WriteZero),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        if written == 0 {
            return Err(AppendError { kept: 0, cut_failed: None, error: failure });
        }
        match self.file.set_len(self.size) {
            Ok(()) => Err(AppendError { kept: 0, cut_failed: None, error: failure }),
            Err(cut) => {
                self.size += written as u64;
                Err(AppendError { kept: written, cut_failed: Some(cut), error: failure })
            }
        }
    }

    fn write_once(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.debug.disk_fault() {
            DiskFault::Write => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            DiskFault::ShortWrite if bytes.len() > 1 => {
                (&*self.file).write(&bytes[..bytes.len() / 2])
            }
            DiskFault::ShortWrite => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            DiskFault::None | DiskFault::Sync => (&*self.file).write(bytes),
        }
    }

    /// Forces what was appended to the disk.
    ///
    /// # Errors
    /// The system's, or one that was asked for.
    pub fn sync(&self) -> io::Result<()> {
        sync(&self.file, self.debug)
    }
}

/// Forces a file to the disk.
///
/// # Errors
/// The system's, or one that was asked for.
pub fn sync(file: &File, debug: &DebugSettings) -> io::Result<()> {
    if debug.disk_fault() == DiskFault::Sync {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    file.sync_data()
}
