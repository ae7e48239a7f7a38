//! Files cut into records: whole, in pieces of any size, truncated, damaged.
//!
//! `foreign-*.rdb` are files of these servers with streams, hashes whose fields expire and
//! functions between ordinary keys, saved under an LRU policy.

mod fixture;

use fixture::{elements, fixtures};
use proptest::prelude::*;
use rdb::file::{Access, Foreign, Item, RecordHead, ScanStep, Scanner, opcode};
use rdb::{Builder, Compression, Decoder, Encoder, Error, Kind, Limits};
use structs::crc64::crc64;

const FILES: [&str; 3] = [
    include_str!("fixtures/valkey-9.1.txt"),
    include_str!("fixtures/redis-8.txt"),
    include_str!("fixtures/historical.txt"),
];
const VALKEY: &[u8] = include_bytes!("fixtures/foreign-valkey-9.1.rdb");
const REDIS: &[u8] = include_bytes!("fixtures/foreign-redis-8.rdb");

/// Database, key, expiry, access and elements.
type FoundKey = (u32, Vec<u8>, Option<i64>, Access, Vec<Vec<u8>>);

/// What was found in a file.
#[derive(Debug, Default, PartialEq)]
struct Found {
    version: u16,
    keys: Vec<FoundKey>,
    foreign: Vec<Foreign>,
    functions: Vec<Vec<u8>>,
    aux: Vec<(Vec<u8>, Vec<u8>)>,
    /// As in the file, and as it is.
    checksums: Option<(u64, u64)>,
}

/// Reads a file that arrives `step` bytes at a time. `Ok(None)`: it is not complete.
fn read(file: &[u8], step: usize, piece_bytes: usize) -> Result<Option<Found>, Error> {
    let mut scanner = Scanner::new(0, file.len() as u64, piece_bytes);
    let mut found = Found::default();
    let (mut start, mut arrived) = (0, 0);
    let mut large: Option<(FoundKey, Builder)> = None;
    let mut checksum = 0;
    while !scanner.is_done() {
        let (item, bytes) = match scanner.next(&file[start..arrived])? {
            ScanStep::Item(item, bytes) => (item, &file[start..start + bytes]),
            ScanStep::More if arrived == file.len() => return Ok(None),
            ScanStep::More => {
                arrived = (arrived + step).min(file.len());
                continue;
            }
        };
        start += bytes.len();
        match item {
            Item::Checksum(stored) => found.checksums = Some((stored, checksum)),
            _ => checksum = crc64(checksum, bytes),
        }
        match item {
            Item::Header(version) => found.version = version,
            Item::Aux { name, value } => found.aux.push((name, value)),
            Item::Foreign(thing) => found.foreign.push(thing),
            Item::Function(source) => found.functions.push(source),
            Item::Record(record) => {
                let key = Decoder::new(&bytes[record.key_at..]).string()?.into_owned();
                let mut value = Decoder::new(&bytes[record.value_at..]);
                let kind = Kind::from_byte(record.kind).expect("others are foreign");
                let object = value.value(kind, &Limits::default())?;
                assert!(value.remaining().is_empty(), "a record was cut wrong");
                let (expiry, access) = (record.expiry_ms, record.access);
                found.keys.push((record.db, key, expiry, access, elements(&object)));
            }
            Item::Begin(record, count) => {
                let key = Decoder::new(&bytes[record.key_at..]).string()?.into_owned();
                let kind = Kind::from_byte(record.kind).expect("others are foreign");
                let builder = Builder::new(kind, count as usize, &Limits::default());
                let builder = builder.expect("only collections come in pieces");
                let (db, expiry) = (record.db, record.expiry_ms);
                large = Some(((db, key, expiry, record.access, Vec::new()), builder));
            }
            Item::Elements(count) => {
                let mut input = Decoder::new(bytes);
                let (_, builder) = large.as_mut().expect("it has begun");
                builder.add(&mut input, count as usize)?;
                assert!(input.remaining().is_empty(), "a piece was cut wrong");
            }
            Item::End => {
                let (mut key, builder) = large.take().expect("it has begun");
                key.4 = elements(&builder.finish()?);
                found.keys.push(key);
            }
            _ => {}
        }
    }
    assert_eq!(start, file.len());
    Ok(Some(found))
}

fn whole(file: &[u8]) -> Found {
    read(file, usize::MAX / 2, usize::MAX).expect("sound").expect("complete")
}

/// A file of all values that were ever recorded, of a version.
fn museum(version: u16) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Lzf);
    encoder.raw(format!("REDIS{version:04}").as_bytes());
    if version >= 7 {
        encoder.aux("redis-ver", b"2.8.0");
        encoder.aux_integer("ctime", 1_700_000_000);
    }
    encoder.select_db(1);
    let mut file = encoder.into_bytes();
    for (index, fixture) in FILES.into_iter().flat_map(fixtures).enumerate() {
        match index % 4 {
            0 => file.extend_from_slice(b"\xfd\x00\x00\x00\x70"),
            1 => file.extend_from_slice(b"\xfc\x00\x00\x00\x70\x00\x01\x00\x00"),
            _ => {}
        }
        file.push(fixture.payload[0]);
        let mut name = Encoder::new(Compression::Off);
        name.string(format!("{index}:{}", fixture.name).as_bytes());
        file.extend_from_slice(name.as_bytes());
        file.extend_from_slice(&fixture.payload[1..fixture.payload.len() - 10]);
    }
    end(file, version)
}

fn end(mut file: Vec<u8>, version: u16) -> Vec<u8> {
    file.push(opcode::EOF);
    if version >= 5 {
        let checksum = crc64(0, &file);
        file.extend_from_slice(&checksum.to_le_bytes());
    }
    file
}

#[test]
fn every_recorded_value_is_found() {
    for version in [1, 4, 5, 9, 11, 12] {
        let found = whole(&museum(version));
        assert_eq!(found.version, version);
        assert_eq!(found.checksums.is_some(), version >= 5);
        assert!(found.checksums.is_none_or(|(stored, computed)| stored == computed));
        let expected: Vec<_> = FILES.into_iter().flat_map(fixtures).collect();
        assert_eq!(found.keys.len(), expected.len());
        for (index, (fixture, key)) in expected.iter().zip(&found.keys).enumerate() {
            let (db, name, expiry, access, elements) = key;
            assert_eq!(*name, format!("{index}:{}", fixture.name).into_bytes());
            let expected = match index % 4 {
                0 => Some(0x7000_0000 * 1000),
                1 => Some(0x0000_0100_7000_0000),
                _ => None,
            };
            assert_eq!((*db, *expiry, *access), (1, expected, Access::Unknown));
            let elements: Vec<_> = elements.iter().map(|e| fixture::written(e)).collect();
            assert_eq!(elements, fixture.elements, "{}", fixture.name);
        }
    }
}

#[test]
fn it_does_not_matter_how_a_file_arrives() {
    for file in [&museum(11)[..], VALKEY, REDIS] {
        let expected = whole(file);
        for step in [1, 2, 3, 7, 100, 4096] {
            for piece_bytes in [1, 50, 1000, usize::MAX] {
                let found = read(file, step, piece_bytes).expect("sound").expect("complete");
                assert!(found == expected, "{step} bytes at a time, pieces of {piece_bytes}");
            }
        }
    }
}

#[test]
fn files_of_others_are_scanned_exactly() {
    for file in [VALKEY, REDIS] {
        let found = whole(file);
        let (stored, computed) = found.checksums.expect("a new version");
        assert_eq!(stored, computed, "every byte was seen once");
        assert!(found.foreign.is_empty(), "everything is known: {:?}", found.foreign);
        let [source] = &found.functions[..] else { panic!("one library") };
        assert!(source.starts_with(b"#!lua name=mylib\n"), "{}", source.escape_ascii());
        let mut keys: Vec<_> =
            found.keys.iter().map(|(db, key, expiry, ..)| (*db, &key[..], *expiry)).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                (0, &b"empty"[..], None),
                (0, b"first", None),
                (0, b"h1", None),
                (0, b"h2", None),
                (0, b"list", None),
                (0, b"st", None),
                (0, b"text", Some(4_102_444_800_000)),
                (3, b"last", None),
                (3, b"zs", None),
            ]
        );
        let has_idle = |access: &Access| matches!(access, Access::IdleSeconds(_));
        assert!(found.keys.iter().all(|(.., access, _)| has_idle(access)));
    }
}

/// Made by hand after the format: no server at hand writes them any more.
#[test]
fn older_streams_and_modules_end_where_they_end() {
    // The entry 1-2 with the field `a` of the value 1.
    let node = b"\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\x1c\x1c\0\0\0\x0a\0\
        \x01\x01\0\x01\x01\x01\x81a\x02\0\x01\x02\x01\0\x01\0\x01\x01\x01\x04\x01\xff";
    let pending = [&[b'i'; 16][..], &[b't'; 8], b"\x01"].concat();
    let consumers = [b"\x01\x01c".as_slice(), &[b's'; 8], b"\x01", &[b'i'; 16]].concat();
    let stream =
        [b"\x01".as_slice(), node, b"\x01\x01\x02", b"\x01\x01g\x01\x02\x01", &pending, &consumers]
            .concat();
    let stream_2 = [
        b"\x01".as_slice(),
        node,
        b"\x01\x01\x02\x01\x01\x00\x00\x05",
        b"\x01\x01g\x01\x02\x40\x50\x01",
        &pending,
        &consumers,
    ]
    .concat();
    for (kind, value) in [(15, &stream), (19, &stream_2)] {
        let mut file = b"REDIS0012\xfe\x00".to_vec();
        file.extend_from_slice(&[kind, 1, b'k']);
        file.extend_from_slice(value);
        file.extend_from_slice(b"\x00\x05after\xc0\x01");
        let file = end(file, 12);
        for step in [1, 5, file.len()] {
            let found = read(&file, step, 1).expect("sound").expect("complete");
            assert!(found.foreign.is_empty());
            assert_eq!((&*found.keys[0].1, &*found.keys[1].1), (&b"k"[..], &b"after"[..]));
        }
    }
    let module = b"\x81\x00\x00\x00\x00\x00\x00\x04\x01\x01\x07\x02\x41\x00\x03abcd\x04abcdefgh\x05\x02hi\x00";
    for (kind, value, name) in [
        (7, &module[..], "key 'k' of type module-value of module 'AAAAAAAAB'"),
        (22, b"\x01\x00\x01f\x01v", "key 'k' of type hash-hashtable-md-pre-release"),
        (23, b"\x03lp!", "key 'k' of type hash-listpack-md-pre-release"),
    ] {
        let mut file = b"REDIS0012\xfe\x00".to_vec();
        file.push(kind);
        file.extend_from_slice(b"\x01k");
        file.extend_from_slice(value);
        file.extend_from_slice(b"\x00\x05after\xc0\x01");
        let file = end(file, 12);
        for step in [1, 5, file.len()] {
            let found = read(&file, step, 1).expect("sound").expect("complete");
            assert_eq!(found.foreign.len(), 1);
            assert_eq!(found.foreign[0].to_string(), name);
            assert_eq!(found.keys[0].1, b"after");
        }
    }
    let aux =
        b"REDIS0009\xf7\x81\x00\x00\x00\x00\x00\x00\x04\x01\x02\x02\x05\x03aux\x00\xf4\x01\x02\x03";
    let found = whole(&end(aux.to_vec(), 9));
    assert_eq!(found.foreign, [Foreign::ModuleAux("AAAAAAAAB".into())]);
    let import = b"VALKEY080\xf3\x03job\x02\x00\x05\x09\x40\x64\x00\x01k\x01v";
    let found = whole(&end(import.to_vec(), 80));
    assert_eq!(found.foreign, [Foreign::SlotImport]);
    assert_eq!(found.keys.len(), 1);
}

#[test]
fn types_whose_end_is_not_known_are_refused_by_number() {
    for (magic, kind) in [("REDIS0011", 6), ("REDIS0012", 26), ("VALKEY080", 23), ("VALKEY080", 24)]
    {
        let mut file = magic.as_bytes().to_vec();
        file.extend_from_slice(&[kind, 1, b'k', 1, b'v', opcode::EOF]);
        assert_eq!(read(&file, 100, 100), Err(Error::UnsupportedType(kind)), "{magic}");
    }
}

#[test]
fn versions_and_signatures_are_checked() {
    for (magic, error) in [
        (&b"REDIS0000"[..], Error::Version(0)),
        (b"REDIS0082", Error::Version(82)),
        (b"VALKEY079", Error::Version(79)),
        (b"VALKEY999", Error::Version(999)),
        (b"RODIS0011", Error::Corrupt("signature")),
        (b"R:", Error::Corrupt("signature")),
        (b"REDIS00x1", Error::Corrupt("signature")),
        (b"*3\r\n$3\r\n", Error::Corrupt("signature")),
    ] {
        assert_eq!(read(magic, 100, 100), Err(error), "{}", magic.escape_ascii());
    }
    let mut scanner = Scanner::new(0, 100, 100).accept_newer(true);
    assert_eq!(scanner.next(b"REDIS0999"), Ok(ScanStep::Item(Item::Header(999), 9)));
}

#[test]
fn a_file_that_ends_early_is_never_complete() {
    for file in [&museum(11)[..6000], VALKEY, REDIS] {
        for len in 0..file.len() {
            assert!(!matches!(read(&file[..len], 64, 100), Ok(Some(_))), "{len} bytes");
        }
    }
}

#[test]
fn lengths_beyond_the_end_are_not_waited_for() {
    for body in [
        &b"\x00\x81\x7f\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x00\x01k\x80\xff\xff\xff\xff",
        b"\x00\x01k\xc3\x80\xff\xff\xff\xff\x05abc",
        b"\x04\x01k\x01\x01f\x80\xff\xff\xff\xff",
        b"\x0f\x01k\x01\x80\xff\xff\xff\xff",
        b"\x0d\x01k\x80\x0f\xff\xff\xff",
    ] {
        let file = [b"REDIS0011", body].concat();
        assert_eq!(
            read(&file, file.len(), 100),
            Err(Error::Corrupt("a length beyond the end")),
            "{}",
            body.escape_ascii()
        );
    }
    // So many elements cannot follow, and no room is made for them.
    let file =
        [b"REDIS0011\x04\x01k\x80\xff\xff\xff\xff\x01a\x01b".as_slice(), &[b'x'; 50]].concat();
    assert!(read(&file, file.len(), 4).is_err());
}

fn any_record() -> impl Strategy<Value = FoundKey> {
    let access = prop_oneof![
        Just(Access::Unknown),
        any::<u32>().prop_map(|seconds| Access::IdleSeconds(u64::from(seconds))),
        any::<u8>().prop_map(Access::Frequency),
    ];
    let bytes = || proptest::collection::vec(any::<u8>(), 0..30);
    let elements = proptest::collection::btree_set(bytes(), 1..40);
    (0u32..4, bytes(), proptest::option::of(any::<i64>()), access, elements).prop_map(
        |(db, key, expiry, access, set)| (db, key, expiry, access, set.into_iter().collect()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What the encoder writes, at once or in pieces, the scanner finds.
    #[test]
    fn what_is_written_is_found(
        records in proptest::collection::vec(any_record(), 0..20),
        step in 1usize..300,
        piece_bytes in 1usize..300,
    ) {
        let mut encoder = Encoder::new(Compression::Lzf);
        encoder.file_header();
        encoder.aux("name", b"value");
        let mut db = None;
        for (in_db, key, expiry_ms, access, elements) in &records {
            if db.replace(*in_db) != Some(*in_db) {
                encoder.select_db(*in_db);
                encoder.resize_db(1 << 40, 0);
            }
            let head = RecordHead { key, expiry_ms: *expiry_ms, access: *access };
            encoder.record_head(&head, Kind::Set);
            encoder.length(elements.len() as u64);
            elements.iter().for_each(|element| encoder.string(element));
        }
        encoder.end_of_file();
        let checksum = crc64(0, encoder.as_bytes());
        encoder.checksum(checksum);
        let found = read(encoder.as_bytes(), step, piece_bytes).expect("sound").expect("complete");
        prop_assert_eq!(found.keys, records);
        prop_assert_eq!(found.checksums, Some((checksum, checksum)));
    }

    /// Damage is an error, another value, or found by the checksum; never a panic.
    #[test]
    fn damage_never_panics(
        at in any::<prop::sample::Index>(),
        bits in 1u8..,
        which in 0usize..3,
        piece_bytes in prop_oneof![Just(8usize), Just(usize::MAX)],
    ) {
        let museum = museum(11);
        let file = [&museum[..], VALKEY, REDIS][which];
        let mut file = file.to_vec();
        let at = at.index(file.len());
        file[at] ^= bits;
        if let Ok(Some(found)) = read(&file, 4096, piece_bytes) {
            let (stored, computed) = found.checksums.unwrap_or_default();
            // A version below 5 has no checksum: the header's digits may have changed to one.
            prop_assert!(at < 9 || stored != computed);
        }
    }
}
