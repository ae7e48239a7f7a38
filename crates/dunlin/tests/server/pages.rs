//! The commands and programs of pages, run in their order by a shell in a network of its own, so
//! that their ports are free. What a page shows below them is what they print.

use crate::support::Folder;
use harness::cluster::Etcd;
use harness::environment::skipped;
use harness::server::repository;
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::{env, fs};

/// A fenced block of a page.
struct Block {
    language: String,
    text: String,
    /// The note before it that it is not run.
    is_left_out: bool,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut is_open, mut is_left_out) = (false, false);
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(language) if !is_open => {
                let (language, text) = (language.to_owned(), String::new());
                found.push(Block { language, text, is_left_out });
                (is_open, is_left_out) = (true, false);
            }
            Some(_) => is_open = false,
            None if is_open => {
                let block = found.last_mut().unwrap();
                block.text += line;
                block.text.push('\n');
            }
            None => is_left_out |= line.starts_with("<!-- not run: "),
        }
    }
    found
}

/// The blocks as one script: each prints to a file of its own, whose name is its number.
fn script(blocks: &[Block], python: Option<&str>) -> String {
    let mut script = String::from("set -eu -o pipefail\nip link set lo up\n");
    for (number, block) in blocks.iter().enumerate().filter(|(_, block)| !block.is_left_out) {
        let text = &block.text;
        // Writing to a string cannot fail.
        let _ = match (block.language.as_str(), python) {
            ("sh", _) => writeln!(script, "{{\n{text}}} >printed.{number}"),
            ("python", Some(python)) => {
                writeln!(script, "{python} - <<'PYTHON' >printed.{number}\n{text}PYTHON")
            }
            _ => Ok(()),
        };
    }
    script
}

/// Returns a Python that has redis-py: the one of the tests of redis-py, or the machine's.
fn python() -> Option<String> {
    let home =
        env::var("XDG_CACHE_HOME").or_else(|_| env::var("HOME").map(|home| home + "/.cache"));
    let own = home.unwrap() + "/dunlin/clients/redis-py/bin/python";
    let has_library = |python: &String| {
        let done = Command::new(python).args(["-c", "import redis"]).output();
        done.is_ok_and(|done| done.status.success())
    };
    [own, "python3".to_owned()].into_iter().find(has_library)
}

/// Runs what a page has, and compares what it prints with what the page shows. Programs are left
/// out without a Python.
fn run(page: &str, python: Option<&str>) {
    let page = fs::read_to_string(repository().join(page)).unwrap();
    let blocks = blocks(&page);
    let folder = Folder::new();
    fs::create_dir(folder.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_dunlin"), folder.path("bin/dunlin")).unwrap();
    let path = format!("{}:{}", folder.path("bin").display(), env::var("PATH").unwrap());
    let script = folder.file("script", &script(&blocks, python));
    // What it starts in the background ends with it.
    let done = Command::new("unshare")
        .args(["--net", "--pid", "--mount-proc", "--fork", "--kill-child", "bash", &script])
        .current_dir(folder.path("."))
        .env("PATH", path)
        .env("DUNLIN_ETCD", Etcd::program())
        .env_remove("DUNLIN_NODE")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stdout));
    let mut compared = 0;
    for (number, pair) in blocks.windows(2).enumerate() {
        let is_run = pair[0].language == "sh" || (pair[0].language == "python" && python.is_some());
        if is_run && pair[1].language == "text" {
            let printed = folder.read(&format!("printed.{number}"));
            assert_eq!(printed, pair[1].text, "of\n{}", pair[0].text);
            compared += 1;
        }
    }
    assert!(compared > 4, "the page shows little of what it prints: {compared}");
}

#[test]
fn the_first_hour_goes_as_the_page_says() {
    let python = python();
    run("docs/quickstart.md", python.as_deref());
    if python.is_none() {
        skipped("the Python program was left out: `./test clients redis-py` installs redis-py");
    }
}

#[test]
fn the_examples_print_what_the_page_shows() {
    let Some(python) = python() else {
        skipped("there is no redis-py: `./test clients redis-py` installs it");
        return;
    };
    run("docs/examples.md", Some(&python));
}
