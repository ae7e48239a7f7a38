//! Clients that write at random: values of all types and sizes, expiries, whole databases.

use super::ask;
use harness::client::Client;
use harness::differential::grammar::Generator;
use harness::rng::Rng;
use harness::server::Server;
use harness::wait::SetAtEnd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const WRITERS: u64 = 3;
/// Elements of the big collections: more than a snapshot takes in one go.
const BIG: usize = 2500;

/// Fills the big values.
pub fn fill(client: &mut Client) {
    for from in (0..BIG).step_by(500) {
        let elements: Vec<String> = (from..from + 500).map(|number| format!("e{number}")).collect();
        for (name, command) in
            [("hash", "HSET"), ("zset", "ZADD"), ("set", "SADD"), ("list", "RPUSH")]
        {
            let mut words = vec![command.to_owned(), name.to_owned()];
            for element in &elements {
                match command {
                    "HSET" => words.extend([element.clone(), "0".into()]),
                    "ZADD" => words.extend(["1".into(), element.clone()]),
                    _ => words.push(element.clone()),
                }
            }
            client.command(&words).unwrap();
        }
    }
    ask(client, &["SET", "long", &"0123456789".repeat(20_000)]);
    ask(client, &["RPUSH", "list", &"x".repeat(100_000)]);
}

/// A write to one of the big values, or to all of a database.
fn big_write(rng: &mut Rng) -> Vec<String> {
    let element = format!("e{}", rng.below(2 * BIG));
    let number = rng.below(1000).to_string();
    let line = match rng.below(1200) {
        0..200 => format!("HSET hash {element} {number}"),
        200..300 => format!("HDEL hash {element}"),
        300..450 => format!("ZINCRBY zset {number} {element}"),
        450..550 => format!("ZREM zset {element}"),
        550..650 => format!("SADD set {element}"),
        650..750 => format!("SREM set {element}"),
        750..800 => format!("LPUSH list {element}"),
        800..850 => "RPOP list".to_owned(),
        850..900 => format!("LSET list {} {element}", rng.below(BIG)),
        900..950 => format!("SETRANGE long {} {number}", rng.below(200_000)),
        950..1000 => format!("APPEND long {number}"),
        1000..1050 => format!("PEXPIRE {} 100000000", rng.pick(&["hash", "long", "set"])),
        1050..1100 => format!("PSETEX brief:{} {} {number}", rng.below(20), 1 + rng.below(200)),
        1100..1130 => "SPOP set 3".to_owned(),
        1130..1136 => "RENAME hash hash2".to_owned(),
        1136..1142 => "RENAME hash2 hash".to_owned(),
        1142..1148 => "COPY zset zset2 DB 2 REPLACE".to_owned(),
        1148..1154 => "ZUNIONSTORE zset 2 zset zset2".to_owned(),
        1154..1156 => "SWAPDB 0 2".to_owned(),
        1156..1158 => "FLUSHALL".to_owned(),
        1158..1160 => "FLUSHDB".to_owned(),
        1160..1162 => "UNLINK hash".to_owned(),
        1162..1164 => "MOVE set 2".to_owned(),
        _ => "SELECT 0".to_owned(),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Which requests of the generator are sent.
#[derive(Clone, Copy)]
struct Allowed {
    /// Whole databases are emptied now and then, which ends saves and leaves little in them.
    flushes: bool,
    /// Entries of streams are deleted. A base of commands loses that a deleted entry is pending, as
    /// Redis's does.
    deletions: bool,
}

impl Allowed {
    fn name(self, name: &str) -> bool {
        self.flushes || !name.starts_with("FLUSH")
    }

    fn words(self, words: &[Vec<u8>]) -> bool {
        let is = |word: &[u8], names: &[&str]| {
            names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        let deletes = is(&words[0], &["XDEL", "XDELEX", "XACKDEL", "XTRIM"])
            || is(&words[0], &["XADD"]) && words.iter().any(|word| is(word, &["MAXLEN", "MINID"]));
        // What was delivered before is counted again, which no log has, Redis's neither.
        let reads_again =
            is(&words[0], &["XREADGROUP"]) && words.last().is_some_and(|id| id != b">");
        !reads_again && (self.deletions || !deletes)
    }
}

/// Writes until it is told to stop. Whatever is answered is fine; it is the history that counts.
fn write(server: &Server, seed: u64, allowed: Allowed, stop: &AtomicBool, sent: &AtomicU64) {
    let mut rng = Rng::new(seed);
    let mut generator = Generator::new(seed, |name| allowed.name(name));
    while !stop.load(Relaxed) {
        // A blocked client would hold up what follows; a new one does not.
        let mut client = server.client();
        if rng.chance(30) {
            fill(&mut client);
        }
        for op in generator.sequence(60).into_iter().filter(|op| allowed.words(&op.words)) {
            for _ in 0..rng.below(3) {
                let words = big_write(&mut rng);
                if allowed.name(&words[0]) {
                    client.send(&words).unwrap();
                }
            }
            if client.send(&op.words).is_err() || stop.load(Relaxed) {
                break;
            }
            sent.fetch_add(1, Relaxed);
            while client.has_data().is_ok_and(|has| has) && client.reply().is_ok() {}
        }
    }
}

/// Does something while others write, of whose requests it can look up the number.
pub fn beside_writers(server: &Server, rng: &mut Rng, work: impl FnOnce(&AtomicU64)) -> u64 {
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let preamble = ask(&mut server.client(), &["CONFIG", "GET", "aof-use-rdb-preamble"]);
    let allowed = Allowed {
        flushes: rng.chance(50),
        deletions: preamble.elements().and_then(|pair| pair[1].text()) == Some(b"yes"),
    };
    let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.bits()).collect();
    thread::scope(|scope| {
        for &seed in &seeds {
            let (stop, sent) = (&stop, &sent);
            scope.spawn(move || write(server, seed, allowed, stop, sent));
        }
        let _stopping = SetAtEnd(&stop);
        work(&sent);
    });
    sent.load(Relaxed)
}
