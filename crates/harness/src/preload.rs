//! Libraries that come between a server and the C library: what a test needs to see or to change of
//! the calls that go to the disk. They are written in C, built when they are needed, and loaded by
//! `LD_PRELOAD`.

use crate::server::Program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with a library, removed in the end.
#[derive(Debug)]
pub struct Preload {
    folder: PathBuf,
}

impl Preload {
    /// Builds a library from its source; `name` tells its folder from others of this process.
    ///
    /// # Panics
    /// If there is no C compiler, or the source is wrong: it is for tests.
    pub fn build(name: &str, source: &str) -> Preload {
        let folder = std::env::temp_dir().join(format!("preload-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the library");
        let file = folder.join("library.c");
        fs::write(&file, source).expect("the library's source is written");
        let library = folder.join("library.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
        let built = compiler.args([&library, &file]).status();
        assert!(built.is_ok_and(|status| status.success()), "cc does not build {name}");
        Preload { folder }
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.folder.join("library.so")
    }

    /// A folder for the files that the library and the test exchange.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A program with the library loaded first, and these in its environment.
    pub fn under(&self, program: &Program, environment: &[(&str, &Path)]) -> Program {
        let library = self.library();
        let all = [("LD_PRELOAD", library.as_path())];
        let all = all.iter().chain(environment);
        let words = all.map(|(name, value)| format!("{name}={}", value.display()));
        let words: Vec<String> = ["env".to_owned()].into_iter().chain(words).collect();
        program.started_by(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        // It is harmless.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
