//! Writes the table of directives in the guide (`docs/configuration.md`) from the option table.
//!
//! A test compares the committed guide with what the rows say, and writes it instead when told to:
//!
//! ```sh
//! BLESS=1 cargo test -p config directives
//! ```
//!
//! Another looks whether what the rows say is so: an option that is said to have an effect must be
//! read by some code outside the option table.

use crate::spec::{Effect, Spec};
use crate::table::{DEPRECATED, GROUPS};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- directives: BLESS=1 cargo test -p config directives -->\n";
const END: &str = "<!-- end of the directives -->\n";

/// The groups' headings, in the order of [`GROUPS`].
const TITLES: [&str; 9] = [
    "Sockets, connections and threads",
    "TLS",
    "Process, log, users and monitoring",
    "Memory, eviction, expiry and freeing",
    "Encodings of values",
    "Filters, sketches and time series",
    "Snapshots and append-only file",
    "Replication",
    "Cluster",
];

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

fn table() -> String {
    let mut out = String::new();
    for (title, group) in TITLES.iter().zip(GROUPS) {
        let _ = write!(
            out,
            "### {title}\n\n| directive | default | CONFIG SET | what it is |\n|---|---|---|---|\n"
        );
        for spec in group.iter().filter(|spec| !spec.is_hidden()) {
            write_row(&mut out, spec);
        }
        out.push('\n');
    }
    let names: Vec<String> = DEPRECATED.iter().map(|name| format!("`{name}`")).collect();
    let _ = writeln!(
        out,
        "{} have no effect in any current version and are ignored in silence.",
        names.join(", ")
    );
    out
}

fn write_row(out: &mut String, spec: &Spec) {
    let aliases: String = spec.aliases().iter().map(|name| format!(", `{name}`")).collect();
    let default = match spec.default() {
        "" => String::new(),
        default => format!("`{default}`"),
    };
    let settable = if spec.is_immutable() || spec.frozen.is_some() {
        "no"
    } else if spec.is_protected() {
        "protected"
    } else {
        "yes"
    };
    let effect = match spec.effect() {
        Effect::Live => "",
        Effect::NotYet => "*accepted, no effect yet*: ",
    };
    let doc = spec.doc();
    let _ =
        writeln!(out, "| `{}`{aliases} | {default} | {settable} | {effect}{doc} |", spec.name());
}

#[test]
fn the_guide_lists_the_directives() {
    let path = guide();
    let text = std::fs::read_to_string(&path).expect("the guide is there");
    let (before, rest) = text.split_once(BEGIN).expect("the guide marks where the table begins");
    let (_, after) = rest.split_once(END).expect("the guide marks where the table ends");
    let expected = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if std::env::var_os("BLESS").is_some_and(|value| value != "0") {
        std::fs::write(&path, expected).expect("the repository can be written");
        return;
    }
    assert!(
        text == expected,
        "docs/configuration.md is out of date; write it with BLESS=1 cargo test -p config directives"
    );
}

/// Every source of the workspace that may heed an option.
fn sources() -> String {
    fn visit(folder: &Path, text: &mut String) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.to_string_lossy().into_owned();
            let is_own = name.contains("config/src/table") || name.contains("config/src/accessors");
            if path.is_dir() {
                visit(&path, text);
            } else if name.ends_with(".rs") && !is_own {
                text.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    let mut text = String::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["config", "keyspace", "engine", "commands", "server", "dunlin"] {
        visit(&crates.join(name).join("src"), &mut text);
    }
    text
}

/// Options that some code reads, only to report them, while nothing heeds them.
const ONLY_REPORTED: [&str; 1] = ["list-compress-depth"];

#[test]
fn an_option_has_an_effect_exactly_if_somebody_reads_it() {
    let sources = sources();
    let wrong: Vec<&str> = GROUPS
        .iter()
        .flat_map(|group| group.iter())
        .filter(|spec| {
            let accessor = format!(".{}(", spec.name().replace('-', "_"));
            let is_read =
                sources.contains(&accessor) || sources.contains(&format!("\"{}\"", spec.name()));
            let is_heeded = is_read && !ONLY_REPORTED.contains(&spec.name());
            (spec.effect() == Effect::Live) != is_heeded
        })
        .map(Spec::name)
        .collect();
    assert!(wrong.is_empty(), "`not_yet` is missing, or no longer true, of {wrong:?}");
}
