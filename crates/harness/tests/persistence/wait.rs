//! WAITAOF beside a disk that fails: what it promises is there after a crash, and it promises
//! nothing that may not be.

use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

fn start(policy: &str) -> Server {
    let arguments = ["--appendonly", "yes", "--appendfsync", policy];
    Server::start(&Program::under_test(), Options::arguments(&arguments)).expect("it starts")
}

/// Its two numbers.
fn acks(reply: &Reply) -> (i64, i64) {
    let numbers: Vec<i64> =
        reply.elements().unwrap_or_default().iter().filter_map(Reply::integer).collect();
    let [local, replicas] = numbers[..] else { panic!("{reply:?}") };
    (local, replicas)
}

fn persistence(client: &mut Client) -> String {
    let reply = ask(client, &["INFO", "persistence"]);
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

fn refuses_writes(client: &mut Client) -> bool {
    ask(client, &["SET", "k", "v"]).is_error()
}

#[test]
fn what_failed_to_be_forced_to_the_disk_counts_when_it_was_written_anew() {
    let server = start("everysec");
    let mut clients = [0, 1].map(|_| server.client());
    let [writer, other] = &mut clients;
    ask(other, &["DEBUG", "AOF-FAULT", "fsync"]);
    ask(writer, &["SET", "k", "v"]);
    eventually("writes are refused", || refuses_writes(other));
    assert_eq!(acks(&ask(writer, &["WAITAOF", "1", "0", "50"])), (0, 0));
    assert!(!persistence(other).contains("aof_rewrites:1"));
    writer.send(&["WAITAOF", "1", "0", "0"]).expect("it is sent");
    ask(other, &["DEBUG", "AOF-FAULT", "none"]);
    assert_eq!(acks(&writer.reply().expect("a reply")), (1, 0));
    let facts = persistence(other);
    assert!(facts.contains("aof_rewrites:1\r\n"), "{facts}");
    assert!(facts.contains("aof_rewrite_in_progress:0\r\n"), "{facts}");
    assert!(!refuses_writes(other));
}

#[test]
fn what_could_not_be_written_is_waited_for() {
    let mut server = start("everysec");
    let mut client = server.connect(Protocol::Resp3).expect("it answers");
    ask(&mut client, &["DEBUG", "AOF-FAULT", "write"]);
    ask(&mut client, &["SET", "k", "v"]);
    assert_eq!(acks(&ask(&mut client, &["WAITAOF", "1", "0", "1100"])), (0, 0));
    ask(&mut client, &["DEBUG", "AOF-FAULT", "none"]);
    assert_eq!(acks(&ask(&mut client, &["WAITAOF", "1", "0", "0"])), (1, 0));
    server.kill().expect("it can be killed");
    server.start_again().expect("it starts");
    let mut client = server.client();
    assert_eq!(ask(&mut client, &["GET", "k"]).text(), Some(&b"v"[..]));
}

#[test]
fn with_always_many_wait_at_once_behind_what_they_pipeline() {
    const CLIENTS: usize = 20;
    const ROUNDS: usize = 50;
    let server = start("always");
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = server.client();
            scope.spawn(move || {
                let key = format!("k{number}");
                let one: [&[&str]; 4] =
                    [&["INCR", &key], &["WAITAOF", "1", "0", "0"], &["INCR", &key], &["GET", &key]];
                let batch: Vec<u8> =
                    one.iter().flat_map(|words| harness::client::encode(words)).collect();
                for round in 1..=ROUNDS {
                    client.send_raw(&batch).expect("it is sent");
                    let [first, waited, _, last] = [0; 4].map(|_| client.reply().expect("a reply"));
                    assert_eq!(first.integer(), Some(2 * round as i64 - 1));
                    assert_eq!(acks(&waited), (1, 0));
                    assert_eq!(last.text(), Some((2 * round).to_string().as_bytes()));
                }
            });
        }
    });
}
