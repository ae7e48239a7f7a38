use super::*;
use rdb::module::{Reader, Writer};
use rdb::{Compression, Decoder, Encoder};

const LIMIT: usize = 1 << 30;

fn bloom(rate: f64, capacity: u64, expansion: u32) -> Bloom {
    Bloom::new(BloomOptions { capacity, rate, expansion }, LIMIT).unwrap()
}

fn add_numbers(bloom: &mut Bloom, numbers: std::ops::Range<u64>) -> u64 {
    let items: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let items: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
    let mut added = 0;
    bloom.add_all(&items, LIMIT, |new| added += u64::from(new.unwrap()));
    added
}

/// The figures of BF.DEBUG in the public tests of RedisBloom: sizes, layers, and how many of the
/// numbers look like others.
#[test]
fn layers_are_those_of_redis_bit_by_bit() {
    let describe = |bloom: &Bloom| -> Vec<(usize, u64, u32, u64, u64, f64)> {
        let of = |l: &Layer| (l.bytes(), l.bits(), l.hashes(), l.capacity(), l.len(), l.rate());
        bloom.layers().iter().map(of).collect()
    };
    let mut small = bloom(0.01, 10, 2);
    add_numbers(&mut small, 0..100);
    assert_eq!(small.len(), 99);
    assert_eq!(
        describe(&small),
        [
            (16, 128, 8, 10, 10, 0.005),
            (32, 256, 9, 20, 20, 0.0025),
            (72, 576, 10, 40, 40, 0.00125),
            (160, 1280, 11, 80, 29, 0.000625),
        ]
    );
    let mut large = bloom(0.001, 100, 2);
    add_numbers(&mut large, 0..4000);
    assert_eq!(large.len(), 3997);
    assert_eq!(
        describe(&large),
        [
            (200, 1600, 11, 100, 100, 0.0005),
            (432, 3456, 12, 200, 200, 0.00025),
            (936, 7488, 13, 400, 400, 0.000125),
            (2016, 16128, 14, 800, 800, 6.25e-05),
            (4320, 34560, 15, 1600, 1600, 3.125e-05),
            (9216, 73728, 16, 3200, 897, 1.5625e-05),
        ]
    );
    assert_eq!(bloom(0.001, 100, 2).reported_bytes(), 296);
    assert_eq!(bloom(0.01, 100, 2).reported_bytes(), 240);
    let layers = |expansion| {
        let mut bloom = bloom(0.01, 4, expansion);
        add_numbers(&mut bloom, 0..100);
        bloom.layers().len()
    };
    assert_eq!((layers(1), layers(2), layers(4)), (23, 5, 4));
}

#[test]
fn one_that_is_fixed_becomes_full() {
    let mut fixed = bloom(0.01, 3, 0);
    assert_eq!(fixed.reported_bytes(), 104);
    assert_eq!(add_numbers(&mut fixed, 0..3), 3);
    assert_eq!(fixed.add(b"0", LIMIT), Ok(false));
    assert_eq!(fixed.add(b"new", LIMIT), Err(Error::Full));
    let mut told = Vec::new();
    fixed.add_all(&[b"1", b"x", b"2"], LIMIT, |new| told.push(new));
    assert_eq!(told, [Ok(false), Err(Error::Full)]);
    assert_eq!((fixed.len(), fixed.expansion()), (3, None));
}

#[test]
fn nothing_is_allocated_beyond_the_limit() {
    let options = |capacity, rate| BloomOptions { capacity, rate, expansion: 2 };
    assert_eq!(Bloom::new(options(1 << 30, 0.000_001), 1 << 20), Err(Error::TooLarge));
    assert_eq!(Bloom::new(options(u64::MAX, 0.5), usize::MAX), Err(Error::Degenerate));
    assert_eq!(Bloom::new(options(1, 5e-324), LIMIT), Err(Error::Degenerate));
    assert!(Bloom::new(options(1, 1e-300), LIMIT).is_ok());
    let mut bloom = bloom(0.01, 100, 32_768);
    add_numbers(&mut bloom, 0..100);
    assert_eq!(bloom.add(b"new", 1000), Err(Error::TooLarge));
    assert_eq!((bloom.len(), bloom.layers().len()), (100, 1));
    // The rates of ever more layers end at the smallest number.
    let mut many = self::bloom(1e-300, 1, 1);
    let ends = (0..200).map(|n: u32| many.add(&n.to_le_bytes(), LIMIT)).find(|new| new.is_err());
    assert_eq!(ends, Some(Err(Error::Degenerate)));
    for rate in [0.99, 0.95, 0.999_999_999_999_999_9] {
        let mut vague = self::bloom(rate, 3, 0);
        assert_eq!(vague.add(b"1", LIMIT), Ok(true));
        assert!(vague.contains(b"1"));
    }
}

fn measured_rate(bloom: &Bloom, added: u64, tries: u64) -> f64 {
    let mut wrong = 0;
    let items: Vec<String> = (added..added + tries).map(|number| number.to_string()).collect();
    let items: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
    bloom.contains_all(&items, |found| wrong += u64::from(found));
    wrong as f64 / tries as f64
}

fn check_rates(items: u64) {
    for (rate, capacity) in [(0.01, items), (0.01, 100), (0.0001, items / 3)] {
        let mut bloom = bloom(rate, capacity, 2);
        for start in (0..items).step_by(100_000) {
            add_numbers(&mut bloom, start..(start + 100_000).min(items));
        }
        let mut found = 0;
        for number in 0..items {
            found += u64::from(bloom.contains(number.to_string().as_bytes()));
        }
        assert_eq!(found, items, "nothing that was added is missing");
        let measured = measured_rate(&bloom, items, 1_000_000);
        assert!(measured <= rate, "{measured} for {rate} at {capacity}");
    }
}

/// The long run: `DUNLIN_BLOOM_ITEMS=10000000 cargo test -p sketches --release rates_are_kept`.
#[test]
fn rates_are_kept_at_a_million_items() {
    let asked = std::env::var("DUNLIN_BLOOM_ITEMS").ok();
    check_rates(asked.and_then(|items| items.parse().ok()).unwrap_or(1_000_000));
}

#[test]
fn batches_do_the_same_as_single_items() {
    let (mut batched, mut single) = (bloom(0.01, 50_000, 2), bloom(0.01, 50_000, 2));
    add_numbers(&mut batched, 0..200_000);
    (0..200_000_u64).for_each(|n| assert!(single.add(n.to_string().as_bytes(), LIMIT).is_ok()));
    assert!(batched == single);
    let items: Vec<String> = (190_000..210_000).map(|number| number.to_string()).collect();
    let items: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
    let mut told = Vec::new();
    batched.contains_all(&items, |found| told.push(found));
    assert!(told.iter().zip(&items).all(|(&found, item)| single.contains(item) == found));
    assert_eq!(told.len(), items.len());
}

fn chunks(bloom: &Bloom) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut cursor = 0;
    loop {
        let (next, chunk) = bloom.chunk(cursor).unwrap();
        if next == 0 {
            assert!(chunk.is_empty());
            return all;
        }
        all.push((next, chunk.into_owned()));
        cursor = next;
    }
}

#[test]
fn dumps_come_back_with_the_cursors_of_redis() {
    let mut small = bloom(0.01, 10, 2);
    add_numbers(&mut small, 0..40);
    let cursors: Vec<(u64, usize)> = chunks(&small).iter().map(|(c, it)| (*c, it.len())).collect();
    assert_eq!(cursors, [(1, 179), (17, 16), (49, 32), (121, 72)]);
    for mut bloom in [small, bloom(0.001, 20_000_000, 0)] {
        add_numbers(&mut bloom, 100..140);
        let all = chunks(&bloom);
        let mut copy = Bloom::from_header(&all[0].1, LIMIT).unwrap();
        for (cursor, piece) in &all[1..] {
            copy.load_chunk(*cursor as i64, piece).unwrap();
        }
        assert!(copy == bloom);
    }
}

#[test]
fn damaged_chunks_are_refused() {
    let mut bloom = bloom(0.01, 5, 2);
    add_numbers(&mut bloom, 0..50);
    let (_, header) = bloom.chunk(0).unwrap();
    assert_eq!(Bloom::from_header(&header, 100), Err(ChunkError::TooLarge));
    for (from, to, byte) in [(72, 80, 0), (12, 16, 255), (0, 4, 255), (36, 44, 255)] {
        let mut damaged = header.to_vec();
        damaged[from..to].fill(byte);
        assert_eq!(Bloom::from_header(&damaged, LIMIT), Err(ChunkError::Bad), "{from}");
    }
    for len in 0..header.len() {
        assert!(Bloom::from_header(&header[..len], LIMIT).is_err());
    }
    assert!(Bloom::from_header(&[&header, &b"\0"[..]].concat(), LIMIT).is_err());
    let mut seeded = header.to_vec();
    seeded[15] |= 0x80;
    seeded.extend(0xc6a4_a793_5bd1_e995_u64.to_le_bytes());
    assert!(Bloom::from_header(&seeded, LIMIT).is_ok());
    *seeded.last_mut().unwrap() ^= 1;
    assert_eq!(Bloom::from_header(&seeded, LIMIT), Err(ChunkError::Bad));
    let before = bloom.clone();
    for (cursor, piece) in [(i64::MIN, &b"1"[..]), (0, b"1"), (4, b"12345"), (1, b"")] {
        assert_eq!(bloom.load_chunk(cursor, piece), Err(ChunkError::Bad));
    }
    assert_eq!(bloom.load_chunk(4, b"abcd"), Err(ChunkError::NoLayer));
    assert_eq!(bloom.load_chunk(i64::MAX, b"1"), Err(ChunkError::NoLayer));
    assert_eq!(bloom.load_chunk(201, &[0; 200]), Err(ChunkError::TooLong));
    assert!(bloom == before);
}

fn saved(bloom: &Bloom) -> (Vec<u8>, u16) {
    let mut encoder = Encoder::new(Compression::Lzf);
    let mut to = Writer::new(&mut encoder);
    let version = match bloom.family() {
        Family::Murmur => {
            file::save(bloom, &mut to);
            file::VERSION
        }
        Family::Sip(_) => {
            valkey::save(bloom, &mut to);
            valkey::VERSION
        }
    };
    (encoder.into_bytes(), version)
}

type Load = fn(&mut Reader<'_, '_>, u16) -> Result<Bloom, rdb::Error>;

fn loaded(bytes: &[u8], version: u16, load: Load) -> Result<Bloom, rdb::Error> {
    load(&mut Reader::new(&mut Decoder::new(bytes)), version)
}

#[test]
fn files_come_back_and_damage_does_no_harm() {
    let mut filled = bloom(0.01, 10, 2);
    add_numbers(&mut filled, 0..100);
    for bloom in [filled, bloom(0.5, 1, 0), sip(&[10, 20])] {
        let is_sip = matches!(bloom.family(), Family::Sip(_));
        let load: Load = if is_sip { valkey::load } else { file::load };
        let (bytes, version) = saved(&bloom);
        assert!(loaded(&bytes, version, load).unwrap() == bloom);
        for cut in 0..bytes.len() {
            assert!(loaded(&bytes[..cut], version, load).is_err());
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                // It may still be a filter. Then it has to be usable.
                if let Ok(mut bloom) = loaded(&damaged, version, load) {
                    let _ = bloom.add(b"item", 1 << 20);
                    bloom.contains(b"item");
                }
            }
        }
    }
    let (mut bytes, _) = saved(&bloom(0.01, 10, 2));
    assert!(loaded(&bytes, 1, file::load).is_err());
    assert!(loaded(&bytes, 6, file::load).is_err());
    assert!(loaded(&bytes, 5, file::load).is_err(), "a seed is missing");
    let plain = bytes.len();
    bytes.extend(b"\x02\x81\xc6\xa4\xa7\x93\x5b\xd1\xe9\x95");
    assert!(loaded(&bytes, 5, file::load).is_ok());
    bytes.truncate(plain);
    bytes.extend(b"\x02\x07");
    assert!(loaded(&bytes, 5, file::load).is_err(), "another seed");
}

/// Returns an empty filter of Valkey's with layers of these capacities.
fn sip(capacities: &[u64]) -> Bloom {
    let mut seed = [0; 32];
    seed.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    let sip = Sip { seed, is_seed_random: true, rate: 0.01, tightening: 0.5 };
    let mut bloom = Bloom {
        layers: Vec::new(),
        items: 0,
        expansion: 2,
        is_fixed: false,
        family: Family::Sip(Box::new(sip)),
    };
    for (index, &capacity) in capacities.iter().enumerate() {
        bloom.grow(capacity, 0.01 * 0.5_f64.powi(index as i32), LIMIT).unwrap();
    }
    for layer in bloom.layers.split_last_mut().map(|(_, full)| full).unwrap() {
        layer.set_items(layer.capacity());
        bloom.items += layer.capacity();
    }
    bloom
}

/// The expected blocks are those of the crate `bloomfilter`, which valkey-bloom uses.
#[test]
fn filters_of_valkey_place_items_as_its_library() {
    let mut seed = [0; 32];
    seed.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    let mut theirs =
        bloomfilter::Bloom::<[u8]>::new_for_fp_rate_with_seed(1000, 0.01, &seed).unwrap();
    let mut ours = sip(&[1000]);
    for number in 0..500_u32 {
        let item = "x".repeat(number as usize % 40) + &number.to_string();
        theirs.set(item.as_bytes());
        assert!(ours.add(item.as_bytes(), LIMIT).is_ok());
    }
    let payload = valkey::encode(&ours).unwrap();
    let block = theirs.as_slice();
    let len = payload.len();
    assert_eq!(&payload[1 + 4 + 8 + 8 + 1 + 8 + 8..len - 16], block);
    assert!(valkey::decode(&payload, LIMIT).unwrap() == ours);
    assert_eq!(valkey::decode(&payload, 1000), Err(valkey::LoadError::TooLarge));
    for cut in 0..len {
        assert!(valkey::decode(&payload[..cut], LIMIT).is_err());
    }
    for at in 0..len {
        let mut damaged = payload.clone();
        damaged[at] ^= 0xff;
        if let Ok(mut bloom) = valkey::decode(&damaged, LIMIT) {
            let _ = bloom.add(b"item", LIMIT);
        }
    }
    assert!(ours.chunk(0).is_none());
}

proptest::proptest! {
    #[test]
    fn nothing_that_was_added_is_missing(
        items in proptest::collection::vec(proptest::collection::vec(0_u8.., 0..40), 0..300),
        capacity in 1_u64..100,
        expansion in 1_u32..4,
    ) {
        let mut bloom = bloom(0.1, capacity, expansion);
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        bloom.add_all(&items, LIMIT, |new| { new.unwrap(); });
        bloom.contains_all(&items, |found| assert!(found));
    }

    #[test]
    fn any_bytes_are_refused_or_usable(bytes in proptest::collection::vec(0_u8.., 0..200)) {
        for version in 2..6 {
            drop(loaded(&bytes, version, file::load));
        }
        drop(loaded(&bytes, 1, valkey::load));
        drop(valkey::decode(&bytes, LIMIT));
        drop(Bloom::from_header(&bytes, LIMIT));
    }
}
