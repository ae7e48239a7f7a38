//! Compiles the interpreter, Lua 5.1 with the changes that `lua/README.md` lists.

use std::path::Path;

fn main() {
    let sources = Path::new("lua");
    let mut build = cc::Build::new();
    build.include(sources).opt_level(2).warnings(false).flag_if_supported("-fno-math-errno");
    let files = std::fs::read_dir(sources).expect("the sources are beside this file");
    for file in files {
        let path = file.expect("the folder can be read").path();
        if path.extension().is_some_and(|end| end == "c") {
            build.file(path);
        }
    }
    build.compile("lua");
    println!("cargo::rerun-if-changed=lua");
}
