use super::*;
use crate::random::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn check(hash: &Hash, model: &Model) {
    assert_eq!(hash.len(), model.len());
    assert_eq!(hash.is_empty(), model.is_empty());
    let pairs: Vec<_> = hash.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
    assert_eq!(pairs.len(), model.len());
    assert_eq!(pairs.into_iter().collect::<Model>(), *model);
    let contents: Model = match hash.contents() {
        HashContents::Listpack(bytes) => {
            let listpack = Listpack::from_bytes(bytes).unwrap();
            listpack.pairs().map(|(f, v)| (f.to_vec(), v.to_vec())).collect()
        }
        HashContents::Table(pairs) => pairs.map(|(f, v)| (f.to_vec(), v.to_vec())).collect(),
    };
    assert_eq!(contents, *model);
    if let Repr::Table(table) = &hash.repr {
        table.assert_valid();
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0i64..12).prop_map(|v| v.to_string().into_bytes()),
        4 => "[a-c]{0,2}".prop_map(String::into_bytes),
        1 => (250usize..260).prop_map(|n| vec![b'f'; n]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0i64..1000).prop_map(|v| v.to_string().into_bytes()),
        4 => (0usize..40).prop_map(|n| vec![b'x'; n]),
        1 => prop::sample::select(vec![255, 256, 1023, 1024, 3000]).prop_map(|n| vec![b'v'; n]),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Set(Vec<u8>, Vec<u8>),
    SetAll(Vec<Vec<u8>>),
    SetIfAbsent(Vec<u8>, Vec<u8>),
    Modify(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Sample(usize),
    Scan(usize),
    Clone,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (name(), value()).prop_map(|(f, v)| Op::Set(f, v)),
        1 => proptest::collection::vec(prop_oneof![name(), value()], 0..12).prop_map(Op::SetAll),
        2 => (name(), value()).prop_map(|(f, v)| Op::SetIfAbsent(f, v)),
        3 => (name(), value()).prop_map(|(f, v)| Op::Modify(f, v)),
        5 => name().prop_map(Op::Remove),
        1 => (0usize..30).prop_map(Op::Sample),
        1 => (0usize..12).prop_map(Op::Scan),
        1 => Just(Op::Clone),
    ]
}

fn apply(hash: &mut Hash, model: &mut Model, limits: &HashLimits, rng: &mut Rng, op: Op) {
    match op {
        Op::Set(f, v) => {
            assert_eq!(hash.contains(&f), model.contains_key(&f));
            assert_eq!(hash.set(&f, &v, limits), !model.contains_key(&f));
            assert!(hash.get(&f).unwrap() == v[..]);
            model.insert(f, v);
        }
        Op::SetAll(elements) => {
            hash.will_grow(elements.iter().map(Vec::as_slice), limits);
            for pair in elements.chunks_exact(2) {
                assert_eq!(hash.set(&pair[0], &pair[1], limits), !model.contains_key(&pair[0]));
                model.insert(pair[0].clone(), pair[1].clone());
            }
        }
        Op::SetIfAbsent(f, v) => {
            assert_eq!(hash.set_if_absent(&f, &v, limits), !model.contains_key(&f));
            model.entry(f).or_insert(v);
        }
        Op::Modify(f, v) => {
            let refused = hash.modify(&f, limits, |old| {
                assert_eq!(old.map(|old| old.to_vec()).as_ref(), model.get(&f));
                Err::<Vec<u8>, _>("no")
            });
            assert_eq!(refused, Err("no"));
            let is_new = hash.modify(&f, limits, |old| {
                let mut value = old.map(|old| old.to_vec()).unwrap_or_default();
                value.extend(&v);
                Ok::<_, ()>(value)
            });
            assert_eq!(is_new, Ok(!model.contains_key(&f)));
            model.entry(f).or_default().extend(v);
        }
        Op::Remove(f) => {
            let removed = hash.remove_with(&f, |value| value.to_vec());
            assert_eq!(removed, model.remove(&f));
            assert!(!hash.remove(&f));
            assert!(hash.get(&f).is_none());
        }
        Op::Sample(n) => {
            let mut seen = Vec::new();
            hash.sample_distinct(n, rng, |f, v| {
                assert_eq!(model.get(&f.to_vec()), Some(&v.to_vec()));
                seen.push(f.to_vec());
            });
            assert_eq!(seen.len(), n.min(model.len()));
            assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
            let mut times = 0;
            hash.sample_repeated(n, rng, |f, v| {
                assert_eq!(model.get(&f.to_vec()), Some(&v.to_vec()));
                times += 1;
            });
            assert_eq!(times, if model.is_empty() { 0 } else { n });
        }
        Op::Scan(count) => {
            let (mut seen, mut times, mut cursor) = (Model::new(), 0, 0);
            loop {
                cursor = hash.scan(cursor, count, |f, v| {
                    seen.insert(f.to_vec(), v.to_vec());
                    times += 1;
                });
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!((times, seen), (model.len(), model.clone()));
        }
        Op::Clone => {
            let copy = hash.clone();
            assert_eq!(copy.encoding(), hash.encoding());
            *hash = copy;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_map(
        entries in prop::sample::select(vec![0usize, 1, 8, 512]),
        value in prop::sample::select(vec![0usize, 2, 64]),
        seed: u64,
        ops in proptest::collection::vec(op(), 0..if cfg!(miri) { 20 } else { 150 }),
    ) {
        let limits = HashLimits { max_listpack_entries: entries, max_listpack_value: value };
        let mut rng = Rng::seeded(seed);
        let (mut hash, mut model) = (Hash::new(), Model::new());
        for op in ops {
            apply(&mut hash, &mut model, &limits, &mut rng, op);
            check(&hash, &model);
        }
    }
}

#[test]
fn encoding_follows_the_limits() {
    let limits = HashLimits { max_listpack_entries: 2, max_listpack_value: 4 };
    let encoding = |pairs: &[(&str, &str)]| {
        let mut hash = Hash::new();
        for (field, value) in pairs {
            hash.set(field.as_bytes(), value.as_bytes(), &limits);
        }
        hash.encoding()
    };
    assert_eq!(encoding(&[("a", "1"), ("b", "2"), ("a", "3")]), "listpack");
    assert_eq!(encoding(&[("a", "1"), ("b", "2"), ("c", "3")]), "hashtable");
    assert_eq!(encoding(&[("a", "12345")]), "hashtable");
    assert_eq!(encoding(&[("abcde", "1")]), "hashtable");
    assert_eq!(encoding(&[("a", "1"), ("a", "12345")]), "hashtable");
    assert_eq!(Hash::with_capacity(2, &limits).encoding(), "listpack");
    assert_eq!(Hash::with_capacity(3, &limits).encoding(), "hashtable");
}

#[test]
fn loaded_hashes_are_checked_and_converted() {
    let limits = HashLimits { max_listpack_entries: 2, max_listpack_value: 4 };
    let load = |elements: &[&str]| {
        let mut listpack = Listpack::new();
        elements.iter().for_each(|element| listpack.push_back(element.as_bytes()));
        Hash::from_listpack(listpack, &limits).map(|hash| hash.encoding())
    };
    assert_eq!(load(&[]), Err(Malformed));
    assert_eq!(load(&["a"]), Err(Malformed));
    assert_eq!(load(&["a", "1", "a", "2"]), Err(Malformed));
    assert_eq!(load(&["a", "1", "1", "a"]), Ok("listpack"));
    assert_eq!(load(&["a", "1", "b", "2", "c", "3"]), Ok("hashtable"));
}

#[test]
#[cfg_attr(miri, ignore = "statistics need many draws")]
fn random_fields_are_fair() {
    let limits = HashLimits::default();
    for expected in [1, 1000] {
        let mut hash = Hash::with_capacity(expected, &limits);
        for i in 0..20 {
            hash.set(format!("f{i}").as_bytes(), b"v", &limits);
        }
        let mut rng = Rng::seeded(3);
        for method in 0..3 {
            let mut counts: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
            let mut note =
                |f: Element<'_>, _: Element<'_>| *counts.entry(f.to_vec()).or_default() += 1.0;
            match method {
                0 => (0..20_000).for_each(|_| {
                    let (f, v) = hash.random(&mut rng).unwrap();
                    note(f, v);
                }),
                1 => hash.sample_repeated(20_000, &mut rng, note),
                _ => (0..10_000).for_each(|_| hash.sample_distinct(2, &mut rng, &mut note)),
            }
            assert_eq!(counts.len(), 20);
            let chi: f64 = counts.values().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
            assert!(chi < 55.0, "{chi} for {}", hash.encoding());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "the steps that are counted need many fields; the table's own test runs")]
fn a_watch_sees_every_field_once_whoever_takes_the_steps() {
    use std::sync::{Arc, Mutex};
    let limits = HashLimits::default();
    let mut hash = Hash::new();
    let mut model = Model::new();
    for number in 0..5000u32 {
        let field = number.to_string().into_bytes();
        hash.set(&field, b"old", &limits);
        model.insert(field, b"old".to_vec());
    }
    let seen = Arc::new(Mutex::new(Vec::<(Vec<u8>, Vec<u8>)>::new()));
    let to = Arc::clone(&seen);
    hash.watch(move |field, value| to.lock().unwrap().push((field.to_vec(), value.to_vec())));
    assert_eq!(hash.allow_watch(100), 0);
    // Each change takes its own cell and two more, until the steps that are allowed are spent.
    for number in 0..500u32 {
        hash.set((number * 37 % 7000).to_string().as_bytes(), b"new", &limits);
    }
    assert_eq!(hash.allow_watch(10), 0);
    assert!(seen.lock().unwrap().len() > 500);
    hash.remove(b"4999");
    hash.remove(b"4998");
    assert!(hash.allow_watch(0) <= 10 - 2);
    while hash.step_watch() {
        hash.set(b"0", b"again", &limits);
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), model.len());
    assert_eq!(seen.iter().cloned().collect::<Model>(), model);
}
