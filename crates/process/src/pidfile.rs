//! `pidfile`: the process number in a file, for scripts that stop or supervise the server.

use crate::log;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Used when the server goes to the background and no `pidfile` is configured.
pub const DEFAULT_PATH: &str = "/var/run/dunlin.pid";

/// Where to write the process number: nowhere in the foreground without `pidfile`.
pub fn path(configured: Option<&Path>, in_background: bool) -> Option<PathBuf> {
    match configured.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => Some(path.to_owned()),
        None => in_background.then(|| PathBuf::from(DEFAULT_PATH)),
    }
}

/// A process-number file that was written. It stays until [`PidFile::remove`]: a kill leaves it
/// behind, as in Redis, and so does a crash in the foreground ([`crate::crash::remove_at_crash`]).
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file, as best it can: the server also starts without, and the log says so. Call
    /// it after going to the background and after changing to `dir`, from where a relative path
    /// counts.
    pub fn create(path: &Path) -> Option<Self> {
        match Self::try_create(path) {
            Ok(file) => Some(file),
            Err(error) => {
                log!(
                    Warning,
                    "Failed to write PID file: {} ({})",
                    super::os_error(&error),
                    path.display()
                );
                None
            }
        }
    }

    fn try_create(path: &Path) -> io::Result<Self> {
        // Absolute, so that a later change of `dir` does not make us remove another file.
        let path = std::path::absolute(path)?;
        fs::write(&path, format!("{}\n", std::process::id()))?;
        Ok(Self { path })
    }

    /// Removes the file at a clean exit, unless another process has put its number there since.
    pub fn remove(self) {
        log!(Notice, "Removing the pid file.");
        let ours = std::process::id().to_string();
        if fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == ours) {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// The absolute path, in the form the crash handler needs to remove the file.
    pub fn c_path(&self) -> Option<CString> {
        CString::new(self.path.as_os_str().as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    #[test]
    fn no_file_in_the_foreground_unless_configured() {
        assert_eq!(path(None, false), None);
        assert_eq!(path(Some(Path::new("")), false), None);
        assert_eq!(path(None, true).as_deref(), Some(Path::new(DEFAULT_PATH)));
        assert_eq!(path(Some(Path::new("a.pid")), true).as_deref(), Some(Path::new("a.pid")));
    }

    #[test]
    fn is_written_and_removed_but_never_another_process_s() {
        let folder = Directory::new("pidfile");
        let path = folder.path().join("server.pid");
        let file = PidFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        file.remove();
        assert!(!path.exists());

        let file = PidFile::create(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert!(path.exists());
        assert!(PidFile::create(Path::new("/nonexistent-folder/server.pid")).is_none());
    }
}
