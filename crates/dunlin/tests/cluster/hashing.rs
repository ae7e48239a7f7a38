//! Databases with hashing rules of their own: one address, keys where the rules put them.

use crate::data::first_database;
use crate::support::{Machine, run, until_ok};
use harness::client::{Client, ask};
use harness::module_types;
use harness::reply::Reply;
use harness::server::signal;
use harness::wait::eventually;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What an ID between colons is, otherwise the text before the first dot.
const RULES: [&str; 2] = ["[^:]*:(?<tag>[0-9]+)", "(?<tag>[a-z]+)[.]"];

fn client(port: u16) -> Client {
    Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("a copy listens")
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(text) | Reply::Simple(text) => String::from_utf8_lossy(&text).into_owned(),
        Reply::Error(text) => format!("-{}", String::from_utf8_lossy(&text)),
        Reply::Integer(number) => number.to_string(),
        Reply::Array(parts) => parts.into_iter().map(text).collect::<Vec<_>>().join(","),
        other => format!("{other:?}"),
    }
}

fn says(client: &mut Client, request: &str) -> String {
    text(ask(client, request))
}

/// Creates a database of three shards with these options, and returns its port.
pub fn create(machine: &Machine, name: &str, more: &[&str]) -> u16 {
    machine.create_with(name, more).0
}

fn ports(machine: &Machine, name: &str, role: &str) -> Vec<u16> {
    let copies: Vec<Value> = machine.copies(name);
    let copies = copies.iter().filter(|copy| copy["role"] == role);
    copies.filter_map(|copy| copy["port"].as_u64()?.try_into().ok()).collect()
}

#[test]
fn rules_decide_which_shard_has_a_key() {
    let machine = Machine::first("hashing", "a");
    refusals(&machine);
    let options = ["--replicas", "1", "--hashing-rule", RULES[0], "--hashing-rule", RULES[1]];
    let port = create(&machine, "ruled", &options);
    until_ok(&machine, "ruled");
    let primaries = ports(&machine, "ruled", "primary");
    assert_eq!(primaries.len(), 3);

    let mut clients: Vec<Client> = primaries.iter().map(|&port| client(port)).collect();
    for n in 0..60 {
        let one = &mut clients[n % 3];
        assert_eq!(says(one, &format!("MSET a:{n} {n} b:{n} x c:{n}:d y")), "OK");
    }
    together(&mut client(port));
    let mut one = client(port);
    apart(&mut one);
    elements(&mut one);
    blocking(&primaries);
    assert_eq!(says(&mut one, "DBSIZE"), "181");
    assert_eq!(scanned(&mut one).len(), 181);
    a_restart_and_a_switch_keep_them(&machine, port);
}

/// What cannot be is refused before anything is made.
fn refusals(machine: &Machine) {
    let create = ["create-db", "no", "--memory", "96mb", "--port", "9999"];
    let cases: [(&[&str], &str); 4] = [
        (&["--hashing-rule", "(.*)"], "rule 1 '(.*)': it has no group 'tag'"),
        (&["--hashing-rule", "(?<tag>.*)", "--endpoint", "cluster"], "take --endpoint single"),
        (&["--hashing-rule", "(?<tag>.*)", "--hashing", "standard"], "cannot be used with"),
        (&["--hashing-rule", "(?<tag>.*)", "--hashing-rule", "a(?<tag>.)"], "can never match"),
    ];
    for (options, expected) in cases {
        let (is_done, said) = machine.ask(&[&create[..], options].concat());
        assert!(!is_done && said.contains(expected), "{options:?}: {said}");
    }
    let (is_done, said) = run(&[
        "hashing", "try", "--rule", RULES[0], "--shards", "2", "user:1:a", "user:1:b", "other",
    ]);
    assert!(
        is_done && said.contains("none: refused") && said.contains("1 keys match no rule"),
        "{said}"
    );
    assert_eq!(said.lines().filter(|line| line.contains(" 9842 ")).count(), 2, "{said}");
}

/// Keys of one tag are in one transaction, one script and one command, whatever braces say.
fn together(one: &mut Client) {
    assert_eq!(says(one, "MULTI"), "OK");
    for request in ["INCR a:7", "RENAME b:7 e:7", "COPY e:7 b:7", "GET c:7:d"] {
        assert_eq!(says(one, request), "QUEUED");
    }
    assert_eq!(says(one, "EXEC"), "8,OK,1,y");
    let script = "redis.call('SET',KEYS[1],'z');return(redis.call('GET',KEYS[2]))";
    assert_eq!(says(one, &format!("EVAL {script} 2 f:7 a:7")), "8");
    assert_eq!(says(one, "DEL f:7 e:7"), "2");
    assert_eq!(says(one, "MGET a:0 a:1 a:2 a:3 a:4 a:5"), "0,1,2,3,4,5");
    assert_eq!(says(one, "SET word.{0} v"), "OK");
    assert_eq!(says(one, "CLIENT CAPA cluster"), "OK");
    assert_eq!(says(one, "CLUSTER KEYSLOT a:7"), says(one, "CLUSTER KEYSLOT zz:7:{x}"));
    assert!(says(one, "CLUSTER GETKEYSINSLOT 1 1").contains("hashing rules"));
    assert!(says(one, "CLUSTER KEYSLOT nothing").contains("Key 'nothing' matches no hashing rule"));
}

/// Errors name keys.
fn apart(one: &mut Client) {
    let mut said = String::new();
    for n in 1..30 {
        said = says(one, &format!("RENAME a:0 a:{n}"));
        if said.starts_with('-') {
            break;
        }
        assert_eq!(says(one, &format!("RENAME a:{n} a:0")), "OK");
        assert_eq!(says(one, &format!("SET a:{n} {n}")), "OK");
    }
    assert!(said.starts_with("-CROSSSLOT Keys 'a:0' and 'a:"), "{said}");
    assert!(said.contains("their tags by the database's hashing rules are '0' and '"), "{said}");
    for request in ["GET nothing", "MGET a:1 nothing", "SET nothing x", "EVAL return(1) 1 nothing"]
    {
        let said = says(one, request);
        assert_eq!(said, "-ERR Key 'nothing' matches no hashing rule of the database");
    }
    assert_eq!(says(one, "SET a:0 0"), "OK");
}

/// Requests in one pipeline reach all shards, and their replies come in order.
fn elements(one: &mut Client) {
    let requests: String = (0..60).map(|n| format!("GET a:{n}\r\n")).collect();
    one.send_raw(requests.as_bytes()).expect("it is sent");
    for n in 0..60 {
        let expected = if n == 7 { 8 } else { n };
        assert_eq!(text(one.reply().expect("a reply")), expected.to_string());
    }
}

/// A client that waits at any node is served by the node that has the key.
fn blocking(primaries: &[u16]) {
    let mut waiting: Vec<Client> = primaries.iter().map(|&port| client(port)).collect();
    for (n, one) in waiting.iter_mut().enumerate() {
        one.send_raw(format!("BLPOP list:{n} 0\r\n").as_bytes()).expect("it is sent");
    }
    let mut pushing = client(primaries[0]);
    for n in 0..waiting.len() {
        assert_eq!(says(&mut pushing, &format!("RPUSH list:{n} v{n}")), "1");
    }
    for (n, one) in waiting.iter_mut().enumerate() {
        assert_eq!(text(one.reply().expect("a reply")), format!("list:{n},v{n}"));
    }
}

/// All keys, by SCAN.
pub fn scanned(one: &mut Client) -> Vec<String> {
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        // An error is no page, and shows as too few keys.
        let Reply::Array(page) = ask(one, &format!("SCAN {cursor} COUNT 100")) else {
            return keys;
        };
        let [next, found] = <[Reply; 2]>::try_from(page).expect("a page has two parts");
        let Reply::Array(found) = found else { panic!("no keys") };
        keys.extend(found.into_iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            keys.sort_unstable();
            return keys;
        }
    }
}

fn a_restart_and_a_switch_keep_them(machine: &Machine, port: u16) {
    assert!(machine.ask(&["failover", "ruled", "--shard", "1"]).0);
    until_ok(machine, "ruled");
    let copies = machine.copies("ruled");
    for copy in copies.iter().filter(|copy| copy["role"] == "replica") {
        let process = machine.process_of(copy).expect("it runs");
        signal(process, "KILL").expect("it is there");
        eventually("the copy is started again", || {
            machine.process_of(copy).is_some_and(|new| new != process)
        });
    }
    until_ok(machine, "ruled");
    eventually("all keys are there", || {
        let mut one = client(port);
        scanned(&mut one).len() == 181 && says(&mut one, "GET a:59") == "59"
    });
}

/// Users whose two keys are counted together, whatever the rule is.
const USERS: usize = 40;

/// What a writer found wrong, or how often it has counted each user.
type Counted = Result<Vec<i64>, String>;

/// Counts until `is_over`: a transaction with two keys, a script, a list that is pushed and popped,
/// keys of several shards.
fn count(port: u16, writer: usize, is_over: &AtomicBool) -> Counted {
    let mut one = client(port);
    let mut counts = vec![0_i64; USERS];
    let mut turn = 0;
    while !is_over.load(Ordering::Relaxed) {
        let user = turn % USERS;
        turn += 1;
        let (a, b) = (format!("{{user:{user}}}:a{writer}"), format!("{{user:{user}}}:b{writer}"));
        counts[user] += 1;
        let expected = counts[user];
        let mut check = |request: String, expected: String| match says(&mut one, &request) {
            said if said == expected => Ok(()),
            said => Err(format!("{request}: {said}, not {expected}")),
        };
        check("MULTI".into(), "OK".into())?;
        check(format!("INCR {a}"), "QUEUED".into())?;
        check(format!("INCR {b}"), "QUEUED".into())?;
        check("EXEC".into(), format!("{expected},{expected}"))?;
        let script = "return(redis.call('GET',KEYS[1])..redis.call('STRLEN',KEYS[2]))";
        let len = expected.to_string().len();
        check(format!("EVAL {script} 2 {a} {b}"), format!("{expected}{len}"))?;
        check(format!("RPUSH {{user:{user}}}:list{writer} x"), "1".into())?;
        check(
            format!("BLPOP {{user:{user}}}:list{writer} 5"),
            format!("{{user:{user}}}:list{writer},x"),
        )?;
        let other = (user + USERS - 1) % USERS;
        let mget = format!("MGET {a} {{user:{other}}}:a{writer}");
        let shown = |count: i64| if count == 0 { "Nil".into() } else { count.to_string() };
        check(mget, format!("{expected},{}", shown(counts[other])))?;
    }
    Ok(counts)
}

/// Starts writers at these ports.
fn writers(ports: &[u16], is_over: &Arc<AtomicBool>) -> Vec<JoinHandle<Counted>> {
    let start = |(writer, &port): (usize, &u16)| {
        let is_over = Arc::clone(is_over);
        std::thread::spawn(move || count(port, writer, &is_over))
    };
    ports.iter().enumerate().map(start).collect()
}

/// Ends writers, and compares what they counted with what the database has.
fn audit(port: u16, writers: Vec<JoinHandle<Counted>>, is_over: &AtomicBool) -> usize {
    is_over.store(true, Ordering::Relaxed);
    let mut one = client(port);
    let mut keys = 0;
    for (writer, thread) in writers.into_iter().enumerate() {
        let counts = thread.join().expect("a writer ends").expect("no error and no lost write");
        for (user, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            for key in [format!("{{user:{user}}}:a{writer}"), format!("{{user:{user}}}:b{writer}")]
            {
                assert_eq!(says(&mut one, &format!("GET {key}")), count.to_string(), "{key}");
                keys += 1;
            }
        }
    }
    keys
}

/// Puts so many keys of several types there.
fn fill(port: u16, many: usize) {
    let mut one = client(port);
    for n in 0..many {
        let request = match n % 4 {
            0 => format!("SET fill:{n} {n} EX 100000"),
            1 => format!("HSET fill:{n} f {n}"),
            2 => format!("RPUSH fill:{n} a {n}"),
            _ => format!("ZADD fill:{n} {n} m"),
        };
        let said = says(&mut one, &request);
        assert!(!said.starts_with('-'), "{request}: {said}");
    }
}

fn filled(port: u16, many: usize) {
    let mut one = client(port);
    for n in 0..many {
        let (request, expected) = match n % 4 {
            0 => (format!("GET fill:{n}"), n.to_string()),
            1 => (format!("HGETALL fill:{n}"), format!("f,{n}")),
            2 => (format!("LRANGE fill:{n} 0 -1"), format!("a,{n}")),
            _ => (format!("ZSCORE fill:{n} m"), n.to_string()),
        };
        assert_eq!(says(&mut one, &request), expected, "{request}");
    }
}

/// Each key is there once, and where the rule has it.
fn whole(machine: &Machine, port: u16, keys: usize) {
    let mut one = client(port);
    let found = scanned(&mut one);
    assert_eq!(found.len(), keys, "each key is there once");
    assert!(found.windows(2).all(|two| two[0] != two[1]), "no key is there twice");
    assert_eq!(says(&mut one, "DBSIZE"), keys.to_string());
    until_ok(machine, "d");
}

const BY_ID: [&str; 2] = ["[{]user:(?<tag>[0-9]+)[}].*", ".*:(?<tag>.*)"];

#[test]
fn rules_change_under_writers() {
    let machine = Machine::first("rehash", "a");
    let port = create(&machine, "d", &["--replicas", "1"]);
    until_ok(&machine, "d");
    fill(port, 600);
    let ports = ports(&machine, "d", "primary");
    let is_over = Arc::new(AtomicBool::new(false));
    let threads = writers(&ports, &is_over);
    change(&machine, &["--hashing-rule", BY_ID[0], "--hashing-rule", BY_ID[1]]);
    change(&machine, &["--hashing-rule", ".*(?<tag>.)"]);
    change(&machine, &["--hashing", "standard"]);
    change(&machine, &["--hashing-rule", BY_ID[0], "--hashing-rule", BY_ID[1]]);
    let counters = audit(port, threads, &is_over);
    filled(port, 600);
    whole(&machine, port, 600 + counters);
    let mut one = client(port);
    let said = says(&mut one, "MGET fill:1 {user:1}:a0 x");
    assert!(said.contains("Key 'x' matches no hashing rule"), "{said}");
}

#[test]
fn a_change_goes_on_after_a_switch_of_primaries() {
    let machine = Machine::first("rehash", "b");
    let port = create(&machine, "d", &["--replicas", "1"]);
    until_ok(&machine, "d");
    fill(port, 3000);
    let words = ["update-db", "d", "--hashing-rule", ".*:(?<tag>.*)", "--no-wait"];
    let (is_begun, said) = machine.ask(&words);
    assert!(is_begun, "{said}");
    for shard in ["1", "2", "3"] {
        // One that has just changed hands may not be ready for the next switch.
        machine.ask(&["failover", "d", "--shard", shard]);
    }
    eventually("the rules have changed", || machine.json(&["jobs"])[0]["state"] != "running");
    assert_eq!(machine.json(&["jobs"])[0]["state"], "done", "{}", machine.json(&["jobs"])[0]);
    filled(port, 3000);
    whole(&machine, port, 3000);
}

fn change(machine: &Machine, options: &[&str]) {
    let (is_done, said) = machine.ask(&[&["update-db", "d"][..], options].concat());
    assert!(is_done && said.contains("done in"), "{options:?}: {said}");
}

/// Keys of one tag are in one command, and the keys of each tag go where each rule has them.
#[test]
fn values_of_the_types_of_modules_follow_the_rules() {
    let machine = Machine::first("rehash", "e");
    let port = create(&machine, "d", &["--hashing-rule", ".*(?<tag>[a-z])-.*"]);
    until_ok(&machine, "d");
    let ports = ports(&machine, "d", "primary");
    // By the rule all keys of a tag are together, by the standard one those of a series are.
    for (at, tag) in ["x:a-", "x:b-", "x:c-", "x:d-", "x:e-", "x:f-"].iter().enumerate() {
        let mut one = client(ports[at % ports.len()]);
        module_types::fill(&mut one, tag);
        module_types::change(&mut one, tag);
    }
    let expected = first_database(&mut client(port));
    assert_eq!(expected.len(), 6 * module_types::KEYS);
    let sizes: Vec<String> = ports
        .iter()
        .map(|&port| {
            let mut one = client(port);
            says(&mut one, "CLIENT CAPA cluster node");
            says(&mut one, "DBSIZE")
        })
        .collect();
    let whole_tags = |size: &String| {
        size.parse().is_ok_and(|size: usize| size.is_multiple_of(module_types::KEYS))
    };
    assert!(sizes.iter().all(whole_tags), "{sizes:?}");
    for rules in [&["--hashing", "standard"][..], &["--hashing-rule", ".*:(?<tag>[a-z])-.*"]] {
        change(&machine, rules);
        until_ok(&machine, "d");
        let mut one = client(port);
        assert_eq!(first_database(&mut one), expected, "{rules:?}");
        // Rules of series go on, and labels are found on all shards.
        for tag in ["x:a-", "x:b-", "x:c-", "x:d-", "x:e-", "x:f-"] {
            let reply = ask(&mut one, &format!("TS.RANGE {tag}{{series}}hour - + LATEST"));
            assert_eq!(reply.elements().map(<[Reply]>::len), Some(5), "{reply:?}");
        }
        let found = ask(&mut one, "TS.QUERYINDEX kind=hour");
        assert_eq!(found.elements().map(<[Reply]>::len), Some(6), "{found:?}");
    }
}

/// A copy that is killed loads a file that is older than the rules, in which keys are that others
/// have now.
#[test]
fn keys_that_a_file_older_than_the_rules_has_are_dropped() {
    let machine = Machine::first("rehash", "c");
    let port = create(&machine, "d", &["--persistence", "rdb"]);
    until_ok(&machine, "d");
    fill(port, 300);
    let copy = machine.copies("d")[0].clone();
    let own = copy["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
    let mut one = client(own);
    says(&mut one, "CLIENT CAPA cluster node");
    assert_eq!(says(&mut one, "SAVE"), "OK");
    change(&machine, &["--hashing-rule", ".*:(?<tag>.*)"]);
    whole(&machine, port, 300);
    let process = machine.process_of(&copy).expect("it runs");
    signal(process, "KILL").expect("it runs");
    eventually("it is started again", || {
        machine.process_of(&copy).is_some_and(|new| new != process)
    });
    until_ok(&machine, "d");
    // What had moved to it since is gone with its memory; the rest is there once.
    eventually("each key is there once", || {
        let Ok(mut one) = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) else {
            return false;
        };
        let found = scanned(&mut one);
        let is_there = |key: &String| says(&mut client(port), &format!("EXISTS {key}")) == "1";
        found.len() > 100
            && found.windows(2).all(|two| two[0] != two[1])
            && says(&mut one, "DBSIZE") == found.len().to_string()
            && found.iter().all(is_there)
    });
}

#[test]
fn shards_come_and_go_in_a_database_with_rules() {
    let machine = Machine::first("rehash", "d");
    let port = create(&machine, "d", &["--hashing-rule", BY_ID[0], "--hashing-rule", BY_ID[1]]);
    until_ok(&machine, "d");
    fill(port, 600);
    let ports = ports(&machine, "d", "primary");
    let is_over = Arc::new(AtomicBool::new(false));
    let threads = writers(&ports[..1], &is_over);
    change(&machine, &["--shards", "5"]);
    assert_eq!(machine.json(&["databases", "d"])["shards"].as_array().map(Vec::len), Some(5));
    change(&machine, &["--shards", "2"]);
    assert_eq!(machine.json(&["databases", "d"])["shards"].as_array().map(Vec::len), Some(2));
    let (is_done, said) = machine.ask(&["move", "d", "0-99", "2"]);
    assert!(is_done && said.contains("done in"), "{said}");
    let counters = audit(port, threads, &is_over);
    filled(port, 600);
    whole(&machine, port, 600 + counters);
}
