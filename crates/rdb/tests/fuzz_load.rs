//! The fuzz target of RDB files on seeded mutations of real ones and of one with every old value.

#[path = "../../../fuzz/entries/load.rs"]
mod entry;
mod fixture;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use fixture::fixtures;

#[test]
fn damaged_files_are_refused_or_cut_soundly() {
    let mut old = b"REDIS0006\xfe\x00".to_vec();
    for fixture in fixtures(include_str!("fixtures/historical.txt")) {
        if fixture.payload.len() < 500 {
            old.push(fixture.payload[0]);
            old.extend_from_slice(b"\x03key");
            old.extend_from_slice(&fixture.payload[1..fixture.payload.len() - 10]);
        }
    }
    old.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let inputs = [
        old,
        include_bytes!("fixtures/foreign-valkey-9.1.rdb").to_vec(),
        include_bytes!("fixtures/foreign-redis-8.rdb").to_vec(),
        b"REDIS0011\xfe\x00\xfb\x02\x00\x00\x01k\x01v\x02\x01s\x02\x01a\x01b\xff\0\0\0\0\0\0\0\0"
            .to_vec(),
    ];
    let inputs = inputs.into_iter().chain([
        // A key that is not sound, whose value arrives later.
        b"REDIS0011\x00\xc3\x02\x05\xff\xff\x0a0123456789\xff\0\0\0\0\0\0\0\0".to_vec(),
    ]);
    let inputs: Vec<Vec<u8>> = inputs.collect();
    let words: [&[u8]; 14] = [
        b"REDIS0011",
        b"VALKEY080",
        b"\x80\xff\xff\xff\xff",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xc0\x80",
        b"\xc3\x05\x80\x00\xff\xff\xff",
        b"\xfe\x01",
        b"\xfb\x80\xff\xff\xff\xff\x00",
        b"\xfc\0\0\0\0\0\0\0\0",
        b"\xf7\x41\x00\x02\x02\x05\x01a\x00",
        b"\xf5\x03fun",
        b"\x0f\x01k\x00\x00\x00\x00\x00",
        b"\x04\x01h\x02\x01a\x01b\x01c\x01d",
        b"\xff",
    ];
    mutate::run(&inputs, &words, entry::check);
}
