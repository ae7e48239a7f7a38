//! From nothing to a database, and what outlives which process.

use crate::support::{Machine, row_of_ports, run, until_ok};
use harness::client::{Client, ask};
use harness::reply::Reply;
use harness::server::signal;
use harness::wait::eventually;
use serde_json::Value;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn connect(port: u16) -> io::Result<Client> {
    Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn client(port: u16) -> Client {
    connect(port).expect("a copy listens")
}

/// The reply of the server that a key is at, if all that are asked listen.
pub fn try_at_home(port: u16, request: &str) -> io::Result<Reply> {
    let reply = ask(&mut connect(port)?, request);
    match &reply {
        Reply::Error(text) if text.starts_with(b"MOVED ") => {
            let text = String::from_utf8_lossy(text).into_owned();
            let port = text.rsplit(':').next().and_then(|port| port.parse().ok());
            Ok(ask(&mut connect(port.expect("an address ends with a port"))?, request))
        }
        _ => Ok(reply),
    }
}

/// The reply of the server that a key is at.
pub fn at_home(port: u16, request: &str) -> Reply {
    try_at_home(port, request).expect("a copy listens")
}

fn ports(copies: &[Value]) -> Vec<u16> {
    copies.iter().filter_map(|copy| copy["port"].as_u64()?.try_into().ok()).collect()
}

#[test]
fn a_database_outlives_the_node_that_made_it() {
    let mut machine = Machine::first("lives", "a");
    let (port, text) = machine.create("sessions", "1");
    assert!(text.contains("create sessions: done in"), "{text}");
    let copies = machine.copies("sessions");
    assert_eq!(copies.len(), 6);
    assert!(copies.iter().all(|copy| copy["is_member"] == true), "{copies:?}");
    for port in ports(&copies) {
        assert_eq!(ask(&mut client(port), "PING"), Reply::Simple(b"PONG".to_vec()));
    }
    assert_eq!(at_home(port, "SET a b"), Reply::Simple(b"OK".to_vec()));
    until_ok(&machine, "sessions");

    let before: Vec<_> = copies.iter().map(|copy| machine.process_of(copy)).collect();
    assert!(before.iter().all(Option::is_some), "{copies:?}");
    machine.kill_node();
    assert_eq!(at_home(port, "GET a"), Reply::Bulk(b"b".to_vec()));
    assert!(machine.start(), "the node starts again");
    let after: Vec<_> = copies.iter().map(|copy| machine.process_of(copy)).collect();
    assert_eq!(before, after, "the copies are adopted");

    let primary = copies.iter().position(|copy| copy["role"] == "primary").expect("one leads");
    let first = before[primary].expect("it runs");
    signal(first, "KILL").expect("it is there");
    eventually("the copy is started again", || {
        machine.process_of(&copies[primary]).is_some_and(|process| process != first)
    });
    eventually("the node says so", || machine.copies("sessions")[primary]["restarts"] == 1);
    until_ok(&machine, "sessions");
    let says = |text: &str| machine.ask(&["events"]).1.contains(text);
    assert!(says("of database 'sessions' has ended"));
    eventually("the node says which copy leads", || says(" leads shard "));

    let (is_done, text) = machine.ask(&["delete-db", "sessions", "--confirm", "sessions"]);
    assert!(is_done && text.contains("delete sessions: done"), "{text}");
    assert!(copies.iter().all(|copy| machine.process_of(copy).is_none()));
    let left = std::fs::read_dir(machine.directory.join("copies")).expect("it is there").count();
    assert_eq!(left, 0, "the files are gone");
}

/// Kills the copies of a database.
fn kill_all(machine: &Machine, copies: &[Value]) {
    for copy in copies {
        let process = machine.process_of(copy).expect("it runs");
        signal(process, "KILL").expect("it is there");
    }
}

#[test]
fn a_shard_whose_copies_were_all_killed_leads_by_itself_or_says_what_it_waits_for() {
    let mut machine = Machine::first("all-killed", "a");
    let (port, _) = machine.create("sessions", "1");
    until_ok(&machine, "sessions");
    assert_eq!(at_home(port, "SET a b"), Reply::Simple(b"OK".to_vec()));
    let copies = machine.copies("sessions");
    machine.kill_node();
    kill_all(&machine, &copies);
    assert!(machine.start(), "the node starts again");
    // The leases of the killed copies may last for a moment, so `status` may say "ok" before.
    let is_there =
        || try_at_home(port, "GET a").is_ok_and(|reply| reply == Reply::Bulk(b"b".to_vec()));
    eventually("the best copy leads", is_there);
    until_ok(&machine, "sessions");

    // One of two does not come back: its log is damaged.
    let first: Vec<Value> =
        machine.copies("sessions").into_iter().filter(|copy| copy["shard"] == 1).collect();
    let [good, bad] = &first[..] else { panic!("{first:?}") };
    machine.kill_node();
    kill_all(&machine, &first);
    std::fs::write(manifest_of(&machine, bad), "damaged").expect("it can be written");
    assert!(machine.start(), "the node starts again");
    let waits = "Shard 1 of database 'sessions' has no primary: 1 of 2 copies";
    eventually("it waits", || machine.ask(&["status"]).1.contains(waits));
    let way = format!("dunlin cluster recover sessions --copy {}", id(good));
    eventually("it says what is there", || {
        let said = machine.ask(&["status"]).1.contains(&way);
        said && machine.ask(&["databases", "sessions"]).1.contains("IF IT LED, GIVEN UP")
    });
    let (is_done, text) = machine.ask(&["recover", "sessions", "--copy", id(bad)]);
    assert!(!is_done && text.contains("the copy is not"), "{text}");
    let (is_done, text) = machine.ask(&["recover", "sessions", "--copy", id(good)]);
    assert!(is_done, "{text}");
    eventually("it leads", is_there);
    assert!(machine.ask(&["events"]).1.contains("leads a shard of database 'sessions' by order"));
}

/// A copy that lacks confirmed writes leads only by force, and then what is given up is kept.
#[test]
fn a_copy_that_lacks_writes_leads_by_force_alone() {
    let mut machine = Machine::first("recover", "a");
    let port = row_of_ports();
    let number = port.to_string();
    let words = ["create-db", "d", "--memory", "96mb", "--replicas", "2", "--commit", "quorum"];
    let (is_done, text) = machine.ask(&[&words[..], &["--port", &number]].concat());
    assert!(is_done, "{text}");
    until_ok(&machine, "d");
    let copies = machine.copies("d");
    let of_role =
        |role: &str| copies.iter().filter(|copy| copy["role"] == role).collect::<Vec<_>>();
    let (primary, replicas) = (of_role("primary")[0], of_role("replica"));
    let [good, bad] = replicas[..] else { panic!("{copies:?}") };
    let at = |copy: &Value| copy["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    // A quorum is two of three: the third has to have it, too, and on its disk.
    let mut client = client(at(primary).expect("a copy has a port"));
    assert_eq!(ask(&mut client, "SET before 1"), Reply::Simple(b"OK".to_vec()));
    let on_all_disks = Reply::Array(vec![Reply::Integer(1), Reply::Integer(2)]);
    assert_eq!(ask(&mut client, "WAITAOF 1 2 0"), on_all_disks);
    let stopped = machine.process_of(bad).expect("it runs");
    signal(stopped, "STOP").expect("it runs");
    // Two of three confirm, and a kilobyte is given up later.
    let value = "x".repeat(1000);
    let written = at_home(port, &format!("SET after {value}"));
    assert_eq!(written, Reply::Simple(b"OK".to_vec()));

    // The primary does not come back, the copy that stood still does, with what it had. The end of
    // its node would let it go on, and read what it lacks.
    signal(machine.process_id(), "STOP").expect("it runs");
    for copy in [primary, bad] {
        let process = machine.process_of(copy).expect("it is there");
        signal(process, "KILL").expect("it is there");
        eventually("it has ended", || machine.process_of(copy).is_none());
    }
    machine.kill_node();
    std::fs::write(manifest_of(&machine, primary), "damaged").expect("it can be written");
    assert!(machine.start(), "the node starts again");
    let way = format!("dunlin cluster recover d --copy {}", id(good));
    eventually("both have said what they have", || {
        let text = machine.ask(&["databases", "d", "--json"]).1;
        let shown: Value = serde_json::from_str(&text).unwrap_or_default();
        let standing = shown["shards"][0]["waiting"]["copies"].as_array().cloned();
        let has_said = |copy: &Value| copy["copy"] != primary["id"] && copy["data"] != "none";
        standing.unwrap_or_default().iter().filter(|copy| has_said(copy)).count() == 2
            && machine.ask(&["status"]).1.contains(&way)
    });
    let (is_done, text) = machine.ask(&["recover", "d", "--copy", id(bad)]);
    let given_up = format!("bytes of the stream that copy {} on machine 'a' has (epoch", id(good));
    assert!(!is_done && text.contains("it would give up ") && text.contains(&given_up), "{text}");
    assert!(text.contains("add --force"), "{text}");
    assert_eq!(machine.json(&["databases", "d"])["is_available"], false, "nothing has changed");

    let (is_done, text) = machine.ask(&["recover", "d", "--copy", id(bad), "--force"]);
    assert!(is_done, "{text}");
    let bad_port = at(bad).expect("a copy has a port");
    eventually("it leads", || {
        try_at_home(bad_port, "GET before").is_ok_and(|it| it == Reply::Bulk(b"1".to_vec()))
    });
    assert_eq!(at_home(bad_port, "GET after"), Reply::Nil);
    let events = machine.ask(&["events"]).1;
    assert!(events.contains("leads a shard of database 'd' by order; it gives up "), "{events}");
    assert!(events.contains(&given_up) && events.contains("rescue-"), "{events}");
    // What is given up is kept beside the copy that had it.
    eventually("it is kept", || {
        files_with(&machine.directory.join("copies"), value.as_bytes()).iter().any(|path| {
            let path = path.to_string_lossy();
            path.contains("rescue-") && path.contains(&id(good)[..8])
        })
    });
}

/// The file that lists the parts of a copy's log.
fn manifest_of(machine: &Machine, copy: &Value) -> PathBuf {
    let manifests = files_with(&machine.directory.join("copies"), b"type b");
    let is_its = |path: &PathBuf| path.to_string_lossy().contains(&id(copy)[..8]);
    manifests.into_iter().find(is_its).expect("it has a log")
}

fn id(copy: &Value) -> &str {
    copy["id"].as_str().expect("a copy has an id")
}

/// The files below a folder that have these bytes in them.
fn files_with(folder: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_with(&entry.path(), bytes),
        Ok(kind) if kind.is_file() => {
            let text = std::fs::read(entry.path()).unwrap_or_default();
            let has = text.windows(bytes.len()).any(|window| window == bytes);
            has.then(|| entry.path()).into_iter().collect()
        }
        _ => Vec::new(),
    });
    found.collect()
}

/// The files of a cluster are its user's alone.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.flat_map(|entry| {
        let metadata = entry.metadata().expect("it is there");
        let below = if metadata.is_dir() { open_to_others(&entry.path()) } else { Vec::new() };
        let is_open = !metadata.is_symlink() && metadata.permissions().mode() & 0o077 != 0;
        below.into_iter().chain(is_open.then(|| entry.path()))
    });
    found.collect()
}

#[test]
fn files_are_the_users_alone_and_a_disk_that_refuses_is_said() {
    let mut machine = Machine::first("disk", "a");
    let (port, _) = machine.create("d", "0");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(&machine.directory) & 0o777, 0o700);
    assert_eq!(open_to_others(&machine.directory), Vec::<PathBuf>::new());

    // A snapshot does not take the place of a folder.
    let copy = &machine.copies("d")[0];
    let process = machine.process_of(copy).expect("it runs");
    let in_its_way = PathBuf::from(format!("/proc/{process}/cwd/dump.rdb"));
    std::fs::create_dir(&in_its_way).expect("there is none");
    let first: u16 = copy["port"].as_u64().and_then(|it| it.try_into().ok()).expect("it has one");
    ask(&mut client(first), "BGSAVE");
    let health = || machine.json(&["status"])["databases"][0]["health"].to_string();
    eventually("status says so", || health().contains("its last snapshot failed"));
    let says = |text: &str| machine.ask(&["events"]).1.contains(text);
    eventually("an event says so", || says("has trouble with its disk"));
    std::fs::remove_dir(&in_its_way).expect("it is empty");
    ask(&mut client(first), "BGSAVE");
    until_ok(&machine, "d");
    eventually("an event says so", || says("can write to its disk again"));
    assert_eq!(at_home(port, "SET a b"), Reply::Simple(b"OK".to_vec()));

    // What an earlier version has left open is shut.
    let open = std::fs::Permissions::from_mode(0o755);
    let copies = machine.directory.join("copies");
    std::fs::set_permissions(&copies, open).expect("it is ours");
    machine.kill_node();
    assert!(machine.start(), "the node starts again");
    assert_eq!(mode(&copies) & 0o777, 0o700);
}

/// The password with which copies log in to each other, as their files have it.
fn secrets(machine: &Machine) -> Vec<String> {
    let copies = std::fs::read_dir(machine.directory.join("copies")).expect("it is there");
    let secret = |folder: PathBuf| {
        let text = std::fs::read_to_string(folder.join("dunlin.conf")).expect("it is there");
        let line = text.lines().find_map(|line| line.strip_prefix("masterauth "));
        line.expect("it has one").trim_matches('"').to_owned()
    };
    copies.flatten().map(|entry| secret(entry.path())).collect()
}

#[test]
fn the_nodes_password_is_sealed_and_changes_while_a_database_serves() {
    let machine = Machine::first("secret", "a");
    let (port, _) = machine.create("d", "1");
    let at_etcd = |text: &str| files_with(&machine.directory.join("etcd"), text.as_bytes());
    let old = secrets(&machine)[0].clone();
    assert_eq!(at_etcd(&old), Vec::<PathBuf>::new());
    assert!(!at_etcd("sealed1:").is_empty());

    let is_over = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                written += 1;
                assert_eq!(at_home(port, "INCR n"), Reply::Integer(written));
            }
            written
        }
    });
    let (is_done, text) = machine.ask(&["update-db", "d", "--new-secret"]);
    assert!(is_done, "{text}");
    eventually("files have the new password", || !secrets(&machine).contains(&old));
    is_over.store(true, Ordering::Relaxed);
    assert!(writer.join().expect("nothing is refused") > 0);

    let new = secrets(&machine)[0].clone();
    assert_eq!(at_etcd(&new), Vec::<PathBuf>::new());
    let copies = machine.copies("d");
    for port in ports(&copies) {
        let log_in = |word: &str| ask(&mut client(port), &format!("AUTH dunlin-internal {word}"));
        eventually("the old password is refused", || matches!(log_in(&old), Reply::Error(_)));
        assert_eq!(log_in(&new), Reply::Simple(b"OK".to_vec()));
        check_nodes_user(port, &new);
        // Nor does a copy show it to users that may read options.
        let Reply::Array(shown) = ask(&mut client(port), "CONFIG GET masterauth") else {
            panic!("no list")
        };
        assert_eq!(shown[1].shown(), "(redacted)");
    }
    // A replica that is started again logs in.
    let replica = copies.iter().find(|copy| copy["role"] == "replica").expect("each has one");
    let process = machine.process_of(replica).expect("it runs");
    signal(process, "KILL").expect("it is there");
    eventually("it is started again", || {
        machine.process_of(replica).is_some_and(|now| now != process)
    });
    until_ok(&machine, "d");
}

/// Checks that the nodes' user may do what nodes need, and nothing else.
fn check_nodes_user(port: u16, password: &str) {
    let mut nodes = client(port);
    let log_in = format!("AUTH dunlin-internal {password}");
    assert_eq!(ask(&mut nodes, &log_in), Reply::Simple(b"OK".to_vec()));
    for refused in [
        "MODULE LIST",
        "MONITOR",
        "CONFIG REWRITE",
        "CONFIG RESETSTAT",
        "ACL LIST",
        "ACL GETUSER default",
        "SAVE",
        "BGSAVE",
        "REPLICAOF NO ONE",
        "FAILOVER ABORT",
        "SLOWLOG GET",
        "LATENCY RESET",
        "CLUSTER RESET",
        "CLUSTER FORGET x",
        "SCRIPT DEBUG YES",
    ] {
        let reply = ask(&mut nodes, refused);
        let Reply::Error(why) = &reply else { panic!("{refused}: {reply:?}") };
        assert!(why.starts_with(b"NOPERM "), "{refused}: {}", String::from_utf8_lossy(why));
    }
    let Reply::Array(shown) = ask(&mut nodes, "CONFIG GET masterauth") else { panic!("no list") };
    assert_eq!(shown[1].shown(), "(redacted)");
    assert!(!ask(&mut nodes, "INFO replication").is_error());
}

#[test]
fn another_node_takes_up_the_job_of_one_that_was_killed() {
    let mut first = Machine::first("takes", "a");
    let others = ["b", "c"].map(|name| Machine::beside(&first, "takes", name));
    eventually("three machines are there", || {
        let machines = first.json(&["nodes"]);
        let machines = machines.as_array().cloned().unwrap_or_default();
        machines.iter().filter(|machine| machine["is_alive"] == true).count() == 3
    });
    // Its copies are not started, so the job waits for them.
    signal(others[0].process_id(), "STOP").expect("it is there");
    let port = row_of_ports().to_string();
    let words =
        ["create-db", "d", "--memory", "96mb", "--shards", "3", "--port", &port, "--no-wait"];
    let (is_done, text) = first.ask(&words);
    assert!(is_done, "{text}");
    eventually("the job waits for the machine", || {
        first.ask(&["jobs"]).1.contains("on machine 'b'")
    });
    first.kill_node();
    signal(others[0].process_id(), "CONT").expect("it is there");
    eventually("another node has done the job", || {
        let jobs = others[1].json(&["jobs"]);
        jobs[0]["state"] == "done" && jobs[0]["machine"] != "a"
    });
    until_ok(&others[1], "d");
    assert_eq!(at_home(port.parse().expect("it is one"), "SET x y"), Reply::Simple(b"OK".to_vec()));
    let events = others[1].ask(&["events"]).1;
    assert!(events.contains("of machine 'a' is taken up"), "{events}");
    let says = |text: &str| others[1].ask(&["events"]).1.contains(text);
    eventually("it is said that the machine is gone", || says("of machine 'a' is gone"));
}

#[test]
fn a_machine_that_goes_down_keeps_its_data() {
    let mut machine = Machine::first("down", "a");
    let (port, _) = machine.create("d", "0");
    // Each shard has a key: one that was empty waits for an operator.
    for key in 0..32 {
        assert_eq!(at_home(port, &format!("SET {key} x")), Reply::Simple(b"OK".to_vec()));
    }
    let directory = machine.directory.to_string_lossy().into_owned();
    let (is_done, text) = run(&["down", "--dir", &directory]);
    assert!(is_done && text.contains("Ending etcd"), "{text}");
    machine.kill_node();
    let words = ["up", "--dir", &directory].map(str::to_owned);
    assert!(machine.start_with(&words), "the node starts again, and needs the directory alone");
    let nodes = machine.ask(&["nodes"]).1;
    assert!(nodes.contains(" 8.0 GiB "), "the memory is what it was: {nodes}");
    eventually("the data are there", || {
        let client = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        client.is_ok() && at_home(port, "GET 7") == Reply::Bulk(b"x".to_vec())
    });
}

#[test]
fn options_change_and_a_shard_is_handed_over_while_a_database_runs() {
    let machine = Machine::first("change", "a");
    let (port, _) = machine.create("d", "1");
    until_ok(&machine, "d");
    let update = |words: &[&str]| {
        let (is_done, text) = machine.ask(&[&["update-db", "d"], words].concat());
        assert!(is_done && text.contains("update d: done"), "{text}");
    };
    let word = "told-to-nobody";
    let file = machine.path("word");
    std::fs::write(&file, format!("{word}\n")).expect("it is written");
    update(&["--memory", "192mb", "--eviction", "allkeys-lru", "--password-file", &file]);
    std::fs::remove_file(&file).expect("it is there");
    let mut client = client(port);
    assert!(ask(&mut client, "PING").is_error(), "a password is needed");
    assert_eq!(ask(&mut client, &format!("AUTH {word}")), Reply::Simple(b"OK".to_vec()));
    for (option, value) in [("maxmemory", "67108864"), ("maxmemory-policy", "allkeys-lru")] {
        let expected = [option, value].map(|text| Reply::Bulk(text.as_bytes().to_vec()));
        let reply = ask(&mut client, &format!("CONFIG GET {option}"));
        assert_eq!(reply, Reply::Array(expected.to_vec()));
    }
    let shown = machine.ask(&["databases", "d", "--json"]).1;
    assert!(shown.contains("\"has_password\": true") && !shown.contains("sha256"), "{shown}");
    // Neither etcd nor a file of a copy has the password itself.
    assert_eq!(files_with(&machine.directory, word.as_bytes()), Vec::<PathBuf>::new());
    assert!(!files_with(&machine.directory, b"dunlin-internal").is_empty());
    // Copies log in to each other without it.
    assert_eq!(ask(&mut client, "SET a b"), Reply::Simple(b"OK".to_vec()));
    until_ok(&machine, "d");
    update(&["--password", ""]);
    assert_eq!(ask(&mut self::client(port), "PING"), Reply::Simple(b"PONG".to_vec()));

    let role = |at: usize| machine.copies("d")[at]["role"].clone();
    assert_eq!([role(0), role(1)], ["primary", "replica"]);
    until_ok(&machine, "d");
    let (is_done, text) = machine.ask(&["failover", "d", "--shard", "1"]);
    assert!(is_done && text.contains("The replica leads"), "{text}");
    assert_eq!([role(0), role(1)], ["replica", "primary"]);
}

#[test]
fn three_machines_have_an_etcd_together() {
    let first = Machine::first("join", "a");
    let others = ["b", "c"].map(|name| Machine::join(&first, "join", name));
    let status = first.json(&["status"]);
    assert_eq!(status["etcd_members"].as_array().map(Vec::len), Some(3), "{status}");
    let (_, text) = others[1].create("d", "1");
    assert!(!text.contains("share a machine"), "{text}");
    until_ok(&others[0], "d");
}
