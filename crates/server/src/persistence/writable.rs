//! At the start: whether the folders that data are to be saved in can be written. A server that finds
//! out at its first snapshot has answered OK until then, and one that ends before keeps nothing.

use config::Config;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Checks the folders of what the configuration saves: snapshots in `dir`, which is the current
/// folder, and the append-only log in its own.
///
/// # Errors
/// One cannot be written; the text says what to do.
pub fn check(config: &Config) -> Result<(), String> {
    let mut folders = Vec::new();
    if !config.save_points().is_empty() {
        folders.push(PathBuf::new());
    }
    if config.appendonly() {
        let log = config.appenddirname().as_path().to_path_buf();
        folders.push(if log.is_dir() { log } else { PathBuf::new() });
    }
    for folder in folders {
        if let Some(error) = refusal(&folder) {
            let current = std::env::current_dir().unwrap_or_default();
            let folder: PathBuf = current.iter().chain(&folder).collect();
            return Err(format!(
                "Can't write in '{}', where data are to be saved: {error}. Give the folder to the user of \
                 this server, choose another one with 'dir', or save nothing: --save '' --appendonly no",
                folder.display()
            ));
        }
    }
    Ok(())
}

/// Returns why a file cannot be made in a folder, if that will not pass by itself: a full disk may.
fn refusal(folder: &Path) -> Option<io::Error> {
    let path = folder.join(format!("temp-writable-{}", std::process::id()));
    let made = fs::File::options().write(true).create_new(true).open(&path);
    let removed = match made {
        Ok(_) => fs::remove_file(&path),
        // One that was killed here before had the same number.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(&path),
        Err(error) => Err(error),
    };
    removed.err().filter(|error| {
        matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_takes_no_files_is_found_and_another_stays_as_it_is() {
        // Of the kernel: not even root makes files there.
        assert!(refusal(Path::new("/sys/kernel")).is_some());
        let folder = std::env::temp_dir().join(format!("dunlin-writable-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let left = folder.join(format!("temp-writable-{}", std::process::id()));
        fs::write(&left, "").unwrap();
        assert!(refusal(&folder).is_none());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
