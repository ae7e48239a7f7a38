//! Writing past the page cache (`O_DIRECT`): what it asks of memory and files.
#![allow(unsafe_code)] // fcntl(2)

use replication::preallocation::BLOCK;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd as _;

/// Direct writes begin and end at multiples of it, in memory and in the file. The sectors of all
/// disks divide it.
pub const ALIGNMENT: usize = BLOCK;

/// Memory that begins at a multiple of it.
pub struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many zeros.
    pub fn new(len: usize) -> AlignedBytes {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "a vector of bytes can be aligned");
        AlignedBytes { bytes, start, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Switches direct writes of an open file on or off.
///
/// # Errors
/// The system's: the file system may have none.
pub fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the flags are those of an open file.
    let is_done = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        let wanted = if is_direct { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        flags >= 0 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, wanted) == 0
    };
    if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
