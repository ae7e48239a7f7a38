//! The fuzz target of vector sets on seeded mutations of payloads and expressions.

#[path = "../../../fuzz/entries/vectors.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use rdb::module::{Value, Writer};
use rdb::{Compression, Encoder};
use vectors::{Quant, VectorSet};

/// Returns a payload of a small set behind the byte that says so.
fn payload(quant: Quant, input: Option<usize>) -> Vec<u8> {
    let mut set = VectorSet::new(3, quant, 4, input);
    for at in 0..12_u8 {
        let numbers = (0..input.unwrap_or(3)).map(|dim| f32::from(at) - dim as f32).collect();
        let (vector, norm) = set.form(numbers);
        set.add(&[b'a' + at], vector, norm, 10);
    }
    set.set_attributes(b"a", b"{}");
    let mut encoder = Encoder::new(Compression::Lzf);
    set.save(&mut Writer::new(&mut encoder));
    [&[0], encoder.as_bytes()].concat()
}

/// Returns payloads of a running Redis.
fn of_redis() -> Vec<Vec<u8>> {
    let lines = include_str!("../src/redis_payload/payloads.txt").lines();
    let hex = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next());
    let byte = |hex: &str, at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits");
    hex.map(|hex| {
        let bytes = (0..hex.len()).step_by(2).map(|at| byte(hex, at));
        std::iter::once(2).chain(bytes).collect()
    })
    .collect()
}

#[test]
fn damaged_payloads_and_expressions_are_refused_or_sound() {
    let mut inputs = of_redis();
    inputs.extend([
        payload(Quant::Q8, None),
        payload(Quant::F32, Some(5)),
        payload(Quant::Bin, None),
        b"\x01.a in [1, 'x'] and not (.b == \"x\" or .c ** 2 > -1e3) || true".to_vec(),
    ]);
    let words: [&[u8]; 8] = [
        b"\x80\xff\xff\xff\xff",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\0\0\0\xf8\x7f",
        b"\x02\x00",
        b"\x01\0\0\0",
        b"((",
        b" in ",
        b"**",
    ];
    mutate::run(&inputs, &words, entry::check);
}
