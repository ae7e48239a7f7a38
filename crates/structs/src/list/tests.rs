use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

type Model = VecDeque<Vec<u8>>;

fn contents(list: &List) -> Vec<Vec<u8>> {
    list.iter().map(|element| element.to_vec()).collect()
}

fn check(list: &List, model: &Model, limits: &ListLimits) {
    assert_eq!(list.len(), model.len());
    assert_eq!(list.is_empty(), model.is_empty());
    assert!(contents(list).iter().eq(model));
    let mut folded = Vec::new();
    list.iter().for_each(|element| folded.push(element.to_vec()));
    assert!(folded.iter().eq(model));
    if let Some(last) = model.len().checked_sub(1) {
        let back: Vec<_> = list.iter_back_from(last).map(|element| element.to_vec()).collect();
        assert!(back.iter().eq(model.iter().rev()));
    }
    assert_eq!(list.peek(End::Left).map(|e| e.to_vec()).as_ref(), model.front());
    assert_eq!(list.peek(End::Right).map(|e| e.to_vec()).as_ref(), model.back());
    let mut chunked = Vec::new();
    let mut builder = List::builder();
    for chunk in list.chunks() {
        match chunk {
            Chunk::Packed(bytes) => {
                let listpack = Listpack::from_bytes(&bytes).unwrap();
                assert!(!listpack.is_empty());
                chunked.extend(listpack.iter().map(|element| element.to_vec()));
                builder.append_listpack(listpack);
            }
            Chunk::Plain(bytes) => {
                chunked.push(bytes.to_vec());
                builder.append_plain(bytes);
            }
        }
    }
    assert!(chunked.iter().eq(model));
    assert!(contents(&builder.finish(limits)).iter().eq(model));
    if let Repr::Quicklist(quicklist) = &list.repr {
        assert!(quicklist.nodes.iter().all(|node| node.count() > 0));
        for node in quicklist.nodes.iter() {
            if let Node::Packed { listpack, count } = node {
                assert_eq!(listpack.count(), *count as usize);
                // Elements pushed together into a listpack are judged by their bytes alone.
                assert!(listpack.bytes_len() <= limits.node_bytes + 10 * *count as usize);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(bool, Vec<u8>),
    PushAll(bool, Vec<Vec<u8>>),
    Pop(bool, usize),
    Set(prop::sample::Index, Vec<u8>),
    Insert(bool, prop::sample::Index, Vec<u8>),
    Remove(bool, prop::sample::Index, usize),
    Trim(prop::sample::Index, prop::sample::Index),
    Positions(bool, prop::sample::Index, usize),
    Range(prop::sample::Index, usize),
    Clone,
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..12i64).prop_map(|v| v.to_string().into_bytes()),
        4 => "[a-c]{0,3}".prop_map(String::into_bytes),
        2 => (0usize..90).prop_map(|n| vec![b'x'; n]),
        1 => (0usize..1500).prop_map(|n| vec![b'y'; n]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    let end = any::<bool>;
    prop_oneof![
        4 => (end(), element()).prop_map(|(s, e)| Op::Push(s, e)),
        4 => (end(), proptest::collection::vec(element(), 0..40)).prop_map(|(s, e)| Op::PushAll(s, e)),
        3 => (end(), 0usize..20).prop_map(|(s, n)| Op::Pop(s, n)),
        3 => (index(), element()).prop_map(|(i, e)| Op::Set(i, e)),
        6 => (end(), index(), element()).prop_map(|(s, i, e)| Op::Insert(s, i, e)),
        2 => (end(), index(), 1usize..5).prop_map(|(s, i, n)| Op::Remove(s, i, n)),
        1 => (index(), index()).prop_map(|(a, b)| Op::Trim(a, b)),
        1 => (end(), index(), 0usize..50).prop_map(|(s, i, n)| Op::Positions(s, i, n)),
        1 => (index(), 0usize..50).prop_map(|(i, n)| Op::Range(i, n)),
        1 => Just(Op::Clone),
    ]
}

fn end_of(left: bool) -> End {
    if left { End::Left } else { End::Right }
}

fn model_push(model: &mut Model, end: End, element: Vec<u8>) {
    match end {
        End::Left => model.push_front(element),
        End::Right => model.push_back(element),
    }
}

fn apply(list: &mut List, model: &mut Model, limits: &ListLimits, op: Op) {
    let len = model.len();
    match op {
        Op::Push(left, e) => {
            list.push(end_of(left), &e, limits);
            model_push(model, end_of(left), e);
        }
        Op::PushAll(left, elements) => {
            list.push_all(end_of(left), elements.iter().map(Vec::as_slice), limits);
            elements.into_iter().for_each(|e| model_push(model, end_of(left), e));
        }
        Op::Pop(left, n) => {
            for _ in 0..n {
                let popped = list.pop(end_of(left), limits, |element| element.to_vec());
                assert_eq!(popped, if left { model.pop_front() } else { model.pop_back() });
            }
        }
        Op::Set(i, e) if len > 0 => {
            let i = i.index(len);
            assert!(!list.set(len, &e, limits));
            assert!(list.set(i, &e, limits));
            assert!(list.get(i).unwrap() == e[..]);
            model[i] = e;
        }
        Op::Insert(before, i, e) if len > 0 => {
            let pivot = model[i.index(len)].clone();
            let at = model.iter().position(|e| *e == pivot).unwrap();
            let side = if before { Side::Before } else { Side::After };
            assert!(list.insert(side, &pivot, &e, limits));
            assert!(!list.insert(side, b"absent", &e, limits));
            model.insert(at + usize::from(!before), e);
        }
        Op::Remove(left, i, n) if len > 0 => {
            let value = model[i.index(len)].clone();
            let at: Vec<_> = (0..len).filter(|&i| model[i] == value).collect();
            let at = if left { &at[..n.min(at.len())] } else { &at[at.len().saturating_sub(n)..] };
            assert_eq!(list.remove(end_of(left), &value, n, limits), at.len());
            at.iter().rev().for_each(|&i| drop(model.remove(i)));
        }
        Op::Trim(a, b) => {
            let (start, count) = (a.index(len + 2) / 3, b.index(len + 20));
            list.trim(start, count, limits);
            model.drain(..start.min(len));
            model.truncate(count);
        }
        Op::Positions(left, i, max) if len > 0 => {
            let value = &model[i.index(len)];
            let mut found = Vec::new();
            list.positions(end_of(left), value, max, |index| {
                found.push(index);
                if found.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let mut order: Vec<_> = (0..len).collect();
            if !left {
                order.reverse();
            }
            let expected = order.into_iter().take(max).filter(|&i| model[i] == *value).take(3);
            assert!(found.into_iter().eq(expected));
        }
        Op::Range(i, n) => {
            let start = i.index(len + 3);
            let mut found = Vec::new();
            list.for_each_range(start, n, |element| found.push(element.to_vec()));
            assert!(found.iter().eq(model.iter().skip(start).take(n)));
        }
        Op::Clone => *list = list.clone(),
        _ => {}
    }
}

fn limits() -> impl Strategy<Value = ListLimits> {
    let size = prop_oneof![-5i32..0, 0i32..10, Just(128)];
    (size, prop_oneof![Just(0usize), 1usize..100])
        .prop_map(|(size, packed)| ListLimits::new(size).with_packed_threshold(packed))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_deque(
        limits in limits(),
        ops in proptest::collection::vec(op(), 0..if cfg!(miri) { 10 } else { 80 }),
    ) {
        let (mut list, mut model) = (List::new(), Model::new());
        for op in ops {
            apply(&mut list, &mut model, &limits, op);
            check(&list, &model, &limits);
        }
    }
}

#[test]
fn encoding_follows_the_limits() {
    let limits = ListLimits::new(4);
    let mut list = List::new();
    for i in 0..4 {
        list.push(End::Right, &[i], &limits);
        assert_eq!(list.encoding(), "listpack");
    }
    list.push(End::Right, b"five", &limits);
    assert_eq!(list.encoding(), "quicklist");
    // Not back at the limit, but at half of it.
    list.pop(End::Right, &limits, |_| ());
    list.pop(End::Right, &limits, |_| ());
    assert_eq!(list.encoding(), "quicklist");
    list.pop(End::Right, &limits, |_| ());
    assert_eq!(list.encoding(), "listpack");
}

#[test]
fn several_elements_are_judged_together() {
    let limits = ListLimits::new(3);
    let mut list = List::new();
    list.push_all(End::Left, [&b"a"[..], b"b", b"c", b"d"].into_iter(), &limits);
    assert_eq!(list.encoding(), "quicklist");
    assert_eq!(list.chunks().count(), 2);
}

#[test]
fn large_elements_are_plain_nodes() {
    let limits = ListLimits::new(-2);
    let mut list = List::new();
    list.push(End::Right, b"small", &limits);
    list.push(End::Right, &[b'x'; 9000], &limits);
    list.push(End::Left, &[b'y'; 8192], &limits);
    let plain: Vec<_> = list.chunks().map(|chunk| matches!(chunk, Chunk::Plain(_))).collect();
    assert_eq!(plain, [false, false, true]);
}

#[test]
fn a_long_queue_stays_tight() {
    let limits = ListLimits::default();
    let count = if cfg!(miri) { 800 } else { 20_000 };
    for (to, from) in [(End::Left, End::Right), (End::Right, End::Left), (End::Left, End::Left)] {
        let mut list = List::new();
        for i in 0..count {
            list.push(to, format!("element-{i}").as_bytes(), &limits);
        }
        let tight = list.allocated_bytes();
        assert!(tight < count * 18 + 256, "{tight}");
        for _ in 1..count {
            list.pop(from, &limits, |_| ());
        }
        assert_eq!(list.len(), 1);
        assert_eq!(list.encoding(), "listpack");
        assert!(list.allocated_bytes() < 256);
    }
}
