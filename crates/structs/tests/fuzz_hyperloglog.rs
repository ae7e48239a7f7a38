//! The fuzz target of HyperLogLogs on seeded mutations.

#[path = "../../../fuzz/entries/hyperloglog.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use structs::hyperloglog::{empty, place, raise};

/// Without what the target puts in front: four letters, the encoding, three bytes.
fn input(is_dense: bool, bytes: &[u8]) -> Vec<u8> {
    [&[u8::from(is_dense)], &bytes[8..]].concat()
}

#[test]
fn registers_are_read_as_they_are_written() {
    let mut inputs = Vec::new();
    for (elements, max_sparse) in [(0u32, 3000), (3, 3000), (500, 3000), (500, 0)] {
        let mut bytes = empty();
        for element in 0..elements {
            raise(&mut bytes, place(&element.to_be_bytes()), max_sparse).expect("it is sound");
        }
        bytes.truncate(4000);
        inputs.push(input(max_sparse == 0, &bytes));
    }
    let words: [&[u8]; 8] = [
        b"\x7f\xff",
        b"\x40\x00",
        b"\x3f",
        b"\x00",
        b"\xff",
        b"\x80",
        b"\xff\xff\xff",
        b"\x83\x83\x83\x83\x83",
    ];
    mutate::run(&inputs, &words, entry::check);
}
