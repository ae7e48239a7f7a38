//! The fuzz target of RESTORE's payloads on seeded mutations of real ones.

#[path = "../../../fuzz/entries/restore.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use entry::fixture::fixtures;

const FILES: [&str; 3] = [
    include_str!("fixtures/valkey-9.1.txt"),
    include_str!("fixtures/historical.txt"),
    include_str!("fixtures/streams.txt"),
];

#[test]
fn damaged_payloads_are_refused_or_sound() {
    let bodies = FILES.into_iter().flat_map(fixtures).map(|fixture| {
        let len = fixture.payload.len() - 10;
        fixture.payload[..len].to_vec()
    });
    // The long ones repeat themselves.
    let inputs: Vec<Vec<u8>> = bodies.filter(|body| body.len() < 4000).collect();
    let words: [&[u8]; 10] = [
        b"\x80\xff\xff\xff\xff",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x81\x00\x00\x00\x01\x00\x00\x00\x00",
        b"\xc0\x80",
        b"\xc1\xff\xff",
        b"\xc2\xff\xff\xff\x7f",
        b"\xc3\x05\x80\x00\xff\xff\xff",
        b"\xff",
        b"\x00\x00\x00\x00\x00\x00\xf8\x7f",
        b"\xff\xff\xff\xff",
    ];
    mutate::run(&inputs, &words, entry::check);
}
