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
            let listpack = Listpack::from_bytes(&bytes).unwrap();
            listpack.pairs().map(|(f, v)| (f.to_vec(), v.to_vec())).collect()
        }
        HashContents::Table(fields) => owned(fields.inspect(|field| assert_eq!(field.2, None))),
        HashContents::Timed(fields) => owned(fields),
    };
    assert_eq!(contents, *model);
    if let View::Table(table) = hash.view() {
        table.assert_valid();
    }
}

fn owned<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8], Option<i64>)>) -> Model {
    fields.map(|(field, value, _)| (field.to_vec(), value.to_vec())).collect()
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
    hash.watch(move |field, value, _| to.lock().unwrap().push((field.to_vec(), value.to_vec())));
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

type TimedModel = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

#[derive(Clone, Debug)]
enum TimedOp {
    Set(Vec<u8>, Vec<u8>),
    SetTimed(Vec<u8>, Vec<u8>, i64),
    SetExpiry(Vec<u8>, Option<i64>),
    Remove(Vec<u8>),
    Look(i64),
    RemoveExpired(i64),
    Settle,
    Clone,
}

fn timed_op() -> impl Strategy<Value = TimedOp> {
    let name = || (0u32..300).prop_map(|number| number.to_string().into_bytes());
    prop_oneof![
        4 => (name(), value()).prop_map(|(f, v)| TimedOp::Set(f, v)),
        6 => (name(), value(), 0i64..1000).prop_map(|(f, v, at)| TimedOp::SetTimed(f, v, at)),
        4 => (name(), proptest::option::of(0i64..1000)).prop_map(|(f, at)| TimedOp::SetExpiry(f, at)),
        3 => name().prop_map(TimedOp::Remove),
        1 => (0i64..1100).prop_map(TimedOp::Look),
        1 => (0i64..1100).prop_map(TimedOp::RemoveExpired),
        1 => Just(TimedOp::Settle),
        1 => Just(TimedOp::Clone),
    ]
}

fn check_timed(hash: &Hash, model: &TimedModel, time: i64) {
    assert_eq!(hash.len(), model.len());
    let timed = model.values().filter(|(_, expiry)| expiry.is_some()).count();
    assert_eq!(hash.timed_fields(), timed);
    let earliest = model.values().filter_map(|(_, expiry)| *expiry).min();
    if let Some(earliest) = earliest {
        assert!(hash.expiry_bound().is_some_and(|bound| bound <= earliest));
    }
    let is_live = |expiry: Option<i64>| expiry.is_none_or(|expiry| expiry >= time);
    let live = hash.live(time);
    for (field, (value, expiry)) in model {
        assert_eq!(hash.expiry(field), Some(*expiry));
        assert_eq!(live.contains(field), is_live(*expiry));
        assert_eq!(live.get(field).map(|value| value.to_vec()).is_some(), is_live(*expiry));
        assert!(!is_live(*expiry) || live.get(field).unwrap() == value[..]);
        assert_eq!(hash.has_expired(field, time), !is_live(*expiry));
    }
    let expected: BTreeSet<&Vec<u8>> =
        model.iter().filter(|(_, (_, expiry))| is_live(*expiry)).map(|(field, _)| field).collect();
    let names: Vec<Vec<u8>> = live.iter().map(|(field, _)| field.to_vec()).collect();
    assert_eq!(
        (names.iter().collect::<BTreeSet<_>>(), live.count()),
        (expected.clone(), names.len())
    );
    let (mut scanned, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = live.scan(cursor, 10, |field, _| scanned.push(field.to_vec()));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned.iter().collect::<BTreeSet<_>>(), expected);
    let mut rng = Rng::seeded(7);
    let is_expected = |field: Element<'_>| expected.contains(&field.to_vec());
    assert_eq!(
        live.random(&mut rng).map(|(field, _)| is_expected(field)),
        names.first().map(|_| true)
    );
    let mut drawn = BTreeSet::new();
    live.sample_distinct(20, &mut rng, |field, _| {
        assert!(is_expected(field) && drawn.insert(field.to_vec()));
    });
    assert_eq!(drawn.len(), expected.len().min(20));
    live.sample_repeated(5, &mut rng, |field, _| assert!(is_expected(field)));
}

fn apply_timed(hash: &mut Hash, model: &mut TimedModel, limits: &HashLimits, op: TimedOp) {
    match op {
        TimedOp::Set(field, value) => {
            let is_new = hash.set(&field, &value, limits);
            assert_eq!(is_new, model.insert(field, (value, None)).is_none());
        }
        TimedOp::SetTimed(field, value, at) => {
            let is_new = hash.set_timed(&field, &value, at);
            assert_eq!(is_new, model.insert(field, (value, Some(at))).is_none());
        }
        TimedOp::SetExpiry(field, expiry) => {
            let is_there = hash.set_expiry(&field, expiry);
            let known = model.get_mut(&field).map(|known| known.1 = expiry);
            assert_eq!(is_there, known.is_some());
        }
        TimedOp::Remove(field) => {
            let removed = hash.remove_with(&field, |value| value.to_vec());
            assert_eq!(removed, model.remove(&field).map(|(value, _)| value));
        }
        TimedOp::Look(time) => check_timed(hash, model, time),
        TimedOp::RemoveExpired(time) => {
            let mut removed = BTreeSet::new();
            while hash.expiry_bound().is_some_and(|bound| bound < time) {
                hash.remove_expired(time, 7, |field| {
                    assert!(removed.insert(field.to_vec()));
                });
            }
            let has_expired = |expiry: Option<i64>| expiry.is_some_and(|expiry| expiry < time);
            let expected = model.extract_if(.., |_, (_, expiry)| has_expired(*expiry));
            assert_eq!(removed, expected.map(|(field, _)| field).collect());
        }
        TimedOp::Settle => {
            hash.note_time(Some(5));
            hash.drop_times();
            assert_eq!(hash.is_timed(), hash.timed_fields() > 0);
            assert_eq!(hash.noted_time(), hash.is_timed().then_some(5));
        }
        TimedOp::Clone => {
            hash.note_time(Some(5));
            *hash = hash.clone();
            assert_eq!(hash.noted_time(), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]
    #[test]
    fn fields_expire_as_the_model_says(ops in proptest::collection::vec(timed_op(), 1..if cfg!(miri) { 30 } else { 600 })) {
        let limits = HashLimits { max_listpack_entries: 8, max_listpack_value: 20 };
        let (mut hash, mut model) = (Hash::new(), TimedModel::new());
        for op in ops {
            apply_timed(&mut hash, &mut model, &limits, op);
        }
        check_timed(&hash, &model, 500);
    }
}

#[test]
fn one_field_that_expires_among_many_is_found_at_once() {
    let mut hash = Hash::new();
    let limits = HashLimits::default();
    let fields = if cfg!(miri) { 600 } else { 20_000 };
    for number in 0..fields as u32 {
        hash.set(&number.to_le_bytes(), b"value", &limits);
    }
    hash.set_expiry(&7u32.to_le_bytes(), Some(100));
    let mut removed = Vec::new();
    hash.remove_expired(101, 1, |field| removed.push(field.to_vec()));
    assert_eq!(removed, [7u32.to_le_bytes()]);
    assert_eq!((hash.timed_fields(), hash.expiry_bound(), hash.len()), (0, None, fields - 1));
    hash.drop_times();
    assert!(!hash.is_timed());
}

#[test]
fn a_small_hash_stays_small_when_a_field_expires() {
    let mut hash = Hash::new();
    let limits = HashLimits::default();
    for number in 0..3u8 {
        hash.set(&[b'f', number], b"value:12", &limits);
    }
    hash.set_expiry(&[b'f', 1], Some(100));
    hash.note_time(Some(100));
    assert_eq!((hash.encoding(), hash.is_timed()), ("hashtable", true));
    // The array and its places, two fields of 13 bytes and one of 21.
    assert!(hash.allocated_bytes() <= 56 + 32 + 16 + 24 + 16, "{}", hash.allocated_bytes());
    // The one that is too many for an array, and then one that is too long.
    for number in 3..=few::MAX_FIELDS as u8 {
        assert!(matches!(hash.repr, Repr::Few(_)));
        hash.set(&[b'f', number], b"value", &limits);
    }
    assert!(matches!(hash.repr, Repr::Timed(_)));
    let known = (hash.timed_fields(), hash.expiry_bound(), hash.noted_time());
    assert_eq!((known, hash.len()), ((1, Some(100), Some(100)), few::MAX_FIELDS + 1));
    let mut long = Hash::new();
    long.set_timed(b"f", b"v", 5);
    let lengthened = long.modify(b"f", &limits, |_| Ok::<_, ()>([b'v'; 256]));
    assert_eq!((lengthened, long.expiry(b"f")), (Ok(false), Some(Some(5))));
    assert!(matches!(long.repr, Repr::Timed(_)));
}

#[test]
fn the_greatest_time_is_a_time() {
    let limits = HashLimits { max_listpack_entries: 100, max_listpack_value: 64 };
    for fields in [1, 2 * few::MAX_FIELDS as u8] {
        let mut hash = Hash::new();
        for number in 0..fields {
            hash.set(&[b'f', number], b"value", &limits);
        }
        hash.set_expiry(&[b'f', 0], Some(i64::MAX));
        assert_eq!((hash.timed_fields(), hash.expiry_bound()), (1, Some(i64::MAX)));
        hash.set_expiry(&[b'f', 0], None);
        assert_eq!((hash.timed_fields(), hash.expiry_bound()), (0, None));
    }
}
