//! Hashes whose fields expire, in the payloads of Valkey (type 22) and of Redis (24 and 25): no
//! panic, no memory far beyond the input, and what is accepted keeps its fields, values and times,
//! through another DUMP and while fields expire.

#[path = "memory.rs"]
mod memory;

use rdb::{Compression, Limits, Object, VALKEY_VERSION, VERSION, dump, restore};
use structs::crc64::crc64;
use structs::hash::{Hash, HashLimits};

/// The types, and the version of the payloads that they are in. The first byte of an input picks
/// one.
const KINDS: [(u8, u16); 3] = [(22, VALKEY_VERSION), (24, VERSION), (25, VERSION)];
/// Fields that are removed at a time.
const AT_A_TIME: usize = 3;

type Contents = Vec<(Vec<u8>, Vec<u8>, Option<i64>)>;

fn contents(hash: &Hash) -> Contents {
    let mut fields: Contents = hash
        .iter()
        .map(|(field, value)| {
            let field = field.to_vec();
            let expiry = hash.expiry(&field).expect("it is a field of the hash");
            (field, value.to_vec(), expiry)
        })
        .collect();
    fields.sort();
    fields
}

/// Checks that the hash agrees with its fields.
fn check_sums(hash: &Hash, fields: &Contents) {
    assert_eq!(hash.len(), fields.len());
    assert!(fields.windows(2).all(|pair| pair[0].0 != pair[1].0), "a field is there twice");
    let times = fields.iter().filter_map(|(_, _, expiry)| *expiry);
    assert_eq!(hash.timed_fields(), times.clone().count());
    // The last time there is counts as none in the order of times: it does not come.
    if let Some(first) = times.filter(|&time| time < i64::MAX).min() {
        assert!(hash.expiry_bound().is_some_and(|bound| bound <= first), "a field is forgotten");
    }
}

/// Lets the fields expire whose times are before the one in the middle.
fn expire_some(mut hash: Hash, mut fields: Contents) {
    let mut times: Vec<i64> = fields.iter().filter_map(|(_, _, expiry)| *expiry).collect();
    times.sort_unstable();
    let Some(&time) = times.get(times.len() / 2) else { return };
    let mut removed = Vec::new();
    // Each turn removes something or finds a later bound.
    for _ in 0..4 * fields.len() + 64 {
        if hash.expiry_bound().is_none_or(|bound| bound >= time) {
            break;
        }
        hash.remove_expired(time, AT_A_TIME, |field| removed.push(field.to_vec()));
    }
    let is_due = |expiry: Option<i64>| expiry.is_some_and(|expiry| expiry < time);
    let mut due: Vec<Vec<u8>> =
        fields.extract_if(.., |(_, _, expiry)| is_due(*expiry)).map(|(field, ..)| field).collect();
    due.sort();
    removed.sort();
    assert_eq!(removed, due);
    assert_eq!(contents(&hash), fields);
    check_sums(&hash, &fields);
}

/// A payload without its type, which the first byte picks, and without its footer.
pub fn check(input: &[u8]) {
    let Some((first, body)) = input.split_first() else { return };
    let (kind, version) = KINDS[usize::from(*first) % KINDS.len()];
    let mut payload = vec![kind];
    payload.extend_from_slice(body);
    payload.extend_from_slice(&version.to_le_bytes());
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    let few = HashLimits { max_listpack_entries: 2, max_listpack_value: 5 };
    for limits in [Limits::default(), Limits { hash: few, ..Limits::default() }] {
        let restored = memory::bounded(payload.len(), || restore(&payload, &limits));
        let Ok(object) = restored else { continue };
        let fields = match &object {
            Object::Hash(hash) => contents(hash),
            _ => panic!("a hash was read as something else"),
        };
        for compression in [Compression::Lzf, Compression::Off] {
            let again = dump(object.as_ref(), compression);
            let Ok(Object::Hash(copy)) = restore(&again, &limits) else {
                panic!("what is dumped cannot be restored: {}", again.escape_ascii())
            };
            assert_eq!(contents(&copy), fields);
        }
        if let Object::Hash(hash) = object {
            check_sums(&hash, &fields);
            expire_some(hash, fields);
        }
    }
}
