//! Long values are passed on as they come: they take no memory, and hold no other client up.

use crate::support::{Proxy, in_front_of_three, okay, server, single, text, until};
use harness::client::{Client, ask, encode};
use harness::reply::{Protocol, Reply};
use harness::server::{Program, Server, signal};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of the values here.
const LONG: usize = 96 << 20;

/// What the proxy may take more than before, with any number of long values under way.
const MOST: usize = 80 << 20;

/// The most memory that a process has had, and begins to count anew.
pub fn peak(process_id: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    std::fs::write(format!("/proc/{process_id}/clear_refs"), "5").expect("it counts anew");
    peak << 10
}

/// Bytes that tell their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32 / 4).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// A server, its proxy, and a value in it. `more` is added to the pool.
fn with_value(more: &str) -> Option<(Server, Proxy, Vec<u8>)> {
    with_value_behind(|program, server| Proxy::start(program, std::slice::from_ref(server), more))
}

fn with_value_behind(
    start: impl FnOnce(&Program, &Server) -> Proxy,
) -> Option<(Server, Proxy, Vec<u8>)> {
    let program = Program::under_test();
    if !program.is_dunlin() {
        return None;
    }
    let server = server(&program, &[]);
    let proxy = start(&program, &server);
    let value = pattern(LONG);
    let mut client = Client::connect(server.address()).expect("it answers");
    let set = client.command(&[&b"SET"[..], b"long", &value]).expect("a reply");
    assert_eq!(set, okay());
    assert_eq!(ask(&mut client, &["SET", "short", "x"]), okay());
    Some((server, proxy, value))
}

#[test]
fn long_values_pass_both_ways_and_are_not_kept() {
    // A server is read on for the sake of the request behind a long reply, up to half of this.
    let options = format!("client_output_bytes = {}", 32 << 20);
    let proxy = |program: &Program, server: &Server| single(program, server, "", &options);
    let Some((_server, proxy, value)) = with_value_behind(proxy) else { return };
    let mut client = proxy.client(Protocol::Resp2);
    let before = peak(proxy.process_id());
    for _ in 0..2 {
        // In a pipeline with others, in order.
        let set = encode(&[&b"SET"[..], b"other", &value]);
        let mut requests = encode(&["GET", "short"]);
        requests.extend_from_slice(&set);
        requests.extend(encode(&["STRLEN", "other"]));
        client.send_raw(&requests).expect("they are sent");
        assert_eq!(text(&client.reply().expect("a reply")), "x");
        assert_eq!(client.reply().expect("a reply"), okay());
        assert_eq!(client.reply().expect("a reply"), Reply::Integer(LONG as i64));
        client
            .send_raw(&[encode(&["GET", "other"]), encode(&["GET", "short"])].concat())
            .expect("sent");
        assert!(client.reply().expect("a reply").text() == Some(&value[..]), "another value");
        assert_eq!(text(&client.reply().expect("a reply")), "x");
    }
    let most = peak(proxy.process_id());
    assert!(most < before + MOST, "{before} bytes before, {most} at most");
}

#[test]
fn a_client_that_does_not_read_a_long_reply_holds_nobody_up() {
    let Some((_server, proxy, value)) = with_value("") else { return };
    let before = peak(proxy.process_id());
    // On each thread.
    let mut lazy: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(proxy.address).expect("it connects")).collect();
    for client in &mut lazy {
        client.write_all(&encode(&["GET", "long"])).expect("it is sent");
        // Its reply has begun.
        client.read_exact(&mut [0]).expect("a byte");
    }
    let mut clients: Vec<Client> = (0..8).map(|_| proxy.client(Protocol::Resp2)).collect();
    for round in 0..50 {
        for client in &mut clients {
            let round = round.to_string();
            assert_eq!(ask(client, &["SET", "short", &round]), okay());
            assert_eq!(text(&ask(client, &["GET", "short"])), round);
        }
    }
    let most = peak(proxy.process_id());
    // Much less than the eight values.
    assert!(most < before + 2 * MOST, "{before} bytes before, {most} at most");
    for client in lazy.iter_mut().take(2) {
        let mut reply = vec![0; LONG + format!("${LONG}\r\n\r\n").len() - 1];
        client.read_exact(&mut reply).expect("the rest");
        assert!(reply.ends_with(&[&value[LONG - 100..], b"\r\n"].concat()));
    }
    drop(lazy);
    assert_eq!(ask(&mut clients[0], &["STRLEN", "long"]), Reply::Integer(LONG as i64));
}

#[test]
fn those_behind_a_long_reply_get_theirs() {
    let Some((_server, proxy, _)) = with_value("") else { return };
    let mut lazy = TcpStream::connect(proxy.address).expect("it connects");
    let mut clients: Vec<Client> = (0..16).map(|_| proxy.client(Protocol::Resp2)).collect();
    for _ in 0..3 {
        lazy.write_all(&encode(&["GET", "long"])).expect("it is sent");
        for client in &mut clients {
            client.send_raw(&encode(&["INCR", "n"]).repeat(20)).expect("they are sent");
        }
        for client in &mut clients {
            for _ in 0..20 {
                assert!(matches!(client.reply().expect("a reply"), Reply::Integer(_)));
            }
        }
    }
}

#[test]
fn half_a_long_request_changes_nothing() {
    let Some((server, proxy, value)) = with_value("") else { return };
    let request = encode(&[&b"SET"[..], b"half", &value]);
    let mut halves: Vec<TcpStream> =
        (0..4).map(|_| TcpStream::connect(proxy.address).expect("it connects")).collect();
    for half in &mut halves {
        half.write_all(&request[..LONG / 2]).expect("it is sent");
    }
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["EXISTS", "half"]), Reply::Integer(0));
    drop(halves);
    let mut direct = Client::connect(server.address()).expect("it answers");
    until("connections of halves end", || {
        // One of each thread stays, and this one.
        text(&ask(&mut direct, &["CLIENT", "LIST"])).lines().count() <= 3
    });
    assert_eq!(ask(&mut client, &["EXISTS", "half"]), Reply::Integer(0));
    // What is no request any more.
    let mut wrong = TcpStream::connect(proxy.address).expect("it connects");
    wrong.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nw\r\n$100000\r\n").expect("it is sent");
    wrong.write_all(&vec![b'x'; 100_010]).expect("it is sent");
    let mut told = String::new();
    let _ = wrong.read_to_string(&mut told);
    assert!(told.starts_with("-ERR Protocol error"), "{told}");
    assert_eq!(ask(&mut client, &["EXISTS", "w"]), Reply::Integer(0));
}

#[test]
fn a_server_that_ends_in_the_middle_of_a_long_reply_ends_the_client() {
    let Some((server, proxy, _)) = with_value("  timeout: 2000\n") else { return };
    let mut reader = TcpStream::connect(proxy.address).expect("it connects");
    reader.write_all(&encode(&["GET", "long"])).expect("it is sent");
    let mut some = vec![0; 1 << 20];
    reader.read_exact(&mut some).expect("some of it");
    let mut writer = TcpStream::connect(proxy.address).expect("it connects");
    let half = &encode(&[&b"SET"[..], b"half", &[b'v'; 1 << 20]])[..1 << 19];
    writer.write_all(half).expect("it is sent");
    signal(server.process_id(), "KILL").expect("it ends");
    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest);
    assert!(some.len() + rest.len() < LONG, "a reply that was not sent");
    // The rest of the request is taken, and goes nowhere.
    writer.write_all(&vec![b'v'; (1 << 19) + 64]).expect("it is sent");
    let mut told = [0; 10];
    writer.read_exact(&mut told).expect("a reply");
    assert_eq!(&told, b"-NOREPLY s");
}

#[test]
fn long_values_of_many_servers_are_joined_within_the_limits() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut client = proxy.client(Protocol::Resp3);
    let keys: Vec<String> = (0..6).map(|at| format!("key:{at}")).collect();
    let value = String::from_utf8(vec![b'v'; 3 << 20]).expect("text");
    let mut words = vec!["MSET"];
    keys.iter().for_each(|key| words.extend([&key[..], &value[..]]));
    assert_eq!(ask(&mut client, &words[..]), okay());
    let began = Instant::now();
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    let Reply::Array(replies) = ask(&mut client, &words[..]) else { panic!("no array") };
    assert_eq!(replies.len(), keys.len());
    assert!(replies.iter().all(|reply| text(reply).len() == value.len()));
    assert!(began.elapsed() < Duration::from_secs(60));
}
