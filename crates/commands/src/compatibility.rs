//! Writes COMPATIBILITY.md: every command of the servers that Dunlin is compatible with, and
//! whether it is here.
//!
//! What is here comes from the table; what there is elsewhere from `compatibility/commands.txt`;
//! what is known to differ from `compatibility/differences.txt` and from the scripts that are
//! marked as failing; how the reference test suite went from `tests/tcl/results.txt`. A test
//! compares the committed file with what these say, and writes it instead when told to:
//!
//! ```sh
//! BLESS=1 cargo test -p commands compatibility
//! ```

use engine::table::CommandTable;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// A line of the list: a command of another server, or one that only Dunlin has.
struct Known<'a> {
    group: &'a str,
    name: &'a str,
    servers: &'a str,
}

fn known_commands() -> impl Iterator<Item = Known<'static>> {
    let lines = include_str!("compatibility/commands.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a group, a name and the servers");
        Known { group: word(), name: word(), servers: word() }
    })
}

/// What a command that is not here waits for.
fn waits_for(known: &Known<'_>) -> &'static str {
    let name = known.name.split('|').next().unwrap_or(known.name);
    match (known.group, name) {
        ("geo", _) => "geo",
        ("hyperloglog", _) => "HyperLogLog",
        ("hash", _) => "hash-field expiry",
        ("scripting", _) => "scripting and functions",
        ("cluster", _) | (_, "migrate" | "restore-asking") => "cluster",
        (_, "acl") => "full ACL",
        (_, "save" | "bgsave" | "bgrewriteaof" | "lastsave") => "persistence",
        (_, "wait" | "waitaof" | "psync" | "sync" | "replconf" | "replicaof" | "slaveof")
        | (_, "role" | "failover") => "replication",
        _ => "the next version",
    }
}

/// Why a command that is in the table refuses all it is asked.
fn refusal(known: &Known<'_>) -> Option<&'static str> {
    match known.name {
        "module|load" | "module|loadex" | "module|unload" => {
            Some("refused: no loadable modules are planned")
        }
        "cluster|syncslots" => Some("only between nodes of Dunlin"),
        _ => None,
    }
}

static TITLES: [(&str, &str); 17] = [
    ("string", "Strings"),
    ("bitmap", "Bitmaps"),
    ("generic", "Keys of any type"),
    ("hash", "Hashes"),
    ("list", "Lists"),
    ("set", "Sets"),
    ("sorted-set", "Sorted sets"),
    ("stream", "Streams"),
    ("geo", "Geo"),
    ("hyperloglog", "HyperLogLog"),
    ("connection", "Connection"),
    ("transactions", "Transactions"),
    ("pubsub", "Publish and subscribe"),
    ("scripting", "Scripting and functions"),
    ("server", "Server"),
    ("cluster", "Cluster"),
    ("module", "JSON, filters and sketches, vector sets"),
];

fn document(tcl_results: Option<&str>, failing: &[(String, String)]) -> String {
    let table = CommandTable::build(&crate::rows(), &[]);
    let here: BTreeSet<&str> = table.all().iter().map(|row| row.full_name.as_str()).collect();
    let known: Vec<Known<'_>> = known_commands().collect();
    let mut out = String::from(
        "# Compatibility\n\
         \n\
         <!-- Written from the command table: BLESS=1 cargo test -p commands compatibility -->\n\
         \n\
         Dunlin answers as Valkey 9.1 does: the same replies under RESP2 and RESP3, the same error\n\
         texts. Below is every command and subcommand of Valkey 9.1 and of Redis 8.6, and whether\n\
         it is here; a version in the column of Redis is that of the first Redis which has the command. A command that is not answers with the error for an unknown command, unless the\n\
         last column says otherwise, and that column says with what it will come. Behind the tables stand the\n\
         [known differences](#known-differences)",
    );
    if tcl_results.is_some() {
        out.push_str(
            " and the result of the [test suite of Redis\n7.0](#the-test-suite-of-redis-70)",
        );
    }
    out.push_str(".\n\n");
    write_summary(&mut out, &known, &here);
    for (group, title) in TITLES {
        write!(out, "\n## {title}\n\n| command | Valkey | Redis | here |\n|---|---|---|---|\n")
            .expect("a string takes all");
        for known in known.iter().filter(|known| known.group == group) {
            let of_redis = known
                .servers
                .split_once('R')
                .map_or("", |(_, since)| if since.is_empty() { "yes" } else { since });
            let of_valkey = if known.servers.contains('V') { "yes" } else { "" };
            let is_here = match refusal(known) {
                _ if !here.contains(known.name) => format!("no: {}", waits_for(known)),
                Some(refusal) => format!("no: {refusal}"),
                None => "yes".to_owned(),
            };
            let name = known.name.to_ascii_uppercase().replace('|', " ");
            writeln!(out, "| {name} | {of_valkey} | {of_redis} | {is_here} |")
                .expect("a string takes all");
        }
    }
    out.push_str("\n## Known differences\n\n");
    out.push_str(include_str!("compatibility/differences.txt"));
    write_failing_scripts(&mut out, failing);
    if let Some(results) = tcl_results {
        write!(
            out,
            "\n## The test suite of Redis 7.0\n\n\
             The files of the suite that concern what is here, run by `tests/tcl/run` with Dunlin in\n\
             the place of redis-server. [skip.txt](tests/tcl/skip.txt) names every test that is\n\
             skipped, and why.\n\n```\n{}\n```\n",
            results.trim_end()
        )
        .expect("a string takes all");
    }
    out
}

/// The scripts that the server is known to fail, with their reasons.
fn write_failing_scripts(out: &mut String, failing: &[(String, String)]) {
    if failing.is_empty() {
        return;
    }
    out.push_str("\n**Not as in Valkey yet**\n\n");
    for (path, reason) in failing {
        writeln!(out, "- {reason} ([script]({path}))").expect("a string takes all");
    }
}

/// The scripts below `tests/commands` with a line `# fails: reason`, by path.
fn failing_scripts(root: &Path) -> Vec<(String, String)> {
    fn visit(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                visit(root, &path, found);
            } else if path.extension().is_some_and(|extension| extension == "test") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let reason = text.lines().find_map(|line| line.strip_prefix("# fails: "));
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                found.extend(reason.map(|reason| (name, reason.to_owned())));
            }
        }
    }
    let mut found = Vec::new();
    visit(root, &root.join("tests/commands"), &mut found);
    found.sort();
    found
}

fn write_summary(out: &mut String, known: &[Known<'_>], here: &BTreeSet<&str>) {
    out.push_str("| group | commands of Valkey 9.1 | here |\n|---|---|---|\n");
    let works = |known: &&Known<'_>| here.contains(known.name) && refusal(known).is_none();
    let mut total = (0, 0);
    for (group, title) in TITLES {
        let of_valkey = |known: &&Known<'_>| known.group == group && known.servers.contains('V');
        let all = known.iter().filter(of_valkey).count();
        let have = known.iter().filter(of_valkey).filter(works).count();
        if all > 0 {
            writeln!(out, "| {title} | {all} | {have} |").expect("a string takes all");
            total = (total.0 + all, total.1 + have);
        }
    }
    writeln!(out, "| all | {} | {} |", total.0, total.1).expect("a string takes all");
}

#[test]
fn compatibility_md_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = std::fs::read_to_string(root.join("tests/tcl/results.txt")).ok();
    let expected = document(results.as_deref(), &failing_scripts(&root));
    let path = root.join("COMPATIBILITY.md");
    if std::env::var_os("BLESS").is_some_and(|value| value != "0") {
        std::fs::write(&path, expected).expect("the repository can be written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "COMPATIBILITY.md is out of date; write it with BLESS=1 cargo test -p commands compatibility"
    );
}

#[test]
fn what_is_here_is_in_the_list_and_in_its_group() {
    let known: Vec<Known<'_>> = known_commands().collect();
    let table = CommandTable::build(&crate::rows(), &[]);
    for row in table.all() {
        let group = crate::server::command_docs::group_name(row.command.group);
        let name = &row.full_name;
        let listed = known.iter().find(|known| known.name == *name);
        assert_eq!(
            listed.map(|known| known.group),
            Some(group),
            "compatibility/commands.txt needs a line `{group} {name} SERVERS`; the head of the \
             file says what SERVERS is"
        );
    }
    for known in &known {
        assert!(
            TITLES.iter().any(|(group, _)| *group == known.group),
            "compatibility/commands.txt: {}: the group '{}' is not in TITLES",
            known.name,
            known.group
        );
    }
}
