//! Segments as files in a folder, read and written past the page cache by a pool of threads.
//!
//! The folder belongs to one process: it holds a lock file as long as it lives. What an earlier process
//! has left is removed at the start, and everything at the end.
#![allow(unsafe_code)] // fallocate(2)

use crate::disk::{Disk, Operation, Work};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;
use structs::sync::{lock, read, wait, write};

const LOCK_NAME: &str = "dunlin-tier.lock";
const PREFIX: &str = "dunlin-tier-";
const SUFFIX: &str = ".segment";

/// Segments in a folder.
pub struct Files {
    folder: PathBuf,
    lock: File,
    open: RwLock<HashMap<u32, Arc<File>>>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    has_direct: AtomicBool,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    reads: VecDeque<(Arc<File>, u64, Operation)>,
    writes: VecDeque<(Arc<File>, u64, Operation)>,
    is_closed: bool,
}

impl Files {
    /// Takes a folder, which is made if there is none, and removes the segments that are in it. `spawn` starts
    /// a thread; there are `threads` of them.
    ///
    /// # Errors
    /// The folder cannot be used, or another process has it.
    pub fn open(
        folder: &Path,
        threads: usize,
        spawn: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Files> {
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
        let shared = Arc::new(Shared { queue: Mutex::default(), arrived: Condvar::new() });
        let threads = (0..threads.max(1)).map(|index| {
            let shared = Arc::clone(&shared);
            spawn(Box::new(move || serve(&shared, index == 0)))
        });
        let threads = Mutex::new(threads.collect::<io::Result<_>>()?);
        let (open, has_direct) = (RwLock::default(), AtomicBool::new(true));
        Ok(Files { folder: folder.to_owned(), lock, open, shared, threads, has_direct })
    }

    /// Whether the page cache is passed by, which not every file system allows.
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

    /// Ends all operations that were begun, and removes the segments and the lock file.
    pub fn close(&self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.arrived.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has ended the process.
            let _ = thread.join();
        }
        write(&self.open).clear();
        // What is left is removed by the next process that uses the folder.
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

/// Sets room aside, so that writing does not find the disk full.
fn set_aside(file: &File, bytes: u64) -> io::Result<()> {
    let bytes_signed = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes_signed) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // Then a full disk shows when it is written.
            error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(bytes),
            error => Err(error),
        },
    }
}

impl Disk for Files {
    fn create(&self, segment: u32, bytes: u64) -> io::Result<()> {
        let file = self.open_file(segment)?;
        if let Err(error) = set_aside(&file, bytes) {
            // The error is what matters.
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
        let mut queue = lock(&self.shared.queue);
        for operation in operations {
            let file = Arc::clone(&open[&operation.segment]);
            let at = u64::from(operation.offset);
            match operation.work {
                Work::Read(_) => queue.reads.push_back((file, at, operation)),
                Work::Write(_) => queue.writes.push_back((file, at, operation)),
            }
            self.shared.arrived.notify_one();
        }
    }
}

/// Carries out operations until the files are closed and nothing is left to do. Reads go first, since clients
/// wait for them; but one thread prefers writes, so that these make progress whatever is read.
fn serve(shared: &Shared, prefers_writes: bool) {
    let mut queue = lock(&shared.queue);
    loop {
        let Queue { reads, writes, .. } = &mut *queue;
        let (first, second) = if prefers_writes { (writes, reads) } else { (reads, writes) };
        let next = first.pop_front().or_else(|| second.pop_front());
        let Some((file, at, operation)) = next else {
            if queue.is_closed {
                return;
            }
            queue = wait(&shared.arrived, queue);
            continue;
        };
        drop(queue);
        let Operation { len, work, done, .. } = operation;
        let (work, result) = match work {
            Work::Read(mut bytes) => {
                let result = read_all(&file, &mut bytes[..len], at);
                (Work::Read(bytes), result)
            }
            Work::Write(bytes) => {
                let result = file.write_all_at(&bytes[..len], at).map(|()| len);
                (Work::Write(bytes), result)
            }
        };
        done(work, result);
        queue = lock(&shared.queue);
    }
}

/// Reads until the buffer is full or the file ends.
fn read_all(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
