//! Bugs that other proxies have had, a test each. Where their trackers say more, the number is given.

use crate::support::{Proxy, dunlin, in_front_of_three, okay, server, stop, text, until};
use harness::client::{Client, ask, encode};
use harness::reply::{Protocol, Reply};
use harness::server::{Program, Server, free_port, redis_cli, signal};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

/// A proxy in front of one server, of one thread, so that all clients share a connection.
fn in_front_of(server: &Server, more: &str) -> Proxy {
    let port = free_port().expect("a port");
    let text = format!(
        "threads = 1\n[pool.main]\nkind = \"single\"\nserver = \"{}\"\nlisten = [\"127.0.0.1:{port}\"]\n{more}",
        server.address()
    );
    Proxy::run(&Program::under_test(), &server.directory().join("proxy.toml"), port, &text)
}

/// Processor time of a process in seconds.
fn processor_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    let ticks: f64 = [11, 12].iter().map(|&at| fields[at].parse::<f64>().expect("a number")).sum();
    ticks / 100.0
}

/// twemproxy#404: late replies went to those who asked next.
#[test]
fn a_reply_that_comes_too_late_reaches_nobody() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = in_front_of(&server, "timeout_ms = 200\n");
    let mut clients: Vec<Client> = (0..4).map(|_| proxy.client(Protocol::Resp2)).collect();
    for at in 0..20 {
        let key = format!("key{at}");
        assert_eq!(ask(&mut clients[0], &["SET", &key, &key]), okay());
    }
    for round in 0..4 {
        stop(server.process_id());
        for (at, client) in clients.iter_mut().enumerate() {
            client.send(&["GET", &format!("key{}", 4 * round + at)]).expect("it is sent");
        }
        for client in &mut clients {
            let reply = client.reply().expect("a reply");
            assert!(reply.is_error(), "{reply:?}");
        }
        signal(server.process_id(), "CONT").expect("it goes on");
        for (at, client) in clients.iter_mut().enumerate() {
            let key = format!("key{}", 19 - at);
            until("the server answers", || {
                let reply = ask(client, &["GET", &key]);
                assert!(reply.is_error() || text(&reply) == key, "{reply:?}, not {key}");
                !reply.is_error()
            });
        }
    }
}

/// envoy#46642, #41201: requests without lengths, and what `redis-cli --pipe` sends.
#[test]
fn inline_requests_and_pipes_pass() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut client = proxy.client(Protocol::Resp2);
    client.send_raw(b"PING\r\nSET a 'b c'\r\n\r\n").expect("it is sent");
    client.send_raw(&encode(&["GET", "a"])).expect("it is sent");
    client.send_raw(b"GET a\nEXISTS a b\r\n").expect("it is sent");
    let mut replies = (0..5).map(|_| client.reply().expect("a reply"));
    assert_eq!(replies.next(), Some(Reply::Simple(b"PONG".to_vec())));
    assert_eq!(replies.next(), Some(okay()));
    assert_eq!(replies.next(), Some(Reply::Bulk(b"b c".to_vec())));
    assert_eq!(replies.next(), Some(Reply::Bulk(b"b c".to_vec())));
    assert_eq!(replies.next(), Some(Reply::Integer(1)));
    let Ok(mut command) = redis_cli() else { return };
    let port = proxy.address.port().to_string();
    let pipe = command.args(["-p", &port, "--pipe"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut pipe = pipe.spawn().expect("it starts");
    let mut input = pipe.stdin.take().expect("its input");
    for at in 0..5000 {
        input.write_all(&encode(&["SET", &format!("key{at}"), "x"])).expect("it is read");
    }
    drop(input);
    let output = pipe.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("errors: 0, replies: 5000"), "{said}");
    assert_eq!(ask(&mut client, &["DBSIZE"]), Reply::Integer(5001));
}

/// redis#15640: a refused AUTH behind other requests loses its place.
#[test]
fn a_refused_password_keeps_its_place() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = in_front_of(&server, "client_password = \"secret\"\n");
    let mut client = proxy.client(Protocol::Resp2);
    let mut requests = Vec::new();
    for words in [
        &["GET", "a"][..],
        &["AUTH", "secret"],
        &["SET", "a", "1"],
        &["AUTH", "wrong"],
        &["GET", "a"],
        &["HELLO", "2", "AUTH", "default", "wrong"],
        &["GET", "a"],
        &["MULTI"],
        &["GET", "a"],
        &["AUTH", "wrong"],
        &["EXEC"],
        &["PING"],
    ] {
        requests.extend(encode(words));
    }
    client.send_raw(&requests).expect("they are sent");
    let mut replies: Vec<Reply> = (0..12).map(|_| client.reply().expect("a reply")).collect();
    let begins = |reply: &Reply, with: &str| match reply {
        Reply::Error(text) => text.starts_with(with.as_bytes()),
        _ => false,
    };
    assert!(begins(&replies[0], "NOAUTH"), "{:?}", replies[0]);
    assert_eq!(replies[1..3], [okay(), okay()]);
    assert!(begins(&replies[3], "WRONGPASS"), "{:?}", replies[3]);
    assert_eq!(text(&replies[4]), "1");
    assert!(begins(&replies[5], "WRONGPASS"), "{:?}", replies[5]);
    assert_eq!(text(&replies[6]), "1");
    assert_eq!(replies[7], okay());
    assert_eq!(text(&replies[8]), "QUEUED");
    assert_eq!(replies.pop(), Some(Reply::Simple(b"PONG".to_vec())));
}

/// Redis Enterprise RS45777: a reply to a client that has gone disconnected others. redisraft#27:
/// transactions of several clients were mixed up. rcp#48: MGET behind BLPOP.
#[test]
fn clients_that_leave_and_transactions_do_not_concern_others() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = in_front_of(&server, "");
    let mut stays: Vec<Client> = (0..3).map(|_| proxy.client(Protocol::Resp2)).collect();
    for round in 0..30 {
        for kind in 0..3 {
            let mut leaves = proxy.client(Protocol::Resp3);
            let words: &[&str] = match kind {
                0 => &["BLPOP", "nothing", "0"],
                1 => &["MULTI"],
                _ => &["GET", "gone"],
            };
            (0..50).for_each(|_| leaves.send(words).expect("it is sent"));
        }
        let (ours, both) = (format!("{{t}}{round}"), "{t}both".to_owned());
        for (at, client) in stays.iter_mut().enumerate() {
            let value = format!("{round}-{at}");
            for words in [
                &["MULTI"][..],
                &["SET", &ours, &value],
                &["GET", &ours],
                &["EXEC"],
                &["RPUSH", &both, &value],
                &["BLPOP", &both, "0"],
                &["MGET", &ours, "none"],
            ] {
                client.send(words).expect("it is sent");
            }
        }
        for (at, client) in stays.iter_mut().enumerate() {
            let replies: Vec<Reply> = (0..7).map(|_| client.reply().expect("a reply")).collect();
            let value = Reply::Bulk(format!("{round}-{at}").into_bytes());
            assert_eq!(replies[3], Reply::Array(vec![okay(), value]), "{replies:?}");
            assert!(matches!(&replies[5], Reply::Array(pair) if pair.len() == 2), "{replies:?}");
            assert!(matches!(&replies[6], Reply::Array(pair) if pair[1].is_nil()), "{replies:?}");
        }
    }
}

/// rcp#79: replies that are no text.
#[test]
fn all_bytes_pass_in_keys_and_values() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let all: Vec<u8> = (0..=255).chain(*b"\r\n$5\r\n*3\r\n-ERR\r\n").collect();
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut client = proxy.client(protocol);
        for at in 0..all.len() {
            let turned = [&all[at..], &all[..at]].concat();
            client.send(&[&b"SET"[..], &turned, &turned]).expect("it is sent");
            client.send(&[&b"MGET"[..], &turned, b"none"]).expect("it is sent");
            assert_eq!(client.reply().expect("a reply"), okay());
            let Reply::Array(found) = client.reply().expect("a reply") else { panic!("no array") };
            assert!(found[0] == Reply::Bulk(turned) && found[1].is_nil());
        }
    }
}

/// Redis Enterprise RS192988: a proxy span when servers were at maxclients.
#[test]
fn a_server_without_room_for_clients_is_tried_again_calmly() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &["--maxclients", "1"]);
    let mut direct = server.client();
    assert_eq!(ask(&mut direct, &["SET", "a", "1"]), okay());
    let proxy = in_front_of(&server, "");
    let mut client = proxy.client(Protocol::Resp2);
    let before = processor_seconds(proxy.process_id());
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        let reply = ask(&mut client, &["GET", "a"]);
        assert!(reply.is_error(), "{reply:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let spent = processor_seconds(proxy.process_id()) - before;
    assert!(spent < 0.5 * began.elapsed().as_secs_f64(), "{spent} s in {:?}", began.elapsed());
    assert_eq!(ask(&mut direct, &["CONFIG", "SET", "maxclients", "100"]), okay());
    until("the server is used again", || text(&ask(&mut client, &["GET", "a"])) == "1");
}

/// Redis Enterprise RS169857: a machine that stood still made the proxy restart for ever.
#[test]
fn a_proxy_that_stood_still_goes_on() {
    let Some((_servers, proxy)) = in_front_of_three("  timeout: 300\n") else { return };
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), okay());
    stop(proxy.process_id());
    client.send(&["GET", "a"]).expect("it is sent");
    // Longer than any of its deadlines.
    std::thread::sleep(Duration::from_millis(900));
    signal(proxy.process_id(), "CONT").expect("it goes on");
    assert_eq!(text(&client.reply().expect("a reply")), "1");
    assert_eq!(text(&ask(&mut client, &["GET", "a"])), "1");
}

/// What ends a script does not wait behind it on the shared connection.
#[test]
fn an_endless_script_can_be_killed_through_the_proxy() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &["--busy-reply-threshold", "10"]);
    let proxy = in_front_of(&server, "");
    let mut clients: [Client; 3] = std::array::from_fn(|_| proxy.client(Protocol::Resp2));
    let [caller, waiting, killer] = &mut clients;
    for (script, kill) in [("EVAL", "SCRIPT"), ("EVAL_RO", "SCRIPT")] {
        caller.send(&[script, "while true do end", "0"]).expect("it is sent");
        waiting.send(&["GET", "a"]).expect("it is sent");
        until("the script is killed", || ask(killer, &[kill, "KILL"]) == okay());
        assert!(text(&caller.reply().expect("a reply")).contains("killed"));
        // It has waited behind the script, or was refused on another connection (BUSY).
        let reply = waiting.reply().expect("a reply");
        assert!(reply == Reply::Nil || reply.is_error(), "{reply:?}");
    }
}
