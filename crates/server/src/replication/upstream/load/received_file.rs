//! The file into which a snapshot is received (`repl-diskless-load disabled`).

use crate::log;
use crate::persistence::snapshot_file::sync_folder_of;
use crate::persistence::temporaries;
use engine::Engine;
use process::os_error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file with a received snapshot. It is deleted unless it replaces the configured one.
pub struct ReceivedFile {
    path: PathBuf,
    /// Locked, so that another process that starts in this folder knows that the file is in use.
    _file: File,
}

impl ReceivedFile {
    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file the configured snapshot, because it has been loaded.
    pub fn replace_snapshot(self, engine: &Engine) {
        let target = engine.config.dbfilename().as_path().to_path_buf();
        // A running save would replace it by an older data set.
        engine.persistence.end_running();
        let renamed = std::fs::rename(&self.path, &target).and_then(|()| sync_folder_of(&target));
        if let Err(error) = renamed {
            log!(
                Warning,
                "Failed trying to rename the temp DB into {}: {}",
                target.display(),
                os_error(&error)
            );
        }
    }
}

impl Drop for ReceivedFile {
    fn drop(&mut self) {
        // The file has been renamed. If it cannot be removed, it does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes the snapshot into a file. Returns the file and its size in bytes.
///
/// # Errors
/// The link or the disk failed. No file is left.
pub fn write_file(input: &mut dyn Read) -> io::Result<(ReceivedFile, u64)> {
    let path = PathBuf::from(temporaries::received());
    let mut file = File::create(&path)?;
    let received = ReceivedFile { path, _file: file.try_clone()? };
    file.try_lock().map_err(io::Error::from)?;
    let mut piece = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match input.read(&mut piece)? {
            0 => break,
            read => {
                file.write_all(&piece[..read])?;
                bytes += read as u64;
            }
        }
    }
    file.sync_all()?;
    Ok((received, bytes))
}
