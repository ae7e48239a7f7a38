//! Input that is not what it should be: an error or a sound value, never a panic.

mod fixture;

use fixture::{elements, fixtures};
use proptest::prelude::*;
use rdb::{Compression, Error, Limits, Object, dump, restore};
use structs::crc64::crc64;

const FILES: [&str; 2] =
    [include_str!("fixtures/valkey-9.1.txt"), include_str!("fixtures/historical.txt")];

/// Type and value of every fixture, without the footer.
fn bodies() -> Vec<Vec<u8>> {
    let all = FILES.into_iter().flat_map(fixtures);
    all.map(|fixture| fixture.payload[..fixture.payload.len() - 10].to_vec()).collect()
}

/// A payload whose footer is right, so that the value is looked at.
fn signed(body: &[u8]) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&11u16.to_le_bytes());
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    payload
}

/// Restores, and if that succeeds uses the value from end to end.
fn survive(body: &[u8]) -> Result<(), Error> {
    let object = restore(&signed(body), &Limits::default())?;
    let found = elements(&object);
    let again = dump(object.as_ref(), Compression::Lzf);
    let copy = restore(&again, &Limits::default()).expect("what is written can be read");
    assert_eq!(elements(&copy), found);
    Ok(())
}

#[test]
fn every_prefix_is_refused() {
    for body in bodies() {
        // The long ones repeat themselves; their beginnings and ends are what differs.
        let len = body.len();
        for end in (0..len).filter(|end| *end < 600 || len - end < 60) {
            assert!(survive(&body[..end]).is_err(), "{:02x?} cut at {end}", &body[..end.min(20)]);
        }
    }
}

#[test]
fn trailing_bytes_are_refused() {
    for mut body in bodies() {
        body.push(0);
        assert_eq!(survive(&body), Err(Error::Corrupt("trailing bytes")));
    }
}

#[test]
fn the_footer_is_checked() {
    let payload = dump(rdb::ObjectRef::String(b"value"), Compression::Off);
    let restored = |payload: &[u8]| restore(payload, &Limits::default()).map(|_| ());
    assert_eq!(restored(&payload), Ok(()));
    for end in 0..10 {
        assert_eq!(restored(&payload[..end]), Err(Error::Truncated));
    }
    for at in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[at] ^= 1;
        assert!(matches!(restored(&damaged), Err(Error::Checksum | Error::Version(_))));
    }
    let mut newer = payload[..payload.len() - 10].to_vec();
    newer.extend_from_slice(&82u16.to_le_bytes());
    newer.extend_from_slice(&crc64(0, &newer).to_le_bytes());
    assert_eq!(restored(&newer), Err(Error::Version(82)));
}

#[test]
fn unknown_types_are_named() {
    for kind in [6, 8, 22, 23, 26, 100, 255] {
        assert_eq!(survive(&[kind, 0]), Err(Error::UnsupportedType(kind)));
    }
    let id = rdb::module::Id::new("AAAAAAAAA", 0);
    assert_eq!(survive(b"\x07\x00\x00"), Err(Error::UnsupportedModule(id)));
}

#[test]
fn empty_collections_are_told_apart() {
    for body in [
        &b"\x01\x00"[..],
        b"\x02\x00",
        b"\x03\x00",
        b"\x04\x00",
        b"\x05\x00",
        b"\x0e\x00",
        b"\x12\x00",
        b"\x10\x07\x07\x00\x00\x00\x00\x00\xff",
        b"\x11\x07\x07\x00\x00\x00\x00\x00\xff",
        b"\x14\x07\x07\x00\x00\x00\x00\x00\xff",
        b"\x12\x01\x02\x07\x07\x00\x00\x00\x00\x00\xff",
        b"\x0a\x0b\x0b\x00\x00\x00\x0a\x00\x00\x00\x00\x00\xff",
        b"\x0d\x0b\x0b\x00\x00\x00\x0a\x00\x00\x00\x00\x00\xff",
    ] {
        assert_eq!(survive(body), Err(Error::Empty), "{body:02x?}");
    }
}

#[test]
fn contradictions_are_refused() {
    for (body, what) in [
        (&b"\x02\x02\x01a\x01a"[..], "duplicate set member"),
        (b"\x02\x02\xc0\x01\x011", "duplicate set member"),
        (b"\x04\x02\x01a\x01b\x01a\x01c", "duplicate hash field"),
        (b"\x03\x02\x01a\x011\x01a\x012", "duplicate sorted set member"),
        (b"\x03\x01\x01a\xfd", "score"),
        (b"\x03\x01\x01a\x01x", "double"),
        (b"\x05\x01\x01a\x00\x00\x00\x00\x00\x00\xf8\x7f", "score"),
        (b"\x12\x01\x03\x01a", "quicklist container"),
        (b"\x00\xc4\x00", "string encoding"),
        (b"\x00\x82\x00", "length"),
        (b"\x02\xc0\x00", "length"),
        (b"\x00\xc3\x02\x05\x00a", "compressed string"),
        // An empty zipmap, which no server writes.
        (b"\x09\x02\x00\xff", "Zipmap"),
        // A listpack of one pair too few, with a score that is none.
        (b"\x10\x09\x09\x00\x00\x00\x01\x00\x01\x01\xff", "Hash listpack"),
        (b"\x11\x0c\x0c\x00\x00\x00\x02\x00\x01\x01\x81x\x02\xff", "Zset listpack"),
    ] {
        assert_eq!(survive(body), Err(Error::Corrupt(what)), "{body:02x?}");
    }
    for (body, what) in [
        (&b"\x14\x0b\x0b\x00\x00\x00\x02\x00\x01\x01\x01\x01\xff"[..], "Set listpack"),
        (b"\x10\x0f\x0f\x00\x00\x00\x04\x00\x01\x01\x02\x01\x01\x01\x03\x01\xff", "Hash listpack"),
    ] {
        assert_eq!(survive(body), Err(Error::Duplicate(what)), "{body:02x?}");
    }
}

/// Lengths far beyond the input must not be allocated.
#[test]
fn huge_lengths_cost_nothing() {
    for kind in [0u8, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20] {
        for length in [
            &b"\x81\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            b"\x81\x00\x00\x00\xff\x00\x00\x00\x00",
            b"\x80\xff\xff\xff\xff",
            b"\xc3\x80\xff\xff\xff\xff\x80\xff\xff\xff\xff",
            b"\xc3\x05\x81\x00\xff\xff\xff\xff\xff\xff\xff",
        ] {
            let body = [&[kind], length, b"abcdefghijkl"].concat();
            assert!(survive(&body).is_err(), "{kind} {length:02x?}");
        }
    }
}

/// A change to a body: the place (as a fraction) and what happens there.
fn mutations() -> impl Strategy<Value = Vec<(f64, u8, u8)>> {
    proptest::collection::vec((0.0..1.0, 0u8..6, any::<u8>()), 1..6)
}

fn mutate(body: &mut Vec<u8>, (place, how, byte): (f64, u8, u8)) {
    let at = (place * body.len() as f64) as usize;
    match how {
        0 => body[at] = byte,
        1 => body[at] ^= 1 << (byte % 8),
        2 => body[at] = [0, 1, 0x7f, 0x80, 0x81, 0xc3, 0xfd, 0xfe, 0xff][usize::from(byte) % 9],
        3 => body.insert(at, byte),
        4 if body.len() > 1 => drop(body.remove(at)),
        _ => {
            let end = (at + usize::from(byte)).min(body.len());
            let part = body[at..end].to_vec();
            body.splice(at..at, part);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn damaged_values_never_panic(pick: prop::sample::Index, changes in mutations()) {
        let bodies = bodies();
        let mut body = pick.get(&bodies).clone();
        // Long bodies hide the interesting bytes.
        body.truncate(4000);
        changes.into_iter().for_each(|change| mutate(&mut body, change));
        let _ = survive(&body);
    }

    #[test]
    fn noise_never_panics(kind in 0u8..24, noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = survive(&[&[kind], &noise[..]].concat());
    }

    /// Noise inside a frame that gets it to the checks of the packed encodings.
    #[test]
    fn framed_noise_never_panics(
        kind in prop::sample::select(vec![9u8, 10, 11, 12, 13, 16, 17, 20]),
        count in 0u16..20,
        noise in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let packed: Vec<u8> = match kind {
            9 => [&[count as u8], &noise[..], &[255]].concat(),
            10 | 12 | 13 => {
                let len = (noise.len() + 11) as u32;
                [&len.to_le_bytes()[..], &10u32.to_le_bytes(), &count.to_le_bytes(), &noise, &[255]].concat()
            }
            11 => [&2u32.to_le_bytes()[..], &(noise.len() as u32 / 2).to_le_bytes(), &noise].concat(),
            _ => {
                let len = (noise.len() + 7) as u32;
                [&len.to_le_bytes()[..], &count.to_le_bytes(), &noise, &[255]].concat()
            }
        };
        let header = [kind, 0x40, packed.len() as u8];
        let header = if packed.len() < 256 { header } else { [kind, 0x41, packed.len() as u8] };
        let _ = survive(&[&header[..], &packed].concat());
    }
}

/// A payload of Valkey 9's.
fn of_valkey(body: &[u8]) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&rdb::VALKEY_VERSION.to_le_bytes());
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    payload
}

/// Reads a hash and tells when its fields expire.
fn expiries(payload: &[u8], fields: &[&[u8]]) -> Result<Vec<Option<Option<i64>>>, Error> {
    let Object::Hash(hash) = restore(payload, &Limits::default())? else {
        panic!("it is a hash");
    };
    let found = fields.iter().map(|field| hash.expiry(field)).collect();
    let again = dump(rdb::ObjectRef::Hash(&hash), Compression::Lzf);
    let Object::Hash(copy) = restore(&again, &Limits::default()).expect("it can be read") else {
        panic!("it is a hash");
    };
    assert_eq!(fields.iter().map(|field| copy.expiry(field)).collect::<Vec<_>>(), found);
    Ok(found)
}

const NEVER: [u8; 8] = [0xff; 8];

#[test]
fn fields_that_expire_are_read_in_every_form() {
    let fields: [&[u8]; 3] = [b"a", b"b", b"c"];
    let expected = Ok(vec![Some(Some(1007)), Some(None), None]);
    let at = 1007i64.to_le_bytes();
    let valkey = [b"\x16\x02\x01a\x01x", &at[..], b"\x01b\x01y", &NEVER].concat();
    assert_eq!(expiries(&of_valkey(&valkey), &fields), expected);
    let earliest = 1000i64.to_le_bytes();
    let redis = [b"\x18", &earliest[..], b"\x02\x08\x01a\x01x\x00\x01b\x01y"].concat();
    assert_eq!(expiries(&signed(&redis), &fields), expected);
    let packed =
        b"\x18\x18\x00\x00\x00\x06\x00\x81a\x02\x81x\x02\xc3\xef\x02\x81b\x02\x81y\x02\x00\x01\xff";
    let redis = [b"\x19", &earliest[..], packed].concat();
    assert_eq!(expiries(&signed(&redis), &fields), expected);
    // In the other's payloads these numbers mean something else, or nothing.
    assert_eq!(expiries(&signed(&valkey), &fields), Err(Error::UnsupportedType(22)));
    assert_eq!(expiries(&of_valkey(&redis), &fields), Err(Error::UnsupportedType(25)));
}

#[test]
fn bad_expiries_are_refused() {
    let expiry = Err(Error::Corrupt("hash field expiry"));
    let body = [b"\x16\x01\x01a\x01x", &(-2i64).to_le_bytes()[..]].concat();
    assert_eq!(expiries(&of_valkey(&body), &[]), expiry);
    let twice = [b"\x16\x02\x01a\x01x", &NEVER[..], b"\x01a\x01y", &NEVER].concat();
    let duplicate = Err(Error::Corrupt("duplicate hash field"));
    assert_eq!(expiries(&of_valkey(&twice), &[]), duplicate);
    assert_eq!(expiries(&of_valkey(b"\x16\x00"), &[]), Err(Error::Empty));
    let huge = [b"\x18", &i64::MAX.to_le_bytes()[..], b"\x01\x03\x01a\x01x"].concat();
    assert_eq!(expiries(&signed(&huge), &[]), expiry);
    for end in 1..huge.len() {
        assert!(expiries(&signed(&huge[..end]), &[]).is_err());
    }
    let earliest = [0; 8];
    let pair = b"\x0d\x0d\x00\x00\x00\x02\x00\x81a\x02\x81x\x02\xff";
    let body = [b"\x19", &earliest[..], pair].concat();
    assert_eq!(expiries(&signed(&body), &[]), Err(Error::Corrupt("Hash listpack")));
    let negative = b"\x10\x10\x00\x00\x00\x03\x00\x81a\x02\x81x\x02\xdf\xff\x02\xff";
    let body = [b"\x19", &earliest[..], negative].concat();
    assert_eq!(expiries(&signed(&body), &[]), expiry);
}
