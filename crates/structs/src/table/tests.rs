//! Tests of the table: against a model, under growth and shrinking, and its walks.

use super::*;
use crate::hashing::hash;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[repr(transparent)]
struct Word(NonNull<u8>);

impl Word {
    fn new(text: &str) -> Word {
        let boxed = Box::new(text.to_owned());
        Word(NonNull::from(Box::leak(boxed)).cast())
    }
}
// SAFETY: transparent over `NonNull<u8>`; the text never changes.
unsafe impl Item for Word {
    fn key(&self) -> &[u8] {
        // SAFETY: made from a leaked `Box<String>` in `new`.
        unsafe { self.0.cast::<String>().as_ref() }.as_bytes()
    }
}
impl Drop for Word {
    fn drop(&mut self) {
        // SAFETY: made from a leaked `Box<String>`, dropped once.
        drop(unsafe { Box::from_raw(self.0.cast::<String>().as_ptr()) });
    }
}

fn insert(table: &mut Table<Word>, text: &str) -> bool {
    table.insert(hash(text.as_bytes()), Word::new(text)).is_ok()
}
fn remove(table: &mut Table<Word>, text: &str) -> bool {
    table.remove(hash(text.as_bytes()), text.as_bytes()).is_some()
}
fn scan_all(table: &Table<Word>) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = Some(ScanPosition::START);
    while let Some(position) = at {
        at = table.scan(position, |w| {
            found.push(String::from_utf8_lossy(w.key()).into_owned());
        });
    }
    found
}

#[test]
fn grows_and_shrinks_without_losing_items() {
    let count = if cfg!(miri) { 600 } else { 20_000 };
    let mut table = Table::new();
    for i in 0..count {
        assert!(insert(&mut table, &format!("key:{i}")));
        assert!(!insert(&mut table, &format!("key:{}", i / 2)));
    }
    table.assert_valid();
    let fill = table.len() as f64 / table.slots() as f64;
    assert!(fill > 0.25, "fill {fill}");
    for i in 0..count - 10 {
        assert!(remove(&mut table, &format!("key:{i}")));
    }
    table.assert_valid();
    assert_eq!(table.len(), 10);
    assert!(table.slots() < 1000, "{}", table.slots());
}

#[test]
fn scan_returns_each_item_that_stays_exactly_once() {
    let (stays, most_extra) = if cfg!(miri) { (50, 200) } else { (1000, 4000) };
    let mut table = Table::new();
    for i in 0..stays {
        insert(&mut table, &format!("stay:{i}"));
    }
    let mut found = Vec::new();
    let mut at = Some(ScanPosition::START);
    let mut extra = 0;
    while let Some(position) = at {
        at = table.scan(position, |w| found.push(w.key().to_vec()));
        at = at.map(|p| ScanPosition::from_bits48(p.to_bits48()));
        for _ in 0..20 {
            insert(&mut table, &format!("extra:{extra}"));
            extra += 1;
        }
        if extra > most_extra {
            for i in 0..extra {
                remove(&mut table, &format!("extra:{i}"));
            }
            extra = 0;
        }
    }
    let stay: Vec<_> = found.iter().filter(|k| k.starts_with(b"stay")).collect();
    assert_eq!(stay.len(), stays);
    assert_eq!(stay.iter().collect::<BTreeSet<_>>().len(), stays);
}

/// With one order for both, the time would grow with the square of the number: minutes here.
#[test]
#[cfg_attr(miri, ignore = "time that grows with the square of the number shows only in many items")]
fn one_table_is_filled_from_another_in_its_order() {
    let mut source = Table::<Word, Salted>::new();
    for i in 0..200_000 {
        let text = format!("member {i}");
        source.insert_absent(hash(text.as_bytes()), Word::new(&text));
    }
    let mut copy = Table::<Word, Salted>::new();
    let mut most_steps = 0;
    for word in source.iter() {
        let text = std::str::from_utf8(word.key()).expect("made of text");
        copy.insert_absent(hash(word.key()), Word::new(text));
        let (start, count, mut index) = copy.area(hash(word.key()));
        let mut steps = 0;
        // SAFETY: `index` stays below `count`.
        while unsafe { &*start.add(index) }.over() != 0 {
            steps += 1;
            index = if index + 1 == count { 0 } else { index + 1 };
        }
        most_steps = most_steps.max(steps);
    }
    assert_eq!(copy.len(), source.len());
    assert!(most_steps < 200, "{most_steps}");
}

#[test]
#[cfg_attr(miri, ignore = "statistics need many draws")]
fn sampling_is_uniform_while_resizing() {
    let mut table = Table::new();
    let mut n = 0;
    while !(table.is_resizing() && n > 500) {
        insert(&mut table, &format!("{n}"));
        n += 1;
    }
    let mut state = 1u64;
    let mut counts = vec![0; n];
    for _ in 0..n * 400 {
        let word = table.sample(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ (state >> 29)
        });
        let key = std::str::from_utf8(word.expect("not empty").key()).unwrap();
        counts[key.parse::<usize>().unwrap()] += 1;
    }
    let (low, high) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*low > 250 && *high < 560, "{low} {high}");
}

#[test]
fn update_may_move_the_item() {
    let mut table = Table::new();
    insert(&mut table, "a");
    let mut slot = table.occupied(hash(b"a"), b"a").expect("just inserted");
    slot.update(|word| *word = Word::new("a"));
    drop(slot.replace(Word::new("a")));
    assert_eq!(slot.remove().key(), b"a");
    assert!(table.is_empty());
}

proptest! {
    #[test]
    fn agrees_with_a_model(ops in proptest::collection::vec((0u8..10, 0u16..400), 0..if cfg!(miri) { 300 } else { 3000 })) {
        let mut table = Table::new();
        let mut model = BTreeSet::new();
        for (op, number) in ops {
            let text = format!("item {number}");
            if op < 6 {
                prop_assert_eq!(insert(&mut table, &text), model.insert(text.clone()));
            } else {
                prop_assert_eq!(remove(&mut table, &text), model.remove(&text));
            }
            prop_assert_eq!(table.len(), model.len());
        }
        table.assert_valid();
        let scanned = scan_all(&table);
        prop_assert_eq!(scanned.len(), model.len());
        prop_assert_eq!(scanned.into_iter().collect::<BTreeSet<_>>(), model);
    }
}
