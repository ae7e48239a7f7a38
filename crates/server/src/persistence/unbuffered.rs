//! A file that is written once, from beginning to end, without the page cache.
//!
//! A snapshot's file is not read again. In the page cache it would displace data that is, and
//! copying it there took half of the processor time of writing. If the file system does not support
//! direct writes, the file is an ordinary one.
#![allow(unsafe_code)] // sync_file_range(2)

use super::direct::set_direct;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use structs::aligned::{ALIGNMENT, AlignedBytes};

/// Bytes per write.
const BLOCK: usize = 1 << 20;
/// Memory of a file in bytes.
pub const MEMORY: usize = BLOCK + ALIGNMENT;
/// For an ordinary file, the number of bytes after which the kernel is asked to begin writing, so
/// that little is left for the fsync at the end.
const SYNC_EVERY: u64 = 4 << 20;

/// The file. The module's documentation describes it.
pub struct UnbufferedFile {
    file: File,
    is_direct: bool,
    /// Whether the disk begins to write before the end.
    is_incremental: bool,
    /// A block with `filled` bytes.
    memory: AlignedBytes,
    filled: usize,
    written: u64,
    synced: u64,
}

impl UnbufferedFile {
    /// Creates the file, or empties it. If there are no direct writes, `is_incremental` makes the
    /// disk write as the file grows.
    pub fn create(path: &Path, is_incremental: bool) -> io::Result<UnbufferedFile> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let (file, is_direct) = match options.clone().custom_flags(libc::O_DIRECT).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (options.open(path)?, false)
            }
            Err(error) => return Err(error),
        };
        // The lock says that the file is being written (`temporaries`). Not every file system has
        // locks.
        let _ = file.try_lock();
        Ok(UnbufferedFile {
            file,
            is_direct,
            is_incremental,
            memory: AlignedBytes::new(BLOCK),
            filled: 0,
            written: 0,
            synced: 0,
        })
    }

    /// Returns the number of bytes appended so far.
    pub fn len(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Appends to the file. After an error its content is undefined.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = bytes.len().min(BLOCK - self.filled);
            let (now, later) = bytes.split_at(taken);
            self.memory[self.filled..self.filled + taken].copy_from_slice(now);
            self.filled += taken;
            bytes = later;
            if self.filled == BLOCK {
                self.write_block()?;
            }
        }
        Ok(())
    }

    /// Writes the rest and forces the file to the disk.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.filled.is_multiple_of(ALIGNMENT) {
            self.become_ordinary()?;
        }
        self.write_block()?;
        self.file.sync_all()
    }

    fn write_block(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.filled {
            match self.file.write(&self.memory[done..self.filled]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Some file systems report this only now. A part of the block may have been
                // written.
                Err(error) if self.is_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                    self.become_ordinary()?;
                }
                Err(error) => return Err(error),
            }
        }
        self.written += self.filled as u64;
        self.filled = 0;
        if !self.is_direct && self.is_incremental && self.written - self.synced >= SYNC_EVERY {
            self.begin_to_sync();
        }
        Ok(())
    }

    /// Begins to use the page cache.
    fn become_ordinary(&mut self) -> io::Result<()> {
        if !self.is_direct {
            return Ok(());
        }
        self.is_direct = false;
        set_direct(&self.file, false)
    }

    fn begin_to_sync(&mut self) {
        // SAFETY: the descriptor is open, and the call only affects the disk's queue. It is a hint:
        // if it fails, the fsync at the end does the work.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                self.synced as libc::off64_t,
                (self.written - self.synced) as libc::off64_t,
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
        self.synced = self.written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_and_read(folder: &Path, pieces: &[usize]) {
        let path = folder.join(format!("dunlin-unbuffered-{}", std::process::id()));
        let mut file = UnbufferedFile::create(&path, true).expect("it can be made");
        let mut wanted = Vec::new();
        for (number, len) in pieces.iter().enumerate() {
            let bytes: Vec<u8> = (0..*len).map(|i| (i * 31 + number) as u8).collect();
            file.append(&bytes).expect("it can be written");
            wanted.extend(bytes);
            assert_eq!(file.len(), wanted.len() as u64);
        }
        file.finish().expect("it can be forced to the disk");
        let found = std::fs::read(&path).expect("it can be read");
        std::fs::remove_file(&path).expect("it can be removed");
        assert!(found == wanted, "{} bytes instead of {}", found.len(), wanted.len());
    }

    #[test]
    fn a_file_has_what_was_appended() {
        // With direct writes, and (mostly) without.
        for folder in [std::env::temp_dir(), "/dev/shm".into()] {
            write_and_read(&folder, &[]);
            write_and_read(&folder, &[1]);
            write_and_read(&folder, &[BLOCK, 4096, 4096]);
            write_and_read(&folder, &[BLOCK - 1, 1, 2 * BLOCK + 7, 3, 9 << 20]);
        }
    }
}
