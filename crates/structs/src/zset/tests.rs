//! The sorted set, in either encoding, against a sorted vector.

use super::*;
use crate::random::Rng;
use proptest::prelude::*;
use std::ops::Bound;

const SMALL: ZsetLimits = ZsetLimits { max_listpack_entries: usize::MAX, max_listpack_value: 64 };
const BIG: ZsetLimits = ZsetLimits { max_listpack_entries: 0, max_listpack_value: 64 };

type Entry = (f64, Vec<u8>);

fn owned((member, score): (Element<'_>, f64)) -> Entry {
    (score, member.to_vec())
}

fn all(zset: &Zset) -> Vec<Entry> {
    zset.iter().map(owned).collect()
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, i8),
    Fraction(u16, f64),
    Add(u16, i8),
    Remove(u16),
    RemoveRanks(usize, usize),
    Pop(bool),
    Ranks(i8, i8, bool, bool),
    Lex(u16, u16, bool, bool),
    Slice(usize, usize),
}

fn ops() -> impl Strategy<Value = Op> {
    let member = 0u16..400;
    prop_oneof![
        8 => (member.clone(), -5i8..5).prop_map(|(m, s)| Op::Insert(m, s)),
        3 => (member.clone(), -2.0..2.0).prop_map(|(m, s)| Op::Fraction(m, s)),
        3 => (member.clone(), -2i8..3).prop_map(|(m, s)| Op::Add(m, s)),
        3 => member.clone().prop_map(Op::Remove),
        1 => (0usize..400, 0usize..60).prop_map(|(a, n)| Op::RemoveRanks(a, n)),
        2 => any::<bool>().prop_map(Op::Pop),
        1 => (-6i8..6, -6i8..6, any::<bool>(), any::<bool>())
            .prop_map(|(a, b, x, y)| Op::Ranks(a, b, x, y)),
        1 => (member.clone(), member, any::<bool>(), any::<bool>())
            .prop_map(|(a, b, x, y)| Op::Lex(a, b, x, y)),
        1 => (0usize..400, 0usize..400).prop_map(|(a, b)| Op::Slice(a, b)),
    ]
}

/// Some members are integers to a listpack, some are not, one is empty.
fn name(number: u16) -> Vec<u8> {
    match number % 3 {
        _ if number == 0 => Vec::new(),
        0 => number.to_string().into_bytes(),
        1 => format!("m{number}").into_bytes(),
        _ => format!("-{number}").into_bytes(),
    }
}

fn less(a: &Entry, b: &Entry) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 < b.1)
}

struct Model(Vec<Entry>);

impl Model {
    fn position(&self, member: &[u8]) -> Option<usize> {
        self.0.iter().position(|entry| entry.1 == member)
    }

    fn insert(&mut self, member: Vec<u8>, score: f64) -> Change {
        let change = match self.position(&member) {
            Some(at) if self.0[at].0 == score => return Change::Unchanged,
            Some(at) => {
                self.0.remove(at);
                Change::Updated
            }
            None => Change::Added,
        };
        let entry = (score, member);
        let at = self.0.partition_point(|other| less(other, &entry));
        self.0.insert(at, entry);
        change
    }
}

#[expect(clippy::too_many_lines, reason = "an arm for each operation of the model")]
fn run(ops: Vec<Op>, limits: &ZsetLimits) {
    let mut zset = Zset::new();
    let mut model = Model(Vec::new());
    for op in ops {
        match op {
            Op::Insert(member, score) => {
                let (member, score) = (name(member), f64::from(score));
                assert_eq!(zset.insert(&member, score, limits), model.insert(member, score));
            }
            Op::Fraction(member, score) => {
                let member = name(member);
                assert_eq!(zset.insert(&member, score, limits), model.insert(member, score));
            }
            Op::Add(member, step) => {
                let member = name(member);
                let old = model.position(&member).map(|at| model.0[at].0);
                let new = old.unwrap_or(0.0) + f64::from(step);
                let change = zset.update(&member, limits, |present| {
                    assert_eq!(present, old);
                    (step != 2).then_some(new)
                });
                let expected = match step {
                    2 => Change::Unchanged,
                    _ => model.insert(member, new),
                };
                assert_eq!(change, expected);
            }
            Op::Remove(member) => {
                let member = name(member);
                let at = model.position(&member);
                assert_eq!(zset.rank(&member).map(|found| found.0), at);
                assert_eq!(zset.remove(&member), at.map(|at| model.0.remove(at).0));
                assert_eq!(zset.score(&member), None);
            }
            Op::RemoveRanks(start, count) => {
                let mut removed = Vec::new();
                let ranks = start..start + count;
                let number = zset.remove_ranks(ranks, |m, s| removed.push(owned((m, s))));
                let len = model.0.len();
                let (start, end) = (start.min(len), (start + count).min(len));
                assert_eq!(removed, model.0.drain(start..end).collect::<Vec<_>>());
                assert_eq!(number, removed.len());
            }
            Op::Pop(min) => {
                let end = if min { Extreme::Min } else { Extreme::Max };
                let popped = zset.pop(end, |m, s| owned((m, s)));
                let expected = match (model.0.is_empty(), min) {
                    (true, _) => None,
                    (_, true) => Some(model.0.remove(0)),
                    (_, false) => model.0.pop(),
                };
                assert_eq!(popped, expected);
            }
            Op::Ranks(a, b, exclusive_a, exclusive_b) => {
                let bound = |value: i8, exclusive| match exclusive {
                    true => Bound::Excluded(f64::from(value)),
                    false => Bound::Included(f64::from(value)),
                };
                let range = ScoreRange { min: bound(a, exclusive_a), max: bound(b, exclusive_b) };
                let expected: Vec<_> =
                    model.0.iter().filter(|e| range.contains(e.0)).cloned().collect();
                let ranks = zset.ranks_by_score(&range);
                assert_eq!(ranks.len(), expected.len());
                assert!(zset.range(ranks.clone()).map(owned).eq(expected.iter().cloned()));
                assert!(zset.range(ranks).rev().map(owned).eq(expected.into_iter().rev()));
            }
            Op::Lex(a, b, exclusive_a, exclusive_b) => {
                let (a, b) = (name(a), name(b));
                let bound = |value, exclusive| match exclusive {
                    true => LexBound::Excluded(value),
                    false => LexBound::Included(value),
                };
                let range = LexRange { min: bound(&a, exclusive_a), max: bound(&b, exclusive_b) };
                // Bounds by member mean something only where all scores are equal.
                let mut flat = Zset::new();
                for (_, member) in &model.0 {
                    flat.insert(member, 1.0, limits);
                }
                let expected: Vec<_> =
                    all(&flat).into_iter().filter(|e| range.contains(&e.1)).collect();
                let ranks = flat.ranks_by_lex(&range);
                assert!(flat.range(ranks).map(owned).eq(expected));
                // Elsewhere it must be harmless.
                let ranks = zset.ranks_by_lex(&range);
                assert!(zset.range(ranks.clone()).count() == ranks.len());
            }
            Op::Slice(start, end) => {
                let len = model.0.len();
                let (from, to) = (start.min(end.min(len)), end.min(len));
                assert!(zset.range(start..end).map(owned).eq(model.0[from..to].iter().cloned()));
                assert_eq!(zset.get(start).map(owned), model.0.get(start).cloned());
                let mut both = zset.range(start..end);
                let mut expected = model.0[from..to].iter().cloned();
                while both.len() > 0 {
                    assert_eq!(both.next().map(owned), expected.next());
                    assert_eq!(both.next_back().map(owned), expected.next_back());
                }
                assert_eq!(both.next().map(owned), None);
            }
        }
        assert_eq!(zset.len(), model.0.len());
    }
    zset.assert_valid();
    assert_eq!(all(&zset), model.0);
    for (rank, (score, member)) in model.0.iter().enumerate() {
        assert_eq!(zset.rank(member), Some((rank, *score)));
    }
    let copy = zset.clone();
    copy.assert_valid();
    assert_eq!(copy.encoding(), zset.encoding());
    drop(zset);
    assert_eq!(all(&copy), model.0);
    let mut scanned = Vec::new();
    let mut cursor = 0;
    loop {
        cursor = copy.scan(cursor, 10, |m, s| scanned.push(owned((m, s))));
        if cursor == 0 {
            break;
        }
    }
    scanned.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    assert_eq!(scanned, model.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 96 }))]

    #[test]
    fn listpack_agrees_with_the_model(
        ops in proptest::collection::vec(ops(), 0..if cfg!(miri) { 60 } else { 400 })
    ) {
        run(ops, &SMALL);
    }

    #[test]
    fn tree_agrees_with_the_model(
        ops in proptest::collection::vec(ops(), 0..if cfg!(miri) { 150 } else { 2500 })
    ) {
        run(ops, &BIG);
    }

    #[test]
    fn converting_agrees_with_the_model(
        ops in proptest::collection::vec(ops(), 0..if cfg!(miri) { 80 } else { 600 })
    ) {
        run(ops, &ZsetLimits { max_listpack_entries: 20, max_listpack_value: 64 });
    }
}

#[test]
fn converts_when_redis_does() {
    let limits = ZsetLimits { max_listpack_entries: 3, max_listpack_value: 4 };
    let mut zset = Zset::new();
    for member in [b"a", b"b", b"c"] {
        zset.insert(member, 1.0, &limits);
    }
    assert_eq!(zset.encoding(), "listpack");
    zset.insert(b"a", 2.0, &limits);
    assert_eq!(zset.encoding(), "listpack", "a change adds nothing");
    zset.insert(b"d", 1.0, &limits);
    assert_eq!(zset.encoding(), "skiplist");
    zset.remove(b"d");
    assert_eq!(zset.encoding(), "skiplist", "there is no way back");
    zset.pack(&limits);
    assert_eq!(zset.encoding(), "listpack", "but on request");
    zset.insert(b"12345", 1.0, &limits);
    assert_eq!(zset.encoding(), "skiplist", "a long member");
    zset.pack(&limits);
    assert_eq!(zset.encoding(), "skiplist", "too much to pack");
    assert_eq!(all(&zset).len(), 4);
    zset.assert_valid();

    assert_eq!(Zset::with_capacity(3, 4, &limits).encoding(), "listpack");
    assert_eq!(Zset::with_capacity(4, 0, &limits).encoding(), "skiplist");
    assert_eq!(Zset::with_capacity(0, 5, &limits).encoding(), "skiplist");
}

#[test]
fn infinite_and_negative_zero_scores() {
    for limits in [SMALL, BIG] {
        let mut zset = Zset::new();
        zset.insert(b"high", f64::INFINITY, &limits);
        zset.insert(b"low", f64::NEG_INFINITY, &limits);
        zset.insert(b"zero", -0.0, &limits);
        assert_eq!(zset.insert(b"zero", 0.0, &limits), Change::Unchanged);
        let inner = ScoreRange {
            min: Bound::Excluded(f64::NEG_INFINITY),
            max: Bound::Excluded(f64::INFINITY),
        };
        assert_eq!(zset.ranks_by_score(&inner), 1..2);
        let unbounded = ScoreRange { min: Bound::Unbounded, max: Bound::Unbounded };
        assert_eq!(zset.ranks_by_score(&unbounded), 0..3);
        let everything = LexRange { min: LexBound::Lowest, max: LexBound::Highest };
        assert_eq!(zset.ranks_by_lex(&everything), 0..3);
        let nothing = LexRange { min: LexBound::Highest, max: LexBound::Lowest };
        assert!(zset.ranks_by_lex(&nothing).is_empty());
    }
}

#[test]
fn foreign_listpacks_are_checked() {
    let limits = ZsetLimits::default();
    let make = |elements: &[&[u8]]| {
        let mut listpack = Listpack::new();
        elements.iter().for_each(|element| listpack.push_back(element));
        Zset::from_listpack(listpack, &limits).map(|zset| all(&zset))
    };
    let sorted = Ok(vec![(1.5, b"b".to_vec()), (2.0, b"a".to_vec()), (2.0, b"c".to_vec())]);
    assert_eq!(make(&[b"b", b"1.5", b"a", b"2", b"c", b"2"]), sorted);
    assert_eq!(make(&[b"c", b"2", b"a", b"2", b"b", b"1.5"]), sorted);
    assert_eq!(make(&[]), Err(Malformed));
    assert_eq!(make(&[b"a"]), Err(Malformed));
    assert_eq!(make(&[b"a", b"x"]), Err(Malformed));
    assert_eq!(make(&[b"a", b"nan"]), Err(Malformed));
    assert_eq!(make(&[b"1", b"1", b"1", b"2"]), Err(Malformed));
}

#[test]
fn random_members_are_uniform() {
    let count: u32 = if cfg!(miri) { 10 } else { 200 };
    let rounds = if cfg!(miri) { 20 } else { 1000 };
    for limits in [SMALL, BIG] {
        let mut zset = Zset::new();
        for n in 0..count {
            zset.insert(n.to_string().as_bytes(), f64::from(n), &limits);
        }
        let mut rng = Rng::seeded(3);
        let mut seen = vec![0; count as usize];
        for _ in 0..rounds {
            zset.sample_distinct(10, &mut rng, |_, score| seen[score as usize] += 1);
            zset.sample_repeated(5, &mut rng, |_, score| seen[score as usize] += 1);
        }
        assert_eq!(seen.iter().sum::<usize>(), rounds * 15);
        if !cfg!(miri) {
            assert!(seen.iter().all(|n| (40..120).contains(n)), "{seen:?}");
        }
        let mut all = HashSet::new();
        zset.sample_distinct(usize::MAX, &mut rng, |member, _| {
            all.insert(member.to_vec());
        });
        assert_eq!(all.len(), count as usize);
    }
    assert!(Zset::new().random(&mut Rng::seeded(1)).is_none());
}

#[test]
fn memory_is_counted() {
    let mut zset = Zset::new();
    let small = zset.allocated_bytes();
    let count = if cfg!(miri) { 200 } else { 1000 };
    for n in 0..count {
        zset.insert(format!("member {n}").as_bytes(), n as f64, &ZsetLimits::default());
    }
    let full = zset.allocated_bytes();
    assert!(small < 100 && full > count * (16 + 8 + 20) && full < count * 80, "{small} {full}");
    zset.remove_ranks(0..count, |_, _| ());
    assert!(zset.allocated_bytes() < full / 4);
    assert!(zset.is_empty());
}

#[test]
fn is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Zset>();
}
