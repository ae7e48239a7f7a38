//! Compiles the interpreter: Lua 5.1 as the crate `lua-src` carries it, with the patches of
//! `patches/` applied to a copy, and the code of `glue/`. See `docs/internals/scripts.md`.

mod patch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{env, fs, panic};

/// Files of Lua that are not compiled: libraries that scripts do not get, and the reader of
/// precompiled chunks, which `glue/text.c` replaces.
const LEFT_OUT: [&str; 6] =
    ["liolib.c", "loslib.c", "ldblib.c", "loadlib.c", "linit.c", "lundump.c"];

fn main() {
    for folder in ["build", "glue", "patches"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    println!("cargo::rerun-if-env-changed=LUA_SOURCES");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("lua");
    copy_sources(&find_sources(), &out);
    for file in files_in(Path::new("patches"), "patch") {
        let text = fs::read_to_string(&file).expect("a patch is a text");
        if let Err(error) = patch::apply(&text, &out) {
            panic!("{} does not apply to Lua's sources: {error}", file.display());
        }
    }
    let mut build = cc::Build::new();
    build.include("glue").include(&out).opt_level(2).warnings(false);
    build.flag_if_supported("-fno-math-errno");
    build.files(files_in(&out, "c")).files(files_in(Path::new("glue"), "c"));
    build.compile("lua");
}

/// Returns the folder of Lua 5.1 in the crate `lua-src`, or the one that `LUA_SOURCES` names.
///
/// The crate compiles Lua but does not say where its sources are. It panics for a machine that it
/// does not know, and a panic says which file it came from: `src/lib.rs` of that crate.
fn find_sources() -> PathBuf {
    if let Some(folder) = env::var_os("LUA_SOURCES") {
        return folder.into();
    }
    let place = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&place);
    panic::set_hook(Box::new(move |info| {
        *noted.lock().expect("nothing panics while it is held") =
            info.location().map(|location| PathBuf::from(location.file()));
    }));
    let result = panic::catch_unwind(|| {
        lua_src::Build::new()
            .target("unknown")
            .host("unknown")
            .out_dir(env::var_os("OUT_DIR").unwrap_or_default())
            .build(lua_src::Lua51)
    });
    let _ = panic::take_hook();
    assert!(result.is_err(), "lua-src compiled for an unknown machine");
    let file = place.lock().expect("nothing panics while it is held").take();
    let folder = file.as_deref().and_then(Path::parent).and_then(Path::parent);
    match folder.map(|folder| folder.join("lua-5.1.5")).filter(|folder| folder.is_dir()) {
        Some(folder) => folder,
        None => panic!(
            "the sources of Lua 5.1.5 were not found in the crate lua-src (it says that it is at \
             {file:?}); set LUA_SOURCES to their folder"
        ),
    }
}

/// Makes `to` a copy of Lua's sources, without the files that are left out.
fn copy_sources(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).expect("the folder of an earlier build can be removed");
    }
    fs::create_dir_all(to).expect("cargo's folder can be written to");
    for end in ["c", "h"] {
        for file in files_in(from, end) {
            let name = file.file_name().expect("a file has a name");
            if !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                // The contents alone: the files of a registry may be read-only.
                let text = fs::read(&file).expect("the sources can be read");
                fs::write(to.join(name), text).expect("cargo's folder can be written to");
            }
        }
    }
}

/// Returns the files of a folder whose names end in `.end`, sorted.
fn files_in(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{} cannot be read: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|found| found == end))
        .collect();
    files.sort();
    files
}
