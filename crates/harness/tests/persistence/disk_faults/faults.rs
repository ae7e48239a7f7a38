//! A library that is loaded first and does with the server's calls what a file tells it to.

use harness::faults;
use harness::server::{Options, Program, Server};

pub const ENOSPC: i32 = 28;
pub const EIO: i32 = 5;
pub const EINVAL: i32 = 22;

/// A disk whose calls can be made to fail.
pub struct Faults {
    disk: faults::Faults,
    program: Program,
}

impl Faults {
    pub fn new(name: &str) -> Faults {
        let disk = faults::Faults::new(name);
        let program = disk.under(&Program::under_test());
        Faults { disk, program }
    }

    /// From now on these calls fail, and no others.
    pub fn set(&self, lines: &[(&str, i32, &str)]) {
        let line = |(call, error, path): &(&str, i32, &str)| format!("{call} {error} {path}\n");
        self.disk.set_disk(&lines.iter().map(line).collect::<String>());
    }

    pub fn start(&self, arguments: &[&str]) -> Server {
        let mut all = vec!["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
        all.extend(arguments);
        Server::start(&self.program, Options::arguments(&all)).unwrap()
    }
}
