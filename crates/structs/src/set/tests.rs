use super::*;
use crate::random::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Model = BTreeSet<Vec<u8>>;

fn check(set: &Set, model: &Model) {
    assert_eq!(set.len(), model.len());
    assert_eq!(set.is_empty(), model.is_empty());
    let members: Vec<_> = set.iter().map(|member| member.to_vec()).collect();
    assert_eq!(members.len(), model.len());
    assert!(members.iter().all(|member| model.contains(member)));
    assert_eq!(members.into_iter().collect::<BTreeSet<_>>(), *model);
    let from_contents: Model = match set.contents() {
        SetContents::Intset(bytes) => {
            let intset = Intset::from_bytes(&bytes);
            assert_eq!(intset.is_ok(), !model.is_empty());
            intset.iter().flat_map(Intset::iter).map(|v| v.to_string().into_bytes()).collect()
        }
        SetContents::Listpack(bytes) => {
            let listpack = Listpack::from_bytes(&bytes).unwrap();
            listpack.iter().map(|member| member.to_vec()).collect()
        }
        SetContents::Table(members) => members.map(<[u8]>::to_vec).collect(),
    };
    assert_eq!(from_contents, *model);
    if let Repr::Table(table) = &set.repr {
        table.assert_valid();
    }
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (-30i64..30).prop_map(|v| v.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|v| v.to_string().into_bytes()),
        2 => "[a-c]{0,3}".prop_map(String::into_bytes),
        1 => (0usize..300).prop_map(|n| vec![b'x'; n]),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Vec<u8>),
    Remove(prop::sample::Index),
    RemoveAbsent(Vec<u8>),
    Pop,
    SampleDistinct(usize),
    SampleRepeated(usize),
    WillGrow(usize),
    Scan(usize),
    Clone,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => member().prop_map(Op::Insert),
        3 => any::<prop::sample::Index>().prop_map(Op::Remove),
        1 => member().prop_map(Op::RemoveAbsent),
        1 => Just(Op::Pop),
        1 => (0usize..30).prop_map(Op::SampleDistinct),
        1 => (0usize..30).prop_map(Op::SampleRepeated),
        1 => (0usize..12).prop_map(Op::WillGrow),
        1 => (0usize..12).prop_map(Op::Scan),
        1 => Just(Op::Clone),
    ]
}

fn apply(set: &mut Set, model: &mut Model, limits: &SetLimits, rng: &mut Rng, op: Op) {
    match op {
        Op::Insert(m) => {
            assert_eq!(set.contains(&m), model.contains(&m));
            let added = if rng.index(2) == 0 {
                set.insert(&m, limits)
            } else {
                let element = parse_i64(&m).map_or(Element::Bytes(&m), Element::Int);
                set.insert_element(element, limits)
            };
            assert_eq!(added, model.insert(m.clone()));
            assert!(set.contains(&m));
            assert!(set.contains_element(Element::Bytes(&m)));
        }
        Op::Remove(i) if !model.is_empty() => {
            let m = model.iter().nth(i.index(model.len())).unwrap().clone();
            assert!(set.remove(&m));
            model.remove(&m);
        }
        Op::RemoveAbsent(m) => assert_eq!(set.remove(&m), model.remove(&m)),
        Op::Pop => match set.pop_random(rng, |member| member.to_vec()) {
            Some(member) => assert!(model.remove(&member)),
            None => assert!(model.is_empty()),
        },
        Op::SampleDistinct(n) => {
            let mut seen = Vec::new();
            set.sample_distinct(n, rng, |member| seen.push(member.to_vec()));
            assert_eq!(seen.len(), n.min(model.len()));
            assert!(seen.iter().all(|member| model.contains(member)));
            assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
        }
        Op::SampleRepeated(n) => {
            let mut seen = 0;
            set.sample_repeated(n, rng, |member| {
                assert!(model.contains(&member.to_vec()));
                seen += 1;
            });
            assert_eq!(seen, if model.is_empty() { 0 } else { n });
        }
        Op::WillGrow(n) => set.will_grow(b"1", n, limits),
        Op::Scan(count) => {
            let mut seen = Vec::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, count, |member| seen.push(member.to_vec()));
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen.len(), model.len());
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), *model);
        }
        Op::Clone => {
            let copy = set.clone();
            assert_eq!(copy.encoding(), set.encoding());
            *set = copy;
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_set(
        entries in prop::sample::select(vec![0usize, 1, 8, 128]),
        value in prop::sample::select(vec![0usize, 2, 64]),
        intset in prop::sample::select(vec![0usize, 4, 512]),
        seed: u64,
        ops in proptest::collection::vec(op(), 0..if cfg!(miri) { 20 } else { 150 }),
    ) {
        let limits = SetLimits {
            max_intset_entries: intset,
            max_listpack_entries: entries,
            max_listpack_value: value,
        };
        let mut rng = Rng::seeded(seed);
        let (mut set, mut model) = (Set::empty(), Model::new());
        for op in ops {
            apply(&mut set, &mut model, &limits, &mut rng, op);
            check(&set, &model);
        }
    }
}

fn set_of<'a>(members: impl IntoIterator<Item = &'a str>, limits: &SetLimits) -> Set {
    let mut members = members.into_iter().peekable();
    let mut set = Set::new(members.peek().map_or(b"", |m| m.as_bytes()), 1, limits);
    members.for_each(|member| assert!(set.insert(member.as_bytes(), limits)));
    set
}

#[test]
fn encoding_follows_the_limits() {
    let limits =
        SetLimits { max_intset_entries: 3, max_listpack_entries: 4, max_listpack_value: 5 };
    assert_eq!(set_of(["1", "2", "3"], &limits).encoding(), "intset");
    assert_eq!(set_of(["1", "2", "3", "4"], &limits).encoding(), "hashtable");
    assert_eq!(set_of(["1", "2", "3", "a"], &limits).encoding(), "listpack");
    assert_eq!(set_of(["a", "b", "c", "d"], &limits).encoding(), "listpack");
    assert_eq!(set_of(["a", "b", "c", "d", "e"], &limits).encoding(), "hashtable");
    assert_eq!(set_of(["a", "12345"], &limits).encoding(), "listpack");
    assert_eq!(set_of(["a", "123456"], &limits).encoding(), "hashtable");
    assert_eq!(set_of(["123456", "a"], &limits).encoding(), "hashtable");
    assert_eq!(set_of(["1", "abcdef"], &limits).encoding(), "hashtable");
    assert_eq!(Set::new(b"1", 4, &limits).encoding(), "listpack");
    assert_eq!(Set::new(b"1", 5, &limits).encoding(), "hashtable");
}

#[test]
fn loaded_sets_are_checked_and_converted() {
    let limits = SetLimits { max_listpack_entries: 2, ..SetLimits::default() };
    let listpack = |members: &[&str]| {
        let mut listpack = Listpack::new();
        members.iter().for_each(|member| listpack.push_back(member.as_bytes()));
        listpack
    };
    assert!(Set::from_listpack(listpack(&[]), &limits).is_err());
    assert!(Set::from_listpack(listpack(&["a", "b", "a"]), &limits).is_err());
    let set = Set::from_listpack(listpack(&["a", "b"]), &limits).unwrap();
    assert_eq!(set.encoding(), "listpack");
    let set = Set::from_listpack(listpack(&["a", "b", "c"]), &limits).unwrap();
    assert_eq!(set.encoding(), "hashtable");
    assert_eq!(set.len(), 3);
    // A string "7" beside the integer 7, which only a forged payload has.
    let forged = b"\x0C\0\0\0\x02\0\x07\x01\x817\x02\xFF";
    let forged = Listpack::from_bytes(&[&13u32.to_le_bytes()[..], &forged[4..]].concat());
    assert!(forged.is_err() || Set::from_listpack(forged.unwrap(), &limits).is_err());
    let mut intset = Intset::new();
    assert!((0..600).all(|value| intset.insert(value)));
    assert_eq!(Set::from_intset(intset.clone(), &limits).encoding(), "hashtable");
    intset.remove(599);
    assert!((512..599).all(|value| intset.remove(value)));
    assert_eq!(Set::from_intset(intset, &limits).encoding(), "intset");
}

/// A member that stays is returned by a scan during which the set grows and shrinks.
#[test]
fn scan_keeps_its_guarantee_under_change() {
    let limits = SetLimits::default();
    let mut rng = Rng::seeded(7);
    let sizes = if cfg!(miri) { (300, 300) } else { (2_000, 6_000) };
    for shrink in [false, true] {
        let mut set = Set::new(b"", 1000, &limits);
        for i in 0..sizes.0 {
            set.insert(format!("stays{i}").as_bytes(), &limits);
        }
        if shrink {
            for i in 0..sizes.1 {
                set.insert(format!("goes{i}").as_bytes(), &limits);
            }
        }
        let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let (mut cursor, mut changed) = (0, 0);
        loop {
            cursor = set.scan(cursor, 1 + rng.index(20), |member| {
                *seen.entry(member.to_vec()).or_default() += 1;
            });
            if cursor == 0 {
                break;
            }
            // Bounded, for a set that grows faster than it is scanned is never at its end.
            for _ in 0..if changed < sizes.1 { sizes.1 / 50 } else { 0 } {
                let member = format!("goes{changed}");
                if shrink {
                    set.remove(member.as_bytes());
                } else {
                    set.insert(member.as_bytes(), &limits);
                }
                changed += 1;
            }
        }
        for i in 0..sizes.0 {
            assert_eq!(seen.get(format!("stays{i}").as_bytes()), Some(&1), "stays{i}");
        }
    }
}

/// Chi-squared over all members of every encoding.
#[test]
#[cfg_attr(miri, ignore = "statistics need many draws")]
fn random_members_are_fair() {
    let limits = SetLimits::default();
    let sets =
        [set_of(["1", "2", "3", "4", "5"], &limits), set_of(["a", "b", "c", "d", "5"], &limits), {
            let mut set = Set::new(b"", 1000, &limits);
            assert!((0..200).all(|i| set.insert(format!("m{i}").as_bytes(), &limits)));
            assert!((0..100).all(|i| set.remove(format!("m{i}").as_bytes())));
            set
        }];
    let mut rng = Rng::seeded(99);
    for set in sets {
        let draws = 1000 * set.len();
        for method in 0..3 {
            let mut counts: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
            let mut note = |member: Element<'_>| *counts.entry(member.to_vec()).or_default() += 1.0;
            match method {
                0 => (0..draws).for_each(|_| note(set.random(&mut rng).unwrap())),
                1 => set.sample_repeated(draws, &mut rng, note),
                _ => (0..draws / 2).for_each(|_| set.sample_distinct(2, &mut rng, &mut note)),
            }
            assert_eq!(counts.len(), set.len());
            let chi: f64 = counts.values().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
            // The mean is the number of members; far more than that is not chance.
            assert!(chi < 2.0 * set.len() as f64 + 15.0, "{chi} for {}", set.encoding());
        }
    }
}
