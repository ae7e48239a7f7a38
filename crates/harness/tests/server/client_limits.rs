//! The limits of a client's buffers, of all clients' memory and of their number: each is enforced
//! when it is reached, says so, and leaves the others alone. On both I/O back-ends.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, encode};
use harness::info;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server, signal};
use harness::wait::eventually;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `test` against a server on each back-end, which has to end well.
fn on_each_backend(arguments: &[&str], test: impl Fn(&Server)) {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(arguments) };
        let server = Server::start(&program, options).unwrap();
        test(&server);
        assert!(server.stop().unwrap().success());
    }
}

fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

/// A number of INFO.
fn number(server: &Server, name: &str) -> u64 {
    info::number(&mut server.client(), name)
}

/// The names of the connected clients that have one.
fn named_clients(server: &Server) -> Vec<String> {
    let list = ask(&mut server.client(), "CLIENT LIST").shown();
    let name = |line: &str| {
        line.split(' ').find_map(|field| field.strip_prefix("name=")).unwrap_or("").to_owned()
    };
    list.lines().map(name).filter(|name| !name.is_empty()).collect()
}

fn named(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.command(&["CLIENT", "SETNAME", name]).unwrap(), ok());
    client
}

#[test]
fn a_request_beyond_the_query_buffer_limit() {
    on_each_backend(&["--client-query-buffer-limit", "1mb"], |server| {
        // Exactly as much as is allowed is not too much.
        let mut client = server.client();
        client.send(&["SET", "k", &"x".repeat(1_000_000)]).unwrap();
        assert_eq!(client.reply().unwrap(), ok());
        client.send_raw(b"*2\r\n$4\r\nECHO\r\n$9000000\r\n").unwrap();
        // The server may close before all of it is sent.
        let _ = client.send_raw(&vec![b'x'; 3_000_000]);
        client.expect_closed().unwrap();
        assert_eq!(number(server, "client_query_buffer_limit_disconnections"), 1);
        let line = "Closing client that reached max query buffer length: id=";
        server.logs(line);
        // What MULTI has queued counts as well.
        let mut client = server.client();
        assert_eq!(client.command(&["MULTI"]).unwrap(), ok());
        let value = "x".repeat(400_000);
        let queued = (0..10).take_while(|_| client.command(&["SET", "k", &value]).is_ok()).count();
        assert_eq!(queued, 2);
    });
}

#[test]
fn replies_beyond_the_hard_limit() {
    on_each_backend(&["--client-output-buffer-limit", "normal 1mb 0 0"], |server| {
        let mut client = server.client();
        // A longer value would be referred to, and count once.
        let value = "x".repeat(12_000);
        assert_eq!(client.command(&["SET", "big", &value]).unwrap(), ok());
        // One reply that is too large is not sent, not even in part.
        let mut greedy = server.client();
        greedy.send(&["MGET"].iter().chain([&"big"; 100]).collect::<Vec<_>>()).unwrap();
        greedy.expect_closed().unwrap();
        // Nor is a reply that would take all the memory there is even put together.
        client.command(&["HSET", "h", "f", "v"]).unwrap();
        client.command(&["SADD", "s", "m"]).unwrap();
        client.command(&["ZADD", "z", "1", "m"]).unwrap();
        for (command, key) in [("HRANDFIELD", "h"), ("SRANDMEMBER", "s"), ("ZRANDMEMBER", "z")] {
            let mut greedy = server.client();
            greedy.send(&[command, key, "-9000000000"]).unwrap();
            greedy.expect_closed().unwrap();
        }
        // A pipeline is cut where the limit is reached.
        let mut greedy = server.client();
        let requests = [encode(&["GET", "big"]), encode(&["INCR", "count"])].concat().repeat(200);
        let _ = greedy.send_raw(&requests);
        eventually("disconnected", || {
            number(server, "client_output_buffer_limit_disconnections") == 5
        });
        let count = client.command(&["GET", "count"]).unwrap();
        assert!(count.shown().parse::<u32>().unwrap() < 200, "{count:?}");
        server.logs("overcoming of output buffer limits");
        // A transaction runs to its end all the same.
        let mut greedy = server.client();
        greedy.command(&["MULTI"]).unwrap();
        greedy.command(&["SET", "before", "1"]).unwrap();
        greedy.send(&["MGET"].iter().chain([&"big"; 100]).collect::<Vec<_>>()).unwrap();
        greedy.reply().unwrap();
        greedy.command(&["SET", "after", "1"]).unwrap();
        greedy.send(&["EXEC"]).unwrap();
        greedy.expect_closed().unwrap();
        assert_eq!(client.command(&["EXISTS", "before", "after"]).unwrap(), Reply::Integer(2));
    });
}

#[test]
fn a_string_beyond_the_hard_limit_is_refused_before_others_are_answered() {
    let limit = ["--client-output-buffer-limit", "normal 3000000 0 0", "--io-threads", "1"];
    on_each_backend(&limit, |server| {
        let mut witness = server.client();
        // Such a string would otherwise be copied in the background, while others are served.
        witness.command(&["SETRANGE", "k", "4000000", "x"]).unwrap();
        for command in [&["GET", "k"][..], &["GETRANGE", "k", "0", "-1"]] {
            let mut reader = named(server, "reader");
            signal(server.process_id(), "STOP").unwrap();
            reader.send(command).unwrap();
            witness.send(&["CLIENT", "LIST"]).unwrap();
            signal(server.process_id(), "CONT").unwrap();
            let list = witness.reply().unwrap().shown();
            // It may be on its way out still.
            let mut lines = list.lines().filter(|line| line.contains("name=reader"));
            assert!(lines.all(|line| line.contains(" flags=c ")), "{command:?}: {list}");
            reader.expect_closed().unwrap();
        }
        assert_eq!(number(server, "client_output_buffer_limit_disconnections"), 2);
    });
}

#[test]
fn subscribers_that_do_not_read() {
    let limits = "pubsub 4mb 1mb 1";
    on_each_backend(&["--client-output-buffer-limit", limits], |server| {
        let mut publisher = server.client();
        let payload = "x".repeat(100_000);
        let subscribe = |name: &str| {
            let mut client = named(server, name);
            client.command(&["SUBSCRIBE", "news"]).unwrap();
            client
        };
        // The hard limit, at once.
        let deaf = subscribe("deaf");
        eventually("the hard limit", || {
            publisher.command(&["PUBLISH", "news", &payload]).unwrap() == Reply::Integer(0)
        });
        drop(deaf);
        // The soft one, when it has been exceeded for its time.
        let slow = subscribe("slow");
        eventually("over the soft limit", || {
            publisher.command(&["PUBLISH", "news", &payload]).unwrap();
            let list = publisher.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).unwrap().shown();
            let unsent = list.split(' ').find_map(|field| field.strip_prefix("omem="));
            unsent.unwrap().parse::<u64>().unwrap() > 1_500_000
        });
        let start = Instant::now();
        eventually("the soft limit", || named_clients(server).is_empty());
        assert!(start.elapsed() > Duration::from_millis(500), "{:?}", start.elapsed());
        assert_eq!(number(server, "client_output_buffer_limit_disconnections"), 2);
        drop(slow);
        // One that reads keeps its connection, whatever is published.
        let mut reader = subscribe("reader");
        for _ in 0..100 {
            publisher.command(&["PUBLISH", "news", &payload]).unwrap();
            assert!(matches!(reader.message().unwrap(), Reply::Array(_)));
        }
    });
}

/// Without a limit a slow reader gets everything, and INFO shows meanwhile what it costs.
#[test]
fn a_pipeline_whose_replies_nobody_reads_is_kept() {
    const REPLIES: usize = 3000;
    /// Too short to be referred to, which would count once.
    const LEN: usize = 15_000;
    on_each_backend(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.command(&["SET", "big", &"x".repeat(LEN)]).unwrap(), ok());
        let before = number(server, "used_memory");
        let mut late = named(server, "late");
        late.send_raw(&encode(&["GET", "big"]).repeat(REPLIES)).unwrap();
        eventually("counted", || field(server, "late", "tot-mem") > 20_000_000);
        let (chunks, bytes) = (field(server, "late", "oll"), field(server, "late", "omem"));
        assert!(chunks >= 1 && bytes > 20_000_000, "{chunks} chunks of {bytes} bytes");
        // Housekeeping shows the peak.
        eventually("the peak", || field(server, "late", "rbp") >= 1_000_000);
        assert!(number(server, "used_memory") - before > 20_000_000);
        for _ in 0..REPLIES {
            assert_eq!(late.reply().unwrap().text().unwrap().len(), LEN);
        }
        eventually("sent", || field(server, "late", "oll") + field(server, "late", "omem") == 0);
        eventually("freed", || number(server, "used_memory").saturating_sub(before) < 2_000_000);
    });
}

/// A client that has read a key that never changes is forgotten after it has left.
#[test]
fn clients_with_caches_come_and_go() {
    on_each_backend(&[], |server| {
        let mut stays = server.connect(Protocol::Resp3).unwrap();
        assert_eq!(stays.command(&["CLIENT", "TRACKING", "on"]).unwrap(), ok());
        stays.command(&["GET", "k"]).unwrap();
        for _ in 0..400 {
            let mut client = server.connect(Protocol::Resp3).unwrap();
            assert_eq!(client.command(&["CLIENT", "TRACKING", "on"]).unwrap(), ok());
            client.command(&["GET", "k"]).unwrap();
        }
        assert_eq!(number(server, "tracking_total_keys"), 1);
        let remembered = number(server, "tracking_total_items");
        assert!((2..=200).contains(&remembered), "{remembered} readers of one key");
        server.client().command(&["SET", "k", "v"]).unwrap();
        assert!(matches!(stays.message().unwrap(), Reply::Push(_)));
        assert_eq!(number(server, "tracking_total_items"), 0);
    });
}

/// A field of a client's line in CLIENT LIST.
fn field(server: &Server, name: &str, field: &str) -> u64 {
    let list = ask(&mut server.client(), "CLIENT LIST").shown();
    let name = format!("name={name}");
    let line = list.lines().find(|line| line.split(' ').any(|word| word == name));
    let line = line.unwrap_or_else(|| panic!("no client with {name}"));
    let value = line.split(' ').find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no field {field}")).parse().unwrap()
}

/// What a client has said it will send counts before it is there.
#[test]
fn an_announced_word_counts() {
    on_each_backend(&[], |server| {
        let mut client = named(server, "announcer");
        client.send_raw(b"*2\r\n$4\r\nECHO\r\n$5000000\r\nxxxx").unwrap();
        eventually("counted", || field(server, "announcer", "tot-mem") > 5_000_000);
        assert_eq!(field(server, "announcer", "qbuf"), 4);
        let free = field(server, "announcer", "qbuf-free");
        assert!((4_999_000..5_001_000).contains(&free), "{free} bytes free");
        assert_eq!(field(server, "announcer", "argv-mem"), 4);
        let mut other = server.client();
        let set = ["CONFIG", "SET", "maxmemory-clients", "4mb"];
        assert_eq!(other.command(&set).unwrap(), ok());
        assert!(named_clients(server).is_empty());
        client.expect_closed().unwrap();
    });
}

/// A client whose input buffer holds `bytes`, as CLIENT LIST shows it.
fn holding(server: &Server, name: &str, bytes: usize) -> Client {
    let mut client = named(server, name);
    hold(&mut client, bytes);
    client
}

fn hold(client: &mut Client, bytes: usize) {
    client.send_raw(format!("*1\r\n${}\r\n", bytes + 1).as_bytes()).unwrap();
    // It may be evicted meanwhile.
    let _ = client.send_raw(&vec![b'x'; bytes]);
}

#[test]
fn clients_that_take_too_much_memory() {
    on_each_backend(&["--maxmemory-clients", "10mb"], |server| {
        let small = holding(server, "small", 1 << 20);
        let middle = holding(server, "middle", 3 << 20);
        let mut kept = named(server, "kept");
        assert_eq!(kept.command(&["CLIENT", "NO-EVICT", "on"]).unwrap(), ok());
        hold(&mut kept, 4 << 20);
        eventually("counted", || number(server, "mem_clients_normal") > 8 << 20);
        assert_eq!(named_clients(server), ["small", "middle", "kept"]);
        // The fourth is too many: the largest that may be evicted goes.
        let last = holding(server, "last", 5 << 19);
        eventually("one was evicted", || number(server, "evicted_clients") == 1);
        assert_eq!(named_clients(server), ["small", "kept", "last"]);
        server.logs("Evicting client: id=");
        // A lower limit applies at once.
        let mut client = server.client();
        let set = ["CONFIG", "SET", "maxmemory-clients", "6mb"];
        assert_eq!(client.command(&set).unwrap(), ok());
        assert_eq!(named_clients(server), ["small", "kept"]);
        drop((small, middle, kept, last));
        eventually("gone", || number(server, "mem_clients_normal") < 100_000);
        // Queued commands, watched keys and subscriptions count; and so does a reply.
        let set = ["CONFIG", "SET", "maxmemory-clients", "200000"];
        assert_eq!(client.command(&set).unwrap(), ok());
        for command in ["WATCH", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
            let mut client = server.client();
            let names = (0..10_000).take_while(|n| {
                client.send(&[command, &n.to_string()]).and_then(|()| client.reply()).is_ok()
            });
            assert!(names.count() < 10_000, "{command}");
        }
        // A percentage is one of maxmemory, and none while that is not set.
        let set = ["CONFIG", "SET", "maxmemory-clients", "50%", "maxmemory", "0"];
        assert_eq!(client.command(&set).unwrap(), ok());
        let held = holding(server, "held", 2 << 20);
        eventually("held", || number(server, "mem_clients_normal") > 2 << 20);
        assert_eq!(named_clients(server), ["held"]);
        assert_eq!(client.command(&["CONFIG", "SET", "maxmemory", "3mb"]).unwrap(), ok());
        assert!(named_clients(server).is_empty());
        drop(held);
    });
}

/// A client that has sent a byte of its request now and then, for longer than the timeout of a
/// second. `None`: this thread was held up, and the server may have taken it for silent.
fn slow_sender(server: &Server) -> Option<Client> {
    let mut sender = server.client();
    let (start, mut last) = (Instant::now(), Instant::now());
    sender.send_raw(b"*1\r\n$20\r\n").ok()?;
    while start.elapsed() < Duration::from_millis(2500) {
        thread::sleep(Duration::from_millis(150));
        if last.elapsed() > Duration::from_millis(600) || sender.send_raw(b"x").is_err() {
            return None;
        }
        last = Instant::now();
    }
    Some(sender)
}

#[test]
fn silent_clients_are_closed_but_not_those_that_wait() {
    on_each_backend(&["--timeout", "1"], |server| {
        let mut silent = server.client();
        let mut blocked = server.client();
        blocked.send(&["BLPOP", "nothing", "0"]).unwrap();
        let mut subscriber = server.client();
        subscriber.command(&["SUBSCRIBE", "news"]).unwrap();
        let sender = (0..20).find_map(|_| slow_sender(server));
        let mut sender = sender.expect("this thread runs more than once in a second");
        silent.expect_closed().unwrap();
        let mut client = server.client();
        client.command(&["PUBLISH", "news", "still"]).unwrap();
        client.command(&["RPUSH", "nothing", "something"]).unwrap();
        assert!(matches!(subscriber.message().unwrap(), Reply::Array(_)));
        assert!(matches!(blocked.reply().unwrap(), Reply::Array(_)));
        sender.send_raw(b"xxxxxxxxxxxxxxxxxxxx\r\n").unwrap();
        assert!(sender.reply().unwrap().is_error());
    });
}

/// A client that waits for a long command is not idle either.
#[test]
fn a_long_command_is_not_idleness() {
    on_each_backend(&["--timeout", "1", "--proto-max-bulk-len", "1000gb"], |server| {
        let mut long = named(server, "long");
        for key in ["s", "t"] {
            let length = long.command(&["SETRANGE", key, "399999", "x"]).unwrap();
            assert_eq!(length, Reply::Integer(400_000));
        }
        // It takes minutes.
        long.send(&["LCS", "s", "t", "LEN"]).unwrap();
        let mut silent = server.client();
        silent.expect_closed().unwrap();
        eventually("idle for long", || field(server, "long", "idle") >= 3);
        assert!(!long.has_data().unwrap());
        let kill = ["CLIENT", "KILL", "ID", &field(server, "long", "id").to_string()];
        assert_eq!(server.client().command(&kill).unwrap(), Reply::Integer(1));
        long.expect_closed().unwrap();
    });
}

#[test]
fn values_longer_than_allowed() {
    on_each_backend(&["--proto-max-bulk-len", "1mb"], |server| {
        let mut client = server.client();
        assert_eq!(client.command(&["SET", "k", &"x".repeat(1 << 20)]).unwrap(), ok());
        assert!(client.command(&["SETRANGE", "k", "1048576", "x"]).unwrap().is_error());
        client.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n").unwrap();
        let expected = b"ERR Protocol error: invalid bulk length".to_vec();
        assert_eq!(client.reply().unwrap(), Reply::Error(expected));
        client.expect_closed().unwrap();
    });
}

#[test]
fn before_the_password_only_small_requests() {
    on_each_backend(&["--requirepass", "secret"], |server| {
        for (request, error) in [
            (&b"*11\r\n"[..], "unauthenticated multibulk length"),
            (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
        ] {
            let mut client = Client::connect(server.address()).unwrap();
            client.send_raw(request).unwrap();
            let expected = format!("ERR Protocol error: {error}").into_bytes();
            assert_eq!(client.reply().unwrap(), Reply::Error(expected));
            client.expect_closed().unwrap();
        }
        let mut client = Client::connect(server.address()).unwrap();
        // The limits end within the pipeline that brings the password.
        let requests = [encode(&["AUTH", "secret"]), encode(&["ECHO", &"x".repeat(20_000)])];
        client.send_raw(&requests.concat()).unwrap();
        assert_eq!(client.reply().unwrap(), ok());
        assert_eq!(client.reply().unwrap().text().unwrap().len(), 20_000);
    });
}

#[test]
fn what_came_before_a_protocol_error_is_answered() {
    on_each_backend(&[], |server| {
        let good = [encode(&["SET", "k", "v"]), encode(&["GET", "k"]), b"PING\r\n".to_vec()];
        for (bad, error) in [
            (&b"*1\r\n!4\r\nPING\r\n"[..], "expected '$', got '!'"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*2\r\n$4\r\nECHO\r\n$-5\r\n", "invalid bulk length"),
        ] {
            let mut client = server.client();
            client
                .send_raw(&[&good.concat(), bad, &encode(&["SET", "k", "lost"])].concat())
                .unwrap();
            assert_eq!(client.reply().unwrap(), ok());
            assert_eq!(client.reply().unwrap(), Reply::Bulk(b"v".to_vec()));
            assert_eq!(client.reply().unwrap(), Reply::Simple(b"PONG".to_vec()));
            let expected = format!("ERR Protocol error: {error}").into_bytes();
            assert_eq!(client.reply().unwrap(), Reply::Error(expected));
            client.expect_closed().unwrap();
            assert_eq!(ask(&mut server.client(), "GET k").shown(), "v");
        }
    });
}

#[test]
fn who_wants_no_replies_is_not_told_of_a_protocol_error() {
    on_each_backend(&[], |server| {
        for mode in ["OFF", "SKIP"] {
            let mut client = server.client();
            let bad = &b"*1\r\n!4\r\nPING\r\n"[..];
            client.send_raw(&[&encode(&["CLIENT", "REPLY", mode]), bad].concat()).unwrap();
            client.expect_closed().unwrap();
        }
    });
}

#[test]
fn messages_to_oneself_follow_the_reply() {
    on_each_backend(&[], |server| {
        let mut client = server.connect(Protocol::Resp3).unwrap();
        client.send(&["SUBSCRIBE", "c"]).unwrap();
        client.message().unwrap();
        let pipeline = [
            encode(&["PUBLISH", "c", "1"]),
            encode(&["PING"]),
            encode(&["MULTI"]),
            encode(&["PUBLISH", "c", "2"]),
            encode(&["EXEC"]),
            encode(&["PING"]),
        ];
        client.stream().write_all(&pipeline.concat()).unwrap();
        let kinds: Vec<char> = (0..8)
            .map(|_| match client.message().unwrap() {
                Reply::Integer(1) => '1',
                Reply::Push(_) => 'p',
                Reply::Array(_) => 'a',
                Reply::Simple(_) => 's',
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, ['1', 'p', 's', 's', 's', 'a', 'p', 's']);
        // The same with the invalidation of a key that the client changes itself.
        let mut cache = server.connect(Protocol::Resp3).unwrap();
        cache.command(&["CLIENT", "TRACKING", "on"]).unwrap();
        cache.command(&["GET", "k"]).unwrap();
        cache.send_raw(&[encode(&["SET", "k", "v"]), encode(&["PING"])].concat()).unwrap();
        assert_eq!(cache.message().unwrap(), ok());
        assert!(matches!(cache.message().unwrap(), Reply::Push(_)));
        assert_eq!(cache.message().unwrap(), Reply::Simple(b"PONG".to_vec()));
    });
}

#[test]
fn more_clients_than_files() {
    on_each_backend(&[], |server| {
        let mut client = server.client();
        let reply = client.command(&["CONFIG", "SET", "maxclients", "4294967295"]).unwrap();
        assert!(
            reply.shown().starts_with(
                "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating \
                 system is not able to handle the specified number of clients, try with "
            ),
            "{reply:?}"
        );
        let reply = client.command(&["CONFIG", "GET", "maxclients"]).unwrap();
        assert_eq!(reply.elements().unwrap()[1], Reply::Bulk(b"10000".to_vec()), "nothing changed");
        // The client of the readiness check may not have gone yet.
        eventually("alone", || {
            let info = client.command(&["INFO", "clients"]).unwrap().shown();
            info.contains("connected_clients:1\r")
        });
        assert_eq!(client.command(&["CONFIG", "SET", "maxclients", "2"]).unwrap(), ok());
        let mut second = server.client();
        assert_eq!(second.command(&["PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
        let mut third = server.client();
        let refusal = Reply::Error(b"ERR max number of clients reached".to_vec());
        assert_eq!(third.reply().unwrap(), refusal);
        third.expect_closed().unwrap();
        assert_eq!(client.command(&["CONFIG", "SET", "maxclients", "100"]).unwrap(), ok());
        assert_eq!(server.client().command(&["PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
    });
}
