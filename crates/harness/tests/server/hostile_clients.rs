//! Clients that misbehave: none of them may stall another client, grow the server's memory past
//! its limits, or bring it down.
//!
//! `DUNLIN_LONG=1` uses the largest value there may be (512 MB) instead of a large one.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, encode, is_gone, patience};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Backend, Options, Program, Server};
use harness::wait::SetAtEnd;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Far more than a well-behaved client ever waits, even on a machine that is busy with other tests,
/// and far less than a stall: two seconds, and more under a sanitizer.
fn bearable() -> Duration {
    patience() / 5
}

/// Runs `attack` against a server on each back-end while a well-behaved client goes about its work,
/// never waiting longer than is [`bearable`].
fn under_attack(arguments: &[&str], attack: impl Fn(&Server)) {
    let program = Program::under_test();
    for backend in program.backends() {
        println!("on {} {}", program.name(), backend.map_or("", Backend::name));
        let options = Options { backend, ..Options::arguments(arguments) };
        let server = Server::start(&program, options).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let bystander = scope.spawn(|| {
                let mut client = server.client();
                let mut longest = Duration::ZERO;
                let mut count = 0u64;
                while !over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let value = count.to_string();
                    client.command(&["SET", "bystander", &value]).unwrap();
                    let reply = client.command(&["GET", "bystander"]).unwrap();
                    assert_eq!(reply, Reply::Bulk(value.into_bytes()));
                    longest = longest.max(start.elapsed());
                    count += 1;
                    thread::sleep(Duration::from_millis(1));
                }
                longest
            });
            // The bystander has to be told even if the attack fails.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attack(&server)));
            over.store(true, Ordering::Relaxed);
            let longest = bystander.join().expect("the bystander was served");
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
            assert!(longest < bearable(), "the bystander waited for {longest:?}");
        });
        let status = server.stop().unwrap();
        assert!(status.success(), "the server ended with {status}");
    }
}

fn ask(server: &Server, request: &[&str]) -> Reply {
    server.client().command(request).unwrap()
}

/// Reads until the server closes; whether it did within a while.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 65536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if is_gone(&error) => return true,
            Err(_) => return false,
        }
    }
}

#[test]
fn half_a_request() {
    under_attack(&[], |server| {
        let request = encode(&["SET", "half", "a value that takes its time"]);
        let mut clients: Vec<Client> = (0..request.len()).map(|_| server.client()).collect();
        for (cut, client) in clients.iter_mut().enumerate() {
            client.send_raw(&request[..cut]).unwrap();
        }
        thread::sleep(Duration::from_millis(50));
        for (cut, client) in clients.iter_mut().enumerate() {
            client.send_raw(&request[cut..]).unwrap();
            assert_eq!(client.reply().unwrap(), Reply::Simple(b"OK".to_vec()), "cut at {cut}");
        }
        // And one that goes in the middle.
        clients[0].send_raw(&request[..10]).unwrap();
        clients[0].stream().shutdown(Shutdown::Both).unwrap();
    });
}

#[test]
fn garbage() {
    under_attack(&[], |server| {
        let mut rng = Rng::new(1);
        let valid = [
            encode(&["SET", "garbage", "value"]),
            encode(&["MSET", "a", "1", "b", "2"]),
            b"GET garbage\r\nPING\r\n".to_vec(),
        ]
        .concat();
        for _ in 0..500 {
            let mut bytes = if rng.chance(50) { valid.clone() } else { Vec::new() };
            if bytes.is_empty() {
                bytes = (0..rng.below(300)).map(|_| rng.below(256) as u8).collect();
            }
            for _ in 0..1 + rng.below(4) {
                if bytes.is_empty() {
                    break;
                }
                let at = rng.below(bytes.len());
                match rng.below(4) {
                    0 => bytes[at] = rng.below(256) as u8,
                    1 => bytes.truncate(at),
                    2 => bytes.insert(at, *rng.pick(b"*$\r\n-019:")),
                    _ => drop(bytes.remove(at)),
                }
            }
            let mut stream = TcpStream::connect(server.address()).unwrap();
            // The server may have closed already.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            assert!(is_closed(&stream), "not closed after {:?}", String::from_utf8_lossy(&bytes));
        }
    });
}

#[test]
fn lengths_that_promise_too_much() {
    under_attack(&[], |server| {
        for bytes in [
            &b"*1000000000\r\n$3\r\nGET\r\n"[..],
            b"*2147483648\r\n",
            b"*1\r\n$536870913\r\n",
            b"*1\r\n$9223372036854775807\r\n",
            b"*1\r\n$-5\r\n",
            b"*99999999999999999999\r\n",
        ] {
            let mut client = server.client();
            client.send_raw(bytes).unwrap();
            let text = String::from_utf8_lossy(bytes).into_owned();
            // What is only announced must cost nothing until it comes.
            match client.message_within(Duration::from_millis(300)) {
                Ok(reply) => {
                    assert!(reply.is_error(), "{text}: {reply:?}");
                    client.expect_closed().unwrap();
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{text}: {error}"),
            }
        }
        assert!(server.resident_bytes() < 500 << 20, "{} bytes resident", server.resident_bytes());
    });
}

#[test]
fn requests_without_reading_the_replies() {
    let limits = ["--client-output-buffer-limit", "normal 8mb 4mb 2"];
    under_attack(&limits, |server| {
        // Small enough to be copied into the output: a large value may be sent from where it is.
        let value = "x".repeat(10_000);
        ask(server, &["SET", "value", &value]);
        let before = server.resident_bytes();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let request = encode(&["GET", "value"]).repeat(1000);
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        // 10 MB of replies a round: the server has to cut it off long before the last.
        let cut = (0..1000).find(|_| stream.write_all(&request).is_err());
        assert!(cut.is_some(), "not disconnected");
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 256 << 20, "grown by {grown} bytes");
    });
}

/// Some client libraries send a whole pipeline before they read the first reply. A server that
/// waits for them to read, while they wait for it to take the rest, waits for ever.
#[test]
fn a_pipeline_that_is_sent_before_anything_is_read() {
    const REQUESTS: usize = 400_000;
    under_attack(&[], |server| {
        let value = "v".repeat(100);
        ask(server, &["SET", "piped", &value]);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_write_timeout(Some(bearable())).unwrap();
        stream.set_read_timeout(Some(bearable())).unwrap();
        let request = b"*2\r\n$3\r\nGET\r\n$5\r\npiped\r\n";
        stream.write_all(&request.repeat(REQUESTS)).expect("the server takes all requests");
        let mut replies = vec![0; REQUESTS * "$100\r\n\r\n".len() + REQUESTS * value.len()];
        stream.read_exact(&mut replies).expect("the server answers all requests");
    });
}

#[test]
fn an_endless_request() {
    under_attack(&["--client-query-buffer-limit", "2mb"], |server| {
        let before = server.resident_bytes();
        // One that never ends its first line, and one with an argument beyond the limit.
        let more = b"x".repeat(65536);
        for start in [&b"PING "[..], b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\n"] {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(start).unwrap();
            let cut = (0..10_000).find(|_| stream.write_all(&more).is_err());
            assert!(cut.is_some(), "not disconnected");
        }
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 256 << 20, "grown by {grown} bytes");
    });
}

#[test]
fn a_publisher_faster_than_delivery() {
    const SUBSCRIBERS: usize = 150;
    const MESSAGES: usize = 20_000;
    under_attack(&["--io-threads", "2"], |server| {
        let subscribers: Vec<TcpStream> = (0..SUBSCRIBERS)
            .map(|_| {
                let mut stream = TcpStream::connect(server.address()).unwrap();
                stream.write_all(&encode(&["SUBSCRIBE", "news"])).unwrap();
                let mut reply = [0; 33];
                stream.read_exact(&mut reply).unwrap();
                stream.set_nonblocking(true).unwrap();
                stream
            })
            .collect();
        // One on each thread, most likely, and each asks all the time.
        let mut probes: Vec<Client> = (0..6).map(|_| server.client()).collect();
        let before = server.resident_bytes();
        let is_published = AtomicBool::new(false);
        let payload = "x".repeat(100);
        let message = format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$100\r\n{payload}\r\n").len();
        thread::scope(|scope| {
            let reading: Vec<_> = subscribers
                .chunks(SUBSCRIBERS / 2)
                .map(|part| {
                    scope.spawn(|| {
                        let mut buffer = vec![0; 1 << 20];
                        let mut left = vec![MESSAGES * message; part.len()];
                        while left.iter().any(|&left| left > 0) {
                            for (mut stream, left) in part.iter().zip(&mut left) {
                                match stream.read(&mut buffer) {
                                    Ok(read) => {
                                        assert!(read > 0, "a subscriber that reads was closed");
                                        *left -= read;
                                    }
                                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                                }
                            }
                            thread::sleep(Duration::from_millis(2));
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let _published = SetAtEnd(&is_published);
                let mut publisher = TcpStream::connect(server.address()).unwrap();
                let replies = publisher.try_clone().unwrap();
                let drain = scope.spawn(move || {
                    let wanted = MESSAGES * format!(":{SUBSCRIBERS}\r\n").len();
                    let read =
                        std::io::copy(&mut replies.take(wanted as u64), &mut std::io::sink());
                    assert_eq!(read.unwrap(), wanted as u64);
                });
                let requests = encode(&["PUBLISH", "news", &payload]).repeat(500);
                for _ in 0..MESSAGES / 500 {
                    publisher.write_all(&requests).unwrap();
                }
                drain.join().unwrap();
            });
            let (mut longest, mut grown) = (Duration::ZERO, 0);
            while !is_published.load(Ordering::Relaxed) {
                for probe in &mut probes {
                    let start = Instant::now();
                    probe.command(&["PING"]).unwrap();
                    longest = longest.max(start.elapsed());
                }
                grown = grown.max(server.resident_bytes().saturating_sub(before));
                thread::sleep(Duration::from_millis(5));
            }
            println!("probes waited {longest:?}, grown by {grown} bytes");
            assert!(longest < bearable(), "a probe waited for {longest:?}");
            assert!(grown < 200 << 20, "grown by {grown} bytes");
            for reader in reading {
                reader.join().unwrap();
            }
        });
    });
}

#[test]
fn a_slow_reader() {
    under_attack(&[], |server| {
        let value: String = (0..2_000_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
        ask(server, &["SET", "value", &value]);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        for _ in 0..3 {
            stream.write_all(&encode(&["GET", "value"])).unwrap();
        }
        let mut received = Vec::new();
        let mut size = 1;
        let expected = format!("${}\r\n{value}\r\n", value.len()).repeat(3);
        while received.len() < expected.len() {
            let mut buffer = vec![0; size];
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "closed after {} bytes", received.len());
            received.extend_from_slice(&buffer[..read]);
            // Byte by byte at first, while the server's side is full.
            size = if received.len() < 300 { 1 } else { 100_000 };
            thread::sleep(Duration::from_micros(if size == 1 { 500 } else { 0 }));
        }
        assert!(received == expected.as_bytes(), "the replies were not intact");
    });
}

#[test]
fn a_huge_value() {
    let long = std::env::var_os("DUNLIN_LONG").is_some();
    let size = if long { 512 << 20 } else { 96 << 20 };
    under_attack(&[], |server| {
        let mut client = server.client();
        let value: Vec<u8> = (0..size).map(|n: usize| (n / 7 % 251) as u8).collect();
        client
            .send_raw(format!("*3\r\n$3\r\nSET\r\n$4\r\nhuge\r\n${size}\r\n").as_bytes())
            .unwrap();
        client.send_raw(&value).unwrap();
        client.send_raw(b"\r\n").unwrap();
        assert_eq!(client.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
        let length = i64::try_from(size).unwrap();
        assert_eq!(client.command(&["STRLEN", "huge"]).unwrap(), Reply::Integer(length));
        let reply = client.command(&["GET", "huge"]).unwrap();
        assert!(reply.text() == Some(&value), "the value did not come back intact");
        assert!(client.command(&["APPEND", "huge", "x"]).unwrap().is_error() == long);
        assert_eq!(client.command(&["UNLINK", "huge"]).unwrap(), Reply::Integer(1));
    });
}

#[test]
fn thousands_of_idle_connections() {
    under_attack(&["--maxclients", "20000"], |server| {
        let limit = open_files();
        let count = 10_000.min(limit.saturating_sub(200));
        println!("{count} connections");
        let before = server.resident_bytes();
        let mut idle: Vec<Client> =
            (0..count).map(|_| Client::connect(server.address()).unwrap()).collect();
        // Each of them is served, not only accepted.
        for client in &mut idle {
            assert_eq!(client.command(&["PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
        }
        let each = server.resident_bytes().saturating_sub(before) / count as u64;
        assert!(each < 24 << 10, "{each} bytes for an idle connection");
    });
}

#[test]
fn thousands_that_announce_long_words() {
    under_attack(&["--maxclients", "20000"], |server| {
        let count = 3000.min(open_files().saturating_sub(200));
        let before = server.resident_bytes();
        for len in [100_000, 500 << 20] {
            let header = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\nabc");
            let mut clients: Vec<Client> =
                (0..count).map(|_| Client::connect(server.address()).unwrap()).collect();
            for client in &mut clients {
                client.send_raw(header.as_bytes()).unwrap();
            }
            let is_there = || {
                let list = ask(server, &["CLIENT", "LIST"]).shown();
                list.lines().filter(|line| !line.contains("cmd=client")).count() >= count
            };
            harness::wait::eventually("all of them", is_there);
            let each = server.resident_bytes().saturating_sub(before) / count as u64;
            assert!(each < 24 << 10, "{each} bytes for {len} announced ones");
        }
    });
}

#[test]
fn crowds_that_wait_for_many_keys() {
    under_attack(&["--maxclients", "20000"], |server| {
        let count = 2000.min(open_files().saturating_sub(200));
        let keys: Vec<String> = (0..100).map(|number| format!("list:{number}")).collect();
        let mut words = vec!["BLPOP"];
        words.extend(keys.iter().map(String::as_str));
        words.push("0");
        let request = encode(&words);
        let figure = |name: &str| harness::info::number(&mut server.client(), name);
        let mut crowd: Vec<Client> =
            (0..count).map(|_| Client::connect(server.address()).unwrap()).collect();
        for client in &mut crowd {
            client.send_raw(&request).unwrap();
        }
        harness::wait::eventually("all wait", || figure("blocked_clients") == count as u64);
        assert_eq!(figure("total_blocking_keys"), 100);
        // Those that waited longest go, and the first of the others is served.
        crowd.drain(..count / 2);
        harness::wait::eventually("half wait", || {
            figure("blocked_clients") == (count - count / 2) as u64
        });
        assert_eq!(ask(server, &["RPUSH", "list:7", "x"]), Reply::Integer(1));
        let served = crowd.iter_mut().find_map(|client| {
            client.message_within(Duration::from_millis(5)).ok().map(|reply| reply.shown())
        });
        assert!(served.is_some(), "no client was served");
        drop(crowd);
        harness::wait::eventually("none waits", || figure("blocked_clients") == 0);
        assert_eq!(figure("total_blocking_keys"), 0);
    });
}

/// How many files this process may open.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX)
}

#[test]
fn more_clients_than_allowed() {
    under_attack(&["--maxclients", "50"], |server| {
        let mut served = Vec::new();
        let mut refused = 0;
        for _ in 0..100 {
            let mut client = Client::connect(server.address()).unwrap();
            let _ = client.send(&["PING"]);
            match client.reply() {
                Ok(Reply::Simple(_)) => served.push(client),
                Ok(reply) => {
                    assert_eq!(reply, Reply::Error(b"ERR max number of clients reached".to_vec()));
                    refused += 1;
                }
                // Closed before the error could be read.
                Err(_) => refused += 1,
            }
        }
        // The bystander is the fiftieth.
        assert_eq!((served.len(), refused), (49, 51));
        drop(served);
    });
}

#[test]
fn requests_of_http() {
    under_attack(&[], |server| {
        for request in harness::http::WITH_COMMANDS {
            let mut client = server.client();
            client.send_raw(request).unwrap();
            assert!(is_closed(client.stream()), "{}", request.escape_ascii());
        }
        assert_eq!(ask(server, &["EXISTS", "http"]), Reply::Integer(0));
        let warnings = || server.log().matches("Possible SECURITY ATTACK").count();
        // The log is read by another thread.
        harness::wait::eventually("the log warns", || warnings() > 0);
        assert_eq!(warnings(), 1);
    });
}
