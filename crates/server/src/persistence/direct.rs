//! Direct writes, which bypass the page cache (`O_DIRECT`).
#![allow(unsafe_code)] // fcntl(2)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// Enables or disables direct writes for an open file.
///
/// # Errors
/// Those of the system: the file system may not support them.
pub fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the flags are those of an open file.
    let is_done = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        let wanted = if is_direct { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        flags >= 0 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, wanted) == 0
    };
    if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
