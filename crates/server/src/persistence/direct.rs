//! Writing past the page cache (`O_DIRECT`): what it asks of files.
#![allow(unsafe_code)] // fcntl(2)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

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
