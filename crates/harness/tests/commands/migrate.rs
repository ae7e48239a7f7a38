//! MIGRATE to and from real servers, and to targets that do what real ones do only in bad moments.

use harness::client::{Client, ask, ok};
use harness::contents::contents;
use harness::replicas::write;
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::{SetAtEnd, eventually};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

fn dunlin(arguments: &[&str]) -> Server {
    start(&Program::under_test(), arguments)
}

fn start(program: &Program, arguments: &[&str]) -> Server {
    let all = [&["--save", ""], arguments].concat();
    Server::start(program, Options::arguments(&all)).expect("it starts")
}

fn reference() -> Program {
    Program::reference().expect("there is a reference")
}

fn redis() -> Program {
    reference().beside("redis-server")
}

fn simple(text: &str) -> Reply {
    Reply::Simple(text.as_bytes().to_vec())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

/// `MIGRATE` to a port of this machine.
fn migrate(client: &mut Client, port: u16, rest: &str) -> Reply {
    ask(client, &format!("MIGRATE 127.0.0.1 {port} {rest}"))
}

/// Keys of every type, some of which expire; those whose fields do have a name of their own.
fn fill(client: &mut Client, has_timed_fields: bool) {
    let mut rng = Rng::new(5);
    for _ in 0..600 {
        write(client, &mut rng);
    }
    ok(client, "SELECT 0");
    for number in 0..300 {
        ok(client, &format!("ZADD bigzset {number}.5 member{number}"));
        ok(client, &format!("HSET bighash f{number} {number}"));
        ok(client, &format!("RPUSH biglist {number}"));
        ok(client, &format!("SADD bigset m{number}"));
    }
    ok(client, "SET expiring value PX 100000000");
    ok(client, "XADD stream 1-1 field value");
    ok(client, "XGROUP CREATE stream group 0");
    ok(client, "XREADGROUP GROUP group consumer STREAMS stream >");
    ok(client, "PFADD hll a b c");
    if has_timed_fields {
        ok(client, "HSET timed a 1 b 2");
        ok(client, "HPEXPIRE timed 100000000 FIELDS 1 a");
    }
}

/// Moves all of database 0 from one server to the other, and compares.
#[track_caller]
fn moves_everything(from: &Program, to: &Program, has_timed_fields: bool) {
    let (from, to) = (start(from, &[]), start(to, &[]));
    let (mut ours, mut theirs) = (from.client(), to.client());
    fill(&mut ours, has_timed_fields);
    let database = |client: &mut Client| {
        let mut all = contents(client);
        all.retain(|(db, _), _| *db == 0);
        all
    };
    let before = database(&mut ours);
    ok(&mut ours, "SELECT 0");
    let Reply::Array(keys) = ask(&mut ours, "KEYS *") else { panic!("KEYS answers an array") };
    assert!(keys.len() > 10, "there is something to move");
    let (first, rest) = keys.split_first().expect("there are keys");
    let name = |key: &Reply| String::from_utf8(key.text().expect("a key").to_vec()).expect("ASCII");
    assert_eq!(migrate(&mut ours, to.port(), &format!("{} 0 5000", name(first))), simple("OK"));
    let port = to.port().to_string();
    let mut request: Vec<String> =
        ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS", "not-there"]
            .map(str::to_owned)
            .to_vec();
    request.extend(rest.iter().map(name));
    let request: Vec<&str> = request.iter().map(String::as_str).collect();
    assert_eq!(ask(&mut ours, &request[..]), simple("OK"));
    assert_eq!(ask(&mut ours, "DBSIZE"), Reply::Integer(0));
    let after = database(&mut theirs);
    assert_eq!(before.len(), after.len());
    for (key, (value, expiry)) in &before {
        let (there, there_expiry) = &after[key];
        assert_eq!(value, there, "{key:?}");
        // The time that is left is sent, not the time itself.
        assert!((expiry - there_expiry).abs() < 5000, "{key:?}: {expiry} and {there_expiry}");
    }
}

#[test]
fn from_dunlin_to_dunlin() {
    moves_everything(&Program::under_test(), &Program::under_test(), true);
}

#[test]
fn from_dunlin_to_valkey_and_back() {
    moves_everything(&Program::under_test(), &reference(), true);
    moves_everything(&reference(), &Program::under_test(), true);
}

#[test]
fn from_dunlin_to_redis_and_back() {
    // Redis reads no hash of Valkey's with fields that expire; what it writes itself can be read.
    moves_everything(&Program::under_test(), &redis(), false);
    moves_everything(&redis(), &Program::under_test(), true);
}

#[test]
fn options_do_what_they_say() {
    for program in [Program::under_test(), reference()] {
        let target = start(&program, &["--requirepass", "secret"]);
        let source = dunlin(&["--appendonly", "yes"]);
        let (mut ours, mut theirs) = (source.client(), target.client());
        ok(&mut theirs, "AUTH secret");
        ok(&mut theirs, "ACL SETUSER mover on >pass ~* +@all");
        let port = target.port();
        ok(&mut ours, "MSET a 1 b 2 c 3");
        let refused = |reply: Reply, what: &str| {
            let text = String::from_utf8_lossy(reply.text().expect("a text")).into_owned();
            assert!(reply.is_error() && text.starts_with(what), "{text}");
        };
        let prefix = "ERR Target instance replied with error: ";
        refused(migrate(&mut ours, port, "a 0 5000"), &format!("{prefix}NOAUTH"));
        refused(migrate(&mut ours, port, "a 0 5000 AUTH wrong"), &format!("{prefix}WRONGPASS"));
        refused(migrate(&mut ours, port, "a 99 5000 AUTH secret"), &format!("{prefix}ERR"));
        assert_eq!(ask(&mut theirs, "DBSIZE"), Reply::Integer(0), "nothing was sent");
        assert_eq!(migrate(&mut ours, port, "a 3 5000 COPY AUTH secret"), simple("OK"));
        assert_eq!(ask(&mut ours, "GET a"), bulk("1"));
        refused(migrate(&mut ours, port, "a 3 5000 AUTH secret"), &format!("{prefix}BUSYKEY"));
        ok(&mut ours, "SET a 4");
        let request = "a 3 5000 REPLACE AUTH2 mover pass";
        assert_eq!(migrate(&mut ours, port, request), simple("OK"));
        assert_eq!(ask(&mut ours, "GET a"), Reply::Nil);
        ok(&mut theirs, "SELECT 3");
        assert_eq!(ask(&mut theirs, "GET a"), bulk("4"));
        // Of several keys those that are acknowledged are deleted.
        ok(&mut theirs, "SET b there");
        let words = [
            "MIGRATE",
            "127.0.0.1",
            &port.to_string(),
            "",
            "3",
            "5000",
            "AUTH",
            "secret",
            "KEYS",
            "b",
            "c",
        ];
        refused(ask(&mut ours, &words), &format!("{prefix}BUSYKEY"));
        assert_eq!(ask(&mut ours, "MGET b c"), Reply::Array(vec![bulk("2"), Reply::Nil]));
        assert_eq!(ask(&mut theirs, "MGET b c"), Reply::Array(vec![bulk("there"), bulk("3")]));
        // What has moved does not come back.
        drop(ours);
        let mut source = source;
        source.restart().expect("it starts again");
        let mut ours = source.client();
        assert_eq!(ask(&mut ours, "KEYS *"), Reply::Array(vec![bulk("b")]));
    }
}

#[test]
fn transactions_and_scripts_move_keys() {
    let (source, target) = (dunlin(&["--appendonly", "yes"]), dunlin(&[]));
    let (mut client, mut theirs) = (source.client(), target.client());
    let port = target.port();
    ok(&mut client, "MSET a 1 b 2 c 3 d 4");
    ok(&mut client, "MULTI");
    assert_eq!(ask(&mut client, "INCR a"), simple("QUEUED"));
    assert_eq!(migrate(&mut client, port, "a 0 5000"), simple("QUEUED"));
    assert_eq!(migrate(&mut client, port, "missing 0 5000"), simple("QUEUED"));
    assert_eq!(migrate(&mut client, 1, "b 0 5000"), simple("QUEUED"));
    assert_eq!(ask(&mut client, "EXISTS a b"), simple("QUEUED"));
    let Reply::Array(replies) = ask(&mut client, "EXEC") else { panic!("an array") };
    assert_eq!(replies[..3], [Reply::Integer(2), simple("OK"), simple("NOKEY")]);
    fails(&replies[3], "IOERR error or timeout writing to target instance");
    assert_eq!(replies[4], Reply::Integer(1), "b stays, a is gone");
    let script = "redis.call('APPEND', KEYS[1], '!') \
                  return redis.call('MIGRATE', '127.0.0.1', ARGV[1], KEYS[1], 0, 5000)";
    let port = port.to_string();
    assert_eq!(ask(&mut client, &["EVAL", script, "1", "c", &port]), simple("OK"));
    // Now it is known to touch no other key.
    assert_eq!(ask(&mut client, &["EVAL", script, "1", "d", &port]), simple("OK"));
    let undeclared = script.replace("KEYS[1]", "'b'");
    assert_eq!(ask(&mut client, &["EVAL", &undeclared, "0", &port]), simple("OK"));
    let expected = ["2", "2!", "3!", "4!"].map(bulk);
    assert_eq!(ask(&mut theirs, "MGET a b c d"), Reply::Array(expected.to_vec()));
    drop(client);
    let mut source = source;
    source.restart().expect("it starts again");
    assert_eq!(ask(&mut source.client(), "DBSIZE"), Reply::Integer(0), "the log says so, too");
}

/// A target of our own: each connection is given to `serve` with its number.
fn target(serve: impl Fn(usize, TcpStream) + Send + Sync + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (serve, stream) = (serve.clone(), stream.expect("a connection"));
            thread::spawn(move || serve(number, stream));
        }
    });
    port
}

/// Reads requests until so many RESTOREs have come, and answers SELECT.
fn read_restores(stream: &mut TcpStream, count: usize) {
    let mut input = Vec::new();
    let mut selected = false;
    let occurrences =
        |input: &[u8], word: &[u8]| input.windows(word.len()).filter(|w| *w == word).count();
    while occurrences(&input, b"RESTORE") < count {
        let mut piece = [0; 4096];
        let bytes = stream.read(&mut piece).expect("the connection is open");
        assert!(bytes > 0, "the source has closed the connection");
        input.extend_from_slice(&piece[..bytes]);
        if !selected && occurrences(&input, b"SELECT") > 0 {
            selected = true;
            stream.write_all(b"+OK\r\n").expect("the connection is open");
        }
    }
}

const READING: &str = "IOERR error or timeout reading to target instance";

#[track_caller]
fn fails(reply: &Reply, text: &str) {
    assert_eq!(*reply, Reply::Error(text.as_bytes().to_vec()));
}

#[test]
fn a_target_that_does_not_answer_is_in_the_way_of_its_keys_writers_only() {
    let (came, comes) = channel();
    let (end, ends) = channel::<()>();
    let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
    let port = target(move |_, mut stream| {
        read_restores(&mut stream, 1);
        came.send(()).expect("the test listens");
        _ = ends.lock().expect("one at a time").recv();
        _ = stream.write_all(b"+OK\r\n");
    });
    let source = dunlin(&["--io-threads", "2"]);
    let mut client = source.client();
    ok(&mut client, "MSET moved 1 other 1");
    client.send(&["MIGRATE", "127.0.0.1", &port.to_string(), "moved", "0", "60000"]).expect("sent");
    comes.recv_timeout(Duration::from_secs(20)).expect("the key is sent");
    let mut others: Vec<Client> = (0..8).map(|_| source.client()).collect();
    for other in &mut others {
        assert_eq!(ask(other, "GET moved"), bulk("1"));
        ok(other, "INCR other");
        ok(other, "SET new 1");
    }
    // A writer waits, and finds the key gone.
    let mut writer = source.client();
    writer.send(&["APPEND", "moved", "x"]).expect("sent");
    for other in &mut others {
        ok(other, "INCR other");
        assert_eq!(ask(other, "GET moved"), bulk("1"));
    }
    assert!(!writer.has_data().expect("the connection is open"), "the key is held");
    end.send(()).expect("the target listens");
    assert_eq!(client.reply().expect("a reply"), simple("OK"));
    assert_eq!(writer.reply().expect("a reply"), Reply::Integer(1));
    assert_eq!(ask(&mut client, "GET moved"), bulk("x"));
}

#[test]
fn a_timeout_leaves_the_key() {
    let (came, comes) = channel();
    let port = target(move |_, mut stream| {
        read_restores(&mut stream, 1);
        came.send(()).expect("the test listens");
        // Until the source closes the connection.
        _ = stream.read(&mut [0]);
    });
    let source = dunlin(&[]);
    let mut client = source.client();
    ok(&mut client, "SET k v");
    fails(&migrate(&mut client, port, "k 0 300"), READING);
    assert_eq!(comes.try_iter().count(), 1, "after a timeout nothing is tried again");
    assert_eq!(ask(&mut client, "APPEND k x"), Reply::Integer(2));
}

#[test]
fn a_connection_that_ends_in_the_middle_keeps_what_was_not_acknowledged() {
    let port = target(|_, mut stream| {
        read_restores(&mut stream, 3);
        stream.write_all(b"+OK\r\n-ERR no\r\n+O").expect("the connection is open");
    });
    let source = dunlin(&[]);
    let mut client = source.client();
    ok(&mut client, "MSET a 1 b 2 c 3");
    let words = ["MIGRATE", "127.0.0.1", &port.to_string(), "", "0", "5000", "KEYS", "a", "b", "c"];
    let reply = ask(&mut client, &words);
    fails(&reply, "ERR Target instance replied with error: ERR no");
    let left = Reply::Array(vec![Reply::Nil, bulk("2"), bulk("3")]);
    assert_eq!(ask(&mut client, "MGET a b c"), left);
}

#[test]
fn a_connection_that_ends_at_once_is_replaced_once() {
    let (came, comes) = channel();
    let port = target(move |number, mut stream| {
        came.send(number).expect("the test listens");
        if number > 0 {
            read_restores(&mut stream, 1);
            stream.write_all(b"+OK\r\n").expect("the connection is open");
            _ = stream.read(&mut [0]);
        }
    });
    let source = dunlin(&[]);
    let mut client = source.client();
    ok(&mut client, "SET k v");
    assert_eq!(migrate(&mut client, port, "k 0 5000"), simple("OK"));
    assert_eq!(comes.try_iter().count(), 2);
    assert_eq!(ask(&mut client, "EXISTS k"), Reply::Integer(0));
    let always = target(|_, mut stream| read_restores(&mut stream, 1));
    ok(&mut client, "SET k v");
    fails(&migrate(&mut client, always, "k 0 5000"), READING);
    assert_eq!(ask(&mut client, "GET k"), bulk("v"));
}

#[test]
fn what_is_no_acknowledgement_moves_nothing() {
    let endless = vec![b'x'; 64 << 10];
    let answers: [&[u8]; 4] = [b"HTTP/1.1 400 Bad Request\r\n", b":1\r\n", b"+OKAY\r\n", &endless];
    let source = dunlin(&[]);
    let mut client = source.client();
    ok(&mut client, "SET k v");
    for answer in answers {
        let answer = answer.to_vec();
        let port = target(move |_, mut stream| {
            read_restores(&mut stream, 1);
            _ = stream.write_all(&answer);
            _ = stream.read(&mut [0]);
        });
        fails(&migrate(&mut client, port, "k 0 5000"), READING);
        assert_eq!(ask(&mut client, "GET k"), bulk("v"));
    }
}

#[test]
fn a_connection_is_used_again_and_closed_when_it_is_old() {
    let target = dunlin(&[]);
    let source = dunlin(&[]);
    let (mut ours, mut theirs) = (source.client(), target.client());
    for number in 0..5 {
        ok(&mut ours, &format!("SET k{number} v"));
        let reply = migrate(&mut ours, target.port(), &format!("k{number} {} 5000", number % 2));
        assert_eq!(reply, simple("OK"));
    }
    let counted = |theirs: &mut Client| {
        let list = ask(theirs, "CLIENT LIST");
        list.text()
            .expect("a text")
            .split(|&byte| byte == b'\n')
            .filter(|line| line.len() > 1)
            .count()
    };
    assert_eq!(counted(&mut theirs), 2, "one for all of them, and ours");
    // The target has closed it: another takes its place.
    ok(&mut theirs, "CLIENT KILL TYPE normal SKIPME yes");
    eventually("it is closed", || counted(&mut theirs) == 1);
    ok(&mut ours, "SET k v");
    assert_eq!(migrate(&mut ours, target.port(), "k 0 5000"), simple("OK"));
    eventually("it is closed when it is old", || counted(&mut theirs) == 1);
}

/// Writers add to lists that move back and forth between two servers; what each was told to have
/// been added is in the end there, once.
#[test]
fn no_write_is_lost_between_the_copy_and_the_deletion() {
    const WRITES: usize = 400;
    let servers = [dunlin(&["--io-threads", "2"]), dunlin(&["--io-threads", "2"])];
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let added = thread::scope(|scope| {
        let over = SetAtEnd(&is_over);
        let mover = scope.spawn(|| {
            let mut clients = [servers[0].client(), servers[1].client()];
            let mut moves = 0;
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                for (from, to) in [(0, 1), (1, 0)] {
                    let reply = migrate(&mut clients[from], servers[to].port(), "list 0 5000");
                    if reply == simple("OK") {
                        moves += 1;
                    }
                }
            }
            moves
        });
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let servers = &servers;
                scope.spawn(move || {
                    let mut clients = [servers[0].client(), servers[1].client()];
                    let mut added = Vec::new();
                    for number in 0..WRITES {
                        let element = format!("{writer}-{number}");
                        for client in &mut clients {
                            let reply = ask(client, &["RPUSHX", "list", &element]);
                            if matches!(reply, Reply::Integer(1..)) {
                                added.push(element.clone());
                                break;
                            }
                        }
                    }
                    added
                })
            })
            .collect();
        ok(&mut servers[0].client(), "RPUSH list first");
        let added: Vec<String> =
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect();
        drop(over);
        assert!(mover.join().expect("no panic") > 0, "it has moved");
        added
    });
    let mut found = Vec::new();
    for server in &servers {
        let list = ask(&mut server.client(), "LRANGE list 0 -1");
        for element in list.elements().unwrap_or_default() {
            found.push(String::from_utf8(element.text().expect("text").to_vec()).expect("ASCII"));
        }
    }
    found.retain(|element| element != "first");
    let (mut expected, total) = (added, found.len());
    expected.sort();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), total, "nothing is there twice");
    assert_eq!(found, expected);
}
