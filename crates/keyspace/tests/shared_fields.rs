//! Hashes with shared field names are what a model says, whatever is done to their keys, and give
//! the names up.
//!
//! The only test of its process: it checks how many hashes of the process share names.

use keyspace::cold::{Fetched, set_store};
use keyspace::keyspace::Assignment;
use keyspace::{
    ColdError, ColdLocation, ColdStore, DbIndex, Entry, Key, Keyspace, Millis, Record, StripeData,
    Value,
};
use std::collections::BTreeMap;
use structs::field_names::{self, Figures};
use structs::hash::{Hash, HashContents, HashLimits};
use structs::listpack::Listpack;
use structs::random::Rng;

const DB: DbIndex = DbIndex(0);
const KEYS: usize = 60;

/// The fields of a hash in their order, and its expiry.
type Model = BTreeMap<String, (Vec<(String, String)>, Option<Millis>)>;

/// Cold values, which the test itself remembers.
struct Elsewhere;

impl ColdStore for Elsewhere {
    fn fetch(&self, wanted: Vec<ColdLocation>, done: Fetched) {
        done(wanted.into_iter().map(|location| self.read(location)).collect());
    }
    fn size(&self, _: ColdLocation) -> usize {
        1
    }
    fn read(&self, _: ColdLocation) -> Result<Vec<u8>, ColdError> {
        Err(ColdError("the test has the value".into()))
    }
    fn release(&self, _: ColdLocation) {}
}

fn pairs(hash: &Hash) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    hash.iter().map(|(field, value)| (text(field.to_vec()), text(value.to_vec()))).collect()
}

fn of_model(fields: &[(String, String)]) -> Hash {
    let mut hash = Hash::new();
    for (field, value) in fields {
        hash.set(field.as_bytes(), value.as_bytes(), &HashLimits::default());
    }
    hash
}

/// Names of one of some kinds of records.
fn record(rng: &mut Rng) -> Vec<(String, String)> {
    let kind = rng.below(6);
    let name = |number: u64| match kind {
        0 => format!("{number}"),
        5 => format!("alone{}:{number}", rng.clone().next_u64()),
        _ => format!("kind{kind}:field{number}"),
    };
    let names: Vec<_> = (0..kind + 2).map(name).collect();
    names.into_iter().map(|name| (name, format!("value{}", rng.below(1000)))).collect()
}

fn check(data: &StripeData, model: &Model, number: usize) {
    let name = format!("key{number}");
    let entry = data.find(DB, Key::new(name.as_bytes()));
    let Some((fields, expiry)) = model.get(&name) else { return assert!(entry.is_none()) };
    let entry = entry.expect("it is in the model");
    assert_eq!(entry.expiry(), *expiry);
    if entry.is_cold() {
        return;
    }
    let hash = entry.view::<Hash>().expect("it is a hash");
    assert_eq!(pairs(&hash), *fields);
    assert_eq!((hash.len(), hash.encoding()), (fields.len(), "listpack"));
    for (field, value) in fields {
        assert!(hash.get(field.as_bytes()).expect("it is there") == value.as_bytes()[..]);
    }
    assert!(hash.get(b"kind1:field9").is_none());
    let HashContents::Listpack(bytes) = hash.contents() else { panic!("it is no listpack") };
    let listpack = Listpack::from_bytes(&bytes).expect("it is well-formed");
    assert!(listpack.pairs().eq(hash.iter()));
}

/// Changes a key in some way.
fn change(data: &mut StripeData, model: &mut Model, rng: &mut Rng, number: usize) {
    let name = format!("key{number}");
    let key = Key::new(name.as_bytes());
    let is_cold = data.cold(DB, key).is_some();
    let Some((fields, expiry)) = model.get_mut(&name) else {
        let (fields, expiry) = (record(rng), (rng.below(3) == 0).then_some(Millis(1 << 40)));
        data.insert_absent(
            DB,
            key.hash,
            Entry::new(key.bytes, of_model(&fields).into(), expiry, 1),
        );
        model.insert(name, (fields, expiry));
        return;
    };
    let at = rng.index(fields.len());
    match rng.below(12) {
        0 => {
            data.remove(DB, key);
            model.remove(&name);
        }
        1 => {
            *expiry = if expiry.is_some() { None } else { Some(Millis(1 << 41)) };
            data.set_expiry(DB, key, *expiry);
        }
        2 => {
            let other = format!("key{}", (number + 1) % KEYS);
            let entry = data.remove(DB, key).expect("it is there");
            let to = Key::new(other.as_bytes());
            data.put(DB, to.hash, entry.rekeyed(to.bytes));
            let value = model.remove(&name).expect("it is there");
            model.insert(other, value);
        }
        3 if is_cold => {
            let was = data.cold(DB, key).expect("it is cold");
            let value = Value::Hash(of_model(fields));
            let record = if rng.below(2) == 0 { Record::Stays } else { Record::Goes };
            assert!(data.install(DB, key, was, value, record));
        }
        _ if is_cold => {}
        3 => drop(data.make_cold(DB, key, ColdLocation(1 + number as u64))),
        4 => {
            let other = format!("key{}", (number + 7) % KEYS);
            let entry = data.find(DB, key).expect("it is there");
            let copy = entry.duplicate(other.as_bytes(), *expiry, 1);
            data.put(DB, Key::new(other.as_bytes()).hash, copy);
            let value = (fields.clone(), *expiry);
            model.insert(other, value);
        }
        5 => assert!(data.relocate(DB, key, 100)),
        6 | 7 => data.enclose_by_hash(DB, key.hash),
        8 => {
            let hash = data.object_mut::<Hash>(DB, key).expect("it is a hash");
            let added = format!("more{}", fields.len());
            if hash.set_if_absent(added.as_bytes(), b"1", &HashLimits::default()) {
                fields.push((added, "1".into()));
            }
            if fields.len() > 20 {
                fields.clear();
                fields.push(("one".into(), "1".into()));
                *hash = of_model(fields);
            }
        }
        9 if fields.len() > 1 => {
            let (gone, _) = fields.remove(at);
            let hash = data.object_mut::<Hash>(DB, key).expect("it is a hash");
            assert!(hash.remove(gone.as_bytes()));
        }
        _ => {
            let hash = data.object_mut::<Hash>(DB, key).expect("it is a hash");
            let value = rng.below(100_000).to_string();
            assert!(!hash.set(fields[at].0.as_bytes(), value.as_bytes(), &HashLimits::default()));
            fields[at].1 = value;
        }
    }
}

#[test]
fn keys_are_as_the_model_says_and_give_their_names_up() {
    set_store(Box::new(Elsewhere));
    let mut greatest = Figures::default();
    for seed in 1..6 {
        let (mut model, mut rng) = (Model::new(), Rng::seeded(seed));
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let mut data = keyspace.stripe(0).lock();
        for step in 0..20_000 {
            let number = rng.index(KEYS);
            field_names::set_enabled(step % 5000 < 4000);
            change(&mut data, &mut model, &mut rng, number);
            check(&data, &model, number);
            if step % 500 == 0 {
                (0..KEYS).for_each(|number| check(&data, &model, number));
                field_names::collect();
            }
            let figures = field_names::figures();
            if figures.hashes > greatest.hashes {
                greatest = figures;
            }
        }
        (0..KEYS).for_each(|number| check(&data, &model, number));
        for name in model.keys() {
            data.remove(DB, Key::new(name.as_bytes()));
        }
        field_names::collect();
        assert_eq!(field_names::figures(), Figures::default(), "seed {seed}");
    }
    assert!(greatest.hashes > 20 && greatest.lists > 3, "{greatest:?}");
    assert!(greatest.bytes > 100, "{greatest:?}");
}
