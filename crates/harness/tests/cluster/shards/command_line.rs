//! `dunlin cli --cluster`: a cluster is made, looked at and changed without another program.

use super::wait_until_serving;
use harness::client::{ask, ok};
use harness::cluster::{Etcd, redis_cli, text};
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

/// Runs `dunlin cli --cluster`; returns what it prints, and whether it succeeds.
fn run(words: &[&str]) -> (String, bool) {
    let output = Program::under_test().subcommand("cli").arg("--cluster").args(words).output();
    let output = output.expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), output.status.success())
}

#[track_caller]
fn done(words: &[&str]) -> String {
    let (text, is_done) = run(words);
    assert!(is_done, "{words:?}: {text}");
    text
}

fn id_of(node: &Server) -> String {
    text(ask(&mut node.client(), "CLUSTER MYID"))
}

#[test]
fn a_cluster_is_made_and_changed_by_its_own_command_line() {
    let etcd = Etcd::start("command-line");
    let nodes: Vec<Server> = (0..8).map(|_| etcd.node()).collect();
    let addresses: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let address: Vec<&str> = addresses.iter().map(String::as_str).collect();

    let (refusal, is_done) =
        run(&[&["create"], &address[..5], &["--cluster-replicas", "1"]].concat());
    assert!(!is_done && refusal.contains("at least 3 primary nodes"), "{refusal}");
    // Without an answer nothing is done.
    let (refusal, is_done) = run(&[&["create"], &address[..3]].concat());
    assert!(!is_done && refusal.contains("Can I set the above"), "{refusal}");
    let said =
        done(&[&["create"], &address[..6], &["--cluster-replicas", "1", "--cluster-yes"]].concat());
    assert!(said.contains("[OK] All 16384 slots covered."), "{said}");
    wait_until_serving(&nodes[..6]);
    let (refusal, is_done) = run(&[&["create"], &address[..3], &["--cluster-yes"]].concat());
    assert!(!is_done && refusal.contains("is not empty"), "{refusal}");

    // The stock program and this one see the same.
    for command in ["check", "info"] {
        let ours = done(&[command, address[0]]);
        let theirs = redis_cli(&["--cluster", command, address[0]]);
        // The order of nodes is each program's own, and so are colours and the word for a primary.
        let sorted = |text: &str| {
            let plain = text.split('\u{1b}').enumerate().map(|(at, part)| match at {
                0 => part,
                _ => part.split_once('m').map_or("", |(_, rest)| rest),
            });
            let plain: String = plain.collect();
            let plain = plain.replace(" primaries.", " masters.").replace(" replicas.", " slaves.");
            let lines = plain.lines().map(|line| line.trim_end().to_owned());
            let mut lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ours), sorted(&theirs), "{command}");
    }
    let words = ["call", address[0], "CONFIG", "SET", "maxmemory", "1gb", "--cluster-only-masters"];
    assert_eq!(done(&words).matches(": OK").count(), 3);
    assert_eq!(done(&["call", address[4], "PING"]).matches(": PONG").count(), 6);

    // A primary that has nothing yet, and a replica of it.
    done(&["add-node", address[6], address[0]]);
    let added = id_of(&nodes[6]);
    let info = || done(&["info", address[0]]);
    eventually("the first node knows it", || info().contains(" 0 slots | 0 replicas."));
    done(&["add-node", address[7], address[0], "--cluster-slave", "--cluster-master-id", &added]);
    eventually("it has its replica", || info().contains("0 slots | 1 replicas."));
    let first = id_of(&nodes[0]);
    let words = ["reshard", address[1], "--cluster-from", &first, "--cluster-to", &added];
    let (refusal, is_done) = run(&[&words[..], &["--cluster-slots", "100"]].concat());
    assert!(!is_done && refusal.contains("Moving slot range 0-99 from"), "{refusal}");
    assert!(info().contains(" 0 slots | 1 replicas."), "{}", info());
    let said = done(&[&words[..], &["--cluster-slots", "100", "--cluster-yes"]].concat());
    assert!(said.contains("Moving slot range 0-99 from"), "{said}");
    assert!(info().contains(" 100 slots | 1 replicas."), "{}", info());
    let said = done(&["rebalance", address[0], "--cluster-simulate"]);
    assert!(said.contains("Rebalancing across 4 nodes. Total weight = 4.00"), "{said}");
    done(&["rebalance", address[0]]);
    assert_eq!(info().matches(" 4096 slots |").count(), 4, "{}", info());
    let said = done(&["rebalance", address[0]]);
    assert!(said.contains("*** No rebalancing needed!"), "{said}");
    let (refusal, is_done) = run(&["del-node", address[0], &added]);
    assert!(!is_done && refusal.contains("is not empty"), "{refusal}");
    done(&["rebalance", address[0], "--cluster-weight", &format!("{added}=0")]);
    done(&["del-node", address[0], &added]);
    let left = done(&["check", address[0], "--cluster-search-multiple-owners"]);
    assert!(!left.contains(&added) && left.contains("[OK] All 16384 slots covered."), "{left}");
    assert!(left.contains("[OK] No multiple owners found."), "{left}");
}

#[test]
fn keys_come_from_a_server_alone_and_go_to_a_backup() {
    let etcd = Etcd::start("command-line-data");
    let nodes: Vec<Server> = (0..3).map(|_| etcd.node()).collect();
    let addresses: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let address: Vec<&str> = addresses.iter().map(String::as_str).collect();
    done(&[&["create"], &address[..], &["--cluster-yes"]].concat());
    wait_until_serving(&nodes);

    let source = Server::start(
        &Program::under_test(),
        Options::arguments(&["--requirepass", "secret", "--enable-debug-command", "yes"]),
    );
    let source = source.expect("it starts");
    let mut client = source.client();
    ok(&mut client, "AUTH secret");
    (0..50).for_each(|key| _ = ok(&mut client, &format!("SET key:{key} {key}")));
    let from = format!("127.0.0.1:{}", source.port());
    let words = ["import", address[0], "--cluster-from", &from, "--cluster-copy"];
    let (refusal, is_done) = run(&words);
    assert!(!is_done && refusal.contains("NOAUTH"), "{refusal}");
    let with_password = [&words[..], &["--cluster-from-pass", "secret"]].concat();
    assert_eq!(done(&with_password).matches(": OK").count(), 50);
    let (refusal, is_done) = run(&with_password);
    assert!(!is_done && refusal.contains("BUSYKEY"), "{refusal}");
    done(&[&with_password[..], &["--cluster-replace"]].concat());
    assert!(done(&["info", address[0]]).contains("[OK] 50 keys in 3 primaries."));
    let (refusal, is_done) = run(&["import", address[0], "--cluster-from", address[1]]);
    assert!(!is_done && refusal.contains("should not be a cluster node"), "{refusal}");

    let folder = std::env::temp_dir().join(format!("dunlin-cluster-backup-{}", source.port()));
    std::fs::create_dir(&folder).expect("it is new");
    let path = folder.to_str().expect("it is text");
    let said = done(&["backup", address[0], path]);
    assert!(said.contains("[OK] Backup created into"), "{said}");
    let about = std::fs::read_to_string(folder.join("nodes.json")).expect("it was written");
    assert_eq!(about.matches("\"replicate\": null").count(), 3, "{about}");
    let snapshots = std::fs::read_dir(&folder).expect("it is there").flatten();
    let snapshots =
        snapshots.filter(|file| file.path().extension().is_some_and(|end| end == "rdb"));
    assert_eq!(snapshots.count(), 3);
    std::fs::remove_dir_all(&folder).expect("it is there");

    let said = done(&["set-timeout", address[0], "20000"]);
    // It is set, and CONFIG REWRITE has no file here.
    assert!(said.contains("running without a config file"), "{said}");
    let (refusal, is_done) = run(&["set-timeout", address[0], "20"]);
    assert!(!is_done && refusal.contains("bad idea"), "{refusal}");
    for (words, refusal) in [
        (&["backup", address[0]][..], "Wrong number of arguments"),
        (&["mend", address[0]], "Unknown --cluster subcommand"),
        (&["check", "127.0.0.1"], "Invalid arguments"),
    ] {
        let (text, is_done) = run(words);
        assert!(!is_done && text.contains(refusal), "{text}");
    }
}
