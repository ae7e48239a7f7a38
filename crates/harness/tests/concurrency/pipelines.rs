//! Pipelines of several connections that change the same keys: a replica and the log have the
//! changes of every key in the order in which they were made.

use harness::client::{Client, ask, encode};
use harness::contents::contents;
use harness::replicas::{assert_same, compare, dunlin, until_linked};
use harness::rng::Rng;
use harness::server::Server;

const CONNECTIONS: usize = 6;
const BATCHES: usize = 150;
/// Few, so that connections meet at them all the time.
const KEYS: usize = 5;

/// Returns a server with more threads than a test machine has cores, and its replica.
fn pair(arguments: &[&str]) -> (Server, Server) {
    pair_with(arguments, &[])
}

/// The same, with arguments of the replica.
fn pair_with(arguments: &[&str], of_replica: &[&str]) -> (Server, Server) {
    let primary = dunlin(&[&["--io-threads", "4", "--appendonly", "yes"], arguments].concat());
    let port = primary.port().to_string();
    let replica = dunlin(&[&["--replicaof", "127.0.0.1", &port], of_replica].concat());
    until_linked(&replica);
    (primary, replica)
}

/// Returns some requests. What most of them leave depends on their order.
fn batch(rng: &mut Rng, number: usize) -> Vec<Vec<u8>> {
    let count = 1 + rng.below(40);
    let request = |rng: &mut Rng| {
        let [string, list, counter, hash] =
            ["string", "list", "counter", "hash"].map(|kind| format!("{kind}{}", rng.below(KEYS)));
        let value = format!("{number}:{};", rng.below(1000));
        let start = rng.below(1000).to_string();
        let words: &[&str] = match rng.below(16) {
            0 | 1 => &["GET", &string],
            2..5 => &["APPEND", &string, &value],
            5 => &["SET", &string, &value],
            6 | 7 => &["INCRBY", &counter, "7"],
            8 => &["SET", &counter, &start],
            9 | 10 => &["RPUSH", &list, &value],
            11 => &["LPOP", &list],
            12 => &["HSET", &hash, "field", &value],
            // With places of their own: several keys, an effect in place of the request.
            13 => &["MSET", &string, &value, "both", &value],
            14 => &["GETEX", &string, "EX", "10000"],
            _ => &["DEL", &string, &hash],
        };
        encode(words)
    };
    let mut requests: Vec<_> = (0..count).map(|_| request(rng)).collect();
    if rng.chance(20) {
        let inside = encode(&["RPUSH", "list0", "inside"]);
        requests.splice(0..0, [encode(&["MULTI"]), inside, encode(&["EXEC"])]);
    }
    requests
}

fn send(client: &mut Client, requests: &[Vec<u8>]) {
    client.send_raw(&requests.concat()).expect("it is sent");
    for _ in requests {
        let reply = client.reply().expect("a reply");
        assert!(!reply.is_error(), "{reply:?}");
    }
}

fn change_by_pipelines(server: &Server) {
    std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let mut client = server.client();
            scope.spawn(move || {
                let mut rng = Rng::new(number as u64 + 1);
                for _ in 0..BATCHES {
                    send(&mut client, &batch(&mut rng, number));
                }
            });
        }
    });
}

#[test]
fn a_replica_and_the_log_have_the_order_of_the_changes() {
    // Held replies, a memory limit and keyspace events take other ways to the journal.
    let limits = ["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"];
    let events = ["--notify-keyspace-events", "KEA"];
    for arguments in [&[][..], &["--appendfsync", "always"], &limits, &events] {
        let (mut primary, replica) = pair(arguments);
        change_by_pipelines(&primary);
        compare(&primary, &replica);
        let before = contents(&mut primary.client());
        primary.restart().expect("it starts");
        assert_same(&before, &contents(&mut primary.client()));
    }
}

#[test]
fn replies_begin_to_be_held_under_pipelines() {
    let (primary, replica) = pair(&[]);
    std::thread::scope(|scope| {
        let writers = scope.spawn(|| change_by_pipelines(&primary));
        let mut client = primary.client();
        while !writers.is_finished() {
            for policy in ["always", "everysec"] {
                ask(&mut client, &["CONFIG", "SET", "appendfsync", policy]);
                ask(&mut client, &["GET", "string0"]);
            }
        }
    });
    compare(&primary, &replica);
}

#[test]
fn a_wait_in_a_pipeline_is_for_what_stands_before_it() {
    let (primary, replica) = pair(&[]);
    let (mut client, mut theirs) = (primary.client(), replica.client());
    for round in 1..=300 {
        let mut requests: Vec<_> = (0..10).map(|_| encode(&["INCR", "counter"])).collect();
        requests.push(encode(&["WAIT", "1", "0"]));
        client.send_raw(&requests.concat()).expect("it is sent");
        for number in 1..=10 {
            let sum = client.reply().expect("a reply").integer();
            assert_eq!(sum, Some((round - 1) * 10 + number));
        }
        assert_eq!(client.reply().expect("a reply").integer(), Some(1));
        let there = ask(&mut theirs, &["GET", "counter"]);
        assert_eq!(there.text(), Some((round * 10).to_string().as_bytes()));
    }
}

/// What one connection reads, another may rely on: with the second of two keys a replica has the
/// first.
#[test]
fn a_replica_never_has_an_effect_without_its_cause() {
    // A replica of several threads may show the second of two commands a moment before the first.
    let (primary, replica) = pair_with(&[], &["--io-threads", "1"]);
    std::thread::scope(|scope| {
        let cause = scope.spawn(|| {
            let mut client = primary.client();
            for number in 1..=4000 {
                let set = encode(&["SET", "cause", &number.to_string()]);
                // What stands behind it keeps it from being appended at once.
                let others = (0..12).map(|other| encode(&["INCR", &format!("other{other}")]));
                send(&mut client, &[set].into_iter().chain(others).collect::<Vec<_>>());
            }
        });
        let (mut client, mut theirs) = (primary.client(), replica.client());
        let value = |client: &mut Client, key: &str| -> u64 {
            let reply = ask(client, &["GET", key]);
            let text = reply.text().map(|text| String::from_utf8_lossy(text).into_owned());
            text.map_or(0, |text| text.parse().expect("a number"))
        };
        while !cause.is_finished() {
            let seen = value(&mut client, "cause").to_string();
            send(&mut client, &[encode(&["SET", "effect", &seen]), encode(&["INCR", "mine"])]);
            let effect = value(&mut theirs, "effect");
            let cause = value(&mut theirs, "cause");
            assert!(cause >= effect, "{cause} came behind {effect}");
        }
    });
    compare(&primary, &replica);
}
