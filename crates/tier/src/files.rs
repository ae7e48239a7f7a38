//! Segments as files in a folder, read and written without the page cache, through io_uring or by
//! threads.
//!
//! The folder belongs to one process, which holds a lock file as long as it lives. Files of an
//! earlier process are removed at the start, and all files at the end.
#![allow(unsafe_code)] // fallocate(2)

use crate::disk::{Disk, Operation};
use crate::own_ring;
use crate::queue::{Carrier, Job};
use crate::threads::Pool;
use crate::uring::Ring;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use structs::sync::{read, write};

const LOCK_NAME: &str = "dunlin-tier.lock";
const PREFIX: &str = "dunlin-tier-";
const SUFFIX: &str = ".segment";

/// How reads and writes are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// Through io_uring, by one thread.
    Uring,
    /// By a pool of threads.
    Threads,
}

/// Starts a thread.
pub type Spawn<'s> = dyn Fn(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> + 's;

/// Segments in a folder.
pub struct Files {
    folder: PathBuf,
    lock: File,
    open: RwLock<HashMap<u32, Arc<File>>>,
    backend: Backend,
    carrier: Box<dyn Carrier>,
    has_direct: AtomicBool,
}

impl Files {
    /// Takes possession of a folder, and creates it if necessary. Removes the segments in it. If
    /// io_uring is wanted but refused, threads are used.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
    pub fn open(folder: &Path, wanted: Backend, spawn: &Spawn<'_>) -> io::Result<Files> {
        std::fs::create_dir_all(folder)?;
        let lock_path = folder.join(LOCK_NAME);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(lock_path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let why = format!("{} is in use by another process", folder.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        remove_segments(folder)?;
        let ring = if wanted == Backend::Uring { Ring::new(spawn).ok() } else { None };
        let (backend, carrier): (_, Box<dyn Carrier>) = match ring {
            Some(ring) => (Backend::Uring, Box::new(ring)),
            None => (Backend::Threads, Box::new(Pool::new(spawn)?)),
        };
        let (open, has_direct) = (RwLock::default(), AtomicBool::new(true));
        Ok(Files { folder: folder.to_owned(), lock, open, backend, carrier, has_direct })
    }

    /// Returns how reads and writes are executed.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns whether the page cache is bypassed. Not every file system allows this.
    pub fn has_direct(&self) -> bool {
        self.has_direct.load(Relaxed)
    }

    fn path(&self, segment: u32) -> PathBuf {
        self.folder.join(format!("{PREFIX}{segment}{SUFFIX}"))
    }

    fn open_file(&self, segment: u32) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        if self.has_direct() {
            match options.clone().custom_flags(libc::O_DIRECT).open(self.path(segment)) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.has_direct.store(false, Relaxed);
                }
                result => return result,
            }
        }
        options.open(self.path(segment))
    }

    /// Completes all operations that have begun, and removes the segments and the lock file.
    /// Threads may begin others, which are not carried out: the process is about to end.
    pub fn close(&self) {
        self.carrier.close();
        // Remaining files are removed by the next process that uses the folder.
        let _ = remove_segments(&self.folder);
        let _ = std::fs::remove_file(self.folder.join(LOCK_NAME));
        let _ = self.lock.unlock();
    }
}

fn remove_segments(folder: &Path) -> io::Result<()> {
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Preallocates space, so that no write finds the disk full.
fn set_aside(file: &File, bytes: u64) -> io::Result<()> {
    let bytes_signed = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes_signed) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // On such a file system a full disk shows when it is written.
            error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(bytes),
            error => Err(error),
        },
    }
}

impl Disk for Files {
    fn create(&self, segment: u32, bytes: u64) -> io::Result<()> {
        let file = self.open_file(segment)?;
        if let Err(error) = set_aside(&file, bytes) {
            // The first error is returned.
            let _ = std::fs::remove_file(self.path(segment));
            return Err(error);
        }
        write(&self.open).insert(segment, Arc::new(file));
        Ok(())
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        std::fs::remove_file(self.path(segment))?;
        write(&self.open).remove(&segment);
        Ok(())
    }

    fn submit(&self, operations: Vec<Operation>) {
        let open = read(&self.open);
        let job =
            |operation: Operation| Job { file: Arc::clone(&open[&operation.segment]), operation };
        let jobs = own_ring::take(operations.into_iter().map(job).collect());
        drop(open);
        if !jobs.is_empty() {
            self.carrier.submit(jobs);
        }
    }

    fn poll(&self) -> bool {
        own_ring::wait()
    }
}
