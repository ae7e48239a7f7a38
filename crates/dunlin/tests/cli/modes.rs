//! The modes beside commands.

use crate::beside::{prepare, same};
use crate::support::{cli, dunlin, ours, run};
use harness::module_types;
use std::fs;

#[test]
fn keys_are_measured_as_there() {
    let server = dunlin(&[]);
    for name in ["redis-cli", "valkey-cli"] {
        for words in [
            &["--bigkeys"][..],
            &["--bigkeys", "--pattern", "*t", "--count", "2"],
            &["--memkeys"],
            &["--memkeys-samples", "0"],
        ] {
            same(&server, name, words, "");
        }
    }
    let mut client = server.client();
    client.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    let printed = cli(server.port(), &["--hotkeys"], "");
    assert_eq!(printed.status, Some(1));
    assert!(printed.err.starts_with("Error: ERR An LFU maxmemory policy"), "{}", printed.err);
    client.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]).unwrap();
    for _ in 0..200 {
        client.command(&["GET", "text"]).unwrap();
    }
    let printed = cli(server.port(), &["--hotkeys-count", "1"], "");
    assert!(printed.out.contains("\tkeyname: \"text\"\n"), "{printed:?}");
}

/// Types of modules are in the summary, by length where they have one, else by bytes.
#[test]
fn keys_of_the_types_of_modules_are_measured() {
    let server = dunlin(&[]);
    module_types::fill(&mut server.client(), "");
    for words in [&["--bigkeys"][..], &["--memkeys"], &["--keystats"]] {
        let printed = cli(server.port(), words, "");
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        for row in &module_types::TYPES {
            let line = printed.out.lines().find(|line| line.contains(row.name));
            assert!(line.is_some(), "{words:?}: no {} in {}", row.name, printed.out);
        }
    }
}

#[test]
fn a_pipe_of_requests_is_sent_and_counted() {
    let server = dunlin(&[]);
    let requests = "SET a 1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\nNOTHING\r\n";
    same(&server, "redis-cli", &["--pipe"], requests);
    same(&server, "valkey-cli", &["--pipe"], "");
    // More than the sockets' buffers hold in either direction.
    let many = format!("ECHO {}\r\n", "x".repeat(10_000)).repeat(2_000);
    let printed = cli(server.port(), &["--pipe"], &many);
    assert!(printed.out.ends_with("errors: 0, replies: 2000\n"), "{printed:?}");
}

#[test]
fn snapshots_are_taken_over_the_network() {
    let server = dunlin(&["--repl-diskless-sync-delay", "0"]);
    prepare(&server);
    let path = std::env::temp_dir().join(format!("dunlin-cli-{}.rdb", std::process::id()));
    let file = path.display().to_string();
    let printed = cli(server.port(), &["--rdb", &file], "");
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("Transfer finished with success"), "{}", printed.err);
    let checked = run(ours("redis-check-rdb"), &[&file], b"");
    assert_eq!(checked.status, Some(0), "{}", checked.out);
    assert!(fs::metadata(&path).unwrap().len() > 100);
    fs::remove_file(path).unwrap();
    let port = server.port().to_string();
    let streamed = ours("redis-cli").args(["-p", &port, "--rdb", "-"]).output().unwrap();
    assert!(streamed.stdout.starts_with(b"REDIS"), "{streamed:?}");
}

#[test]
fn latency_is_printed_once_for_programs() {
    let server = dunlin(&[]);
    for (words, separator) in
        [(&["--latency", "-i", "0.1"][..], ' '), (&["--latency", "--csv", "-i", "0.1"], ',')]
    {
        let printed = cli(server.port(), words, "");
        let figures = printed.out.trim_end().split(separator).count();
        assert_eq!((figures, printed.status), (4, Some(0)), "{printed:?}");
    }
    let printed = run(ours("redis-cli"), &["--intrinsic-latency", "1"], b"");
    assert!(printed.out.contains(" total runs (avg latency: "), "{printed:?}");
}
