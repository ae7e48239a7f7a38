//! What the system says of the disk that a folder is on.
#![allow(unsafe_code)] // statvfs(3)

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The size of a file system, and what it still takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// Bytes of all it has.
    pub size_bytes: u64,
}

/// The bytes that may still be written to the file system of `folder`.
///
/// # Errors
/// It cannot be asked.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    space(folder).map(|space| space.free_bytes)
}

/// Returns how much the file system of `folder` has and still takes.
///
/// # Errors
/// It cannot be asked.
pub fn space(folder: &Path) -> io::Result<Space> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    let mut about = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a C string, and room for what is answered.
    if unsafe { libc::statvfs(name.as_ptr(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded.
    let about = unsafe { about.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(about.f_frsize);
    Ok(Space { free_bytes: bytes(about.f_bavail), size_bytes: bytes(about.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_room() {
        assert!(free_bytes(Path::new("/")).expect("there is one") > 0);
        let root = space(Path::new("/")).expect("there is one");
        assert!(root.free_bytes < root.size_bytes);
        assert!(free_bytes(Path::new("/no such folder")).is_err());
    }
}
