//! Tests a snapshot under random changes against a model: it must contain the state of its instant.
#![allow(unsafe_code)]

use super::record::{ColdHead, Form, Token, Tokens};
use super::{Shared, Touch, Urgency};
use crate::cold::tests::keep;
use crate::entry::Entry;
use crate::keyspace::{Assignment, Keyspace, STRIPES};
use crate::kind::Value;
use crate::locks::Locks;
use crate::stripe::StripeData;
use crate::thaw::Record;
use crate::types::{DbIndex, Key, Millis, Slot};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};
use structs::hash::{Hash, HashLimits};
use structs::list::{List, ListLimits};
use structs::random::Rng;
use structs::set::{Set, SetLimits};
use structs::sync::lock;
use structs::zset::{Zset, ZsetLimits};

/// The contents of an entry, in a form that does not depend on its encoding.
type Content = (Option<i64>, Form, Vec<Vec<u8>>);
type State = BTreeMap<(u32, Vec<u8>), Content>;

fn with<R>(keyspace: &Keyspace, stripe: usize, run: impl FnOnce(&mut StripeData) -> R) -> R {
    run(&mut keyspace.stripe(stripe).lock())
}

fn begin_snapshot(keyspace: &Keyspace, shared: &Arc<Shared>) {
    let mut locks = Locks::new(keyspace);
    // SAFETY: the test has one thread.
    unsafe { locks.hold_world(keyspace.world().stop()) };
    keyspace.begin_snapshot(&mut locks, shared);
}

/// Cold values by location.
static KEPT: LazyLock<Mutex<BTreeMap<u64, Entry>>> = LazyLock::new(Mutex::default);

fn make_cold(data: &mut StripeData, db: DbIndex, key: Key<'_>) {
    if let Some(entry) = data.make_cold_again(db, key) {
        let cold = data.cold(db, key).expect("it has just gone cold");
        lock(&KEPT).insert(cold.location.0, entry);
        return;
    }
    if data.may_make_cold(db, key) {
        let location = keep(b"");
        let entry = data.make_cold(db, key, location).expect("it may go");
        lock(&KEPT).insert(location.0, entry);
    }
}

fn thaw(data: &mut StripeData, db: DbIndex, key: Key<'_>) {
    let Some(cold) = data.cold(db, key) else { return };
    let kept = lock(&KEPT);
    let entry = &kept[&cold.location.0];
    let value = match entry.string() {
        Some(string) => Value::String(string.to_vec()),
        None => entry.collection().expect("no string").duplicate(),
    };
    let record = if cold.version.is_multiple_of(2) { Record::Stays } else { Record::Goes };
    assert!(data.install(db, key, cold, value, record));
}

/// Converts tokens to contents.
#[derive(Default)]
struct Reader {
    state: State,
    current: Option<((u32, Vec<u8>), Content, usize)>,
}

impl Reader {
    fn read(&mut self, db: DbIndex, bytes: &[u8]) {
        for token in Tokens::new(bytes) {
            if let Token::Head(head) = token {
                self.end();
                let content = (head.expiry.map(|at| at.0), head.form, Vec::new());
                self.current = Some(((db.0, head.key.to_vec()), content, head.count as usize));
                continue;
            }
            if let Token::Cold(cold) = token {
                self.end();
                self.read_cold(db, &cold);
                continue;
            }
            let (_, (_, _, parts), _) = self.current.as_mut().expect("a head comes first");
            match token {
                Token::Bytes(bytes) => parts.push(bytes.to_vec()),
                Token::Int(number) => parts.push(number.to_string().into_bytes()),
                Token::Score(score) => {
                    let member = parts.last_mut().expect("a member comes first");
                    member.extend_from_slice(format!("={score}").as_bytes());
                }
                Token::Long(_) => parts.push(Vec::new()),
                Token::Stream(part) => parts.push(format!("{part:?}").into_bytes()),
                Token::Part(bytes) => {
                    parts.last_mut().expect("LONG comes first").extend_from_slice(bytes);
                }
                Token::Chunk { .. } | Token::Head(_) | Token::Cold(_) => {}
            }
        }
    }

    /// Reads the value in its state when it became cold, and takes the rest from the token.
    fn read_cold(&mut self, db: DbIndex, cold: &ColdHead<'_>) {
        let mut out = Vec::new();
        let kept = lock(&KEPT);
        super::write_whole(&mut out, &kept[&cold.location.0]);
        drop(kept);
        self.read(db, &out);
        let ((_, key), (expiry, ..), _) = self.current.as_mut().expect("there was a value");
        assert_eq!(&key[..], cold.key);
        *expiry = cold.expiry.map(|at| at.0);
        self.end();
    }

    fn end(&mut self) {
        let Some((key, (expiry, form, mut parts), count)) = self.current.take() else { return };
        if form == Form::Hash {
            parts = parts.chunks(2).map(|pair| pair.join(&b"="[..])).collect();
        }
        assert_eq!(parts.len(), count, "as many elements as the head says");
        if matches!(form, Form::Set | Form::Hash | Form::Zset) {
            parts.sort();
        }
        let old = self.state.insert(key, (expiry, form, parts));
        assert!(old.is_none(), "a key is taken once");
    }
}

/// Returns the present state, read by the same code that snapshots use for values, but all at once.
fn state(keyspace: &Keyspace, dbs: u32) -> State {
    let mut reader = Reader::default();
    for stripe in 0..STRIPES {
        for db in (0..dbs).map(DbIndex) {
            let mut out = Vec::new();
            with(keyspace, stripe, |data| {
                data.entries(db).for_each(|entry| {
                    super::write_whole(&mut out, entry);
                });
            });
            reader.read(db, &out);
            reader.end();
        }
    }
    reader.state
}

fn random_value(rng: &mut Rng, is_big: bool) -> Value {
    let elements = match (is_big, cfg!(miri)) {
        (true, false) => 1100 + rng.index(3000),
        (true, true) => 100 + rng.index(100),
        (false, _) => 1 + rng.index(20),
    };
    let per_list = if cfg!(miri) { 2 } else { 20 };
    let text = |rng: &mut Rng| vec![b'a' + rng.index(26) as u8; 1 + rng.index(40)];
    match rng.index(5) {
        0 => Value::String(vec![b'x'; if is_big { 70_000 + rng.index(200_000) } else { elements }]),
        1 => {
            let mut list = List::new();
            for _ in 0..elements * per_list {
                let element = text(rng);
                list.push(structs::list::End::Right, &element, &ListLimits::new(-2));
            }
            Value::List(list)
        }
        2 => {
            let mut set = Set::empty();
            for number in 0..elements {
                set.insert(format!("m{number}").as_bytes(), &SetLimits::default());
            }
            Value::Set(set)
        }
        3 => {
            let mut hash = Hash::new();
            for number in 0..elements {
                let value = text(rng);
                hash.set(format!("f{number}").as_bytes(), &value, &HashLimits::default());
            }
            Value::Hash(hash)
        }
        _ => {
            let mut zset = Zset::new();
            for number in 0..elements {
                let score = rng.index(100) as f64;
                zset.update(format!("m{number}").as_bytes(), &ZsetLimits::default(), |_| {
                    Some(score)
                });
            }
            Value::Zset(zset)
        }
    }
}

/// Returns the name of one of `keys` keys. If there are slots, half of them are in one slot.
fn random_name(rng: &mut Rng, keys: usize) -> Vec<u8> {
    let number = rng.index(keys);
    let tag = if number.is_multiple_of(2) { "{tag}" } else { "" };
    format!("{tag}key:{number}").into_bytes()
}

/// Makes one random change.
fn change(keyspace: &Keyspace, rng: &mut Rng, keys: usize, dbs: u32) {
    let db = DbIndex(rng.index(dbs as usize) as u32);
    let name = random_name(rng, keys);
    let key = Key::new(&name);
    let stripe = keyspace.stripe_of(key);
    let (what, is_big) = (rng.index(15), rng.index(40) == 0);
    let value = random_value(rng, is_big);
    let number = rng.index(5000);
    with(keyspace, stripe, |data| match what {
        0..=3 => {
            let expiry = number.is_multiple_of(3).then_some(Millis(number as i64));
            drop(data.put(db, key.hash, Entry::new(&name, value, expiry, 0)));
        }
        4 | 5 => drop(data.remove(db, key)),
        6 => drop(data.set_expiry(db, key, Some(Millis(number as i64)))),
        12 => make_cold(data, db, key),
        13 => thaw(data, db, key),
        // The other changes need the value.
        _ if data.cold(db, key).is_some() => thaw(data, db, key),
        7 => {
            if data.find(db, key).is_some_and(|entry| entry.string().is_some())
                && let Some(string) = data.heap_string(db, key)
            {
                string.extend(b"more");
            }
        }
        8 => {
            if let Some(hash) = data.object_mut::<Hash>(db, key) {
                hash.set(format!("f{number}").as_bytes(), b"new", &HashLimits::default());
                hash.remove(format!("f{}", number / 2).as_bytes());
            }
        }
        9 => {
            if let Some(set) = data.object_mut::<Set>(db, key) {
                set.insert(format!("m{number}").as_bytes(), &SetLimits::default());
                set.remove(format!("m{}", number / 2).as_bytes());
            }
        }
        10 => {
            if let Some(zset) = data.object_mut::<Zset>(db, key) {
                let member = format!("m{number}");
                zset.update(member.as_bytes(), &ZsetLimits::default(), |_| Some(7.0));
                zset.remove(format!("m{}", number / 2).as_bytes());
            }
        }
        _ => {
            if let Some(list) = data.object_mut::<List>(db, key) {
                list.push(structs::list::End::Left, b"new", &ListLimits::new(-2));
            }
        }
    });
}

/// Changes whole databases. The test has one thread, so the world is stopped.
fn change_dbs(keyspace: &Keyspace, rng: &mut Rng, dbs: u32) {
    let (a, b) = (DbIndex(rng.index(dbs as usize) as u32), DbIndex(rng.index(dbs as usize) as u32));
    let is_flush = rng.index(2) == 0;
    for stripe in 0..STRIPES {
        with(
            keyspace,
            stripe,
            |data| {
                if is_flush { drop(data.take_db(a)) } else { data.swap_dbs(a, b) }
            },
        );
    }
}

/// Flushes a slot. The test has one thread, so the world is stopped.
fn change_slots(keyspace: &Keyspace, rng: &mut Rng, keys: usize) {
    let slot = Slot::of(&random_name(rng, keys));
    with(keyspace, slot.stripe(), |data| drop(data.flush_slot(slot)));
}

fn run(seed: u64, assignment: Assignment) {
    const DBS: u32 = 3;
    let mut rng = Rng::seeded(seed);
    let keyspace = Keyspace::new(DBS, assignment);
    let keys = if cfg!(miri) { [20, 60, 120] } else { [300, 3_000, 8_000] }[rng.index(3)];
    for _ in 0..rng.index(2 * keys) {
        change(&keyspace, &mut rng, keys, DBS);
    }
    let expected = state(&keyspace, DBS);
    let limit = [1 << 10, 1 << 16, 1 << 26][rng.index(3)];
    let shared = Arc::new(Shared::new(limit, Box::new(|| {})));
    // SAFETY: only this test has the keyspace.
    begin_snapshot(&keyspace, &shared);
    let mut reader = Reader::default();
    let changes_per_step = rng.index(if cfg!(miri) { 2 } else { 60 });
    let mut stripe = 0;
    loop {
        for _ in 0..rng.index(changes_per_step + 1) {
            change(&keyspace, &mut rng, keys, DBS);
        }
        if rng.index(2000) == 0 {
            change_dbs(&keyspace, &mut rng, DBS);
        }
        if assignment == Assignment::BySlot && rng.index(100) == 0 {
            change_slots(&keyspace, &mut rng, keys);
        }
        if rng.index(3) == 0 {
            let name = random_name(&mut rng, keys);
            let key = Key::new(&name);
            with(&keyspace, keyspace.stripe_of(key), |data| {
                data.is_delayed(DbIndex(0), key.hash, Touch::Whole, Urgency::Waiting)
            });
        }
        if let Some(chunk) = shared.handed_over() {
            reader.read(chunk.db, &chunk.bytes);
            reader.end();
            shared.give_back_chunk(chunk.bytes.len(), chunk.bytes.capacity());
        } else if stripe < STRIPES && (!shared.is_hurried() || rng.index(2) == 0) {
            match with(&keyspace, stripe, StripeData::walk_snapshot) {
                Some(chunk) => {
                    reader.read(chunk.db, &chunk.bytes);
                    reader.end();
                }
                None => stripe += 1,
            }
        } else if let Some(value) = shared.next_big() {
            let mut goes_on = true;
            while goes_on {
                let mut out = Vec::new();
                goes_on = with(&keyspace, value.stripe, |data| {
                    data.stream_snapshot(value, &mut out, 1 << 13)
                });
                reader.read(value.db, &out);
                change(&keyspace, &mut rng, keys, DBS);
            }
            reader.end();
        } else {
            break;
        }
    }
    for stripe in 0..STRIPES {
        assert!(with(&keyspace, stripe, |data| !data.has_snapshot()), "the stripe is done");
    }
    assert_eq!(shared.buffered_bytes(), 0, "all that was handed over was written");
    assert_eq!(shared.held_bytes(), 0, "and all memory given back");
    let differs = |key: &&(u32, Vec<u8>)| reader.state.get(*key) != expected.get(*key);
    let wrong = expected.keys().chain(reader.state.keys()).find(differs);
    assert!(wrong.is_none(), "seed {seed}: {wrong:?}");
}

/// Returns the state that a snapshot shares with its writers, and a counter of the wake-ups for
/// free space.
fn counting(limit: usize) -> (Arc<Shared>, Arc<AtomicUsize>) {
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let wake = move || {
        count.fetch_add(1, Relaxed);
    };
    (Arc::new(Shared::new(limit, Box::new(wake))), woken)
}

#[test]
fn writers_go_on_when_what_they_handed_over_is_written() {
    const KEYS: usize = if cfg!(miri) { 40 } else { 4_000 };
    for limit in [0, 1, 3, 1 << 10, 1 << 16, 1 << 20] {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let set = |index: usize, value: &[u8]| {
            let name = format!("key:{index}").into_bytes();
            let key = Key::new(&name);
            with(&keyspace, keyspace.stripe_of(key), |data| {
                let goes_on =
                    !data.is_delayed(DbIndex(0), key.hash, Touch::Whole, Urgency::Waiting);
                if goes_on {
                    let entry = Entry::new(&name, Value::String(value.to_vec()), None, 0);
                    drop(data.put(DbIndex(0), key.hash, entry));
                }
                goes_on
            })
        };
        assert!((0..KEYS).all(|index| set(index, &[b'x'; 400])));
        let (shared, woken) = counting(limit);
        // SAFETY: only this test has the keyspace.
        begin_snapshot(&keyspace, &shared);
        // No walk takes place, so only writing the chunks that writers have handed over frees
        // space.
        for index in 0..KEYS {
            shared.wait();
            if !set(index, b"y") {
                woken.store(0, Relaxed);
                while let Some(chunk) = shared.handed_over() {
                    shared.give_back_chunk(chunk.bytes.len(), chunk.bytes.capacity());
                }
                assert!(woken.load(Relaxed) > 0, "limit {limit}: the writer is told");
                assert!(set(index, b"y"), "limit {limit}: there is room");
            }
        }
        keyspace.end_snapshot();
    }
}

#[test]
fn another_limit_is_told_to_those_who_wait() {
    let (shared, woken) = counting(10);
    shared.spend(10);
    shared.wait();
    assert!(shared.is_spent());
    shared.set_limit(11);
    assert!(!shared.is_spent() && woken.load(Relaxed) == 1);
}

fn run_both(seed: u64) {
    run(seed, Assignment::ByHash);
    run(seed, Assignment::BySlot);
}

/// `DUNLIN_SEED` runs one seed, `DUNLIN_SNAPSHOT_SEEDS` this many seeds.
#[test]
fn a_snapshot_is_the_state_of_its_instant() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("DUNLIN_SEED") {
        Some(seed) => run_both(seed),
        None => (0..number("DUNLIN_SNAPSHOT_SEEDS").unwrap_or(2)).for_each(run_both),
    }
}

#[test]
fn a_value_that_changes_after_the_end_is_not_streamed_on() {
    let keyspace = Keyspace::new(1, Assignment::ByHash);
    let key = Key::new(b"key");
    let stripe = keyspace.stripe_of(key);
    let put = |len: usize| {
        let entry = Entry::new(key.bytes, Value::String(vec![b'x'; len]), None, 0);
        with(&keyspace, stripe, |data| drop(data.put(DbIndex(0), key.hash, entry)));
    };
    put(200_000);
    let shared = Arc::new(Shared::new(1 << 26, Box::new(|| {})));
    // SAFETY: only this test has the keyspace.
    begin_snapshot(&keyspace, &shared);
    while with(&keyspace, stripe, StripeData::walk_snapshot).is_some() {}
    let value = shared.next_big().expect("it is streamed apart");
    let stream = || {
        let mut out = Vec::new();
        (with(&keyspace, stripe, |data| data.stream_snapshot(value, &mut out, 1 << 13)), out)
    };
    assert!(stream().0, "there is more");
    shared.end();
    // The rest need not be handed over any more.
    put(10);
    assert_eq!(stream(), (false, Vec::new()));
    keyspace.end_snapshot();
}
