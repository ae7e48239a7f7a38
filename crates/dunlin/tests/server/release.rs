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
        (&["container"], "dunlin container"),
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

/// The commands that a help lists, without the two that are about the program. Some helps name
/// them behind the words that come before: `dunlin bench audit …`.
fn commands_of(words: &[String], text: &str) -> Vec<String> {
    let before = format!("dunlin {} ", words.join(" "));
    let section = text.split_once("\nCommands:\n").map_or("", |(_, section)| section);
    let lines = section.lines().take_while(|line| line.starts_with("  "));
    let entries = lines.filter_map(|line| line.strip_prefix("  "));
    let names = entries.filter_map(|line| {
        let line = line.strip_prefix(&before).unwrap_or(line);
        let name = line.split(' ').next().unwrap_or_default();
        name.starts_with(|c: char| c.is_ascii_lowercase()).then(|| name.to_owned())
    });
    names.filter(|name| !["help", "version"].contains(&name.as_str())).collect()
}

#[test]
fn each_command_explains_itself_in_one_form() {
    let mut pending = vec![Vec::new()];
    let mut seen = Vec::new();
    while let Some(words) = pending.pop() {
        let text = help(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let (_, guide) = text.split_once("\nThe guide").expect("a document is named");
        let (_, page) = guide.split_once(": ").expect("a document is named");
        let page = page.split([',', '#', '\n']).next().unwrap_or_default();
        assert!(repository().join(page).exists(), "{words:?} names {page}");
        let (sentence, usage) = text.split_once("\n\nUsage: ").expect("a sentence, then usage");
        assert!(sentence.starts_with(char::is_uppercase) && sentence.len() < 200, "{text}");
        let (usage, _) = usage.split_once("\n\n").expect("usage, then more");
        let command = ["dunlin"].into_iter().chain(words.iter().map(String::as_str));
        let command = command.collect::<Vec<_>>().join(" ");
        assert!(usage.contains(&command), "{words:?} has the usage of another: {usage}");
        // Those of `check` share a help, which names both.
        if words.first().is_none_or(|first| first != "check" || words.len() < 2) {
            let inner = commands_of(&words, &text);
            pending.extend(inner.into_iter().map(|name| [words.as_slice(), &[name]].concat()));
        }
        seen.push(words.join(" "));
    }
    let count = |first: &str| seen.iter().filter(|words| words.starts_with(first)).count();
    assert!(count("cluster ") > 35 && count("bench ") > 1 && count("check ") == 2, "{seen:?}");
    assert!(seen.iter().any(|words| words == "cluster hashing try"), "{seen:?}");
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
