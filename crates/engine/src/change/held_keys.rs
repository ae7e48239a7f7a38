//! The view that a long command has of the keys it holds.

use crate::background::GAP;
use crate::cold_values;
use crate::engine::Engine;
use crate::locks::{Locked, Locks};
use crate::thread::ThreadContext;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::world::Reader;
use keyspace::{DbIndex, Entry, HeldEntry, Hold, Key, StripeData};
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

/// A key that a command names.
pub(crate) struct NamedKey {
    pub bytes: Box<[u8]>,
    pub hash: u64,
    pub stripe: usize,
    pub writes: bool,
}

/// The keys that a long command holds: all it may look at, and it needs no lock for that.
pub(crate) struct HeldKeys<'a> {
    engine: &'static Engine,
    db: DbIndex,
    holder: u64,
    reader: &'a Reader<'static>,
    stripes: Locked,
    /// In the order of stripes and hashes.
    keys: Vec<(NamedKey, Option<HeldEntry>)>,
    /// Whether the keys are changed one after the other; see [`HeldKeys::is_changing`].
    is_changing: bool,
    /// Those of the stripe that is locked for that which may have changed, by their index.
    touched: Vec<usize>,
    /// The index of the key that was looked for last.
    last: Cell<usize>,
}

/// A command that holds more keys than this for writing locks their stripes one at a time for its
/// changes, and not all at once.
const CHANGED_AT_ONCE: usize = 64;

impl<'a> HeldKeys<'a> {
    /// Holds `keys` of a database. The caller is outside the world and holds
    /// nothing; it waits as long as other long commands are in the way. `None` if a script has one
    /// of the stripes and has run for long.
    pub(crate) fn acquire(
        engine: &'static Engine,
        db: DbIndex,
        holder: u64,
        mut keys: Vec<NamedKey>,
        thread: &'a ThreadContext,
    ) -> Option<HeldKeys<'a>> {
        let reader = &thread.reader;
        let order = |key: &NamedKey| (key.stripe, key.hash, !key.writes);
        keys.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.bytes.cmp(&b.bytes)));
        // A key that is named twice is held once, for writing if one of the two says so.
        keys.dedup_by(|later, first| later.bytes == first.bytes);
        let mut stripes = Locked::None;
        let mut entries = Vec::with_capacity(keys.len());
        // Everybody goes through the stripes in ascending order, and in one stripe takes all holds
        // or none, so long commands never wait for each other in a circle.
        let mut is_refused = false;
        'keys: for of_stripe in keys.chunk_by(|a, b| a.stripe == b.stripe) {
            loop {
                reader.enter();
                let given = hold_all(engine, db, holder, of_stripe, &mut entries);
                reader.leave();
                if given {
                    stripes.add(of_stripe[0].stripe);
                    break;
                }
                is_refused = engine.scripts.running.is_busy();
                if is_refused {
                    break 'keys;
                }
                thread.clock.rest(GAP);
            }
        }
        let keys = keys.into_iter().zip(entries).collect();
        engine.holds.holding.fetch_add(1, SeqCst);
        let held = HeldKeys {
            engine,
            db,
            holder,
            reader,
            stripes,
            keys,
            is_changing: false,
            touched: Vec::new(),
            last: Cell::default(),
        };
        if is_refused {
            held.release();
            return None;
        }
        Some(held)
    }

    /// Ends the holds, one stripe after the other, from outside the world: it can be stopped while
    /// a script has one.
    fn end_holds(&self) {
        self.stripes.for_each(|index| {
            let stripe = self.engine.keyspace.stripe(index);
            loop {
                self.reader.enter();
                let is_ended = stripe.try_lock_soon().map(|mut data| data.end_holds(self.holder));
                self.reader.leave();
                if is_ended.is_some() {
                    break;
                }
                self.engine.clock.rest(GAP);
            }
        });
    }

    /// The index of a key among those that are held.
    ///
    /// # Panics
    /// When it is none of them.
    fn position(&self, db: DbIndex, key: Key<'_>) -> usize {
        let is_it = |held: &NamedKey| held.hash == key.hash && *held.bytes == *key.bytes;
        // A command looks at one key several times before it comes to the next.
        let last = self.last.get();
        if db == self.db && self.keys.get(last).is_some_and(|(held, _)| is_it(held)) {
            return last;
        }
        let place = (self.engine.keyspace.stripe_of(key), key.hash);
        let start = self.keys.partition_point(|(held, _)| (held.stripe, held.hash) < place);
        let mut of_hash = self.keys[start..].iter().take_while(|(held, _)| held.hash == key.hash);
        match of_hash.position(|(held, _)| is_it(held)) {
            Some(at) if db == self.db => {
                self.last.set(start + at);
                start + at
            }
            _ => panic!("a command touched a key that its key specification does not name"),
        }
    }

    /// The entry of a key.
    ///
    /// # Panics
    /// When it is not one of those that are held.
    #[allow(unsafe_code)]
    pub(crate) fn find(&self, db: DbIndex, key: Key<'_>) -> Option<&Entry> {
        let (_, entry) = &self.keys[self.position(db, key)];
        // SAFETY: the hold lasts as long as `self`, and what the command itself has changed was
        // looked up again when its stripe was unlocked.
        entry.as_ref().map(|entry| unsafe { entry.entry() })
    }

    /// Whether the command has begun to change its keys, one stripe at a time. The holds stay until
    /// it has changed all and its entry is in the journal, and meanwhile others must not read the
    /// keys either: so no other client sees a part of it. The thread is inside the world, which
    /// therefore cannot be stopped in between.
    pub(crate) fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// Whether the command is to change its keys that way.
    pub(crate) fn changes_by_stripe(&self) -> bool {
        self.keys.len() > CHANGED_AT_ONCE
            && self.keys.iter().filter(|(key, _)| key.writes).count() > CHANGED_AT_ONCE
    }

    /// Whether the command holds this key, one of its own, for writing.
    pub(crate) fn may_change(&self, db: DbIndex, key: Key<'_>) -> bool {
        self.keys[self.position(db, key)].0.writes
    }

    /// Locks the stripe of a key that the command is about to change, in place of the one before.
    pub(crate) fn move_to_key(&mut self, locks: &mut Locks<'_>, db: DbIndex, key: Key<'_>) {
        let at = self.position(db, key);
        assert!(self.keys[at].0.writes, "a command changed a key that it only reads");
        self.move_to(locks, self.keys[at].0.stripe);
        if self.touched.last() != Some(&at) {
            self.touched.push(at);
        }
    }

    /// Locks a stripe in place of the one before.
    pub(crate) fn move_to(&mut self, locks: &mut Locks<'_>, stripe: usize) {
        if locks.held().covers(stripe) {
            return;
        }
        self.leave_stripe(locks);
        locks.acquire_patiently(Locked::One(stripe));
        locks.data_mut(stripe).begin_change(self.holder);
    }

    /// Unlocks the stripe that is locked.
    fn leave_stripe(&mut self, locks: &mut Locks<'_>) {
        locks.for_each_mut(StripeData::end_change);
        for at in self.touched.drain(..) {
            let (key, entry) = &mut self.keys[at];
            let named = Key { bytes: &key.bytes, hash: key.hash };
            *entry = locks.data(key.stripe).held_entry(self.db, named);
        }
        locks.release();
    }

    /// The end of a command that has changed its keys one after the other: they may be read again.
    pub(crate) fn end_change(mut self, locks: &mut Locks<'_>) {
        self.leave_stripe(locks);
        self.engine.holds.holding.fetch_sub(1, SeqCst);
        let keyspace = &self.engine.keyspace;
        self.stripes.for_each(|index| _ = keyspace.stripe(index).lock().end_holds(self.holder));
        self.engine.holds.end_change();
    }

    /// The thread's registration with the world, which it is outside of while it holds keys.
    pub(crate) fn reader(&self) -> &'a Reader<'static> {
        self.reader
    }

    /// Exchanges the holds for the locks of all stripes that they are in. The caller is inside the
    /// world from here on.
    pub(crate) fn into_locks(self, locks: &mut Locks<'_>) {
        self.engine.holds.holding.fetch_sub(1, SeqCst);
        self.reader.enter();
        locks.acquire_patiently(self.stripes);
        locks.for_each_mut(|stripe| _ = stripe.end_holds(self.holder));
    }

    /// Ends the holds, one stripe after the other.
    pub(crate) fn release(self) {
        self.engine.holds.holding.fetch_sub(1, SeqCst);
        self.end_holds();
    }
}

impl HeldKeys<'_> {
    /// Begins to change the keys one after the other; the caller is inside the world from here on.
    pub(crate) fn begin_change(&mut self) {
        self.engine.holds.begin_change(self.holder, &self.engine.clock);
        self.reader.enter();
        self.is_changing = true;
    }
}

/// Holds all keys of one stripe, which is locked for that, or, if one of them must not be held
/// now, none; says whether it did.
fn hold_all(
    engine: &Engine,
    db: DbIndex,
    holder: u64,
    keys: &[NamedKey],
    entries: &mut Vec<Option<HeldEntry>>,
) -> bool {
    let Some(mut stripe) = engine.keyspace.stripe(keys[0].stripe).try_lock_soon() else {
        return false;
    };
    let may_change = |stripe: &mut StripeData, key: &NamedKey| {
        !key.writes || !stripe.is_delayed(db, key.hash, Touch::Whole, Urgency::Waiting)
    };
    for key in keys {
        let named = Key { bytes: &key.bytes, hash: key.hash };
        // What cannot be read stays cold: the command fails where it needs the value.
        let _ = cold_values::read_for_hold(engine, &mut stripe, db, named);
    }
    if engine.holds.is_barred.load(SeqCst) {
        return false;
    }
    if !keys.iter().all(|key| stripe.may_hold(key.hash, key.writes) && may_change(&mut stripe, key))
    {
        return false;
    }
    entries.extend(keys.iter().map(|key| {
        let named = Key { bytes: &key.bytes, hash: key.hash };
        let writes = key.writes;
        let hold = Hold { hash: key.hash, holder, writes, is_wanted: false };
        stripe.hold(db, named, hold)
    }));
    true
}
