//! Requests for keys whose values are not in RAM, with an engine in process and a store in memory.
//!
//! One test function: a process has one store of cold values.

use engine::clock::Clock;
use engine::cold_values::make_cold;
use engine::worker::{Next, Peer};
use engine::{DbIndex, Engine, Key, Session, Worker};
use keyspace::cold::{Fetched, entries, set_store};
use keyspace::{ColdError, ColdLocation, ColdStore};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A store in memory.
#[derive(Default)]
struct Disk {
    values: HashMap<ColdLocation, Vec<u8>>,
    /// Reads that wait for [`finish`], if they do not complete at once.
    is_slow: bool,
    waiting: Vec<(Vec<ColdLocation>, Fetched)>,
    is_broken: bool,
}

static DISK: LazyLock<Mutex<Disk>> = LazyLock::new(Mutex::default);
static FETCHES: AtomicUsize = AtomicUsize::new(0);
static READS: AtomicUsize = AtomicUsize::new(0);

fn disk() -> MutexGuard<'static, Disk> {
    DISK.lock().expect("no test thread has panicked")
}

impl Disk {
    fn get(&self, location: ColdLocation) -> Result<Vec<u8>, ColdError> {
        match self.values.get(&location) {
            Some(value) if !self.is_broken => Ok(value.clone()),
            Some(_) => Err(ColdError("input/output error".into())),
            None => panic!("a value was asked for that was released"),
        }
    }
}

struct Store;

impl ColdStore for Store {
    fn fetch(&self, wanted: Vec<ColdLocation>, done: Fetched) {
        FETCHES.fetch_add(1, SeqCst);
        let mut disk = disk();
        if disk.is_slow {
            return disk.waiting.push((wanted, done));
        }
        let results = wanted.into_iter().map(|location| disk.get(location)).collect();
        drop(disk);
        done(results);
    }
    fn size(&self, location: ColdLocation) -> usize {
        disk().values.get(&location).map_or(0, Vec::len)
    }
    fn read(&self, location: ColdLocation) -> Result<Vec<u8>, ColdError> {
        READS.fetch_add(1, SeqCst);
        disk().get(location)
    }
    fn release(&self, location: ColdLocation) {
        assert!(disk().values.remove(&location).is_some(), "a value is released once");
    }
}

/// Completes the reads that wait.
fn finish() {
    let waiting = std::mem::take(&mut disk().waiting);
    for (wanted, done) in waiting {
        let results = wanted.into_iter().map(|location| match disk().values.get(&location) {
            Some(value) => Ok(value.clone()),
            // A store may have reused its place.
            None => Err(ColdError("it was released".into())),
        });
        let results = results.collect();
        done(results);
    }
}

fn keep(payload: Vec<u8>) -> ColdLocation {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let location = ColdLocation(NEXT.fetch_add(1, SeqCst));
    disk().values.insert(location, payload);
    location
}

struct Client {
    engine: &'static Engine,
    worker: Worker,
    session: Session,
}

impl Client {
    fn new() -> Client {
        let text = b"enable-debug-command yes";
        let config = config::load_text(text).expect("it is valid").config;
        let engine = Engine::new(config, &commands::rows(), &[], 1, Clock::system());
        let mut worker = Worker::new(engine, 0);
        let peer = Peer { addr: "test".into(), is_local: true, ..Peer::default() };
        let session = worker.connect(peer).expect("there is room for one client");
        Client { engine, worker, session }
    }

    /// Feeds a line; the reply, or `None` if the connection waits.
    fn feed(&mut self, line: &str) -> Option<String> {
        let input = format!("{line}\r\n").into_bytes();
        let mut out = resp::Output::default();
        let fed = self.worker.feed(&mut self.session, &input, &mut out, usize::MAX);
        match fed.next {
            Next::NotNow(_) => {
                assert!(out.is_empty() && fed.consumed == 0, "nothing has happened");
                None
            }
            _ => Some(
                String::from_utf8_lossy(&out.into_bytes())
                    .replace("\r\n", " ")
                    .trim_end()
                    .to_string(),
            ),
        }
    }

    /// The reply, however long it takes.
    fn ask(&mut self, line: &str) -> String {
        for _ in 0..4 {
            if let Some(reply) = self.feed(line) {
                return reply;
            }
            finish();
        }
        panic!("{line} is put off again and again");
    }

    #[track_caller]
    fn check(&mut self, line: &str, reply: &str) {
        assert_eq!(self.ask(line), reply, "{line}");
    }

    /// Takes values out of RAM.
    fn freeze(&self, keys: &[&str]) {
        self.worker.context().reader.enter();
        for key in keys {
            assert!(make_cold(self.engine, DbIndex(0), key.as_bytes(), keep), "{key}");
        }
        self.worker.context().reader.leave();
    }

    fn fill(&mut self) {
        self.check("FLUSHALL ASYNC", "+OK");
        self.check("SET s some-text", "+OK");
        self.check("RPUSH l a b c", ":3");
        self.check("SADD set 1 2 3", ":3");
        self.check("HSET h f v g w", ":2");
        self.check("ZADD z 1 a 2 b", ":2");
        self.freeze(&ALL);
    }
}

const ALL: [&str; 5] = ["s", "l", "set", "h", "z"];

fn is_cold(client: &Client, key: &str) -> bool {
    let (key, keyspace) = (Key::new(key.as_bytes()), &client.engine.keyspace);
    let stripe = keyspace.stripe(keyspace.stripe_of(key)).lock();
    stripe.cold(DbIndex(0), key).is_some()
}

/// How many asynchronous and synchronous reads `run` causes.
fn reads(run: impl FnOnce()) -> (usize, usize) {
    let before = (FETCHES.load(SeqCst), READS.load(SeqCst));
    run();
    (FETCHES.load(SeqCst) - before.0, READS.load(SeqCst) - before.1)
}

fn commands_that_need_no_value(client: &mut Client) {
    client.fill();
    let work = || {
        client.check("EXISTS s l set h z", ":5");
        client.check("TYPE h", "+hash");
        client.check("TYPE l", "+list");
        client.check("OBJECT ENCODING set", "$6 intset");
        client.check("OBJECT ENCODING s", "$6 embstr");
        client.check("OBJECT ENCODING z", "$8 listpack");
        client.check("TTL s", ":-1");
        client.check("EXPIRE s 100", ":1");
        client.check("PERSIST s", ":1");
        client.check("EXPIRE h 100", ":1");
        client.check("TOUCH s l", ":2");
        client.check("RENAME s t", "+OK");
        client.check("EXISTS s", ":0");
        client.check("MOVE l 1", ":1");
        client.check("SCAN 0 COUNT 100 TYPE hash", "*2 $1 0 *1 $1 h");
        client.check("DBSIZE", ":4");
        client.check("MEMORY USAGE set", ":32");
        client.check("DEL set z", ":2");
        client.check("SET t other", "+OK");
        client.check("PEXPIRE h -1", ":1");
        client.check("DBSIZE", ":1");
    };
    assert_eq!(reads(work), (0, 0));
    client.check("SELECT 1", "+OK");
    client.check("LRANGE l 0 -1", "*3 $1 a $1 b $1 c");
    client.check("SELECT 0", "+OK");
}

fn commands_that_need_values(client: &mut Client) {
    client.fill();
    // Another type is no reason to say that the key is absent, or to read another key.
    client.check("GET h", "-WRONGTYPE Operation against a key holding the wrong kind of value");
    client.fill();
    assert_eq!(reads(|| client.check("GET s", "$9 some-text")), (1, 0));
    assert_eq!(reads(|| client.check("GET s", "$9 some-text")), (0, 0), "it is in RAM now");
    client.check("LRANGE l 0 -1", "*3 $1 a $1 b $1 c");
    client.check("SINTER set set", "*3 $1 1 $1 2 $1 3");
    client.check("HGET h g", "$1 w");
    client.check("ZRANGE z 0 -1 WITHSCORES", "*4 $1 a $1 1 $1 b $1 2");
    assert!(ALL.iter().all(|key| !is_cold(client, key)));
    client.check("MSET a 1x b 2x c 3x", "+OK");
    client.freeze(&["a", "b", "c"]);
    let once = reads(|| client.check("MGET a b c d", "*4 $2 1x $2 2x $2 3x $-1"));
    assert_eq!(once, (1, 0), "all keys of a request are read at once");
    client.freeze(&["a", "s", "set"]);
    client.check("APPEND a y", ":3");
    client.check("SETRANGE s 0 S", ":9");
    client.check("SADD set 4", ":1");
    client.check("SUNIONSTORE copy set", ":4");
    client.freeze(&["a"]);
    client.check("COPY a a2", ":1");
    client.freeze(&["a2"]);
    client.check("GETDEL a2", "$3 1xy");
    client.check("GET a", "$3 1xy");
}

fn transactions_and_sort(client: &mut Client) {
    client.fill();
    client.check("MULTI", "+OK");
    client.check("GET s", "+QUEUED");
    client.check("HSET h f changed", "+QUEUED");
    client.check("SELECT 0", "+QUEUED");
    client.check("LLEN l", "+QUEUED");
    let once = reads(|| client.check("EXEC", "*4 $9 some-text :0 +OK :3"));
    assert_eq!(once, (1, 0));
    client.check("MSET w_1 3x w_2 1x w_3 2x", "+OK");
    client.freeze(&["w_1", "w_2", "w_3"]);
    // The world is stopped, so that it reads in place, and the names are known late.
    let in_place = reads(|| client.check("SORT set BY w_* ALPHA", "*3 $1 2 $1 3 $1 1"));
    assert_eq!(in_place, (0, 4));
    client.freeze(&["set", "s"]);
    let before = client.ask("DEBUG DIGEST");
    client.check("GET s", "$9 some-text");
    client.check("DEBUG DIGEST", &before);
}

fn reads_that_take_their_time(client: &mut Client) {
    client.fill();
    disk().is_slow = true;
    assert!(client.feed("GET s").is_none());
    assert!(client.feed("GET s").is_none());
    assert_eq!(disk().waiting.len(), 1, "what is being read is not read twice");
    finish();
    assert_eq!(client.feed("GET s").as_deref(), Some("$9 some-text"));
    // Values that have become others meanwhile are not put back.
    assert!(client.feed("HGET h f").is_none());
    client.check("DEL h", ":1");
    client.check("HSET h f new", ":1");
    client.freeze(&["h"]);
    finish();
    client.check("HGET h f", "$3 new");
    assert!(client.feed("LLEN l").is_none());
    client.check("RENAME l k", "+OK");
    finish();
    client.check("LLEN l", ":0");
    client.check("LLEN k", ":3");
    assert!(client.feed("SCARD set").is_none());
    client.check("FLUSHALL ASYNC", "+OK");
    finish();
    client.check("SCARD set", ":0");
    disk().is_slow = false;
}

fn values_that_cannot_be_read(client: &mut Client) {
    const FAILED: &str = "-ERR the value of a key could not be read: input/output error";
    client.fill();
    disk().is_broken = true;
    client.check("GET s", FAILED);
    client.check("MGET s set", FAILED);
    client.check("TYPE s", "+string");
    client.check("SET s over", "+OK");
    client.check("GET s", "$4 over");
    client.check("DEL l", ":1");
    client.check("DEBUG DIGEST", FAILED);
    disk().is_broken = false;
    client.check("HGET h f", "$1 v");
    // Damage is found by the checksum.
    disk().values.values_mut().for_each(|value| value[1] ^= 1);
    assert!(client.ask("SCARD set").starts_with("-ERR the value of a key could not be read"));
}

#[test]
fn cold_values_are_read_when_they_are_needed() {
    assert!(set_store(Box::new(Store)));
    let mut client = Client::new();
    commands_that_need_no_value(&mut client);
    commands_that_need_values(&mut client);
    transactions_and_sort(&mut client);
    reads_that_take_their_time(&mut client);
    values_that_cannot_be_read(&mut client);
    client.check("FLUSHALL ASYNC", "+OK");
    // A background thread frees what was there.
    let end = Instant::now() + Duration::from_secs(60);
    while entries() > 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(entries(), 0);
    assert!(disk().values.is_empty(), "every value is released");
}
