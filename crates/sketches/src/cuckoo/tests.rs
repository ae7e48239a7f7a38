use super::*;
use rdb::module::{Reader, Writer};
use rdb::{Compression, Decoder, Encoder};

const LIMIT: usize = 1 << 28;

fn cuckoo(capacity: u64, bucket_size: u16, max_iterations: u16, expansion: u16) -> Cuckoo {
    Cuckoo::new(CuckooOptions { capacity, bucket_size, max_iterations, expansion }, LIMIT).unwrap()
}

fn add_numbers(filter: &mut Cuckoo, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| filter.add(number.to_string().as_bytes(), LIMIT).unwrap());
}

/// The figures of CF.DEBUG and CF.INFO in the public tests of RedisBloom.
#[test]
fn sizes_and_layers_are_those_of_redis() {
    let figures = |capacity, bucket_size, max_iterations, expansion| {
        let mut filter = cuckoo(capacity, bucket_size, max_iterations, expansion);
        add_numbers(&mut filter, 0..1000);
        let found = (0..1000).filter(|number| filter.contains(number.to_string().as_bytes()));
        assert_eq!(found.count(), 1000);
        (filter.buckets(), filter.layers(), filter.len())
    };
    assert_eq!(figures(64, 1, 20, 1), (64, 18, 1000));
    assert_eq!(figures(64, 2, 20, 1), (32, 17, 1000));
    assert_eq!(figures(256, 4, 500, 1), (64, 4, 1000));
    assert_eq!(figures(64, 2, 20, 2), (32, 5, 1000));
    assert_eq!(figures(64, 2, 500, 4), (32, 3, 1000));
    let buckets = |capacity| cuckoo(capacity, 2, 20, 1).buckets();
    assert_eq!([10, 1000, 10_000].map(buckets), [8, 512, 8192]);
    assert_eq!(cuckoo(1000, 2, 20, 1).reported_bytes(), 1080);
}

#[test]
fn a_filter_ends_to_grow() {
    let mut small = cuckoo(4, 2, 20, 1);
    add_numbers(&mut small, 0..124);
    assert_eq!(small.add(b"2048", LIMIT), Err(Error::Exhausted));
    assert_eq!((small.len(), small.layers()), (124, MAX_LAYERS));
    let mut fixed = cuckoo(4, 2, 20, 0);
    add_numbers(&mut fixed, 1..5);
    let before = fixed.clone();
    assert_eq!(fixed.add(b"5", LIMIT), Err(Error::Full));
    assert!(fixed == before, "a vain search for space leaves no trace");
    let new = |capacity| {
        Cuckoo::new(CuckooOptions { capacity, ..CuckooOptions::default() }, 1 << 20).err()
    };
    assert_eq!([u64::MAX, 1 << 40, 1 << 21].map(new), [Some(Error::TooLarge); 3]);
    let mut steep = cuckoo(4, 2, 1, MAX_EXPANSION);
    let ends = (0..1000_u32).find_map(|number| steep.add(&number.to_le_bytes(), 1 << 20).err());
    assert_eq!(ends, None);
    let ends = (0..u32::MAX).find_map(|number| steep.add(&number.to_le_bytes(), 1 << 20).err());
    assert_eq!(ends, Some(Error::TooLarge));
}

#[test]
fn items_are_counted_and_removed() {
    let mut filter = cuckoo(1000, 2, 20, 1);
    for _ in 0..3 {
        filter.add(b"k", LIMIT).unwrap();
    }
    assert_eq!((filter.count(b"k"), filter.add_new(b"k", LIMIT)), (3, Ok(false)));
    assert_eq!(filter.add_new(b"new", LIMIT), Ok(true));
    let removed: Vec<bool> = (0..4).map(|_| filter.remove(b"k")).collect();
    assert_eq!(removed, [true, true, true, false]);
    assert_eq!((filter.len(), filter.deleted(), filter.count(b"k")), (1, 3, 0));
}

#[test]
fn the_rate_of_wrong_yeses_is_as_promised() {
    let mut filter = cuckoo(1 << 20, 2, 20, 1);
    let items: Vec<String> = (0..800_000).map(|number: u32| number.to_string()).collect();
    items.iter().for_each(|item| filter.add(item.as_bytes(), LIMIT).unwrap());
    let words: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
    filter.contains_all(&words, |found| assert!(found, "nothing that was added is missing"));
    let others: Vec<String> = (0..1_000_000).map(|number: u32| format!("x{number}")).collect();
    let others: Vec<&[u8]> = others.iter().map(|item| item.as_bytes()).collect();
    let mut wrong = 0_u32;
    filter.contains_all(&others, |found| wrong += u32::from(found));
    let promised = 2.0 * 2.0 * filter.layers() as f64 / 255.0;
    assert!(f64::from(wrong) / 1e6 <= promised, "{wrong} of a million, {promised}");
}

fn saved(filter: &Cuckoo) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Lzf);
    file::save(filter, &mut Writer::new(&mut encoder));
    encoder.into_bytes()
}

fn load(bytes: &[u8], version: u16) -> Result<Cuckoo, rdb::Error> {
    file::load(&mut Reader::new(&mut Decoder::new(bytes)), version)
}

#[test]
fn a_refused_item_leaves_the_filter_as_it_was() {
    for (bucket_size, max_iterations) in [(1, 500), (2, 1), (2, 20), (3, 7), (255, 300)] {
        let options = CuckooOptions { capacity: 128, bucket_size, max_iterations, expansion: 0 };
        let mut filter = Cuckoo::new(options, LIMIT).unwrap();
        let mut refused = 0;
        for number in 0..2000_u32 {
            let before = filter.clone();
            if filter.add(&number.to_le_bytes(), LIMIT).is_err() {
                refused += 1;
                assert_eq!(filter, before, "buckets of {bucket_size}");
            }
        }
        assert!(refused > 1000, "{refused} with buckets of {bucket_size}");
    }
}

#[test]
fn files_come_back_and_damage_does_no_harm() {
    let mut grown = cuckoo(8, 2, 20, 2);
    add_numbers(&mut grown, 0..100);
    for filter in [cuckoo(4, 1, 20, 0), grown] {
        let bytes = saved(&filter);
        assert!(load(&bytes, 4).unwrap() == filter);
        for cut in 0..bytes.len() {
            assert!(load(&bytes[..cut], 4).is_err());
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                // It may still be a filter. Then it has to be usable.
                if let Ok(mut filter) = load(&damaged, 4) {
                    let _ = filter.add(b"item", 1 << 20);
                    let _ = (filter.remove(b"item"), filter.count(b"other"));
                }
            }
        }
        assert!(load(&bytes, 3).is_err());
        let seeded = |seed: u8| [&bytes[..], &[2, seed]].concat();
        assert!(load(&seeded(0), 5).is_ok() && load(&seeded(7), 5).is_err());
    }
}

#[test]
fn dumps_come_back_and_damaged_ones_are_refused() {
    assert!(cuckoo(4, 2, 20, 2).chunk(0).is_none(), "an empty filter has no dump");
    let mut filter = cuckoo(4, 2, 20, 2);
    add_numbers(&mut filter, 0..100);
    let mut chunks = Vec::new();
    let mut cursor = 0;
    while let Some((next, chunk)) = filter.chunk(cursor) {
        chunks.push((next, chunk.into_owned()));
        cursor = next;
    }
    assert_eq!((chunks[0].1.len(), chunks.len()), (HEADER_BYTES, filter.layers() + 1));
    let header = &chunks[0].1;
    let mut copy = Cuckoo::from_header(header, LIMIT).unwrap();
    for (cursor, piece) in &chunks[1..] {
        copy.load_chunk(*cursor as i64, piece).unwrap();
    }
    assert!(copy == filter);
    for len in 0..header.len() {
        assert!(Cuckoo::from_header(&header[..len], LIMIT).is_err());
    }
    assert_eq!(Cuckoo::from_header(header, 100), Err(ChunkError::Header));
    let seeded = |seed: u64| {
        let mut header = [&header[..], &seed.to_le_bytes()].concat();
        header[31] |= 0x80;
        Cuckoo::from_header(&header, LIMIT)
    };
    assert!(seeded(0).is_ok() && seeded(1).is_err());
    for at in 0..header.len() {
        let mut damaged = header.clone();
        damaged[at] ^= 0xff;
        if let Ok(mut filter) = Cuckoo::from_header(&damaged, 1 << 20) {
            let _ = filter.add(b"item", 1 << 20);
        }
    }
    for (cursor, piece) in [(i64::MIN, &b"1"[..]), (i64::MAX, b"1"), (4, b"abcd"), (2, b"abcde")] {
        assert_eq!(copy.load_chunk(cursor, piece), Err(ChunkError::Piece));
    }
    assert_eq!(copy.load_chunk(6, b"abcde"), Err(ChunkError::Piece), "longer than its layer");
    assert!(copy == filter);
}

const HEADER_BYTES: usize = 38;

proptest::proptest! {
    #[test]
    fn what_was_added_and_not_removed_is_there(
        items in proptest::collection::vec(0_u8..60, 1..300),
        capacity in 4_u64..50,
        bucket_size in 1_u16..5,
    ) {
        let mut filter = cuckoo(capacity.max(u64::from(bucket_size) * 2), bucket_size, 5, 1);
        let mut there = std::collections::HashMap::new();
        for item in items {
            let count = there.entry(item).or_insert(0_u64);
            if *count > 0 && item % 3 == 0 {
                assert!(filter.remove(&[item]));
                *count -= 1;
            } else if filter.add(&[item], LIMIT).is_ok() {
                *count += 1;
            }
        }
        for (item, count) in there {
            assert!(filter.count(&[item]) >= count);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_usable(bytes in proptest::collection::vec(0_u8.., 0..80)) {
        drop(load(&bytes, 4));
        drop(Cuckoo::from_header(&bytes, 1 << 20));
    }
}
