//! For tests of what is process-wide (signals, crashes, the time zone, forking): a test runs
//! itself again in a child process and tells the two apart by an environment variable.

use std::process::Command;

/// In the child started by [`child`] for `case`: the argument it was given.
pub fn child_argument(case: &str) -> Option<String> {
    std::env::var(variable(case)).ok()
}

/// A command that runs only the test of this name (its path within the crate) in a new process,
/// where [`child_argument`] of `case` returns `argument`.
pub fn child(test: &str, case: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(variable(case), argument);
    command
}

/// Runs [`child`] with `environment` and checks that the one test ran and passed.
pub fn child_passes(test: &str, case: &str, argument: &str, environment: &[(&str, &str)]) {
    let mut command = child(test, case, argument);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{complaint}");
}

fn variable(case: &str) -> String {
    format!("DUNLIN_TEST_{}", case.to_uppercase())
}

/// A directory of its own for one test, removed when dropped.
pub struct Directory(std::path::PathBuf);

impl Directory {
    /// A new, empty directory.
    pub fn new(name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir()
            .join(format!("dunlin-test-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// Writes a file below the directory, with the folders it needs.
    pub fn file(&self, path: &str, content: &str) -> &Self {
        let file = self.0.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        self
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
