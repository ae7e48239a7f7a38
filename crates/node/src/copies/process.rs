//! A process that outlives the node: started in a group of its own, or found again.

use process::beside;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The variable with the password of etcd's user, if no file has it.
pub const PASSWORD: &str = "DUNLIN_ETCD_PASSWORD";

/// The variable with the token, if no file has it.
pub const TOKEN: &str = "DUNLIN_JOIN_TOKEN";

/// See the head of this file.
pub struct Process {
    id: u32,
    /// It was started by this node, which has to take its status.
    child: Option<Child>,
    directory: PathBuf,
    /// How it has ended.
    end: Option<String>,
}

impl Process {
    /// Starts a program in a directory, with its output appended to a log, or to that of this
    /// process.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        mut command: Command,
        directory: &Path,
        log: Option<&Path>,
    ) -> io::Result<Process> {
        if let Some(log) = log {
            let log = append(log)?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        // They are the node's.
        command.env_remove(PASSWORD).env_remove(TOKEN);
        command.current_dir(directory).stdin(Stdio::null());
        // Neither a signal to the node's group nor the end of its terminal reaches it.
        let child = command.process_group(0).spawn()?;
        let directory = directory.to_owned();
        Ok(Process { id: child.id(), child: Some(child), directory, end: None })
    }

    /// A process that was started by another node.
    pub fn adopt(id: u32, directory: &Path) -> Process {
        Process { id, child: None, directory: directory.to_owned(), end: None }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns how it ended. `None`: it runs.
    pub fn end(&mut self) -> Option<String> {
        if self.end.is_none() {
            self.end = self.look();
            if self.end.is_some()
                && let Some(child) = self.child.take()
            {
                beside::release(child);
            }
        }
        self.end.clone()
    }

    fn look(&self) -> Option<String> {
        let Some(child) = &self.child else {
            // Numbers are used again, directories are not.
            let is_there = beside::directory(self.id).as_deref() == Some(&self.directory);
            return (!is_there).then(|| "it ended".into());
        };
        match beside::status(child.id()) {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(format!("its status is lost: {error}")),
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_adopted_by_its_directory() {
        let folder = std::env::temp_dir().join(format!("dunlin-process-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("sleep");
        command.arg("600");
        let mut started = Process::start(command, &folder, Some(&*folder.join("log"))).unwrap();
        let mut adopted = Process::adopt(started.id(), &folder);
        let mut foreign = Process::adopt(std::process::id(), &folder);
        assert_eq!((started.end(), adopted.end()), (None, None));
        assert!(foreign.end().is_some(), "its directory is another");
        beside::kill(started.id());
        while started.end().is_none() {
            std::thread::yield_now();
        }
        assert!(started.end().unwrap().contains("signal: 9"));
        assert!(adopted.end().is_some());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
