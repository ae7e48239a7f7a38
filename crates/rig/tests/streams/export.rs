//! A copy of some slots and what changes meanwhile, taken from one engine and given to another:
//! afterwards both have the same, whatever the commands were and wherever the copy stood.

use cluster::slots::Slots;
use keyspace::keyspace::Assignment;
use resp::token::ReplyLimits;
use resp::{Value, decode};
use rig::{Link, Rig};
use std::time::Duration;
use structs::crc16::key_slot;

const SEEDS: u64 = 40;
const TAGS: [&str; 3] = ["a", "b", "stays"];
const NAMES: u64 = 40;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A key of a tag.
    fn key(&mut self, tag: &str) -> String {
        format!("{{{tag}}}{}", self.below(NAMES))
    }

    /// A request whose keys have one tag, as a cluster's clients send them.
    fn request(&mut self) -> String {
        let tag = TAGS[self.below(3) as usize];
        let (one, two, number) = (self.key(tag), self.key(tag), self.below(1000));
        match self.below(24) {
            0 => format!("SET {one} {number}"),
            1 => format!("INCR {one}"),
            2 => format!("RPUSH {one} {number} {number}x"),
            3 => format!("LMOVE {one} {two} LEFT RIGHT"),
            4 => format!("SADD {one} {number} m{number}"),
            5 => format!("SUNIONSTORE {one} {two} {one}"),
            6 => format!("RENAME {one} {two}"),
            7 => format!("COPY {one} {two} REPLACE"),
            8 => format!("DEL {one} {two}"),
            9 => format!("HSET {one} f{number} {number} g {number}"),
            10 => format!("ZADD {one} {number} {number} 7 seven"),
            11 => format!("ZRANGESTORE {one} {two} 0 5"),
            12 => format!("XADD {one} * f {number}"),
            13 => format!("XGROUP CREATE {one} group 0 MKSTREAM"),
            14 => format!("XREADGROUP GROUP group c COUNT 2 STREAMS {one} >"),
            15 => format!("PEXPIRE {one} {}", 100_000 + number),
            16 => format!("PERSIST {one}"),
            17 => format!("SETRANGE {one} {} x", 15_000 + number * 4),
            18 => format!("SPOP {one} 2"),
            19 => format!("SORT {one} ALPHA STORE {two}"),
            20 => format!("APPEND {one} {number}"),
            21 => format!("HPEXPIRE {one} 100000 FIELDS 1 g"),
            22 => format!("MULTI\r\nAPPEND {one} x\r\nCOPY {one} {two} REPLACE\r\nEXEC"),
            _ => format!("MSET {one} {number} {two} {number}"),
        }
    }
}

fn engine() -> (Rig, Link) {
    let text =
        "cluster-enabled yes\nsave \"\"\nenable-debug-command yes\nhash-max-listpack-entries 8\n";
    let rig = Rig::new(config::load_text(text.as_bytes()).expect("these options exist").config);
    assert_eq!(rig.engine().keyspace.assignment(), Assignment::BySlot);
    let link = rig.connect().expect("the first client");
    (rig, link)
}

/// What is answered; errors are as good as anything else.
fn ask(link: &Link, request: &str) -> Vec<u8> {
    link.send(format!("{request}\r\n").as_bytes());
    link.await_output(Duration::from_secs(60))
}

/// The values of all keys of the tags that move.
fn values(link: &Link) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let keys = TAGS[..2].iter().flat_map(|tag| (0..NAMES).map(move |n| format!("{{{tag}}}{n}")));
    let value = |key: String| {
        let digest = ask(link, &format!("DEBUG DIGEST-VALUE {key}"));
        let expiry = ask(link, &format!("PEXPIRETIME {key}"));
        (key, digest, expiry)
    };
    keys.map(value).collect()
}

fn give(target: &Link, commands: &mut Vec<u8>) {
    target.send(commands);
    commands.clear();
    let replies = target.await_output(Duration::from_secs(60));
    let errors = replies.split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b'-'));
    let errors: Vec<_> = errors.map(String::from_utf8_lossy).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn a_copy_has_what_its_source_has() {
    let ((source, client), (_rig, target)) = (engine(), engine());
    for seed in 0..SEEDS {
        for link in [&client, &target] {
            assert_eq!(ask(link, "FLUSHALL"), b"+OK\r\n");
        }
        let mut random = Random(seed);
        for _ in 0..random.below(600) {
            ask(&client, &random.request());
        }
        let moving: Vec<u16> = TAGS[..2].iter().map(|tag| key_slot(tag.as_bytes())).collect();
        let slots = Slots::from_fn(|slot| moving.contains(&slot) || slot % 1000 == 0);
        let mut export = source.engine().export(&slots);
        let mut later = random.below(60);
        while !export.is_complete() || later > 0 {
            if random.below(3) > 0 {
                ask(&client, &random.request());
            }
            if random.below(2) > 0 {
                export.step().expect("nothing spoils it");
                later = later.saturating_sub(u64::from(export.is_complete()));
            }
            if random.below(4) == 0 && !export.output().is_empty() {
                give(&target, export.output());
            }
        }
        let end = export.pause(Duration::ZERO).expect("no request holds keys");
        export.follow_to(end).expect("nothing spoils it");
        while !export.is_complete() {
            export.step().expect("nothing spoils it");
        }
        ask(&target, "PING");
        if !export.output().is_empty() {
            give(&target, export.output());
        }
        assert_eq!(values(&client), values(&target), "seed {seed}");
        let size = ask(&target, "DBSIZE");
        let stays = decode(&size, ReplyLimits::PEER).expect("a reply");
        let kept = values(&client).iter().filter(|(_, _, expiry)| expiry != b":-2\r\n").count();
        assert_eq!(stays, Value::Integer(kept as i64), "no key of another slot has come");
    }
}

#[test]
fn what_deletes_all_keys_spoils_a_copy() {
    let (source, client) = engine();
    ask(&client, "SET {a}1 1");
    let slots = Slots::from_fn(|slot| slot == key_slot(b"a"));
    let mut export = source.engine().export(&slots);
    export.step().expect("nothing spoils it");
    ask(&client, "FLUSHALL");
    assert!(export.follow().is_err());
}
