//! One file of the append-only log that is being written. Tests make the disk fail here.
//!
//! A write that fails half-way is taken back, so that the file always ends with a whole piece. Only
//! if that fails, too, does part of a piece stay, and the caller continues after it. Alternatively,
//! the file is written in place, into [preallocated space](super::preallocated) ahead of its end.

use super::preallocated::{self, InPlace, PreallocationJob};
use engine::debug::{DebugSettings, DiskFault};
use replication::preallocation::{SECTOR, may_begin};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// A file that is appended to.
pub struct LogFile {
    file: Arc<File>,
    /// The file's name in messages.
    name: Arc<str>,
    size: u64,
    in_place: Option<InPlace>,
    /// Whether the file can be written in place. `None` if that is not known yet.
    may_be_in_place: Option<bool>,
    debug: &'static DebugSettings,
}

impl From<io::Error> for AppendError {
    fn from(error: io::Error) -> AppendError {
        AppendError { kept: 0, cut_failed: None, error }
    }
}

/// A failed append.
#[derive(Debug)]
pub struct AppendError {
    /// Bytes of the piece that remain in the file because they could not be taken back.
    pub kept: usize,
    /// The error for which they could not be taken back, if cutting the file failed.
    pub cut_failed: Option<io::Error>,
    /// The error of the append.
    pub error: io::Error,
}

impl LogFile {
    /// Opens a file of the log to continue after its end. Preallocated space there is cut off.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path, debug: &'static DebugSettings) -> io::Result<LogFile> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let end = preallocated::data_end(&file)?;
        if end.has_preallocated {
            preallocated::cut(&file, end.at)?;
        }
        Ok(LogFile::of(path, file, end.at, debug))
    }

    /// Creates a new file of the log. A file with this name that is not part of the log (of another
    /// history that a backup has replaced, say) is removed. Links to it that a backup has keep it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(path: &Path, debug: &'static DebugSettings) -> io::Result<LogFile> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(LogFile::of(path, file, 0, debug))
    }

    fn of(path: &Path, file: File, size: u64, debug: &'static DebugSettings) -> LogFile {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into();
        let file = Arc::new(file);
        LogFile { file, name, size, in_place: None, may_be_in_place: None, debug }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the file's name in messages.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns the file itself, so that another thread can force it to the disk.
    pub fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Appends a piece. The file is not being written in place.
    ///
    /// # Errors
    /// Those of the system, or a requested fault.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), AppendError> {
        debug_assert!(self.in_place.is_none(), "preallocated space would be behind the piece");
        self.delay();
        let (written, outcome) = write_all(&self.file, piece, self.size, 1, self.debug);
        let Err(failure) = outcome else {
            self.size += written as u64;
            return Ok(());
        };
        if written == 0 {
            return Err(failure.into());
        }
        match self.file.set_len(self.size) {
            Ok(()) => Err(failure.into()),
            Err(cut) => {
                self.size += written as u64;
                Err(AppendError { kept: written, cut_failed: Some(cut), error: failure })
            }
        }
    }

    fn delay(&self) {
        let delay = self.debug.log_delay();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
    }

    /// Begins to write the file in place, if that is possible. Returns whether it is.
    pub fn write_in_place(&mut self) -> bool {
        if self.in_place.is_none()
            && may_begin(self.size)
            && *self.may_be_in_place.get_or_insert_with(|| preallocated::is_of_use(&self.file))
        {
            self.in_place = InPlace::begin(&self.file, self.size).ok();
            // If the file system refuses this once, it will not allow it later.
            self.may_be_in_place = Some(self.in_place.is_some());
        }
        self.in_place.is_some()
    }

    /// Returns whether the file is written in place.
    pub fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// Returns whether there is preallocated space ahead of the data.
    pub fn has_preallocated(&self) -> bool {
        self.in_place.as_ref().is_some_and(InPlace::has_preallocated)
    }

    /// Begins to append to the file.
    ///
    /// # Errors
    /// Those of the system when it cuts off the preallocated space. The file is still written in
    /// place then.
    pub fn write_at_end(&mut self) -> io::Result<()> {
        if let Some(in_place) = &mut self.in_place {
            in_place.finish()?;
            self.in_place = None;
        }
        Ok(())
    }

    /// Begins a batch of `len` bytes. Returns `None` if the file is not written in place.
    pub fn begin_batch(&mut self, len: usize) -> Option<&mut InPlace> {
        let in_place = self.in_place.as_mut()?;
        in_place.begin_batch(len);
        Some(in_place)
    }

    /// Writes the complete batch.
    ///
    /// # Errors
    /// As of [`LogFile::append`]. Readers can tell the bytes then after the file's end from a
    /// batch.
    pub fn write_batch(&mut self) -> Result<(), AppendError> {
        self.delay();
        let Some(in_place) = &mut self.in_place else { return Ok(()) };
        let (blocks, at) = in_place.blocks();
        match write_all(&self.file, blocks, at, SECTOR, self.debug) {
            (_, Ok(())) => {
                in_place.written();
                self.size = in_place.end();
                Ok(())
            }
            // Some file systems report only now that they do not support direct writes.
            (0, Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => self.append_batch(),
            (_, Err(error)) => Err(error.into()),
        }
    }

    /// Appends the batch because it cannot be written in place. All later data is appended, too.
    fn append_batch(&mut self) -> Result<(), AppendError> {
        self.may_be_in_place = Some(false);
        let Some(mut in_place) = self.in_place.take() else { return Ok(()) };
        in_place.finish()?;
        self.append(in_place.batch())
    }

    /// Returns the job, for another thread, that preallocates up to `wanted` bytes, if one is due.
    ///
    /// # Errors
    /// Why the previous job failed.
    pub fn preallocation_due(&mut self, wanted: u64) -> io::Result<Option<Arc<PreallocationJob>>> {
        self.in_place.as_mut().map_or(Ok(None), |in_place| in_place.preallocation_due(wanted))
    }

    /// Forces appended data to the disk.
    ///
    /// # Errors
    /// Those of the system, or a requested fault.
    pub fn sync(&self) -> io::Result<()> {
        sync(&self.file, self.debug)
    }
}

/// Writes as many of the bytes as possible. Returns their number, and why not more. A requested
/// fault leaves a multiple of `unit` bytes.
fn write_all(
    file: &File,
    bytes: &[u8],
    at: u64,
    unit: usize,
    debug: &DebugSettings,
) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match write_once(file, &bytes[written..], at + written as u64, unit, debug) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

fn write_once(
    file: &File,
    bytes: &[u8],
    at: u64,
    unit: usize,
    debug: &DebugSettings,
) -> io::Result<usize> {
    let half = bytes.len() / 2 / unit * unit;
    match debug.disk_fault() {
        DiskFault::ShortWrite if half > 0 => file.write_at(&bytes[..half], at),
        DiskFault::Write | DiskFault::ShortWrite => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        DiskFault::None | DiskFault::Sync => file.write_at(bytes, at),
    }
}

/// Forces a file to the disk.
///
/// # Errors
/// Those of the system, or a requested fault.
pub fn sync(file: &File, debug: &DebugSettings) -> io::Result<()> {
    if debug.disk_fault() == DiskFault::Sync {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    file.sync_data()
}
