//! Servers that start from the files of a Valkey Cluster.

use harness::client::{Client, ask};
use harness::cluster::{Etcd, create, redis_cli};
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port};
use harness::wait::eventually;
use std::collections::BTreeMap;

fn info(client: &mut Client, field: &str) -> String {
    let info = ask(client, "INFO");
    let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

/// All keys of the primaries, with their values.
fn keys(nodes: &[Server]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    for node in nodes {
        let mut client = node.client();
        if info(&mut client, "role") != "master" {
            continue;
        }
        let keys = ask(&mut client, "KEYS *");
        for key in keys.elements().unwrap_or_default() {
            let key = key.text().unwrap_or_default().to_vec();
            let value = client.command(&[&b"GET"[..], &key]).expect("a reply");
            all.insert(key, value.text().unwrap_or_default().to_vec());
        }
    }
    all
}

/// A node of a Valkey Cluster. Some have a snapshot and some a log.
fn theirs(program: &Program, number: usize) -> Server {
    let bus = free_port().expect("a port is free").to_string();
    let log = if number.is_multiple_of(2) { "yes" } else { "no" };
    let options = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--appendonly", log];
    let more = ["--cluster-node-timeout", "4000", "--save", "3600 1"];
    let options = Options::arguments(&[&options[..], &more].concat());
    Server::start(program, options).expect("it starts")
}

#[test]
fn servers_start_from_the_files_of_a_valkey_cluster() {
    let Some(program) = Program::reference_or_skip() else { return };
    let mut theirs: Vec<Server> = (0..6).map(|number| theirs(&program, number)).collect();
    create(&theirs);
    let port = theirs[0].port().to_string();
    for number in 0..30 {
        let (key, value) = (format!("key:{number}"), number.to_string());
        redis_cli(&["-c", "-p", &port, "SET", &key, &value]);
    }
    // The file of a primary that dies is old when a replica has taken over.
    theirs[1].kill().expect("it is there");
    eventually("a replica takes over", || {
        let nodes = ask(&mut theirs[0].client(), "CLUSTER INFO");
        let masters = theirs
            .iter()
            .enumerate()
            .filter(|(number, node)| *number != 1 && info(&mut node.client(), "role") == "master");
        let text = String::from_utf8_lossy(nodes.text().unwrap_or_default()).into_owned();
        text.contains("cluster_state:ok") && masters.count() == 3
    });
    for number in 30..60 {
        let (key, value) = (format!("key:{number}"), number.to_string());
        redis_cli(&["-c", "-p", &port, "SET", &key, &value]);
    }
    let alive: Vec<usize> = (0..6).filter(|number| *number != 1).collect();
    eventually("all know of it", || {
        alive.iter().all(|number| {
            let mut client = theirs[*number].client();
            info(&mut client, "role") == "master" || info(&mut client, "master_link_status") == "up"
        })
    });
    for number in alive {
        theirs[number].terminate().expect("it ends");
    }

    let etcd = Etcd::start("adopting");
    let coordinator = Etcd::coordinator(std::slice::from_ref(&etcd));
    let ours: Vec<Server> = theirs
        .iter()
        .enumerate()
        .map(|(number, old)| {
            let folder = old.directory().to_string_lossy().into_owned();
            let log = if number % 2 == 0 { "yes" } else { "no" };
            let options = ["--dir", &folder, "--appendonly", log, "--bind", "127.0.0.1"];
            let cluster = ["--cluster-enabled", "yes", "--cluster-coordinator", &coordinator];
            let options = Options::arguments(&[&options[..], &cluster].concat());
            Server::start(&Program::under_test(), options).expect("it starts")
        })
        .collect();
    eventually("the cluster is there", || {
        ours.iter().all(|node| {
            let info = ask(&mut node.client(), "CLUSTER INFO");
            let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
            text.contains("cluster_state:ok") && text.contains("cluster_slots_assigned:16384")
        })
    });
    let expected: BTreeMap<Vec<u8>, Vec<u8>> = (0..60)
        .map(|number| (format!("key:{number}").into_bytes(), number.to_string().into_bytes()))
        .collect();
    assert_eq!(keys(&ours), expected);
    eventually("the other three follow", || {
        let follows = |node: &&Server| info(&mut node.client(), "master_link_status") == "up";
        ours.iter().filter(follows).count() == 3
    });
    assert_ne!(info(&mut ours[1].client(), "role"), "master", "its file was old");
    // A busy machine's leases may end, and a primary refuses writes until it has a new one.
    eventually("they take writes", || {
        redis_cli(&["-c", "-p", &ours[0].port().to_string(), "SET", "new", "1"]).trim() == "OK"
    });
    assert!(!matches!(ask(&mut ours[0].client(), "PING"), Reply::Error(_)));
}
