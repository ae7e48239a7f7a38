//! What fails below the processes of a machine: calls to its disk, as a list says, and its wall
//! clock, which is ahead by as many seconds as the test says. A library that is loaded first does
//! it (`faults.c`, `clock.c`), so processes that were started without it see nothing.

use crate::preload::Preload;
use crate::server::Program;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// See the head of this file.
#[derive(Debug)]
pub struct Faults {
    library: Preload,
}

impl Faults {
    /// Builds the library; `name` tells its folder from others of this process. Nothing fails yet.
    ///
    /// # Panics
    /// There is no C compiler.
    pub fn new(name: &str) -> Faults {
        let source = concat!(include_str!("faults.c"), "\n", include_str!("clock.c"));
        let library = Preload::build(&format!("faults-{name}"), source);
        let faults = Faults { library };
        fs::write(faults.file("ahead"), [0; 8]).expect("the clock's file is written");
        faults
    }

    fn file(&self, name: &str) -> PathBuf {
        self.library.folder().join(name)
    }

    /// The environment of a process with the library below it, and those that it starts.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", self.library.library()),
            ("DISK_FAULTS", self.file("list")),
            ("CLOCK_AHEAD", self.file("ahead")),
        ]
    }

    /// The program with the library below it.
    pub fn under(&self, program: &Program) -> Program {
        let [_, list, ahead] = self.environment();
        self.library.under(program, &[(list.0, &list.1), (ahead.0, &ahead.1)])
    }

    /// From now on the calls of this list fail, in the form of `faults.c`, and no others.
    ///
    /// # Panics
    /// The list cannot be written.
    pub fn set_disk(&self, list: &str) {
        let new = self.file("new");
        fs::write(&new, list).expect("the list is written");
        fs::rename(new, self.file("list")).expect("the list is there");
    }

    /// The wall clock is ahead by so many seconds.
    ///
    /// # Panics
    /// The number cannot be written.
    pub fn jump(&self, seconds: i64) {
        // Processes have mapped the file, so it is not cut off.
        let file = File::options().write(true).open(self.file("ahead")).expect("it is there");
        file.write_all_at(&seconds.to_ne_bytes(), 0).expect("it is written");
    }
}
