//! What is written is read again, in every encoding, compressed or not.

mod fixture;

use fixture::{elements, names};
use proptest::prelude::*;
use rdb::{Compression, Decoder, Encoder, Length, Limits, Object, ObjectRef, dump, restore};
use structs::hash::{Hash, HashLimits};
use structs::list::{End, List, ListLimits};
use structs::set::{Set, SetLimits};
use structs::zset::{Zset, ZsetLimits};

/// Limits so tight or so wide that all encodings come up.
fn limits() -> impl Strategy<Value = Limits> {
    let entries = prop::sample::select(vec![0usize, 3, 20, 1000]);
    let value = prop::sample::select(vec![0usize, 8, 64, 100_000]);
    (prop::sample::select(vec![-2, -1, 1, 5]), entries, value).prop_map(|(list, entries, value)| {
        Limits {
            list: ListLimits::new(list),
            set: SetLimits {
                max_intset_entries: entries,
                max_listpack_entries: entries,
                max_listpack_value: value,
            },
            hash: HashLimits { max_listpack_entries: entries, max_listpack_value: value },
            zset: ZsetLimits { max_listpack_entries: entries, max_listpack_value: value },
            types: &[],
        }
    })
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i8>().prop_map(|n| n.to_string().into_bytes()),
        any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        "[a-c]{0,60}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..40),
        (any::<u8>(), 0usize..20_000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn round_trip(object: &Object, limits: &Limits) {
    for compression in [Compression::Off, Compression::Lzf] {
        let payload = dump(object.as_ref(), compression);
        let copy = restore(&payload, limits).expect("just written");
        assert_eq!(names(&copy), names(object));
        assert_eq!(elements(&copy), elements(object));
        // Other limits change the encoding and nothing else.
        let elsewhere = restore(&payload, &Limits::default()).expect("just written");
        assert_eq!(elements(&elsewhere), elements(object));
    }
}

/// A member that is too long for a listpack comes after one with the score -0, which only the big
/// encoding keeps.
#[test]
fn negative_zero_survives_beside_a_long_member() {
    let mut zset = Zset::new();
    let limits = Limits::default();
    zset.insert(&[b'a'; 100], 0.0, &limits.zset);
    zset.insert(b"b", -0.0, &limits.zset);
    round_trip(&Object::Zset(zset), &limits);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn strings(string in element()) {
        round_trip(&Object::String(string), &Limits::default());
    }

    #[test]
    fn integers(value: i64, shift in 0u32..64) {
        let value = value >> shift;
        let payload = dump(ObjectRef::Int(value), Compression::Lzf);
        let text = value.to_string().into_bytes();
        prop_assert_eq!(&payload, &dump(ObjectRef::String(&text), Compression::Lzf));
        let copy = restore(&payload, &Limits::default()).expect("just written");
        prop_assert_eq!(elements(&copy), vec![text]);
    }

    #[test]
    fn lists(values in proptest::collection::vec(element(), 1..50), limits in limits()) {
        let mut list = List::new();
        values.iter().for_each(|value| list.push(End::Right, value, &limits.list));
        round_trip(&Object::List(list), &limits);
    }

    #[test]
    fn sets(values in proptest::collection::vec(element(), 1..50), limits in limits()) {
        let mut set = Set::new(&values[0], 1, &limits.set);
        for value in &values {
            set.insert(value, &limits.set);
        }
        round_trip(&Object::Set(set), &limits);
    }

    #[test]
    fn sets_of_integers(values in proptest::collection::vec(any::<i32>(), 1..50), limits in limits()) {
        let mut set = Set::empty();
        for value in &values {
            set.insert(value.to_string().as_bytes(), &limits.set);
        }
        round_trip(&Object::Set(set), &limits);
    }

    #[test]
    fn hashes(values in proptest::collection::vec((element(), element()), 1..50), limits in limits()) {
        let mut hash = Hash::new();
        for (field, value) in &values {
            hash.set(field, value, &limits.hash);
        }
        let object = Object::Hash(hash);
        for compression in [Compression::Off, Compression::Lzf] {
            let payload = dump(object.as_ref(), compression);
            let copy = restore(&payload, &limits).expect("just written");
            prop_assert_eq!(elements(&copy), elements(&object));
        }
    }

    #[test]
    fn zsets(
        values in proptest::collection::vec((element(), any::<f64>()), 1..50),
        limits in limits(),
    ) {
        let mut zset = Zset::new();
        for (member, score) in &values {
            zset.insert(member, *score, &limits.zset);
        }
        let object = Object::Zset(zset);
        for compression in [Compression::Off, Compression::Lzf] {
            let payload = dump(object.as_ref(), compression);
            let copy = restore(&payload, &limits).expect("just written");
            prop_assert_eq!(elements(&copy), elements(&object));
        }
    }

    #[test]
    fn lengths(value: u64, shift in 0u32..64) {
        let value = value >> shift;
        let mut encoder = Encoder::new(Compression::Off);
        encoder.length(value);
        let bytes = encoder.into_bytes();
        let expected = match value {
            0..64 => 1,
            64..16384 => 2,
            16384..=0xffff_ffff => 5,
            _ => 9,
        };
        prop_assert_eq!(bytes.len(), expected);
        prop_assert_eq!(Decoder::new(&bytes).length_or_special(), Ok(Length::Plain(value)));
        for end in 0..bytes.len() {
            prop_assert!(Decoder::new(&bytes[..end]).length().is_err());
        }
    }
}
