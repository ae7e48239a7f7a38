//! `maxmemory` under load, with each of the eight policies: memory stays within the limit, only
//! keys that may be evicted are, cold ones rather than hot ones, and without eviction writes are
//! refused.
//!
//! How hot a key is comes from RESTORE's IDLETIME and FREQ, so that no test has to wait for it.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, encode};
use harness::info::{find, number};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::{eventually, until_not_rewriting};
use std::thread;

/// What a test's keys may take, beside what an empty server takes.
const ROOM: usize = 4 << 20;
/// How far the memory in use may be seen above the limit: each of the clients may have a command
/// under way that has passed the check, and a table that grows.
const MARGIN: usize = 1 << 20;
const VALUE: usize = 500;
/// Keys that fill the room to about a half.
const SOME: usize = 3500;

const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

struct Test {
    server: Server,
    client: Client,
    limit: usize,
}

/// A number of INFO.
fn info(client: &mut Client, name: &str) -> usize {
    number(client, name).try_into().unwrap()
}

impl Test {
    fn new(policy: &str) -> Test {
        let options = Options::arguments(&["--io-threads", "2", "--maxmemory-policy", policy]);
        let server = Server::start(&Program::under_test(), options).unwrap();
        let mut client = server.client();
        let limit = info(&mut client, "used_memory") + ROOM;
        let mut test = Test { server, client, limit };
        test.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
        test
    }

    fn ask(&mut self, words: &[&str]) -> Reply {
        let reply = self.client.command(words).unwrap();
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
        reply
    }

    /// Runs a request for each number in one pipeline; the replies that are errors.
    fn each(
        &mut self,
        numbers: std::ops::Range<usize>,
        request: impl Fn(usize) -> Vec<Vec<u8>>,
    ) -> Vec<String> {
        pipeline(&mut self.client, numbers, request)
    }

    /// How many of the keys with these numbers are there.
    fn count(&mut self, prefix: &str, numbers: std::ops::Range<usize>) -> usize {
        let mut words = vec!["EXISTS".to_owned()];
        words.extend(numbers.map(|number| format!("{prefix}{number}")));
        match self.client.command(&words).unwrap() {
            Reply::Integer(count) => count as usize,
            reply => panic!("{reply:?}"),
        }
    }

    /// The payload of the usual value.
    fn payload(&mut self) -> Vec<u8> {
        self.ask(&["SET", "pattern", &"v".repeat(VALUE)]);
        // Stored compressed, but as large as any other once it is restored.
        let payload = self.ask(&["DUMP", "pattern"]).text().unwrap().to_vec();
        self.ask(&["DEL", "pattern"]);
        payload
    }

    /// Writes new keys from four connections until so many have been evicted, and few more; the
    /// memory in use never exceeds the limit by more than the margin meanwhile.
    fn press(&mut self, evictions: usize, write: impl Fn(usize) -> Vec<Vec<u8>> + Sync) {
        let start = info(&mut self.client, "evicted_keys");
        let mut highest = 0;
        let write_some = |writer: usize| {
            let mut client = self.server.client();
            let mut next = writer * 1_000_000;
            // Each looks for itself: somebody else might look too late.
            while info(&mut client, "evicted_keys") - start < evictions {
                let errors = pipeline(&mut client, next..next + 50, &write);
                assert_eq!(errors, [""; 0]);
                next += 50;
                assert!(next % 1_000_000 < 200_000, "too few keys are evicted");
            }
        };
        let write_some = &write_some;
        thread::scope(|scope| {
            let writers = [0, 1, 2, 3].map(|writer| scope.spawn(move || write_some(writer)));
            while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
                highest = highest.max(info(&mut self.client, "used_memory"));
            }
        });
        println!("{} bytes of {} at the highest", highest, self.limit);
        assert!(highest <= self.limit + MARGIN, "{highest} bytes with a limit of {}", self.limit);
        // In the end, without writers, within the limit itself (INFO's own reply counts too).
        let after = info(&mut self.client, "used_memory");
        assert!(after <= self.limit + (64 << 10), "{after} bytes with a limit of {}", self.limit);
    }
}

fn pipeline(
    client: &mut Client,
    numbers: std::ops::Range<usize>,
    request: impl Fn(usize) -> Vec<Vec<u8>>,
) -> Vec<String> {
    let mut errors = Vec::new();
    let numbers: Vec<usize> = numbers.collect();
    for chunk in numbers.chunks(50) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|&number| encode(&request(number))).collect();
        client.send_raw(&bytes).unwrap();
        for _ in chunk {
            let reply = client.reply().unwrap();
            if reply.is_error() {
                errors.push(reply.shown());
            }
        }
    }
    errors
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn set(key: &str) -> Vec<Vec<u8>> {
    words(&["SET", key, &"v".repeat(VALUE)])
}

fn set_expiring(key: &str, seconds: usize) -> Vec<Vec<u8>> {
    words(&["SET", key, &"v".repeat(VALUE), "EX", &seconds.to_string()])
}

fn restore(key: &str, payload: &[u8], option: &str, number: &str) -> Vec<Vec<u8>> {
    let mut request = words(&["RESTORE", key, "1000000"]);
    request.push(payload.to_vec());
    request.extend(words(&[option, number]));
    request
}

/// Fills half of the room with hot keys and half with cold ones, all with an expiry, and presses
/// until as many keys are gone as are half of the cold ones.
fn cold_go_first(policy: &str, option: &str, hot: &str, cold: &str) {
    println!("{policy}");
    let mut test = Test::new(policy);
    let payload = test.payload();
    let half = SOME;
    // Mixed, so that neither is older, nor alone in its part of the table.
    let errors = test.each(0..2 * half, |number| {
        let (name, number_of) = if number % 2 == 0 { ("hot", hot) } else { ("cold", cold) };
        restore(&format!("{name}{}", number / 2), &payload, option, number_of)
    });
    assert_eq!(errors, [""; 0]);
    let before = (test.count("hot", 0..half), test.count("cold", 0..half));
    let volatile = policy.starts_with("volatile");
    test.press(half / 2, |number| {
        let key = format!("new{number}");
        if volatile { set_expiring(&key, 2_000_000) } else { set(&key) }
    });
    let after = (test.count("hot", 0..half), test.count("cold", 0..half));
    let gone = (before.0 - after.0, before.1 - after.1);
    println!("gone: {} hot and {} cold of {half}", gone.0, gone.1);
    assert!(gone.1 > 2 * gone.0, "{} hot and {} cold keys were evicted", gone.0, gone.1);
}

#[test]
fn lru_evicts_what_was_idle_longest() {
    for policy in ["allkeys-lru", "volatile-lru"] {
        cold_go_first(policy, "IDLETIME", "0", "50000");
    }
}

#[test]
fn lfu_evicts_what_was_used_least() {
    for policy in ["allkeys-lfu", "volatile-lfu"] {
        cold_go_first(policy, "FREQ", "200", "0");
    }
}

#[test]
fn ttl_evicts_what_expires_soonest() {
    let mut test = Test::new("volatile-ttl");
    let errors = test.each(0..2 * SOME, |number| {
        if number % 2 == 0 {
            set_expiring(&format!("late{}", number / 2), 1_000_000)
        } else {
            set_expiring(&format!("soon{}", number / 2), 10_000)
        }
    });
    assert_eq!(errors, [""; 0]);
    let before = (test.count("late", 0..SOME), test.count("soon", 0..SOME));
    test.press(SOME / 2, |number| set_expiring(&format!("new{number}"), 2_000_000));
    let after = (test.count("late", 0..SOME), test.count("soon", 0..SOME));
    let gone = (before.0 - after.0, before.1 - after.1);
    println!("gone: {} late and {} soon of {SOME}", gone.0, gone.1);
    assert!(gone.1 > 2 * gone.0, "{} late and {} soon keys were evicted", gone.0, gone.1);
}

#[test]
fn random_evicts_without_regard() {
    for policy in ["allkeys-random", "volatile-random"] {
        println!("{policy}");
        let mut test = Test::new(policy);
        let errors = test.each(0..2 * SOME, |number| {
            set_expiring(&format!("{}{}", ["a", "b"][number % 2], number / 2), 1_000_000)
        });
        assert_eq!(errors, [""; 0]);
        let before = [test.count("a", 0..SOME), test.count("b", 0..SOME)];
        // One half is used all the time, which is to make no difference.
        test.each(0..SOME, |number| words(&["GET", &format!("a{number}")]));
        test.press(SOME, |number| set_expiring(&format!("new{number}"), 2_000_000));
        let gone = [before[0] - test.count("a", 0..SOME), before[1] - test.count("b", 0..SOME)];
        println!("gone: {gone:?} of {SOME} each");
        assert!(gone[0] < 2 * gone[1] && gone[1] < 2 * gone[0], "{gone:?}");
    }
}

#[test]
fn volatile_policies_spare_what_does_not_expire() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random"] {
        println!("{policy}");
        let mut test = Test::new(policy);
        let payload = test.payload();
        // As cold as can be, and yet they stay.
        let option = if policy == "volatile-lfu" { "FREQ" } else { "IDLETIME" };
        let errors = test.each(0..SOME, |number| {
            let mut request = restore(&format!("kept{number}"), &payload, option, "0");
            request[2] = b"0".to_vec();
            if option == "IDLETIME" {
                request[5] = b"90000".to_vec();
            }
            request
        });
        assert_eq!(errors, [""; 0]);
        test.press(SOME, |number| set_expiring(&format!("new{number}"), 1000));
        assert_eq!(test.count("kept", 0..SOME), SOME);

        // When nothing is left that may go, writes are refused.
        let errors = test.each(0..2 * SOME, |number| set(&format!("more{number}")));
        assert!(!errors.is_empty() && errors.iter().all(|error| error == OUT_OF_MEMORY));
        assert_eq!(test.count("kept", 0..SOME), SOME);
        let Reply::Integer(size) = test.ask(&["DBSIZE"]) else { panic!("no size") };
        let kept = SOME + test.count("more", 0..2 * SOME);
        assert_eq!(size as usize, kept, "keys that may go are left, yet a write was refused");

        // That nothing may go is remembered only until something may.
        let refused = test.client.command(&["SET", "x", "1"]).unwrap();
        assert_eq!(refused, Reply::Error(OUT_OF_MEMORY.into()));
        // As many as make up for whatever the limit is exceeded by.
        let half = SOME / 2;
        test.each(0..half, |number| words(&["EXPIRE", &format!("kept{number}"), "1000"]));
        test.ask(&["SET", "x", "1"]);
        assert!(test.count("kept", 0..half) < half);
    }
}

#[test]
fn without_eviction_writes_are_refused_and_reads_served() {
    let mut test = Test::new("noeviction");
    let errors = test.each(0..4 * SOME, |number| set(&format!("key{number}")));
    assert!(errors.len() > SOME && errors.iter().all(|error| error == OUT_OF_MEMORY));
    assert_eq!(info(&mut test.client, "evicted_keys"), 0);
    let used = info(&mut test.client, "used_memory");
    assert!(used <= test.limit + MARGIN, "{used} bytes with a limit of {}", test.limit);
    let there = test.count("key", 0..4 * SOME);
    assert_eq!(there + errors.len(), 4 * SOME);

    let value = test.ask(&["GET", "key0"]);
    assert_eq!(value.text().map(<[u8]>::len), Some(VALUE));
    for request in [
        vec!["SET", "x", "1"],
        vec!["LPUSH", "x", "1"],
        vec!["SADD", "x", "1"],
        vec!["ZADD", "x", "1", "m"],
        vec!["HSET", "x", "f", "v"],
        vec!["APPEND", "key0", "v"],
        vec!["COPY", "key0", "x"],
        vec!["SUNIONSTORE", "x", "y"],
    ] {
        let reply = test.client.command(&request).unwrap();
        assert_eq!(reply, Reply::Error(OUT_OF_MEMORY.into()), "{request:?}");
    }
    // What cannot grow is allowed, in transactions too; what can breaks the transaction.
    test.ask(&["EXPIRE", "key1", "1000"]);
    test.ask(&["MULTI"]);
    let refused = test.client.command(&["SET", "x", "1"]).unwrap();
    assert_eq!(refused, Reply::Error(OUT_OF_MEMORY.into()));
    let aborted = test.client.command(&["EXEC"]).unwrap();
    assert!(aborted.text().unwrap().starts_with(b"EXECABORT"), "{aborted:?}");

    // Room that is made can be used again.
    let mut rng = Rng::new(1);
    for _ in 0..SOME {
        test.ask(&["DEL", &format!("key{}", rng.below(4 * SOME))]);
    }
    test.ask(&["SET", "x", "1"]);
}

#[test]
fn what_waits_for_a_slow_disk_costs_no_keys() {
    for policy in ["allkeys-lru", "noeviction"] {
        let mut test = Test::new(policy);
        test.ask(&["CONFIG", "SET", "appendonly", "yes"]);
        until_not_rewriting(&mut test.client);
        test.ask(&["SET", "other", "v"]);
        // The first write to the file does not end before the test.
        test.ask(&["DEBUG", "AOF-FLUSH-SLEEP", "1000000000"]);
        let value = "v".repeat(ROOM / 32);
        // One request: further ones would wait for the file after half a second.
        let script = "for _ = 1, 128 do redis.call('SET', KEYS[1], ARGV[1]) end";
        test.ask(&["EVAL", script, "1", "overwritten", &value]);
        assert!(info(&mut test.client, "mem_aof_buffer") > 2 * ROOM, "{policy}: nothing waits");
        assert!(info(&mut test.client, "mem_not_counted_for_evict") > 2 * ROOM, "{policy}");
        assert_eq!(test.ask(&["DBSIZE"]), Reply::Integer(2), "{policy}");
        test.server.kill().unwrap();
    }
}

#[test]
fn what_a_snapshot_has_yet_to_write_costs_no_keys() {
    const KEYS: usize = 6000;
    for policy in ["allkeys-lru", "noeviction"] {
        let mut test = Test::new(policy);
        let set = |byte: u8| {
            move |number: usize| {
                vec![b"SET".to_vec(), format!("k{number}").into_bytes(), vec![byte; 3 * VALUE]]
            }
        };
        test.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(test.each(0..KEYS, set(b'v')).is_empty());
        let limit = info(&mut test.client, "used_memory") + ROOM;
        test.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
        // It does not end before the test.
        test.ask(&["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
        test.ask(&["BGSAVE"]);
        assert!(test.each(0..KEYS, set(b'w')).is_empty(), "{policy}");
        assert!(info(&mut test.client, "current_cow_size") > ROOM, "{policy}: nothing waits");
        assert_eq!(test.ask(&["DBSIZE"]), Reply::Integer(KEYS as i64), "{policy}");
        assert_eq!(info(&mut test.client, "evicted_keys"), 0, "{policy}");
        test.server.kill().unwrap();
    }
}

#[test]
fn what_a_snapshot_needs_for_itself_costs_no_keys() {
    const KEYS: usize = 3000;
    let mut test = Test::new("allkeys-lru");
    test.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let set =
        |number| vec![b"SET".to_vec(), format!("k{number}").into_bytes(), vec![b'v'; 6 * VALUE]];
    assert!(test.each(0..KEYS, set).is_empty());
    // Much less than what threads encode into, and the block that goes to the disk.
    let limit = info(&mut test.client, "used_memory") + ROOM / 8;
    test.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    for save in [["BGSAVE"].as_slice(), &["BGREWRITEAOF"]] {
        for _ in 0..3 {
            test.ask(save);
            // Every command looks for room.
            eventually("it is written", || {
                let under_way = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress"];
                under_way.iter().all(|name| info(&mut test.client, name) == 0)
            });
        }
        assert_eq!(info(&mut test.client, "evicted_keys"), 0, "{save:?}");
    }
    assert_eq!(test.ask(&["DBSIZE"]), Reply::Integer(KEYS as i64));
    eventually("it is given back", || info(&mut test.client, "mem_not_counted_for_evict") == 0);
}

#[test]
fn a_lower_limit_is_reached_bit_by_bit() {
    const KEYS: usize = 1000;
    let options = ["--io-threads", "1", "--maxmemory-policy", "allkeys-random"];
    let events = ["--notify-keyspace-events", "Ee"];
    let options = Options::arguments(&[&options[..], &events].concat());
    let server = Server::start(&Program::under_test(), options).unwrap();
    let mut listener = server.client();
    listener.command(&["SUBSCRIBE", "__keyevent@0__:evicted"]).unwrap();
    let mut client = server.client();
    client.command(&["DEBUG", "POPULATE", &KEYS.to_string(), "key", "1000"]).unwrap();
    let limit = (info(&mut client, "used_memory") - KEYS * 500).to_string();
    let lower = ["CONFIG", "SET", "maxmemory-eviction-tenacity", "0", "maxmemory", &limit];
    let requests: [&[&str]; 4] =
        [&lower, &["SET", "a", "1"], &["SET", "b", "1"], &["INFO", "everything"]];
    client.send_raw(&requests.iter().flat_map(|words| encode(words)).collect::<Vec<u8>>()).unwrap();
    for _ in 0..3 {
        assert_eq!(client.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
    }
    let evicted = find(&client.reply().unwrap(), "evicted_keys").unwrap();
    assert_eq!(evicted, "3", "one for each command");
    // The rest goes without a further command.
    for _ in 0..KEYS / 3 {
        listener.message().unwrap();
    }
}
