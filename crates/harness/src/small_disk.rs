//! A small file system in memory, so that a disk can be full.

use crate::environment::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system that is mounted as long as the value exists.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size (`6m`) at a folder among those for what is temporary. `None` where
    /// nothing can be mounted: then the test is skipped.
    pub fn new(name: &str, size: &str) -> Option<SmallDisk> {
        let path = std::env::temp_dir().join(format!("small-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder is made");
        let disk = SmallDisk(path);
        if disk.mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]) {
            return Some(disk);
        }
        skipped("no file system can be mounted here");
        None
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Gives it another size. Returns whether that was done.
    pub fn resize(&self, size: &str) -> bool {
        self.mount(&["-o", &format!("remount,size={size}")])
    }

    fn mount(&self, words: &[&str]) -> bool {
        let done = Command::new("mount").args(words).arg(&self.0).output();
        done.is_ok_and(|output| output.status.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is still mounted stays visible; a test must not fail at its end.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
        let _ = fs::remove_dir(&self.0);
    }
}
