//! The fuzz target of hashes whose fields expire on seeded mutations.

#[path = "../../../fuzz/entries/timed.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use structs::listpack::Listpack;

const NEVER: i64 = -1;
const FIELDS: [(&str, &str, i64); 4] =
    [("a", "1", 1_900_000_000_000), ("b", "two", NEVER), ("c", "", 5), ("dd", "300", i64::MAX)];

fn string(out: &mut Vec<u8>, text: &[u8]) {
    assert!(text.len() < 64, "a length of one byte");
    out.push(text.len() as u8);
    out.extend_from_slice(text);
}

/// An input for each type; the first byte says which.
fn inputs() -> Vec<Vec<u8>> {
    let mut valkey = vec![0, FIELDS.len() as u8];
    for (field, value, expiry) in FIELDS {
        string(&mut valkey, field.as_bytes());
        string(&mut valkey, value.as_bytes());
        valkey.extend_from_slice(&expiry.to_le_bytes());
    }
    let first = 5i64;
    let mut redis = vec![1];
    redis.extend_from_slice(&first.to_le_bytes());
    redis.push(FIELDS.len() as u8);
    for (field, value, expiry) in FIELDS {
        // Milliseconds after the first expiry, plus one.
        let after = if expiry == NEVER { 0 } else { (expiry - first + 1) as u64 };
        redis.push(0x81);
        redis.extend_from_slice(&after.to_be_bytes());
        string(&mut redis, field.as_bytes());
        string(&mut redis, value.as_bytes());
    }
    let mut pack = Listpack::new();
    // In the order of their times, those that never expire last.
    for (field, value, expiry) in [("c", "", "5"), ("a", "1", "1900000000000"), ("b", "two", "0")] {
        [field, value, expiry].iter().for_each(|word| pack.push_back(word.as_bytes()));
    }
    let mut listpack = vec![2];
    listpack.extend_from_slice(&first.to_le_bytes());
    string(&mut listpack, pack.as_bytes());
    vec![valkey, redis, listpack]
}

#[test]
fn inputs_are_of_their_types() {
    // Each of them is restored, so that mutations begin with something sound.
    for (input, kind) in inputs().iter().zip([22u8, 24, 25]) {
        let version: u16 = if kind == 22 { rdb::VALKEY_VERSION } else { rdb::VERSION };
        let mut payload = [&[kind], &input[1..], &version.to_le_bytes()].concat();
        let checksum = structs::crc64::crc64(0, &payload);
        payload.extend_from_slice(&checksum.to_le_bytes());
        let restored = rdb::restore(&payload, &rdb::Limits::default());
        assert!(restored.is_ok(), "{kind}: {:?}", restored.err());
    }
}

#[test]
fn damaged_hashes_are_refused_or_sound() {
    let words: [&[u8]; 8] = [
        &(-1i64).to_le_bytes(),
        &i64::MIN.to_le_bytes(),
        &i64::MAX.to_le_bytes(),
        &[0; 8],
        b"\x80\xff\xff\xff\xff",
        b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x01a\x011",
        b"\xf4\xff\xff\xff\xff\xff\xff\xff\xff\x09",
    ];
    mutate::run(&inputs(), &words, entry::check);
}
