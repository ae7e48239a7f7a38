use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

fn contents(listpack: &Listpack) -> Vec<Vec<u8>> {
    let forward: Vec<_> = listpack.iter().map(|element| element.to_vec()).collect();
    let mut backward: Vec<_> = listpack.iter().rev().map(|element| element.to_vec()).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

/// The listpack is well-formed and holds `model`.
fn check(listpack: &Listpack, model: &VecDeque<Vec<u8>>) {
    assert!(validate(listpack.as_bytes()).is_ok());
    assert_eq!(listpack.count(), model.len());
    assert_eq!(listpack.is_empty(), model.is_empty());
    assert!(contents(listpack).iter().eq(model));
    let front = listpack.front().map(|element| element.to_vec());
    assert_eq!(front.as_ref(), model.front());
    let back = listpack.back().map(|element| element.to_vec());
    assert_eq!(back.as_ref(), model.back());
    // Memory stays in proportion.
    let slack = listpack.allocated_bytes() - listpack.bytes_len();
    assert!(slack <= 96 + 4 * listpack.bytes_len(), "{slack} spare");
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => any::<(i64, u32)>().prop_map(|(v, s)| (v >> (s % 64)).to_string().into_bytes()),
        4 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (0usize..200).prop_map(|n| vec![b'x'; n]),
        1 => prop_oneof![Just(63), Just(64), Just(4095), Just(4096), Just(16380), Just(16381)]
            .prop_map(|n| vec![b'y'; n]),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    PushFront(Vec<u8>),
    PushBack(Vec<u8>),
    DropFront,
    DropBack,
    InsertBefore(prop::sample::Index, Vec<u8>),
    InsertAfter(prop::sample::Index, Vec<u8>),
    Replace(prop::sample::Index, Vec<u8>),
    DeleteRange(prop::sample::Index, usize),
    Split(prop::sample::Index, bool),
    Append(Vec<Vec<u8>>),
    Find(prop::sample::Index),
    CloneAndReload,
    ShrinkToFit,
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => element().prop_map(Op::PushFront),
        4 => element().prop_map(Op::PushBack),
        2 => Just(Op::DropFront),
        2 => Just(Op::DropBack),
        2 => (index(), element()).prop_map(|(i, e)| Op::InsertBefore(i, e)),
        2 => (index(), element()).prop_map(|(i, e)| Op::InsertAfter(i, e)),
        2 => (index(), element()).prop_map(|(i, e)| Op::Replace(i, e)),
        1 => (index(), 0usize..6).prop_map(|(i, n)| Op::DeleteRange(i, n)),
        1 => (index(), any::<bool>()).prop_map(|(i, keep)| Op::Split(i, keep)),
        1 => proptest::collection::vec(element(), 0..5).prop_map(Op::Append),
        2 => index().prop_map(Op::Find),
        1 => Just(Op::CloneAndReload),
        1 => Just(Op::ShrinkToFit),
    ]
}

#[expect(clippy::too_many_lines, reason = "an arm for each operation of the model")]
fn apply(listpack: &mut Listpack, model: &mut VecDeque<Vec<u8>>, op: Op) {
    let len = model.len();
    match op {
        Op::PushFront(e) => {
            listpack.push_front(&e);
            model.push_front(e);
        }
        Op::PushBack(e) => {
            listpack.push_back(&e);
            model.push_back(e);
        }
        Op::DropFront => assert_eq!(listpack.drop_front(), model.pop_front().is_some()),
        Op::DropBack => assert_eq!(listpack.drop_back(), model.pop_back().is_some()),
        Op::InsertBefore(i, e) => {
            let i = i.index(len + 1);
            if i == len {
                listpack.cursor_end_mut().insert_before(&e);
            } else {
                let mut cursor = listpack.cursor_at_mut(i as i64).unwrap();
                cursor.insert_before(&e);
                assert!(cursor.element().unwrap() == model[i][..]);
                assert!(cursor.move_prev());
                assert!(cursor.element().unwrap() == e[..]);
            }
            model.insert(i, e);
        }
        Op::InsertAfter(i, e) if len > 0 => {
            let i = i.index(len);
            let mut cursor = listpack.cursor_at_mut(i as i64 - len as i64).unwrap();
            cursor.insert_after(&e);
            assert!(cursor.element().unwrap() == model[i][..]);
            cursor.move_next();
            assert!(cursor.element().unwrap() == e[..]);
            model.insert(i + 1, e);
        }
        Op::Replace(i, e) if len > 0 => {
            let i = i.index(len);
            let mut cursor = listpack.cursor_front_mut();
            (0..i).for_each(|_| cursor.move_next());
            cursor.replace(&e);
            assert!(cursor.element().unwrap() == e[..]);
            model[i] = e;
        }
        Op::DeleteRange(i, n) if len > 0 => {
            let i = i.index(len);
            let end = len.min(i + n);
            assert_eq!(listpack.delete_range(i as i64, n), end - i);
            model.drain(i..end);
        }
        Op::Split(i, keep) if len > 0 => {
            let i = i.index(len + 1);
            let right = listpack.split_off(i);
            let model_right = model.split_off(i);
            check(&right, &model_right);
            if keep {
                listpack.append(&right);
                model.extend(model_right);
            }
        }
        Op::Append(elements) => {
            let mut other = Listpack::new();
            elements.iter().for_each(|e| other.push_back(e));
            listpack.append(&other);
            model.extend(elements);
        }
        Op::Find(i) if len > 0 => {
            let i = i.index(len);
            let first = model.iter().position(|e| *e == model[i]).unwrap();
            let found: Vec<_> =
                listpack.find(&model[i], 1).unwrap().map(|element| element.to_vec()).collect();
            assert!(found.iter().eq(model.iter().skip(first)));
            let cursor = listpack.find_mut(&model[i], 1).unwrap();
            assert!(cursor.element().unwrap() == model[i][..]);
            let even = model.iter().step_by(2).position(|e| *e == model[i]);
            assert_eq!(listpack.find(&model[i], 2).is_some(), even.is_some());
            assert!(listpack.get(i as i64).unwrap() == model[i][..]);
            assert!(listpack.get(i as i64 - len as i64).unwrap() == model[i][..]);
        }
        Op::CloneAndReload => {
            let copy = listpack.clone();
            assert_eq!(copy.as_bytes(), listpack.as_bytes());
            *listpack = Listpack::from_bytes(copy.as_bytes()).unwrap();
        }
        Op::ShrinkToFit => listpack.shrink_to_fit(),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_deque(ops in proptest::collection::vec(op(), 0..if cfg!(miri) { 12 } else { 120 })) {
        let (mut listpack, mut model) = (Listpack::new(), VecDeque::new());
        for op in ops {
            apply(&mut listpack, &mut model, op);
            check(&listpack, &model);
        }
    }

    #[test]
    fn never_accepts_what_it_cannot_walk(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        walk_if_accepted(&bytes);
        // Random bytes hardly ever have the right size in the header: help them along.
        let mut framed = ((bytes.len() + 7) as u32).to_le_bytes().to_vec();
        framed.extend([0xFF, 0xFF]);
        framed.extend(&bytes);
        framed.push(0xFF);
        walk_if_accepted(&framed);
    }

    #[test]
    fn never_accepts_damage_it_cannot_walk(
        elements in proptest::collection::vec(element(), 1..12),
        at: prop::sample::Index,
        byte: u8,
        cut: prop::sample::Index,
    ) {
        let mut listpack = Listpack::new();
        elements.iter().for_each(|e| listpack.push_back(e));
        let mut bytes = listpack.as_bytes().to_vec();
        assert!(Listpack::from_bytes(&bytes[..cut.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        walk_if_accepted(&bytes);
    }
}

/// Under Miri this shows that validation admits nothing that makes the unchecked walks leave the
/// allocation; without it, that they agree with each other.
fn walk_if_accepted(bytes: &[u8]) {
    if let Ok(mut listpack) = Listpack::from_bytes(bytes) {
        let all = contents(&listpack);
        assert_eq!(all.len(), listpack.count());
        listpack.push_front(b"left");
        listpack.push_back(b"right");
        listpack.delete_range(0, 1);
        listpack.drop_back();
        assert_eq!(contents(&listpack), all);
    }
}

#[test]
fn encodings_are_those_of_redis() {
    let golden: &[(&[u8], &[u8])] = &[
        (b"", &[0x80, 1]),
        (b"0", &[0, 1]),
        (b"127", &[127, 1]),
        (b"128", &[0xC0, 128, 2]),
        (b"-1", &[0xDF, 0xFF, 2]),
        (b"4095", &[0xCF, 0xFF, 2]),
        (b"-4096", &[0xD0, 0, 2]),
        (b"4096", &[0xF1, 0, 0x10, 3]),
        (b"-32768", &[0xF1, 0, 0x80, 3]),
        (b"32768", &[0xF2, 0, 0x80, 0, 4]),
        (b"-8388608", &[0xF2, 0, 0, 0x80, 4]),
        (b"8388608", &[0xF3, 0, 0, 0x80, 0, 5]),
        (b"-2147483648", &[0xF3, 0, 0, 0, 0x80, 5]),
        (b"2147483648", &[0xF4, 0, 0, 0, 0x80, 0, 0, 0, 0, 9]),
        (b"-9223372036854775808", &[0xF4, 0, 0, 0, 0, 0, 0, 0, 0x80, 9]),
        (b"9223372036854775808", b"\x939223372036854775808\x14"),
        (b"01", b"\x8201\x03"),
        (b"+1", b"\x82+1\x03"),
        (b"hello", b"\x85hello\x06"),
    ];
    for (element, entry) in golden {
        let mut listpack = Listpack::new();
        listpack.push_back(element);
        let bytes = listpack.as_bytes();
        assert_eq!(bytes[..4], (bytes.len() as u32).to_le_bytes());
        assert_eq!(bytes[4..6], [1, 0]);
        assert_eq!(&bytes[6..bytes.len() - 1], *entry, "{}", element.escape_ascii());
        assert_eq!(*bytes.last().unwrap(), 0xFF);
        assert!(listpack.front().unwrap() == **element);
    }
}

#[test]
fn long_strings_have_long_heads_and_backlens() {
    let head = |len: usize| {
        let mut listpack = Listpack::new();
        listpack.push_back(&vec![b'x'; len]);
        let bytes = listpack.as_bytes();
        let start = bytes.iter().position(|&b| b == b'x').unwrap();
        let backlen = bytes[start + len..bytes.len() - 1].to_vec();
        (bytes[6..start].to_vec(), backlen)
    };
    assert_eq!(head(63), (vec![0x80 | 63], vec![64]));
    assert_eq!(head(64), (vec![0xE0, 64], vec![66]));
    assert_eq!(head(126), (vec![0xE0, 126], vec![1, 0x80]));
    assert_eq!(head(4095), (vec![0xEF, 0xFF], vec![0x20, 0x81]));
    assert_eq!(head(4096), (vec![0xF0, 0, 0x10, 0, 0], vec![0x20, 0x85]));
    // The odd bounds: 16383 needs three bytes where 14 bits would do.
    assert_eq!(head(16377), (vec![0xF0, 0xF9, 0x3F, 0, 0], vec![0x7F, 0xFE]));
    assert_eq!(head(16378), (vec![0xF0, 0xFA, 0x3F, 0, 0], vec![0, 0xFF, 0xFF]));
}

#[test]
#[cfg_attr(miri, ignore = "the header counts up to 65534")]
fn counts_past_what_the_header_holds() {
    let mut listpack = Listpack::new();
    for i in 0..70_000i64 {
        listpack.push_back_int(i & 63);
    }
    assert_eq!(listpack.count(), 70_000);
    assert_eq!(listpack.as_bytes()[4..6], [0xFF, 0xFF]);
    let copy = Listpack::from_bytes(listpack.as_bytes()).unwrap();
    assert_eq!(copy.count(), 70_000);
    for _ in 0..69_999 {
        assert!(listpack.drop_front());
    }
    assert_eq!(listpack.count(), 1);
    assert_eq!(listpack.as_bytes()[4..6], [1, 0]);
}

#[test]
fn a_queue_does_not_grow() {
    let mut listpack = Listpack::new();
    for i in 0..if cfg!(miri) { 200 } else { 10_000 } {
        listpack.push_front(format!("element:{i}").as_bytes());
        if i >= 50 {
            assert!(listpack.back().unwrap() == *format!("element:{}", i - 50).as_bytes());
            assert!(listpack.drop_back());
        }
    }
    assert_eq!(listpack.count(), 50);
    assert!(listpack.allocated_bytes() < 2048);
}

#[test]
fn a_full_list_node_stays_below_its_power_of_two() {
    for front in [true, false] {
        let mut listpack = Listpack::new();
        while listpack.bytes_len() + 11 + 16 <= 8192 {
            if front { listpack.push_front(b"hello you") } else { listpack.push_back(b"hello you") }
        }
        assert!(listpack.allocated_bytes() <= 8192);
    }
}

#[test]
fn pairs_find_fields_but_not_values() {
    let mut listpack = Listpack::new();
    for element in ["f1", "f2", "f2", "7", "7", "x"] {
        listpack.push_back(element.as_bytes());
    }
    assert!(listpack.find_value(b"f2").unwrap() == b"7"[..]);
    assert!(listpack.find_value(b"7").unwrap() == b"x"[..]);
    assert!(listpack.find_value(b"x").is_none());
    assert_eq!(listpack.pairs().count(), 3);
    let last = listpack.pairs().next_back().unwrap();
    assert_eq!(last, (Element::Int(7), Element::Bytes(b"x")));
}
