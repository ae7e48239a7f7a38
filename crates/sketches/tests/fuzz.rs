//! The fuzz target of filters and sketches on seeded mutations of payloads and dumps.

#[path = "../../../fuzz/entries/sketches.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use rdb::module::{Value, Writer};
use rdb::{Compression, Encoder};
use sketches::bloom::{self, Bloom};
use sketches::cms::Cms;
use sketches::cuckoo::{self, Cuckoo};
use sketches::tdigest::TDigest;
use sketches::topk::TopK;

const LIMIT: usize = 1 << 16;

/// Returns a payload behind the byte that says whose.
fn payload(what: u8, value: &impl Value) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Lzf);
    value.save(&mut Writer::new(&mut encoder));
    [&[value.row().version as u8 * 16 + what], encoder.as_bytes()].concat()
}

fn words() -> impl Iterator<Item = String> {
    (0..40).map(|number| number.to_string())
}

#[test]
fn damaged_payloads_and_dumps_are_refused_or_sound() {
    let options = bloom::BloomOptions { capacity: 4, ..bloom::BloomOptions::default() };
    let mut bloom = Bloom::new(options, LIMIT).expect("it is small");
    let options =
        cuckoo::CuckooOptions { capacity: 4, expansion: 2, ..cuckoo::CuckooOptions::default() };
    let mut cuckoo = Cuckoo::new(options, LIMIT).expect("it is small");
    let mut cms = Cms::new(10, 3, LIMIT).expect("it is small");
    let mut topk = TopK::new(3, 8, 2, 0.9, LIMIT).expect("it is small");
    let mut digest = TDigest::new(5, LIMIT).expect("it is small");
    for word in words() {
        bloom.add(word.as_bytes(), LIMIT).expect("it grows");
        cuckoo.add(word.as_bytes(), LIMIT).expect("it grows");
        cms.increment(word.as_bytes(), 7).expect("the count is small");
        topk.add(word.as_bytes(), 9);
        digest.add(word.len() as f64).expect("the number is finite");
    }
    let dump = |what: u8, chunk: Option<(u64, std::borrow::Cow<'_, [u8]>)>| {
        [&[what], &*chunk.expect("it has items").1].concat()
    };
    let inputs = [
        payload(0, &bloom),
        payload(2, &cuckoo),
        payload(3, &cms),
        payload(4, &topk),
        payload(5, &digest),
        dump(6, bloom.chunk(0)),
        dump(7, cuckoo.chunk(0)),
        [&[8][..], &valkey_filter()].concat(),
        // A cuckoo filter that may move items 65279 times.
        [
            &[7, 1, 0, 0, 0, 0, 0, 0, 0, 2][..],
            &[0; 13],
            &[254, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            b"+\xff\x02\0\x02@",
        ]
        .concat(),
    ];
    let words: [&[u8]; 8] = [
        b"\x80\xff\xff\xff\xff",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\0\0\0\0\0",
        b"\0\0\0\0\0\0\xf8\x7f",
        b"\0\0\0\0\0\0\xf0\x3f",
        b"\x02\x00",
        b"\x01\0\0\0",
    ];
    mutate::run(&inputs, &words, entry::check);
}

/// Returns a filter of Valkey's with one layer for an item.
fn valkey_filter() -> Vec<u8> {
    let mut filter = vec![1];
    filter.extend_from_slice(&2_u32.to_le_bytes());
    filter.extend_from_slice(&0.01_f64.to_le_bytes());
    filter.extend_from_slice(&0.5_f64.to_le_bytes());
    filter.push(0);
    filter.extend_from_slice(&1_u64.to_le_bytes());
    let mut block = vec![1];
    block.extend_from_slice(&8_u64.to_le_bytes());
    block.extend_from_slice(&7_u32.to_le_bytes());
    block.extend_from_slice(&[7; 32]);
    block.extend_from_slice(&[0; 8]);
    filter.extend_from_slice(&(block.len() as u64).to_le_bytes());
    filter.extend_from_slice(&block);
    filter.extend_from_slice(&0_i64.to_le_bytes());
    filter.extend_from_slice(&4_i64.to_le_bytes());
    filter
}
