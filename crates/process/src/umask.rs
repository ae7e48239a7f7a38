//! The mask of new files' modes.
#![allow(unsafe_code)] // umask(2)

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What is the user's alone: folders get 0700, files 0600.
const PRIVATE: libc::mode_t = 0o077;

/// Makes all new files and folders of this process, and of those that it starts, its user's alone.
/// Called before there are other threads.
pub fn make_private() {
    // SAFETY: has no preconditions.
    unsafe { libc::umask(PRIVATE) };
}

/// Shuts others out of a folder that is there already.
///
/// # Errors
/// The folder is another user's, perhaps.
pub fn shut(folder: &Path) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode();
    match mode & PRIVATE {
        0 => Ok(()),
        _ => fs::set_permissions(folder, Permissions::from_mode(mode & 0o7777 & !PRIVATE)),
    }
}
