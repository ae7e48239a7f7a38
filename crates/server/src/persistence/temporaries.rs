//! Files that a server was writing when it was killed: `temp-PID.rdb` beside the snapshot and
//! `temp-rewriteaof-bg-PID.aof` in the directory of the log. Each can be as large as the data set.
//!
//! At its start, a server removes files that no process writes any more: no process has the number
//! in the name, or it is the server's own number, and the lock that a writer holds on its file is
//! free. (The number of a process in another container means nothing here, but its lock counts.)

use crate::log;
use process::os_error;
use std::fs::{self, File};
use std::path::Path;

/// The beginning and end of the names. The number of the process is in between.
const SNAPSHOT: (&str, &str) = ("temp-", ".rdb");
const RECEIVED: (&str, &str) = ("temp-sync-", ".rdb");
const BASE: (&str, &str) = ("temp-rewriteaof-bg-", ".aof");

/// Returns the name of this process's temporary snapshot.
pub fn snapshot() -> String {
    named(SNAPSHOT, std::process::id())
}

/// Returns the name of the snapshot that this process receives from its primary.
pub fn received() -> String {
    named(RECEIVED, std::process::id())
}

/// Returns the name of this process's temporary base of the log.
pub fn base() -> String {
    named(BASE, std::process::id())
}

fn named((begin, end): (&str, &str), process: u32) -> String {
    format!("{begin}{process}{end}")
}

/// Removes such files from the working directory and from the directory of the log.
pub fn remove_stale(log_folder: &Path) {
    remove_in(Path::new("."), SNAPSHOT);
    remove_in(Path::new("."), RECEIVED);
    remove_in(log_folder, BASE);
}

fn remove_in(folder: &Path, pattern: (&str, &str)) {
    // Unreadable entries are left to the next start.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| process_of(name, pattern));
        let path = entry.path();
        if !process.is_some_and(is_gone) || !is_unlocked(&path) {
            continue;
        }
        let shown = path.strip_prefix(".").unwrap_or(&path).display();
        log!(Notice, "Removing {shown}, which a process that has ended was writing");
        if let Err(error) = fs::remove_file(&path) {
            log!(Warning, "Can't remove {shown}: {}", os_error(&error));
        }
    }
}

/// Returns the process number in a name of this kind.
fn process_of(name: &str, (begin, end): (&str, &str)) -> Option<u32> {
    let digits = name.strip_prefix(begin)?.strip_suffix(end)?;
    let process = digits.parse().ok()?;
    (named((begin, end), process) == name).then_some(process)
}

/// Returns whether no other process has this number.
fn is_gone(process: u32) -> bool {
    process == std::process::id() || !Path::new("/proc").join(process.to_string()).exists()
}

/// Returns whether no process holds the file's lock. A file that cannot be opened counts as locked.
fn is_unlocked(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|facts| facts.is_file());
    is_file && File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_process_are_temporary() {
        assert_eq!(process_of("temp-12.rdb", SNAPSHOT), Some(12));
        assert_eq!(process_of("temp-rewriteaof-bg-7.aof", BASE), Some(7));
        for name in ["temp-.rdb", "temp-012.rdb", "temp-1a.rdb", "temp-+1.rdb", "temp-1.rdb.bak"] {
            assert_eq!(process_of(name, SNAPSHOT), None, "{name}");
        }
        assert_eq!(process_of(&snapshot(), SNAPSHOT), Some(std::process::id()));
    }

    #[test]
    fn a_file_that_somebody_writes_stays() {
        let folder = std::env::temp_dir().join(format!("dunlin-stale-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // No process has a number this large.
        let (held, left) = (folder.join("temp-4194305.rdb"), folder.join("temp-4194306.rdb"));
        let (running, other) = (folder.join("temp-1.rdb"), folder.join("temp-mine.rdb"));
        let files = [&held, &left, &running, &other].map(|path| File::create(path).unwrap());
        files[0].try_lock().unwrap();
        remove_in(&folder, SNAPSHOT);
        assert!(!left.exists());
        assert!(held.exists() && running.exists() && other.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
