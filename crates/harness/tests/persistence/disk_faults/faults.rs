//! A library that is loaded first and does with the server's calls what a file tells it to.

use harness::preload::Preload;
use harness::server::{Options, Program, Server};
use std::fs;

pub const ENOSPC: i32 = 28;
pub const EIO: i32 = 5;
pub const EINVAL: i32 = 22;

/// A disk whose calls can be made to fail.
pub struct Faults {
    library: Preload,
    program: Program,
}

impl Faults {
    pub fn new(name: &str) -> Faults {
        let library = Preload::build(&format!("faults-{name}"), include_str!("faults.c"));
        let list = library.folder().join("list");
        let program = library.under(&Program::under_test(), &[("DISK_FAULTS", &list)]);
        Faults { library, program }
    }

    /// From now on these calls fail, and no others.
    pub fn set(&self, lines: &[(&str, i32, &str)]) {
        let text: String =
            lines.iter().map(|(call, error, path)| format!("{call} {error} {path}\n")).collect();
        let new = self.library.folder().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.library.folder().join("list")).unwrap();
    }

    pub fn start(&self, arguments: &[&str]) -> Server {
        let mut all = vec!["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
        all.extend(arguments);
        Server::start(&self.program, Options::arguments(&all)).unwrap()
    }
}
