//! Payloads of real servers: what they wrote is read here, and written again the same.
//!
//! `valkey-9.1.txt` and `redis-8.txt` are DUMPs of these servers, with `list-max-listpack-size 8`
//! and the other options at their defaults. `historical.txt` has the encodings no current server
//! writes, made by hand; Valkey 9.1 has restored every one, and type, encoding and elements are its
//! answers.

mod fixture;

use fixture::{elements, fixtures, names, written};
use rdb::{Compression, Limits, VERSION, dump, restore};
use structs::list::ListLimits;

fn check(text: &str, limits: &Limits, other_encoding: &[&str]) {
    for fixture in fixtures(text) {
        let name = &fixture.name;
        let object = restore(&fixture.payload, limits).unwrap_or_else(|error| {
            panic!("{name}: {error}");
        });
        let (kind, encoding) = names(&object);
        assert_eq!(kind, fixture.kind, "{name}");
        if !other_encoding.contains(&name.as_str()) {
            assert!(encoding.is_none_or(|encoding| encoding == fixture.encoding), "{name}");
        }
        let found: Vec<_> = elements(&object).iter().map(|element| written(element)).collect();
        assert_eq!(found, fixture.elements, "{name}");
    }
}

/// List limits as the servers had them when they wrote.
fn eight_a_node() -> Limits {
    Limits { list: ListLimits::new(8), ..Limits::default() }
}

#[test]
fn reads_what_valkey_writes() {
    check(include_str!("fixtures/valkey-9.1.txt"), &eight_a_node(), &[]);
}

#[test]
fn reads_what_redis_writes() {
    check(include_str!("fixtures/redis-8.txt"), &eight_a_node(), &[]);
}

#[test]
fn reads_every_old_encoding() {
    // Valkey leaves a list of one ziplist a quicklist until it is next changed.
    let quicklists = ["list_ziplist"];
    check(include_str!("fixtures/historical.txt"), &Limits::default(), &quicklists);
}

/// The value's bytes are the same where the order of elements is given. Compressed ones are
/// compared by what they expand to: another compressor finds other matches.
#[test]
fn writes_what_it_has_read() {
    let mut same = 0;
    for fixture in fixtures(include_str!("fixtures/valkey-9.1.txt")) {
        let object = restore(&fixture.payload, &eight_a_node()).expect("read above");
        let again = dump(object.as_ref(), Compression::Lzf);
        let body = again.len() - 10;
        assert_eq!(again[body..body + 2], VERSION.to_le_bytes());
        assert_eq!(again[0], fixture.payload[0], "{}", fixture.name);
        let copy = restore(&again, &eight_a_node()).expect("just written");
        assert_eq!(elements(&copy), elements(&object), "{}", fixture.name);
        let unordered = fixture.encoding == "hashtable";
        if !unordered && !fixture.payload.windows(1).any(|byte| byte == [0xc3]) {
            assert_eq!(again[..body], fixture.payload[..fixture.payload.len() - 10]);
            same += 1;
        }
    }
    assert!(same >= 15, "{same}");
}
