//! What a release promises: one version everywhere, and a commit where the build was told.

use crate::support::{Folder, Running, ask, client, port};
use harness::server::repository;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The value of the first line `name: value` or `name = "value"` of a file of the repository.
fn value_of(path: &str, name: &str) -> String {
    let text = fs::read_to_string(repository().join(path)).unwrap();
    let found = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start();
        Some(rest.strip_prefix([':', '='])?.trim().trim_matches('"').to_owned())
    });
    found.unwrap_or_else(|| panic!("{path} has no {name}"))
}

/// The documents of users.
fn documents() -> Vec<PathBuf> {
    let pages = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect::<Vec<_>>()
    };
    [pages(&repository().join("docs")), pages(&repository())].concat()
}

#[test]
fn one_version_is_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(value_of("Cargo.toml", "version"), version);
    assert_eq!(value_of("deploy/helm/dunlin/Chart.yaml", "version"), version);
    assert_eq!(value_of("deploy/helm/dunlin/Chart.yaml", "appVersion"), version);
    let mut shown = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for word in text.split("Dunlin ").skip(1) {
            let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
            let word = word[..end].trim_end_matches('.');
            if word.split('.').count() == 3 {
                assert_eq!(word, version, "{}", document.display());
                shown += 1;
            }
        }
    }
    assert!(shown > 0, "no document shows a version");
}

#[test]
fn the_program_names_version_and_commit() {
    let commit = option_env!("DUNLIN_GIT_SHA1");
    let version = match commit {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    for (words, name) in [
        (&[][..], "dunlin"),
        (&["bench"], "dunlin bench"),
        (&["cluster", "up"], "dunlin cluster up"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let said = program.args(words).arg("--version").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{name} {version}\n"));
    }
    let (number, port) = port();
    let _running = Running::start(Folder::new(), &["--port", &port]);
    let info = ask(&mut client(number), &["INFO", "server"]).join("\n");
    let line = format!("redis_git_sha1:{}\r\n", commit.unwrap_or("00000000"));
    assert_eq!(info.matches(&line).count(), 1, "{info}");
}

/// What `--help` prints behind some words.
fn help(words: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_dunlin");
    let said = Command::new(program).args(words).arg("--help").output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{words:?}: {said:?}");
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(!text.contains(program), "{words:?} names the program's path: {text}");
    text
}

#[test]
fn each_command_explains_itself_in_one_form() {
    for words in [
        &[][..],
        &["server"],
        &["cli"],
        &["check"],
        &["cluster"],
        &["cluster", "up"],
        &["cluster", "create-db"],
        &["node"],
        &["proxy"],
        &["console"],
        &["bench"],
        &["completions"],
        &["container"],
    ] {
        let text = help(words);
        assert!(text.contains("The guide"), "{words:?} names no document: {text}");
        let (sentence, _) = text.split_once("\n\nUsage: dunlin").expect("a sentence, then usage");
        assert!(sentence.starts_with(char::is_uppercase) && sentence.len() < 200, "{text}");
    }
    // Each has the options that it is for.
    let (up, node) = (help(&["cluster", "up"]), help(&["node"]));
    assert!(up.contains("--join <JOIN>") && !up.contains("--contained"), "{up}");
    assert!(node.contains("--contained") && !node.contains("--join <JOIN>"), "{node}");
}

#[test]
fn shells_complete_commands_and_options() {
    let complete = |shell: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let said = program.args(["completions", shell]).output().unwrap();
        (said.status.success(), String::from_utf8(said.stdout).unwrap())
    };
    for shell in ["bash", "zsh", "fish"] {
        let (is_done, script) = complete(shell);
        assert!(
            is_done && script.contains("create-db") && script.contains("appendonly"),
            "{shell}"
        );
    }
    assert!(!complete("csh").0);

    let folder = Folder::new();
    let script = folder.file("dunlin.bash", &complete("bash").1);
    let offered = |words: &str| {
        let ask = format!(
            "source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _dunlin dunlin \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let said = Command::new("bash").args(["-c", &ask]).output().unwrap();
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    assert_eq!(offered("dunlin cl"), "cli cluster");
    assert_eq!(offered("dunlin cluster create-db --shar"), "--shards");
    assert_eq!(offered("dunlin server --appendon"), "--appendonly");
    assert_eq!(offered("dunlin cli --intrin"), "--intrinsic-latency");
}

/// Each page of the guide is in the site's contents.
#[test]
fn every_page_is_in_the_summary() {
    let summary = fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap();
    for page in documents() {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_own = page.parent() == Some(&repository().join("docs"));
        let link = if is_own { format!("({name})") } else { format!("(../{name})") };
        assert!(name == "SUMMARY.md" || summary.contains(&link), "{} is not in it", page.display());
    }
}
