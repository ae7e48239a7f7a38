//! Streams as Valkey 9.1 and Redis 8 write them, in all three encodings, sound and damaged.

mod fixture;

use fixture::fixtures;
use rdb::{Compression, Encoder, Error, Kind, Limits, Object, dump, restore};
use structs::crc64::crc64;
use structs::stream::{Counters, Part, Stream, StreamId, UNKNOWN_READS};

/// Name, type, encoding, payload; from `DUMP` of the two servers.
const PAYLOADS: &str = include_str!("fixtures/streams.txt");

fn stream(object: Object) -> Stream {
    match object {
        Object::Stream(stream) => stream,
        _ => panic!("no stream"),
    }
}

#[test]
fn what_others_write_is_read_and_written_again() {
    let fixtures = fixtures(PAYLOADS);
    assert_eq!(fixtures.len(), 6);
    for fixture in fixtures {
        let object = restore(&fixture.payload, &Limits::default()).expect(&fixture.name);
        // Compressed blocks may differ by some bytes between servers; what they hold may not.
        let again = dump(object.as_ref(), Compression::Lzf);
        let loaded = restore(&again, &Limits::default()).expect(&fixture.name);
        let plain = [object, loaded].map(|object| dump(object.as_ref(), Compression::Off));
        assert_eq!(plain[0], plain[1], "{}", fixture.name);
        let body = |payload: &[u8]| payload[..payload.len() - 10].to_vec();
        let is_plain = plain[0].len() == fixture.payload.len();
        assert!(!is_plain || body(&plain[0]) == body(&fixture.payload), "{}", fixture.name);
    }
}

#[test]
fn every_part_of_a_group_is_there() {
    let fixture = fixtures(PAYLOADS).into_iter().find(|f| f.name == "stream_groups");
    let payload = fixture.expect("it is in the file").payload;
    let stream = stream(restore(&payload, &Limits::default()).expect("sound"));
    assert_eq!((stream.len(), stream.counters().entries_added), (2, 3));
    assert_eq!(stream.counters().max_deleted_id, StreamId::new(2, 1));
    let group = stream.group(b"g").expect("it is there");
    assert_eq!((group.last_id, group.pending_count()), (StreamId::new(3, 1), 2));
    let first = group.first_pending().expect("two are pending");
    assert_eq!((first.time, first.deliveries, group.owner(first)), (1000, 5, &b"alice"[..]));
    let idle = group.consumers().find(|consumer| &*consumer.name == b"idle").expect("is there");
    assert_eq!((idle.pending_count(), idle.active_time), (0, -1));
}

/// A payload of an old encoding: one block, one group with one pending entry.
fn old(kind: Kind) -> Vec<u8> {
    let mut made = Stream::new();
    let limits = structs::stream::StreamLimits::default();
    (1..=3).for_each(|ms| made.append(StreamId::new(ms, 0), &[b"a", b"1"], &limits));
    let mut to = Encoder::new(Compression::Off);
    to.kind(kind);
    to.length(1);
    let mut parts = structs::stream::Parts::new(&made);
    parts.show(|part| to.stream_part(part));
    let numbers: &[u64] = match kind {
        Kind::StreamListpacks => &[3, 3, 0, 1],
        _ => &[3, 3, 0, 1, 0, 0, 0, 3, 1],
    };
    numbers.iter().for_each(|&number| to.length(number));
    to.string(b"g");
    let group: &[u64] = if kind == Kind::StreamListpacks { &[3, 0, 1] } else { &[3, 0, 3, 1] };
    group.iter().for_each(|&number| to.length(number));
    to.stream_part(Part::Pending(StreamId::new(2, 0), 1000, 4));
    to.length(1);
    to.string(b"bob");
    to.raw(&2000i64.to_le_bytes());
    to.length(1);
    to.stream_part(Part::Own(StreamId::new(2, 0)));
    sealed(to.into_bytes())
}

fn sealed(mut payload: Vec<u8>) -> Vec<u8> {
    payload.extend_from_slice(&11u16.to_le_bytes());
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    payload
}

#[test]
fn old_encodings_are_read() {
    for kind in [Kind::StreamListpacks, Kind::StreamListpacks2] {
        let stream = stream(restore(&old(kind), &Limits::default()).expect("sound"));
        let expected = Counters {
            length: 3,
            first_id: StreamId::new(1, 0),
            last_id: StreamId::new(3, 0),
            max_deleted_id: StreamId::MIN,
            entries_added: 3,
        };
        assert_eq!(*stream.counters(), expected);
        let group = stream.group(b"g").expect("it is there");
        assert_eq!((group.entries_read, group.pending_count()), (3, 1));
        let bob = group.consumers().next().expect("it is there");
        assert_eq!((bob.seen_time, bob.active_time, bob.pending_count()), (2000, 2000, 1));
    }
}

/// Every byte of a payload replaced by others: what is accepted can be written and read again.
#[test]
fn damaged_payloads_are_refused_or_sound() {
    let limits = Limits::default();
    let mut refused = 0;
    for fixture in fixtures(PAYLOADS) {
        let body = &fixture.payload[..fixture.payload.len() - 10];
        for at in 1..body.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff, body[at] ^ 1, body[at].wrapping_add(1)] {
                let mut damaged = body.to_vec();
                damaged[at] = byte;
                let Ok(object) = restore(&sealed(damaged), &limits) else {
                    refused += 1;
                    continue;
                };
                let again = dump(object.as_ref(), Compression::Off);
                let copy = restore(&again, &limits).expect("what is dumped can be restored");
                assert_eq!(fixture::elements(&copy), fixture::elements(&object));
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn a_pending_entry_needs_its_consumer() {
    let mut to = Encoder::new(Compression::Off);
    to.kind(Kind::StreamListpacks3);
    to.length(0);
    to.stream_part(Part::Counters(Counters::default(), 1));
    let last_id = StreamId::new(3, 0);
    let group = Part::Group { name: b"g", last_id, entries_read: UNKNOWN_READS, pending: 1 };
    to.stream_part(group);
    to.stream_part(Part::Pending(StreamId::new(2, 0), 1, 1));
    to.stream_part(Part::Consumers(0));
    let refused = restore(&sealed(to.into_bytes()), &Limits::default()).err();
    assert_eq!(refused, Some(Error::Corrupt("NACK entry without a consumer")));
}
