//! Data that come from servers elsewhere, go back to them, and are backed up and restored.

use crate::support::{Machine, row_of_ports, until_ok};
use harness::client::{Client, ask, ok};
use harness::contents::{Contents, contents};
use harness::environment::skipped;
use harness::module_types;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::{SetAtEnd, eventually};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

pub fn client(port: u16) -> Client {
    Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("a copy listens")
}

/// What there is in the first database.
pub fn first_database(client: &mut Client) -> Contents {
    contents(client).into_iter().filter(|((db, _), _)| *db == 0).collect()
}

fn address(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// A key of each type, large ones too.
pub fn fill(client: &mut Client) {
    for request in [
        "SET text value PX 10000000",
        "SET number 12",
        "RPUSH list a b c 1 2",
        "SADD set a b c",
        "SADD numbers 1 2 3",
        "HSET hash a 1 b 2",
        "HSET timed a 1 b 2",
        "HPEXPIREAT timed 32503680000000 FIELDS 1 a",
        "ZADD zset 1.5 a -inf b 3 c",
        "XADD stream 1-1 a b",
        "XADD stream 2-1 c d",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group one COUNT 1 STREAMS stream >",
        "PFADD counter a b c",
    ] {
        let reply = ask(client, request);
        assert!(!matches!(reply, Reply::Error(_)), "{request}: {reply:?}");
    }
    let library = "#!lua name=mylib\nredis.register_function('one', function() return 1 end)";
    let reply = client.command(&["FUNCTION", "LOAD", library]).expect("a reply");
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    // Several pieces each.
    let value = "x".repeat(600);
    for (command, key) in [
        ("HSET", "large-hash"),
        ("RPUSH", "large-list"),
        ("SADD", "large-set"),
        ("ZADD", "large-zset"),
    ] {
        for round in 0..40 {
            let mut words = vec![command.to_owned(), key.to_owned()];
            for at in 0..100 {
                let number = (round * 100 + at).to_string();
                match command {
                    "HSET" => words.extend([number, value.clone()]),
                    "ZADD" => words.extend([format!("{number}.25"), format!("{number}{value}")]),
                    _ => words.push(format!("{number}{value}")),
                }
            }
            client.command(&words).expect("a reply");
        }
    }
    ask(client, "PEXPIREAT large-set 32503680000000");
}

/// Writes whose keys are on several shards, until it is over. Returns the rounds.
fn write(client: &mut Client, is_over: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !is_over.load(Relaxed) {
        for request in [
            format!("SET key:{rounds} {rounds}"),
            "INCR number".to_owned(),
            format!("RPUSH queue {rounds}"),
            "LMOVE queue done LEFT RIGHT".to_owned(),
            format!("MSET a:{rounds} 1 b:{rounds} 2 c:{rounds} 3"),
            format!("RENAME a:{rounds} d:{rounds}"),
            format!("DEL b:{rounds} e:{rounds}"),
            format!("SADD set {rounds}"),
            "SUNIONSTORE union set numbers".to_owned(),
            "MULTI".to_owned(),
            "INCR number".to_owned(),
            format!("SET in:{rounds} x"),
            "HINCRBY hash a 1".to_owned(),
            "EXEC".to_owned(),
            "MULTI".to_owned(),
            "INCR {tag}1".to_owned(),
            "INCR {tag}2".to_owned(),
            "EXEC".to_owned(),
            format!("SET gone:{rounds} x PX 1"),
        ] {
            let reply = ask(client, &*request);
            assert!(!matches!(reply, Reply::Error(_)), "{request}: {reply:?}");
        }
        rounds += 1;
        // Each rest is longer than the one before, so a machine of any speed catches up.
        std::thread::sleep(std::time::Duration::from_millis(2 * rounds.min(250) as u64));
    }
    rounds
}

/// The state of a job and its text.
pub fn job(machine: &Machine, id: &str) -> (String, String) {
    let jobs = machine.json(&["jobs"]);
    let found = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| job["id"] == id).cloned());
    let job = found.unwrap_or_default();
    let text = |name: &str| job[name].as_str().unwrap_or_default().to_owned();
    (text("state"), text("text"))
}

/// Begins a job and returns its id.
pub fn begin(machine: &Machine, words: &[&str]) -> String {
    let begun = machine.json(&[words, &["--no-wait"]].concat());
    begun["job"].as_str().unwrap_or_else(|| panic!("{words:?}: {begun}")).to_owned()
}

pub fn until_in_step(machine: &Machine, id: &str) {
    eventually("the target is in step", || {
        let (state, text) = job(machine, id);
        // Without an answer in time the node says nothing of jobs.
        assert!(matches!(&*state, "" | "running"), "{state}: {text}");
        text.starts_with("in step")
    });
}

fn source() -> Server {
    let program = Program::reference_or_skip().unwrap_or_else(Program::under_test);
    Server::start(&program, Options::arguments(&["--repl-diskless-sync-delay", "0"]))
        .expect("it starts")
}

#[test]
fn a_database_follows_a_server_and_the_way_back() {
    let machine = Machine::first("import", "a");
    let (port, _) = machine.create("there", "0");
    let source = source();
    let mut writer = source.client();
    fill(&mut writer);

    let (is_done, text) = machine.ask(&["import", &address(&source), "there", "--dry-run"]);
    assert!(is_done && text.contains("Nothing is in the way"), "{text}");
    ok(&mut client(port), "SET own 1");
    let (is_done, text) = machine.ask(&["import", &address(&source), "there"]);
    assert!(!is_done && text.contains("1 keys") && text.contains("--replace"), "{text}");

    let is_over = AtomicBool::new(false);
    let import = std::thread::scope(|scope| {
        let over = SetAtEnd(&is_over);
        let writing = scope.spawn(|| write(&mut writer, &is_over));
        let import = begin(&machine, &["import", &address(&source), "there", "--replace"]);
        until_in_step(&machine, &import);
        // A link that is lost goes on where it was.
        let mut operator = source.client();
        ask(&mut operator, "CLIENT KILL TYPE replica");
        let link = || {
            let info = ask(&mut operator, "INFO replication");
            String::from_utf8_lossy(info.text().unwrap_or_default()).contains("connected_slaves:1")
        };
        eventually("the source is followed again", link);
        until_in_step(&machine, &import);
        drop(over);
        assert!(writing.join().expect("it writes") > 0);
        import
    });
    eventually("no key waits for its expiry", || {
        let keys = ask(&mut source.client(), "KEYS gone:*");
        keys.elements().is_some_and(<[Reply]>::is_empty)
    });
    let (is_done, text) = machine.ask(&["finish", &import]);
    assert!(is_done && text.contains("done"), "{text}");
    let mut clients = (source.client(), client(port));
    let expected = first_database(&mut clients.0);
    assert_eq!(first_database(&mut clients.1), expected);
    let called = clients.1.command(&["FCALL", "one", "0"]).expect("a reply");
    assert_eq!(called, Reply::Integer(1));
    assert_eq!(
        ask(&mut clients.1, "HPEXPIRETIME timed FIELDS 2 a b"),
        ask(&mut clients.0, "HPEXPIRETIME timed FIELDS 2 a b")
    );

    // The way back, while the database is written to.
    let back = Server::start(&Program::under_test(), Options::default()).expect("it starts");
    let export = begin(&machine, &["export", "there", &address(&back)]);
    until_in_step(&machine, &export);
    for at in 0..100 {
        ok(&mut clients.1, &*format!("SET back:{at} {at}"));
    }
    let (is_done, text) = machine.ask(&["finish", &export]);
    assert!(is_done && text.contains("done"), "{text}");
    assert_eq!(first_database(&mut back.client()), first_database(&mut clients.1));

    // A job that is cancelled leaves the database as it is.
    let import = begin(&machine, &["import", &address(&source), "there", "--replace"]);
    until_in_step(&machine, &import);
    let (is_done, text) = machine.ask(&["cancel", &import]);
    assert!(is_done, "{text}");
    eventually("it is cancelled", || job(&machine, &import).0 == "cancelled");
    ok(&mut source.client(), "SET later 1");
    assert_eq!(ask(&mut clients.1, "GET later"), Reply::Nil);
}

#[test]
fn a_backup_is_of_one_moment_and_is_restored_into_other_shards() {
    let machine = Machine::first("backup", "a");
    let (port, _) = machine.create("kept", "0");
    fill(&mut client(port));
    for tag in ["", "{first}", "{second}", "{third}"] {
        module_types::fill(&mut client(port), tag);
    }
    let folder: PathBuf = machine.directory.join("backups");
    // `./test backup` has a server that speaks S3's protocol.
    let bucket = std::env::var("DUNLIN_TEST_S3").ok();
    let is_folder = bucket.is_none();
    let at = bucket.unwrap_or_else(|| folder.to_str().expect("it is text").to_owned());

    // Each round writes to all shards, one after the other, the first one first.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = SetAtEnd(&is_over);
        scope.spawn(|| {
            let mut client = client(port);
            let mut number = 0;
            while !is_over.load(Relaxed) {
                number += 1;
                for key in ["first", "second", "third", "fourth"] {
                    ok(&mut client, &*format!("SET order:{key} {number}"));
                }
            }
        });
        let (is_done, text) = machine.ask(&["backup", "kept", "--to", &at]);
        drop(over);
        assert!(is_done && text.contains("done"), "{text}");
    });
    let backups = machine.json(&["backups", &at]);
    let name = backups[0]["name"].as_str().expect("there is one").to_owned();
    assert!(backups[0]["state"] == "ok" && backups[0]["shards"] == 3, "{backups}");
    let (is_done, text) = machine.ask(&["verify-backup", &at, &name]);
    assert!(is_done && text.contains("done"), "{text}");

    let new_port = row_of_ports();
    let number = new_port.to_string();
    let words = ["restore", &at, &name, "--as", "again", "--port", &number, "--shards", "2"];
    let (is_done, text) = machine.ask(&words);
    assert!(is_done && text.contains("done"), "{text}");
    until_ok(&machine, "again");
    let (mut old, mut new) = (client(port), client(new_port));
    let order = |client: &mut Client| -> Vec<i64> {
        let reply = ask(client, "MGET order:first order:second order:third order:fourth");
        let numbers = reply.elements().unwrap_or_default().iter();
        numbers
            .map(|it| String::from_utf8_lossy(it.text().unwrap_or(b"0")).parse().unwrap_or(0))
            .collect()
    };
    let found = order(&mut new);
    let falls = found.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(falls <= 1 && found[0] >= found[3] && found[0] - found[3] <= 1, "{found:?}");
    let without = |all: Contents| -> Contents {
        all.into_iter().filter(|((_, key), _)| !key.starts_with(b"order:")).collect()
    };
    assert_eq!(without(first_database(&mut new)), without(first_database(&mut old)));
    assert_eq!(new.command(&["FCALL", "one", "0"]).expect("a reply"), Reply::Integer(1));

    if is_folder {
        damage(&machine, &folder, &name);
    }
    let (is_done, text) = machine.ask(&["delete-backup", &at, &name]);
    assert!(is_done, "{text}");
    assert_eq!(machine.json(&["backups", &at]).as_array().map(Vec::len), Some(0));
    come_round(&machine, &at);
}

/// Documents, filters, sketches, series and vectors come and go as other values do, and their
/// changes follow.
#[test]
fn values_of_the_types_of_modules_are_imported_and_exported() {
    let machine = Machine::first("import-types", "a");
    let (port, _) = machine.create("there", "0");
    let start = || Server::start(&Program::under_test(), Options::default()).expect("it starts");
    let (source, back) = (start(), start());
    let mut writer = source.client();
    ["", "{one}"].iter().for_each(|tag| module_types::fill(&mut writer, tag));
    let import = begin(&machine, &["import", &address(&source), "there"]);
    until_in_step(&machine, &import);
    module_types::fill(&mut writer, "{two}");
    ok(&mut writer, "JSON.SET {one}json $.name 1");
    assert_eq!(ask(&mut writer, "TS.ADD {one}{series}gauge 3700 1"), Reply::Integer(3700));
    let (is_done, text) = machine.ask(&["finish", &import]);
    assert!(is_done && text.contains("done"), "{text}");
    let expected = first_database(&mut writer);
    assert_eq!(expected.len(), 3 * module_types::KEYS);
    let mut there = client(port);
    assert_eq!(first_database(&mut there), expected);
    // Labels are found on all shards, and rules go on.
    let series = ask(&mut there, "TS.QUERYINDEX kind=hour");
    assert_eq!(series.elements().map(<[Reply]>::len), Some(3), "{series:?}");

    let export = begin(&machine, &["export", "there", &address(&back)]);
    until_in_step(&machine, &export);
    module_types::fill(&mut there, "{three}");
    assert_eq!(ask(&mut there, "TS.ADD {two}{series}gauge 9000 1"), Reply::Integer(9000));
    let (is_done, text) = machine.ask(&["finish", &export]);
    assert!(is_done && text.contains("done"), "{text}");
    let found = first_database(&mut back.client());
    assert_eq!(found.len(), 4 * module_types::KEYS);
    assert_eq!(found, first_database(&mut there));
}

/// What clients read of the values, and of the series that a rule makes.
fn reads(client: &mut Client, tag: &str) -> Vec<Reply> {
    let series = format!("TS.RANGE {tag}{{series}}hour - +");
    // Searches by vectors differ in the last digits.
    let rows = module_types::TYPES.iter().filter(|row| row.name != "vectorset");
    let mut replies: Vec<Reply> =
        rows.map(|row| module_types::send(client, row.read, tag)).collect();
    replies.extend([series, format!("VCARD {tag}vectors")].map(|words| ok(client, &words)));
    replies
}

/// The same from and to a Redis with modules, whose port is in `DUNLIN_REDIS_WITH_MODULES`. Its
/// keys are lost. It does not read our series and vector sets.
#[test]
fn a_redis_with_modules_is_imported_and_exported() {
    let Ok(port) = std::env::var("DUNLIN_REDIS_WITH_MODULES") else {
        return skipped("DUNLIN_REDIS_WITH_MODULES is not set");
    };
    let redis = format!("redis://127.0.0.1:{port}");
    let machine = Machine::first("import-modules", "a");
    let (there, _) = machine.create("there", "0");
    let mut writer = client(port.parse().expect("a port"));
    ok(&mut writer, "FLUSHALL");
    for tag in ["", "{one}"] {
        module_types::fill(&mut writer, tag);
    }
    let import = begin(&machine, &["import", &redis, "there"]);
    until_in_step(&machine, &import);
    module_types::fill(&mut writer, "{two}");
    ["", "{one}", "{two}"].iter().for_each(|tag| module_types::change(&mut writer, tag));
    let (is_done, text) = machine.ask(&["finish", &import]);
    assert!(is_done && text.contains("done"), "{text}");
    let mut there = client(there);
    for tag in ["", "{one}", "{two}"] {
        assert_eq!(reads(&mut there, tag), reads(&mut writer, tag), "{tag}");
        for key in ["{series}gauge", "{series}hour", "plain", "vectors", "reduced"] {
            ok(&mut there, &format!("DEL {tag}{key}"));
        }
    }

    ok(&mut writer, "FLUSHALL");
    let export = begin(&machine, &["export", "there", &redis]);
    until_in_step(&machine, &export);
    ok(&mut there, "BF.ADD {one}bloom later");
    let (is_done, text) = machine.ask(&["finish", &export]);
    assert!(is_done && text.contains("done"), "{text}");
    let rows =
        module_types::TYPES.iter().filter(|row| !["TSDB-TYPE", "vectorset"].contains(&row.name));
    for (row, tag) in rows.flat_map(|row| ["", "{one}", "{two}"].map(|tag| (row, tag))) {
        let [ours, theirs] =
            [&mut there, &mut writer].map(|client| module_types::send(client, row.read, tag));
        assert_eq!(ours, theirs, "{} of {tag}", row.name);
    }
    assert_eq!(ok(&mut writer, "BF.EXISTS {one}bloom later"), Reply::Integer(1));
}

/// A backup that is damaged is refused before anything is changed.
fn damage(machine: &Machine, folder: &Path, name: &str) {
    let at = folder.to_str().expect("it is text");
    let file = folder.join(name).join("shard-1.rdb");
    let mut bytes = std::fs::read(&file).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).expect("it can be written");
    let number = row_of_ports().to_string();
    let words = ["restore", at, name, "--as", "damaged", "--port", &number];
    let (is_done, text) = machine.ask(&words);
    assert!(!is_done && text.contains("shard-1.rdb is damaged"), "{text}");
    assert!(!machine.ask(&["databases"]).1.contains("damaged"));
    std::fs::write(&file, &bytes[..middle]).expect("it can be written");
    let (is_done, text) = machine.ask(&words);
    assert!(!is_done && text.contains("bytes instead of"), "{text}");
}

/// What comes round is begun by the node, at once for the first time.
fn come_round(machine: &Machine, at: &str) {
    let words = ["backup", "again", "--to", at, "--every", "1d", "--keep", "1"];
    let (is_done, text) = machine.ask(&words);
    assert!(is_done, "{text}");
    eventually("the backup is there", || {
        let backups = machine.json(&["backups", at, "--database", "again"]);
        backups[0]["state"] == "ok"
    });
    assert!(machine.ask(&["backups"]).1.contains("86400 s"));
    let (is_done, text) = machine.ask(&["backup", "again", "--stop"]);
    assert!(is_done, "{text}");
}

#[test]
fn copies_restart_one_by_one_under_writers() {
    let machine = Machine::first("restart", "a");
    let (port, _) = machine.create("kept", "1");
    until_ok(&machine, "kept");
    let mut confirmed = [0; WRITERS];
    restart(&machine, port, &mut confirmed);
    let (is_done, text) = machine.ask(&["update-db", "kept", "--commit", "quorum"]);
    assert!(is_done, "{text}");
    until_ok(&machine, "kept");
    restart(&machine, port, &mut confirmed);
}

/// Clients that write while copies restart.
pub const WRITERS: usize = 4;

/// A writer's pause between two writes. Without one the writers take the processors from etcd, and
/// the test is about an etcd that does not answer.
const PACE: Duration = Duration::from_millis(2);

/// Restarts all copies of `kept` while clients write. `confirmed`: the number that each of them
/// has written last.
fn restart(machine: &Machine, port: u16, confirmed: &mut [u64; WRITERS]) {
    let processes =
        || -> Vec<_> { machine.copies("kept").iter().map(|it| machine.process_of(it)).collect() };
    let before = processes();
    let ports: Vec<u16> = (port..port + 6).collect();
    under_writers(machine, &ports, confirmed, || {
        let (is_done, text) = machine.ask(&["restart", "kept"]);
        assert!(is_done && text.contains("done"), "{text}");
        until_ok(machine, "kept");
    });
    let after = processes();
    assert!(before.iter().zip(&after).all(|(old, new)| old != new), "{before:?} {after:?}");
}

/// Lets clients write while something is done with the database that they write to. They get no
/// error, and what was confirmed to them is there afterwards. `ports`: where copies may listen.
///
/// Where the processors are taken from etcd for a lease, primaries refuse writes: such an error
/// counts unless the etcd of `machine` says itself that it was late.
pub fn under_writers(
    machine: &Machine,
    ports: &[u16],
    confirmed: &mut [u64; WRITERS],
    work: impl FnOnce(),
) {
    let is_over = AtomicBool::new(false);
    let counts: Vec<_> = std::thread::scope(|scope| {
        let over = SetAtEnd(&is_over);
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (is_over, from) = (&is_over, confirmed[number]);
                scope.spawn(move || count_up(ports, (number, from), is_over))
            })
            .collect();
        work();
        drop(over);
        writers.into_iter().map(|it| it.join().expect("it counts")).collect()
    });
    for (number, (last, mut errors)) in counts.into_iter().enumerate() {
        if machine.etcd_was_late() {
            errors.retain(|error| !error.starts_with("CLUSTERDOWN"));
        }
        assert_eq!(errors, Vec::<String>::new());
        let mut listening = ports.iter().filter_map(|&port| {
            Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok()
        });
        let found =
            ask(&mut listening.next().expect("one listens"), &*format!("GET count:{number}"));
        assert_eq!(found, Reply::Bulk(last.to_string().into_bytes()), "count:{number}");
        assert!(last > confirmed[number], "client {number} has written something");
        confirmed[number] = last;
    }
}

/// Writes numbers in order, through a copy that is there; a connection that is closed is opened
/// again elsewhere, and the number is written again. Returns the last that was confirmed, and the
/// errors.
fn count_up(
    ports: &[u16],
    (number, mut confirmed): (usize, u64),
    is_over: &AtomicBool,
) -> (u64, Vec<String>) {
    let (mut errors, mut at) = (Vec::new(), number);
    let mut link: Option<Client> = None;
    let mut is_pending = false;
    while is_pending || !is_over.load(Relaxed) {
        let Some(client) = &mut link else {
            at += 1;
            link =
                Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, ports[at % ports.len()])))
                    .ok();
            continue;
        };
        let next = confirmed + 1;
        is_pending = true;
        let words = ["SET".to_owned(), format!("count:{number}"), next.to_string()];
        match client.command(&words) {
            Ok(Reply::Simple(_)) => {
                (confirmed, is_pending) = (next, false);
                std::thread::sleep(PACE);
            }
            // In doubt, as where a connection is closed: where others take the processors a
            // replica restarts for longer than `commit-timeout-ms`.
            Ok(Reply::Error(text)) if text.starts_with(b"NOTCONFIRMED") => {}
            Ok(Reply::Error(text)) => errors.push(String::from_utf8_lossy(&text).into_owned()),
            Ok(reply) => errors.push(format!("{reply:?}")),
            Err(_) => link = None,
        }
    }
    (confirmed, errors)
}
