//! One file of the append-only log, being written: the seam at which the disk can be made to fail.
//!
//! A write that fails half-way is taken back, so that the file always ends with a whole piece; only
//! if that fails too does part of a piece stay, and the caller goes on behind it. Or the file is
//! written in place, into [preallocated space](super::preallocated) ahead of its end.

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
    /// What it is called in messages.
    name: Arc<str>,
    size: u64,
    in_place: Option<InPlace>,
    /// Whether the file can be written in place, once that is known.
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
    /// Bytes of the piece that are in the file all the same, because they could not be taken back.
    pub kept: usize,
    /// Whether that is so because cutting the file failed.
    pub cut_failed: Option<io::Error>,
    /// Why.
    pub error: io::Error,
}

impl LogFile {
    /// Opens a file of the log to go on behind its end. Preallocated space there is cut off.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path, debug: &'static DebugSettings) -> io::Result<LogFile> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let end = preallocated::data_end(&file)?;
        if end.has_preallocated {
            preallocated::cut(&file, end.at)?;
        }
        Ok(LogFile::of(path, file, end.at, debug))
    }

    /// Makes a new file of the log. One that has its name without being part of the log (of another
    /// history, over which a backup was laid, say) gives way; links to it that a backup has keep it.
    ///
    /// # Errors
    /// The system's.
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

    /// Appends a piece. The file is not written in place.
    ///
    /// # Errors
    /// The system's, or one that was asked for.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), AppendError> {
        debug_assert!(self.in_place.is_none(), "room would be behind the piece");
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

    /// From now on the file is written in place, if it can be; says whether that is so.
    pub fn write_in_place(&mut self) -> bool {
        if self.in_place.is_none()
            && may_begin(self.size)
            && *self.may_be_in_place.get_or_insert_with(|| preallocated::is_of_use(&self.file))
        {
            self.in_place = InPlace::begin(&self.file, self.size).ok();
            // What the file system refuses once, it does not allow later.
            self.may_be_in_place = Some(self.in_place.is_some());
        }
        self.in_place.is_some()
    }

    /// Whether it is written in place.
    pub fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// Whether there is preallocated space ahead of what is written.
    pub fn has_preallocated(&self) -> bool {
        self.in_place.as_ref().is_some_and(InPlace::has_preallocated)
    }

    /// From now on the file is appended to.
    ///
    /// # Errors
    /// The system's, as it cuts off the preallocated space; it is still written in place then.
    pub fn write_at_end(&mut self) -> io::Result<()> {
        if let Some(in_place) = &mut self.in_place {
            in_place.finish()?;
            self.in_place = None;
        }
        Ok(())
    }

    /// Begins a batch of `len` bytes; `None` if the file is not written in place.
    pub fn begin_batch(&mut self, len: usize) -> Option<&mut InPlace> {
        let in_place = self.in_place.as_mut()?;
        in_place.begin_batch(len);
        Some(in_place)
    }

    /// Writes the batch that was begun and is complete.
    ///
    /// # Errors
    /// As of [`LogFile::append`]. What the file has then behind its end can be told from a batch.
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
            // Some file systems find out only now that they have no direct writes.
            (0, Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => self.append_batch(),
            (_, Err(error)) => Err(error.into()),
        }
    }

    /// Appends the batch that cannot be written in place, like everything after it.
    fn append_batch(&mut self) -> Result<(), AppendError> {
        self.may_be_in_place = Some(false);
        let Some(mut in_place) = self.in_place.take() else { return Ok(()) };
        in_place.finish()?;
        self.append(in_place.batch())
    }

    /// The preallocated space that is to be made now, by another thread, for `wanted` bytes of it.
    ///
    /// # Errors
    /// Why there is none of what was wanted before.
    pub fn preallocation_due(&mut self, wanted: u64) -> io::Result<Option<Arc<PreallocationJob>>> {
        self.in_place.as_mut().map_or(Ok(None), |in_place| in_place.preallocation_due(wanted))
    }

    /// Forces what was appended to the disk.
    ///
    /// # Errors
    /// The system's, or one that was asked for.
    pub fn sync(&self) -> io::Result<()> {
        sync(&self.file, self.debug)
    }
}

/// Writes as much of the bytes as can be; how much, and why not more. A failure that was asked for leaves
/// a multiple of `unit` bytes.
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
/// The system's, or one that was asked for.
pub fn sync(file: &File, debug: &DebugSettings) -> io::Result<()> {
    if debug.disk_fault() == DiskFault::Sync {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    file.sync_data()
}
