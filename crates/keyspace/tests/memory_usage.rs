//! What a value says it takes is what the allocator has handed out for it, at any time.
//!
//! The only test of its process: it counts all that is allocated.

use keyspace::{Entry, HeapString, Value, memory};
use std::alloc::System;
use std::hint::black_box;
use structs::hash::{Hash, HashLimits};
use structs::list::{End, List, ListLimits, Side};
use structs::random::Rng;
use structs::set::{Set, SetLimits};
use structs::stream::{Delivery, References, Strategy, Stream, StreamId, StreamLimits, Trim};
use structs::zset::{Extreme, Zset, ZsetLimits};

#[global_allocator]
static ALLOCATOR: memory::Counting<System> = memory::Counting(System);

/// A string of digits or letters, short or long.
fn word(rng: &mut Rng, distinct: u64) -> Vec<u8> {
    let number = rng.below(distinct);
    match number % 16 {
        0..=5 => number.to_string().into_bytes(),
        6 => vec![b'a' + (number % 26) as u8; 300 + (number % 3000) as usize],
        7 if number.is_multiple_of(7) => vec![b'b'; 9000],
        _ => format!("word:{number:0>0$}", 3 + (number % 40) as usize).into_bytes(),
    }
}

/// How much an estimate may be off: `of` in each direction, and so many bytes besides.
struct Bound {
    /// A share of what is allocated.
    share: f64,
    bytes: usize,
}

const EXACT: Bound = Bound { share: 0.0, bytes: 0 };

/// Applies `change` to `value` again and again; after each change the size must be what is
/// allocated.
fn run(
    seed: u64,
    value: fn() -> Value,
    steps: usize,
    bound: &Bound,
    mut change: impl FnMut(&mut Entry, &mut Rng, usize),
) {
    let mut rng = Rng::seeded(seed);
    let before = memory::used_bytes();
    let mut entry = Entry::new(b"a key", value(), None, 0);
    let mut greatest = 0;
    for step in 0..steps {
        change(&mut entry, &mut rng, step);
        let (allocated, said) = (memory::used_bytes() - before, entry.memory_usage());
        let most = (allocated as f64 * bound.share) as usize + bound.bytes;
        assert!(
            allocated.abs_diff(said) <= most,
            "seed {seed}, step {step}: {said} said, {allocated} allocated ({})",
            entry.encoding()
        );
        greatest = greatest.max(said);
    }
    assert!(greatest > 10_000, "the value became {greatest} bytes at most");
    drop(black_box(entry));
    assert_eq!(memory::used_bytes(), before);
}

/// Whether a step of so many adds rather than removes: values grow, shrink, and grow again.
fn grows(rng: &mut Rng, step: usize) -> bool {
    let chance = if (step / 1500).is_multiple_of(2) { 7 } else { 2 };
    rng.below(10) < chance
}

fn strings(seed: u64) {
    let empty = || Value::String(Vec::new());
    run(seed, empty, 500, &EXACT, |entry, rng, _| match rng.below(4) {
        0 => {
            let bytes = word(rng, 10_000);
            *entry = Entry::new_heap_string(b"a key", HeapString::from_bytes(&bytes), None, 0);
        }
        1 => *entry = Entry::new(b"a key", Value::String(word(rng, 10_000)), None, 0),
        2 => drop(entry.overwrite_string(&word(rng, 100))),
        _ => {
            let bytes = word(rng, 10_000);
            entry.heap_string().expect("it is a string").extend(&bytes);
        }
    });
}

fn sets(seed: u64) {
    let limits = SetLimits::default();
    run(
        seed,
        || Set::empty().into(),
        6000,
        &EXACT,
        |entry, rng, step| {
            let set = entry.object_mut::<Set>().expect("it is a set");
            if grows(rng, step) {
                set.insert(&word(rng, 2000), &limits);
            } else if rng.below(3) == 0 {
                set.pop_random(rng, |_| ());
            } else {
                set.remove(&word(rng, 2000));
            }
        },
    );
}

fn hashes(seed: u64) {
    let limits = HashLimits { max_listpack_entries: 30, ..HashLimits::default() };
    run(
        seed,
        || Hash::new().into(),
        6000,
        &EXACT,
        |entry, rng, step| {
            let hash = entry.object_mut::<Hash>().expect("it is a hash");
            let (field, value) = (word(rng, 1000), word(rng, 100_000));
            match rng.below(6) {
                _ if !grows(rng, step) => drop(hash.remove(&field)),
                0 => {
                    let _ = hash.modify(&field, &limits, |_| Ok::<_, ()>(&value));
                }
                2 => drop(hash.set_timed(&field, &value, 1000 + step as i64)),
                3 => drop(hash.set_expiry(&field, (step % 2 == 0).then_some(5))),
                4 => hash.drop_times(),
                _ => drop(hash.set(&field, &value, &limits)),
            }
        },
    );
}

fn sorted_sets(seed: u64) {
    let limits = ZsetLimits::default();
    run(
        seed,
        || Zset::new().into(),
        6000,
        &EXACT,
        |entry, rng, step| {
            let zset = entry.object_mut::<Zset>().expect("it is a sorted set");
            let score = rng.below(500) as f64;
            match rng.below(40) {
                _ if grows(rng, step) => drop(zset.insert(&word(rng, 2000), score, &limits)),
                0 => {
                    let start = rng.index(zset.len() + 1);
                    zset.remove_ranks(start..start + rng.index(40), |_, _| ());
                }
                1..=9 => drop(zset.pop(Extreme::Min, |_, _| ())),
                _ => drop(zset.remove(&word(rng, 2000))),
            }
        },
    );
}

fn lists(seed: u64) {
    let limits = ListLimits::default();
    run(
        seed,
        || List::new().into(),
        6000,
        &EXACT,
        |entry, rng, step| {
            let list = entry.object_mut::<List>().expect("it is a list");
            let end = if rng.below(2) == 0 { End::Left } else { End::Right };
            let element = word(rng, 3000);
            let at = rng.index(list.len() + 1);
            match rng.below(12) {
                0 => drop(list.set(at, &element, &limits)),
                1 => drop(list.insert(Side::After, &word(rng, 3000), &element, &limits)),
                2 => drop(list.remove(end, &element, 2, &limits)),
                3 if step % 50 == 0 => list.trim(at / 8, list.len() - list.len() / 8, &limits),
                _ if grows(rng, step) => list.push(end, &element, &limits),
                _ => drop(list.pop(end, &limits, |_| ())),
            }
        },
    );
}

/// The places of groups and consumers in maps are estimated.
fn streams(seed: u64) {
    let limits = StreamLimits::default();
    let bound = Bound { share: 0.01, bytes: 1024 };
    run(
        seed,
        || Stream::new().into(),
        6000,
        &bound,
        |entry, rng, step| {
            let stream = entry.object_mut::<Stream>().expect("it is a stream");
            let id = StreamId::new(step as u64 + 1, 0);
            let past = StreamId::new(rng.below(step as u64 + 1), 0);
            match rng.below(20) {
                0 => drop(stream.delete(past)),
                1 if step % 20 == 0 => {
                    let strategy = Strategy::MaxLength(rng.below(2000));
                    let references = References::Delete;
                    stream.trim(&Trim { strategy, is_approximate: false, limit: 0, references });
                }
                2 => {
                    stream.create_group(b"group", past, 0);
                    let group = stream.group_mut(b"group").expect("just made");
                    group.create_consumer(&word(rng, 10), 0);
                }
                3..=5 => {
                    let delivery = Delivery { count: 10, is_acknowledged: false, now: 0 };
                    stream.deliver(b"group", 0, delivery, |_, _| ());
                }
                6 => {
                    if let Some(group) = stream.group_mut(b"group") {
                        group.acknowledge(past);
                    }
                }
                _ => stream.append(id, &[b"field", &word(rng, 3000)], &limits),
            }
        },
    );
}

#[test]
fn a_value_knows_what_it_takes() {
    // Whatever is allocated once for all, by the first use of anything.
    drop(black_box((memory::used_bytes(), format!("{}", 1.5))));
    for seed in 1..5 {
        strings(seed);
        sets(seed);
        hashes(seed);
        sorted_sets(seed);
        lists(seed);
        streams(seed);
    }
}
