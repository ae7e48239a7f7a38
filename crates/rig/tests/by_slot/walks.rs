//! An engine whose keys are assigned by slot, as they will be in a cluster, is the same to its
//! clients as a standalone one: what walks over the keyspace sees every key, however hash tags skew
//! the slots.

use keyspace::keyspace::Assignment;
use keyspace::{DbIndex, Slot};
use resp::token::ReplyLimits;
use resp::{Value, decode};
use rig::{Link, Rig};
use std::collections::BTreeSet;
use std::time::Duration;

/// Keys of one slot, and keys of any.
const TAGGED: usize = 3000;
const OTHERS: usize = 700;
const DB: DbIndex = DbIndex(0);

fn by_slot(options: &str) -> (Rig, Link) {
    let text = format!("cluster-enabled yes\ncluster-databases 16\nsave \"\"\n{options}");
    let loaded = config::load_text(text.as_bytes());
    let rig = Rig::new(loaded.expect("these options exist").config);
    assert_eq!(rig.engine().keyspace.assignment(), Assignment::BySlot);
    let link = rig.connect().expect("the first client");
    (rig, link)
}

/// The reply as text: the elements of arrays one after the other.
fn ask(link: &Link, request: &str) -> Vec<String> {
    link.send(format!("{request}\r\n").as_bytes());
    let output = link.await_output(Duration::from_secs(60));
    let mut texts = Vec::new();
    flatten(decode(&output, ReplyLimits::PEER).expect("a reply"), &mut texts);
    texts
}

fn flatten(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| flatten(value, texts)),
        Value::Integer(number) => texts.push(number.to_string()),
        Value::Error(text) => panic!("an error: {}", String::from_utf8_lossy(&text)),
        Value::Null => texts.push("nil".to_owned()),
        value => texts.push(value.text()),
    }
}

fn names() -> BTreeSet<String> {
    let tagged = (0..TAGGED).map(|number| format!("{{tag}}{number}"));
    tagged.chain((0..OTHERS).map(|number| format!("key:{number}"))).collect()
}

fn fill(link: &Link, suffix: &str) {
    for name in names() {
        assert_eq!(ask(link, &format!("SET {name} value {suffix}")), ["OK"]);
    }
}

fn scanned(link: &Link) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let mut reply = ask(link, &format!("SCAN {cursor} COUNT 50")).into_iter();
        cursor = reply.next().expect("a cursor");
        found.extend(reply);
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn walks_and_counts_see_every_key_of_skewed_slots() {
    let (rig, link) = by_slot("databases 3\nenable-debug-command yes\n");
    fill(&link, "");
    let keyspace = &rig.engine().keyspace;
    let slot = Slot::of(b"tag");
    let count = || keyspace.stripe(slot.stripe()).lock().slot_key_count(DB, slot);
    assert_eq!(count(), TAGGED);
    assert_eq!(ask(&link, "DBSIZE"), [(TAGGED + OTHERS).to_string()]);
    let found = scanned(&link);
    assert_eq!(found.len(), TAGGED + OTHERS, "SCAN returns each key once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names());
    assert_eq!(ask(&link, "KEYS *").into_iter().collect::<BTreeSet<_>>(), names());
    let drawn: Vec<_> = (0..400).map(|_| ask(&link, "RANDOMKEY").remove(0)).collect();
    let tagged = drawn.iter().filter(|name| name.starts_with('{')).count();
    // Each key is equally likely: 324 of 400, with a standard deviation of 8.
    assert!((270..375).contains(&tagged), "{tagged} of 400 are in the big slot");
    let digest = ask(&link, "DEBUG DIGEST");
    assert_eq!(ask(&link, "SWAPDB 0 2"), ["OK"]);
    assert_eq!((count(), ask(&link, "DBSIZE")), (0, vec!["0".to_owned()]));
    assert_eq!(ask(&link, "SWAPDB 2 0"), ["OK"]);
    assert_eq!((count(), ask(&link, "DEBUG DIGEST")), (TAGGED, digest));
    assert_eq!(ask(&link, "FLUSHDB"), ["OK"]);
    assert_eq!((count(), ask(&link, "DBSIZE")), (0, vec!["0".to_owned()]));
}

#[test]
fn keys_of_skewed_slots_expire() {
    let (rig, link) = by_slot("");
    fill(&link, "PX 50");
    for field in ["{tag}h", "key:h"] {
        ask(&link, &format!("HSET {field} a 1 b 2"));
        ask(&link, &format!("HPEXPIRE {field} 50 FIELDS 1 a"));
    }
    rig.advance(Duration::from_secs(5));
    assert_eq!(ask(&link, "DBSIZE"), ["2"], "no client has asked for the others");
    assert_eq!(ask(&link, "HLEN {tag}h"), ["1"]);
}

#[test]
fn keys_of_skewed_slots_are_evicted() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        let (rig, link) = by_slot(&format!("maxmemory-policy {policy}\n"));
        fill(&link, "EX 1000");
        // The slot that is not skewed is left out: all that can go is in one stripe.
        for name in names().iter().filter(|name| !name.starts_with('{')) {
            assert_eq!(ask(&link, &format!("DEL {name}")), ["1"]);
        }
        // All of it has to go, one sample after the other. Other tests share the process's memory,
        // so no limit in between can be set.
        assert_eq!(ask(&link, "CONFIG SET maxmemory 1"), ["OK"]);
        rig.advance(Duration::from_secs(20));
        assert_eq!(ask(&link, "DBSIZE"), ["0"], "{policy}");
    }
}
