//! `/metrics`: every field of INFO has its row, and the series are there that redis_exporter makes
//! of such servers (tests/metrics compares their values with the exporter's) and that dashboards
//! ask for.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask};
use harness::http::get;
use harness::module_types::{self, TYPES};
use harness::replicas;
use harness::server::Server;
use metrics::info::Fields;
use metrics::rows::{self, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A server with an admin port.
#[track_caller]
fn start(arguments: &[&str]) -> (Server, u16) {
    Server::with_admin_port(&[&["--enable-debug-command", "yes"], arguments].concat())
}

/// A primary that has done something of everything, and its replica, each with its admin port.
fn pair() -> [(Server, u16); 2] {
    let immediate = ["--repl-diskless-sync-delay", "0"];
    let logged = ["--appendonly", "yes", "--latency-monitor-threshold", "1"];
    let primary = start(&[&immediate[..], &logged].concat());
    let port = primary.0.port().to_string();
    let replica = start(&["--replicaof", "127.0.0.1", &port]);
    let mut client = primary.0.client();
    for line in [
        "set a b",
        "set e 1 ex 1000",
        "hset h f v",
        "incr a",
        "bogus",
        "get a",
        "get none",
        "debug sleep 0.02",
    ] {
        ask(&mut client, line);
    }
    replicas::until_linked(&replica.0);
    harness::wait::eventually("the replica is online", || {
        info(&mut primary.0.client()).contains("state=online")
    });
    [primary, replica]
}

fn info(client: &mut Client) -> String {
    let reply = ask(client, "INFO everything");
    String::from_utf8_lossy(reply.text().unwrap()).into_owned()
}

/// Series of texts: name and labels, with the type.
fn series(texts: &[String]) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for text in texts {
        let (mut family, mut kind) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, what) = rest.split_once(' ').unwrap();
                (family, kind) = (name.to_owned(), what.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let _: f64 = value.parse().unwrap();
                assert!(series.starts_with(&family), "{line} is not of {family}");
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                found.insert((name.to_owned(), names_of(labels)), kind.clone());
            }
        }
    }
    found
}

/// The names of labels in order, of `a="x",b="y"}`.
fn names_of(labels: &str) -> String {
    // A value may hold commas, but none of these tests' values holds a quote.
    let names: BTreeSet<&str> = labels
        .split('"')
        .step_by(2)
        .filter_map(|between| between.strip_suffix('='))
        .map(|name| name.trim_start_matches(','))
        .collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

fn list(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/metrics");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_waits_for_copies_is_timed() {
    let primary = start(&["--appendonly", "yes", "--repl-diskless-sync-delay", "0"]);
    let port = primary.0.port().to_string();
    let replica = start(&["--replicaof", "127.0.0.1", &port]);
    replicas::until_linked(&replica.0);
    let mut client = primary.0.client();
    let count = |name: &str| {
        let text = get(primary.1, "/metrics").text();
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("dunlin_{name}_count ")));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    ask(&mut client, "CONFIG SET appendfsync always");
    for name in ["journal_write_duration_seconds", "journal_fsync_duration_seconds"] {
        harness::wait::eventually(name, || {
            ask(&mut client, "INCR n");
            count(name) > 0
        });
    }
    let modes = [("fsync", "commit_fsync_wait_seconds"), ("quorum", "commit_quorum_wait_seconds")];
    for (mode, name) in modes {
        ask(&mut client, &["CLIENT", "COMMIT-MODE", mode]);
        let before = count(name);
        harness::wait::eventually(name, || {
            ask(&mut client, "INCR n");
            count(name) > before
        });
    }
    assert!(count("replica_acknowledgement_seconds") > 0);
    ask(&mut client, "CONFIG RESETSTAT");
    assert_eq!(count("commit_fsync_wait_seconds"), 0);
}

#[test]
fn series_are_those_of_the_exporter_and_of_dashboards() {
    let servers = pair();
    // What a scrape asks for is among the commands of the next one.
    let texts: Vec<String> = [0, 1]
        .iter()
        .flat_map(|_| servers.iter().map(|(_, port)| get(*port, "/metrics").text()))
        .collect();
    let found = series(&texts);
    let mut missing = Vec::new();
    for line in list("series.txt").lines() {
        let mut words = line.split(' ');
        let (name, kind) = (words.next().unwrap(), words.next().unwrap());
        let labels = words.next().unwrap_or_default();
        // The list is a parser's, which gives each counter this ending.
        let plain = name.strip_suffix("_total").unwrap_or(name);
        let is_found = [name, plain].iter().any(|name| {
            found.get(&((*name).to_owned(), labels.to_owned())).is_some_and(|other| other == kind)
        });
        if !is_found {
            missing.push(line.to_owned());
        }
    }
    for line in list("queries.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let labels = words.get(2).copied().unwrap_or_default();
        if !found.contains_key(&(words[1].to_owned(), labels.to_owned())) {
            missing.push(line.to_owned());
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn our_dashboards_and_alerts_find_their_series() {
    let servers = pair();
    let texts: Vec<String> =
        servers.iter().map(|(_, port)| get(*port, "/metrics").text()).collect();
    let names: BTreeSet<String> = series(&texts).into_keys().map(|(name, _)| name).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compose");
    for file in ["grafana/dunlin.json", "alerts.yml"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let asked: BTreeSet<&str> = text
            .split(|c| !is_part(c))
            .filter(|word| word.starts_with("redis_") || word.starts_with("dunlin_"))
            .collect();
        assert!(asked.len() > 8, "{file} asks for {asked:?}");
        // The tier's series are there with a tier only; a node's are tested where clusters are.
        let elsewhere = ["dunlin_tier_", "dunlin_cluster_"];
        let is_there = |name: &&&str| {
            names.contains(**name) || elsewhere.iter().any(|prefix| name.starts_with(prefix))
        };
        let missing: Vec<&&str> = asked.iter().filter(|name| !is_there(name)).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}");
    }
}

#[test]
fn requests_of_the_types_of_modules_are_counted_by_command() {
    let (server, port) = start(&[]);
    module_types::fill(&mut server.client(), "");
    let text = get(port, "/metrics").text();
    for request in TYPES.iter().flat_map(|row| row.make) {
        let command = request.split(' ').next().unwrap().to_lowercase();
        for name in ["redis_commands_total", "dunlin_command_duration_seconds_count"] {
            let series = format!("{name}{{cmd=\"{command}\"}} ");
            assert!(text.lines().any(|line| line.starts_with(&series)), "there is no {series}");
        }
    }
}

#[test]
fn every_field_of_info_has_its_row() {
    let (tiered, _) = start(&["--tier-dir", "tier", "--tier-segment-size", "1mb"]);
    let (mut written, mut wrong) = (BTreeSet::new(), BTreeSet::new());
    let servers = pair();
    for server in servers.iter().map(|(server, _)| server).chain([&tiered]) {
        let text = info(&mut server.client());
        for field in Fields::parse(&text).all() {
            let Some(row) = rows::find(field.name) else {
                if !rows::is_plural(field.name) {
                    wrong.insert(format!(
                        "{} has no row in crates/metrics/src/rows_*.rs",
                        field.name
                    ));
                }
                continue;
            };
            let is_number = field.number().is_some();
            if row.kind != Type::Text && !is_number {
                wrong.insert(format!("{} is no number: {}", field.name, field.value));
            }
            written.insert(field.name.to_owned());
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // Those that come and go with what the server does.
    let at_times = ["loading_", "master_sync_", "master_link_down_", "shutdown_in_", "min_slaves_"];
    let missing: Vec<&str> = rows::SECTIONS
        .iter()
        .filter(|(section, _)| !section.is_empty())
        .flat_map(|(_, rows)| rows.iter().map(|row| row.name))
        .filter(|name| !written.contains(*name))
        .filter(|name| !at_times.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert!(missing.is_empty(), "these rows are of fields that no server writes: {missing:?}");
}
