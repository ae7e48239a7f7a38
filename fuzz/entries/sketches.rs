//! Filters and sketches: payloads of RDB files, the headers and pieces of dumps, and Valkey's filters
//! are read or refused. What is read can be used, and is written as the same value. Nothing panics,
//! and nothing takes memory far beyond the input.

#[path = "memory.rs"]
mod memory;

use rdb::module::{Reader, Type, Value, Writer};
use rdb::{Compression, Decoder, Encoder, Error};
use sketches::bloom::{Bloom, valkey};
use sketches::cms::Cms;
use sketches::cuckoo::Cuckoo;
use sketches::tdigest::TDigest;
use sketches::topk::TopK;
use sketches::types;

/// The most bytes that a value may have.
const LIMIT: usize = 1 << 16;

static ROWS: [&Type; 6] = [
    &types::BLOOM,
    &types::VALKEY_BLOOM,
    &types::CUCKOO,
    &types::CMS,
    &types::TOPK,
    &types::TDIGEST,
];

/// The first byte says what the others are.
pub fn check(input: &[u8]) {
    let Some((&what, body)) = input.split_first() else { return };
    memory::bounded(body.len(), || match usize::from(what & 15) {
        place if place < ROWS.len() => payload(ROWS[place], body, u16::from(what >> 4)),
        6 => bloom_dump(body),
        7 => cuckoo_dump(body),
        8 => {
            if let Ok(mut bloom) = valkey::decode(body, LIMIT) {
                use_bloom(&mut bloom);
            }
        }
        _ => (),
    });
}

fn payload(row: &Type, body: &[u8], version: u16) {
    if let Ok(value) = load(row, body, version) {
        let written = save(&*value);
        let again = load(row, &written, row.version).expect("what is written is read");
        assert_eq!(written, save(&*again), "{row:?}");
        use_value(again);
    }
}

fn load(row: &Type, body: &[u8], version: u16) -> Result<Box<dyn Value>, Error> {
    (row.load)(&mut Reader::new(&mut Decoder::new(body)), version)
}

fn save(value: &dyn Value) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Off);
    value.save(&mut Writer::new(&mut encoder));
    encoder.into_bytes()
}

fn use_value(value: Box<dyn Value>) {
    let _ = (value.allocated_bytes(), value.free_effort(), value.elements());
    let mut value = value as Box<dyn std::any::Any>;
    if let Some(bloom) = value.downcast_mut::<Bloom>() {
        use_bloom(bloom);
    } else if let Some(cuckoo) = value.downcast_mut::<Cuckoo>() {
        use_cuckoo(cuckoo);
    } else if let Some(cms) = value.downcast_mut::<Cms>() {
        let before = cms.query(b"item");
        if let Ok(count) = cms.increment(b"item", 3) {
            assert!(count >= before.saturating_add(3) || before > u32::MAX - 3);
        }
        let _ = Cms::merge(&[(&*cms, 2), (&*cms, -1)]);
    } else if let Some(topk) = value.downcast_mut::<TopK>() {
        for item in [&b"a"[..], b"b", b"c", b""] {
            let _ = (topk.add(item, 1000), topk.count(item), topk.contains(item));
        }
        assert!(topk.items().len() <= topk.k());
    } else if let Some(digest) = value.downcast_mut::<TDigest>() {
        // One whose weight is near the limit takes no more numbers.
        let added = (0..20).try_for_each(|number| digest.add(f64::from(number)));
        let merged = digest.merged();
        let _ = (merged.quantile(0.5), merged.cdf(1.0), merged.rank(1.0), merged.by_rank(1));
        let _ =
            (merged.reverse_rank(1.0), merged.by_reverse_rank(1), merged.trimmed_mean(0.1, 0.9));
        assert!(added.is_err() || merged.weight() >= 20);
    }
}

fn use_bloom(bloom: &mut Bloom) {
    for item in [&b"a"[..], b"b", b"c", b""] {
        if bloom.add(item, LIMIT).is_ok() {
            assert!(bloom.contains(item));
        }
    }
}

fn use_cuckoo(cuckoo: &mut Cuckoo) {
    for item in [&b"a"[..], b"b", b"c", b""] {
        if cuckoo.add(item, LIMIT).is_ok() {
            assert!(cuckoo.contains(item) && cuckoo.count(item) > 0);
            assert!(cuckoo.remove(item));
        }
    }
}

/// A header, and behind 200 bytes a piece.
fn bloom_dump(body: &[u8]) {
    let (header, piece) = body.split_at(body.len().min(200));
    for header in [header, body] {
        let Ok(mut bloom) = Bloom::from_header(header, LIMIT) else { continue };
        for cursor in [-1, 1, piece.len() as i64 + 1, i64::MAX] {
            let _ = bloom.load_chunk(cursor, piece);
        }
        let mut cursor = 0;
        while let Some((next @ 1.., chunk)) = bloom.chunk(cursor) {
            assert!(next > cursor && !chunk.is_empty());
            cursor = next;
        }
        use_bloom(&mut bloom);
    }
}

/// The same of a cuckoo filter.
fn cuckoo_dump(body: &[u8]) {
    let (header, piece) = body.split_at(body.len().min(38));
    for header in [header, body] {
        let Ok(mut cuckoo) = Cuckoo::from_header(header, LIMIT) else { continue };
        for cursor in [-1, 1, piece.len() as i64 + 1, i64::MAX] {
            let _ = cuckoo.load_chunk(cursor, piece);
        }
        let mut cursor = 0;
        while let Some((next, chunk)) = cuckoo.chunk(cursor) {
            assert!(next > cursor && !chunk.is_empty());
            cursor = next;
        }
        use_cuckoo(&mut cuckoo);
    }
}
