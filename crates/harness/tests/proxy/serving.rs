//! Several servers are one: keys, transactions, channels, sizes, a server that stops.

use crate::support::{Proxy, dunlin, in_front_of_three, okay, server, servers, stop, text, until};
use harness::client::{Client, ask, patience};
use harness::reply::{Protocol, Reply};
use harness::server::{Server, signal};
use std::time::Instant;

#[test]
fn several_servers_are_one() {
    let Some((servers, proxy)) = in_front_of_three("") else { return };
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut client = proxy.client(protocol);
        assert_eq!(ask(&mut client, &["FLUSHALL"]), okay());
        let keys: Vec<String> = (0..50).map(|n| format!("key{n}")).collect();
        let mut set = vec!["MSET"];
        keys.iter().for_each(|key| set.extend([&key[..], &key[..]]));
        assert_eq!(ask(&mut client, &set[..]), okay());
        let mut get = vec!["MGET"];
        get.extend(keys.iter().rev().map(String::as_str));
        let Reply::Array(values) = ask(&mut client, &get[..]) else { panic!("no array") };
        let values: Vec<String> = values.iter().map(text).collect();
        assert_eq!(values, keys.iter().rev().cloned().collect::<Vec<_>>());
        assert_eq!(ask(&mut client, &["DBSIZE"]), Reply::Integer(50));
        let mut direct = servers.iter().map(|server| ask(&mut server.client(), &["DBSIZE"]));
        assert!(direct.all(|count| count != Reply::Integer(0)), "every server has a share");
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let Reply::Array(page) = ask(&mut client, &["SCAN", &cursor, "COUNT", "7"]) else {
                panic!("no page")
            };
            let Reply::Array(some) = &page[1] else { panic!("no keys") };
            found.extend(some.iter().map(text));
            cursor = text(&page[0]);
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 50);
        // Keys behind subcommands.
        for key in &keys[..9] {
            let log = format!("log:{key}");
            assert_eq!(text(&ask(&mut client, &["OBJECT", "ENCODING", key])), "embstr");
            let create = ["XGROUP", "CREATE", &log, "group", "0", "MKSTREAM"];
            assert_eq!(ask(&mut client, &create), okay());
            ask(&mut client, &["XADD", &log, "*", "a", "b"]);
            let read = ["XREADGROUP", "GROUP", "group", "me", "STREAMS", &log, ">"];
            let reply = ask(&mut client, &read);
            assert!(!reply.is_error() && !reply.is_nil(), "{reply:?}");
            assert_eq!(ask(&mut client, &["DEL", &log]), Reply::Integer(1));
        }
        let mut del = vec!["DEL", "no such key"];
        del.extend(keys.iter().map(String::as_str));
        assert_eq!(ask(&mut client, &del[..]), Reply::Integer(50));
    }
}

/// The kernel's table of descriptors need not grow while clients come.
#[test]
fn the_table_of_descriptors_is_made_at_the_start() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let field = |file: &str, name: &str| {
        let path = format!("/proc/{}/{file}", proxy.process_id());
        let text = std::fs::read_to_string(path).expect("the process runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        let word = line.split_whitespace().next().expect("a value");
        word.parse::<usize>().expect("a number")
    };
    let wanted = field("limits", "Max open files").min(1 << 16);
    let made = field("status", "FDSize:");
    assert!(made >= wanted, "{made} of {wanted}");
}

/// MSETEX goes to several servers, as its tips say, unless it depends on which keys exist.
#[test]
fn several_keys_are_set_with_one_expiry_at_their_servers() {
    let Some((servers, proxy)) = in_front_of_three("") else { return };
    let mut client = proxy.client(Protocol::Resp3);
    let keys: Vec<String> = (0..30).map(|n| format!("key{n}")).collect();
    let mut words = vec!["MSETEX", "30"];
    keys.iter().for_each(|key| words.extend([&key[..], "v"]));
    words.extend(["EX", "1000"]);
    assert_eq!(ask(&mut client, &words[..]), Reply::Integer(1));
    let mut direct = servers.iter().map(|server| ask(&mut server.client(), &["DBSIZE"]));
    assert!(direct.all(|count| count != Reply::Integer(0)), "every server has a share");
    for key in &keys {
        let ttl = ask(&mut client, &["TTL", key]);
        assert!(matches!(ttl, Reply::Integer(900..=1000)), "{key}: {ttl:?}");
    }
    for condition in ["NX", "XX"] {
        words.splice(62.., [condition]);
        let Reply::Error(why) = ask(&mut client, &words[..]) else { panic!("it is not refused") };
        assert!(why.starts_with(b"CROSSSLOT 'msetex' needs all its keys on one server"));
    }
    let once = ["MSETEX", "2", "{t}a", "1", "{t}b", "2", "NX"];
    assert_eq!(ask(&mut client, &once), Reply::Integer(1));
    assert_eq!(ask(&mut client, &once), Reply::Integer(0));
    let wrong = ["MSETEX", "3", "a", "1", "b", "2"];
    assert!(matches!(ask(&mut client, &wrong), Reply::Error(why) if why.starts_with(b"ERR ")));
}

fn client_fields(client: &mut Client) -> Vec<String> {
    let info = ask(client, &["CLIENT", "INFO"]);
    let info = String::from_utf8_lossy(info.text().expect("it is text")).into_owned();
    let names = info.split_whitespace().filter_map(|field| field.split_once('='));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn a_client_is_described_as_servers_do() {
    let Some((servers, proxy)) = in_front_of_three("") else { return };
    let expected = client_fields(&mut servers[0].client());
    assert!(expected.contains(&"qbuf-free".to_owned()), "{expected:?}");
    let told = client_fields(&mut proxy.client(Protocol::Resp2));
    let missing: Vec<_> = expected.iter().filter(|name| !told.contains(name)).collect();
    assert!(missing.is_empty(), "libraries look for {missing:?}");
}

#[test]
fn clients_choose_what_is_tracked() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut writer = proxy.client(Protocol::Resp2);
    let mut reader = proxy.client(Protocol::Resp3);
    let caching = ["CLIENT", "CACHING", "YES"];
    assert!(ask(&mut reader, &caching).is_error(), "there is no tracking");
    assert_eq!(ask(&mut reader, &["CLIENT", "TRACKING", "ON", "OPTIN"]), okay());
    let get = |reader: &mut Client, key: &str| assert!(!ask(reader, &["GET", key]).is_error());
    let heard = |reader: &mut Client| match reader.message().expect("a message") {
        Reply::Push(parts) => match &parts[1] {
            Reply::Array(keys) => keys.iter().map(text).collect::<Vec<_>>().join(" "),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    for round in 0..8 {
        let [silent, single, within] = ["a", "b", "c"].map(|name| format!("{name}{round}"));
        // It is for the next request alone.
        assert_eq!(ask(&mut reader, &caching), okay());
        get(&mut reader, &single);
        get(&mut reader, &silent);
        for key in [&silent, &single] {
            assert_eq!(ask(&mut writer, &["SET", key, "1"]), okay());
        }
        assert_eq!(heard(&mut reader), single);
        // And for all of a transaction, in one write as libraries send it.
        for words in [&caching[..], &["MULTI"], &["PTTL", &within], &["GET", &within], &["EXEC"]] {
            reader.send(words).expect("it is sent");
        }
        for _ in 0..4 {
            assert!(!reader.reply().expect("it answers").is_error());
        }
        let executed = reader.reply().expect("it answers");
        assert_eq!(executed, Reply::Array(vec![Reply::Integer(-2), Reply::Nil]));
        assert_eq!(ask(&mut writer, &["SET", &within, "1"]), okay());
        assert_eq!(heard(&mut reader), within);
    }
}

#[test]
fn transactions_keep_to_one_server() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut client = proxy.client(Protocol::Resp2);
    let mut other = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["WATCH", "{t}a"]), okay());
    assert_eq!(ask(&mut client, &["MULTI"]), okay());
    assert_eq!(text(&ask(&mut client, &["PING"])), "QUEUED");
    assert_eq!(text(&ask(&mut client, &["INCR", "{t}a"])), "QUEUED");
    assert_eq!(ask(&mut other, &["SET", "{t}a", "7"]), okay());
    assert!(matches!(ask(&mut client, &["EXEC"]), Reply::Nil | Reply::NilArray));
    assert_eq!(ask(&mut client, &["MULTI"]), okay());
    assert_eq!(text(&ask(&mut client, &["INCR", "{t}a"])), "QUEUED");
    assert_eq!(ask(&mut client, &["EXEC"]), Reply::Array(vec![Reply::Integer(8)]));
    // fnv1a_64 puts short keys that are alike on one server, as in Twemproxy; murmur does not.
    // Keys that are certainly not all on one server.
    let keys: Vec<String> = (0..40).map(|n| format!("key{n}")).collect();
    let mut words = vec!["SINTER"];
    words.extend(keys.iter().map(String::as_str));
    assert_eq!(ask(&mut client, &["MULTI"]), okay());
    assert!(matches!(ask(&mut client, &words[..]), Reply::Error(_)));
    let refused = ask(&mut client, &["EXEC"]);
    assert!(matches!(refused, Reply::Error(why) if why.starts_with(b"EXECABORT")));
    // What SORT's patterns name may be on other servers unless their tag is the key's.
    assert_eq!(ask(&mut client, &["RPUSH", "{t}list", "1", "2"]), Reply::Integer(2));
    assert_eq!(ask(&mut client, &["MSET", "{t}w1", "2", "{t}w2", "1"]), okay());
    for option in ["BY", "GET"] {
        for pattern in ["w*", "w*{t}", "{}{t}w*"] {
            let Reply::Error(why) = ask(&mut client, &["SORT_RO", "{t}list", option, pattern])
            else {
                panic!("SORT BY {pattern} is not refused")
            };
            assert!(String::from_utf8_lossy(&why).contains("begin them with the key's hash tag"));
        }
    }
    let sort = ["SORT", "{t}list", "BY", "{t}w*", "GET", "#", "STORE", "{t}to"];
    assert_eq!(ask(&mut client, &sort), Reply::Integer(2));
    assert_eq!(text(&ask(&mut client, &["LINDEX", "{t}to", "0"])), "2");
    assert_eq!(ask(&mut client, &["MULTI"]), okay());
    assert_eq!(text(&ask(&mut client, &sort)), "QUEUED");
    assert!(matches!(ask(&mut client, &["SORT", "{t}list", "BY", "w*"]), Reply::Error(_)));
    let refused = ask(&mut client, &["EXEC"]);
    assert!(matches!(refused, Reply::Error(why) if why.starts_with(b"EXECABORT")));
    // A command that waits holds up nobody else.
    client.send(&["BLPOP", "queue", "0"]).expect("it is sent");
    assert_eq!(ask(&mut other, &["LPUSH", "queue", "x"]), Reply::Integer(1));
    let Reply::Array(popped) = client.reply().expect("a reply") else { panic!("no array") };
    assert_eq!(text(&popped[1]), "x");
}

#[test]
fn a_server_that_stops_concerns_its_own_keys() {
    let Some((servers, proxy)) = in_front_of_three("  timeout: 300\n") else { return };
    let mut client = proxy.client(Protocol::Resp2);
    let keys: Vec<String> = (0..40).map(|n| format!("key{n}")).collect();
    for key in &keys {
        assert_eq!(ask(&mut client, &["SET", key, key]), okay());
    }
    let stopped = servers[1].process_id();
    stop(stopped);
    let mut failed = 0;
    // In one pipeline: replies stay in order whatever the servers do.
    for key in &keys {
        client.send(&["GET", key]).expect("it is sent");
    }
    for key in &keys {
        match client.reply().expect("a reply") {
            Reply::Error(why) => {
                assert!(String::from_utf8_lossy(&why).contains("server1"), "{why:?}");
                failed += 1;
            }
            reply => assert_eq!(&text(&reply), key),
        }
    }
    signal(stopped, "CONT").expect("it goes on");
    assert!(failed > 0 && failed < keys.len(), "{failed} of {}", keys.len());
    let deadline = Instant::now() + patience();
    while keys.iter().any(|key| text(&ask(&mut client, &["GET", key])) != *key) {
        assert!(Instant::now() < deadline, "the server does not come back");
    }
}

#[test]
fn channels_and_sizes_pass() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut subscriber = proxy.client(Protocol::Resp3);
    let mut client = proxy.client(Protocol::Resp2);
    for channel in ["news", "weather", "sport"] {
        subscriber.send(&["SUBSCRIBE", channel]).expect("it is sent");
        assert!(matches!(subscriber.message().expect("a confirmation"), Reply::Push(_)));
        assert_eq!(ask(&mut client, &["PUBLISH", channel, "x"]), Reply::Integer(1));
        let Reply::Push(message) = subscriber.message().expect("a message") else {
            panic!("no push")
        };
        assert_eq!((text(&message[1]), text(&message[2])), (channel.to_owned(), "x".to_owned()));
    }
    for power in 3..=20 {
        for size in [-64, -2, -1, 0, 1, 2, 64] {
            let value = "v".repeat(((1i64 << power) + size).max(0) as usize);
            assert_eq!(ask(&mut client, &["SET", "sized", &value]), okay());
            assert!(
                ask(&mut client, &["GET", "sized"]).text() == Some(value.as_bytes()),
                "{power} {size}"
            );
        }
    }
    // All is written before anything is read.
    let requests = harness::client::encode(&["ECHO", "x"]).repeat(20_000);
    client.send_raw(&requests).expect("they are sent");
    for _ in 0..20_000 {
        assert_eq!(text(&client.reply().expect("a reply")), "x");
    }
}

/// The states of connections to a port, as the kernel tells them (proc_pid_net(5)): the kind of
/// their timer.
fn timers(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let port = format!(":{port:04X}");
    let timer = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_to_it = fields.get(2)?.ends_with(&port) && *fields.get(3)? == "01";
        is_to_it.then(|| fields[5].split(':').next().unwrap_or_default().to_owned())
    };
    table.lines().filter_map(timer).collect()
}

#[test]
fn connections_to_servers_are_as_many_and_as_probed_as_asked_for() {
    let Some(program) = dunlin() else { return };
    const KEEPALIVE: &str = "02";
    for (more, most, is_probed) in [
        ("", 2, true),
        ("  tcpkeepalive: false\n  server_connections: 3\n", 6, false),
        ("  tcpkeepalive: true\n  server_connections: 2\n", 4, true),
    ] {
        let server = server(&program, &[]);
        let proxy = Proxy::start(&program, std::slice::from_ref(&server), more);
        let mut clients: Vec<_> = (0..12).map(|_| proxy.client(Protocol::Resp2)).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            let value = at.to_string();
            for n in 0..20 {
                client.send(&["APPEND", &value, &n.to_string()]).expect("it is sent");
            }
        }
        for client in &mut clients {
            let mut lens = (0..20).map(|_| client.reply().expect("a reply").integer());
            let mut expected = (0..20).map(|n| if n < 10 { n + 1 } else { 2 * n - 8 });
            assert!(lens.all(|len| len == expected.next()), "in order");
        }
        // The kernel shows another timer while something is on its way.
        let has = |found: &[String]| {
            let probed = found.iter().filter(|timer| *timer == KEEPALIVE).count();
            probed == if is_probed { found.len() } else { 0 }
        };
        until("connections are as asked for", || {
            let found = timers(server.port());
            found.len() == most && has(&found)
        });
    }
}

#[test]
fn what_concerns_one_server_passes_to_one() {
    let Some(program) = dunlin() else { return };
    let asked: [&[&str]; 8] = [
        &["ACL", "WHOAMI"],
        &["COMMANDLOG", "GET", "1", "slow"],
        &["LATENCY", "LATEST"],
        &["MEMORY", "STATS"],
        &["MODULE", "LIST"],
        &["ROLE"],
        &["SLOWLOG", "LEN"],
        &["SAVE"],
    ];
    let servers = servers(&program);
    let one = Proxy::start(&program, &servers[..1], "");
    let mut client = one.client(Protocol::Resp2);
    for words in asked {
        let reply = ask(&mut client, words);
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    }
    assert_eq!(text(&ask(&mut client, &["ACL", "WHOAMI"])), "default");
    assert_eq!(ask(&mut client, &["MULTI"]), okay());
    assert_eq!(text(&ask(&mut client, &["SLOWLOG", "LEN"])), "QUEUED");
    assert!(!matches!(ask(&mut client, &["EXEC"]), Reply::Error(_)));
    for words in [&["MONITOR"][..], &["SYNC"], &["WAIT", "0", "0"]] {
        let Reply::Error(why) = ask(&mut client, words) else { panic!("{words:?} passes") };
        let why = String::from_utf8_lossy(&why).into_owned();
        assert!(why.contains("does not work through the proxy: "), "{why}");
    }
    drop(one);
    let several = Proxy::start(&program, &servers, "");
    let mut client = several.client(Protocol::Resp2);
    for words in asked {
        let Reply::Error(why) = ask(&mut client, words) else { panic!("{words:?} passes") };
        let why = String::from_utf8_lossy(&why).into_owned();
        assert!(why.ends_with("there are several; ask that server directly"), "{why}");
    }
}

/// Renamed commands are to the proxy what a module's are: only the servers know where the keys are.
#[test]
fn commands_that_only_servers_know_go_where_their_keys_are() {
    let Some(program) = dunlin() else { return };
    let renamed = ["--rename-command", "SET", "PUT", "--rename-command", "BLPOP", "AWAIT"];
    let counted = ["--rename-command", "ZUNION", "UNITE"];
    let split = ["--rename-command", "MSETEX", "PUTALL", "--rename-command", "MGET", "GETALL"];
    let all = ["--rename-command", "DBSIZE", "HOWMANY"];
    let options = [&renamed[..], &counted, &split, &all].concat();
    let servers: Vec<Server> = (0..3).map(|_| server(&program, &options)).collect();
    let proxy = Proxy::start(&program, &servers, "");
    let mut client = proxy.client(Protocol::Resp2);
    let direct = |at: usize, request: &[&str]| ask(&mut servers[at].client(), request);
    for key in (0..30).map(|number| format!("key{number}")) {
        assert_eq!(ask(&mut client, &["PUT", &key, &key]), okay());
        assert_eq!(text(&ask(&mut client, &["GET", &key])), key);
    }
    assert!((0..3).all(|at| direct(at, &["HOWMANY"]) != Reply::Integer(0)));
    // Their tips say that they concern several servers.
    assert_eq!(ask(&mut client, &["HOWMANY"]), Reply::Integer(30));
    let put = ["PUTALL", "3", "apple", "a", "zebra", "b", "quince", "c", "EX", "1000"];
    assert_eq!(ask(&mut client, &put), Reply::Integer(1));
    let found = ask(&mut client, &["GETALL", "quince", "none", "zebra", "apple"]);
    let found = found.elements().expect("an array");
    assert_eq!([&found[0], &found[2], &found[3]].map(text), ["c", "b", "a"]);
    assert!(found[1].is_nil(), "{found:?}");
    // The words before the keys state their number.
    for key in (0..9).map(|number| format!("set{number}")) {
        assert_eq!(ask(&mut client, &["ZADD", &key, "1", "one"]), Reply::Integer(1));
        let found = ask(&mut client, &["UNITE", "1", &key]);
        assert_eq!(found.elements().map(<[Reply]>::len), Some(1), "{found:?}");
    }
    // One that waits holds up no other client.
    let mut waiting = proxy.client(Protocol::Resp2);
    waiting.send(&["AWAIT", "queue", "0"]).expect("it is sent");
    until("it waits", || {
        (0..3).any(|at| text(&direct(at, &["INFO", "clients"])).contains("blocked_clients:1\r\n"))
    });
    for number in 0..30 {
        let mut other = proxy.client(Protocol::Resp2);
        assert_eq!(
            text(&ask(&mut other, &["GET", &format!("key{number}")])),
            format!("key{number}")
        );
    }
    assert_eq!(ask(&mut client, &["RPUSH", "queue", "it"]), Reply::Integer(1));
    let Reply::Array(found) = waiting.reply().expect("a reply") else { panic!("no element") };
    assert_eq!(text(&found[1]), "it");
    // What no server knows is an error of the server's own, each time.
    for _ in 0..3 {
        let reply = ask(&mut client, &["NOSUCH", "key1"]);
        assert!(reply.is_error() && reply.shown().contains("unknown command"), "{reply:?}");
    }
}
