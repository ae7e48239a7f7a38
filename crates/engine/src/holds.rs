//! What long commands hold, and the commands that wait for them.
//!
//! The holds themselves are in the stripes (`keyspace::holds`); here is what concerns all of them:
//! how many long commands run, which threads want to be told when one ends, and [`Held`], the view
//! that a long command has of its keys.

use crate::background::GAP;
use crate::blocking::Ready;
use crate::clock::Clock;
use crate::cold;
use crate::db::Db;
use crate::engine::Engine;
use crate::locks::{Locked, Locks};
use crate::mailbox::{Mailbox, recheck_all};
use crate::thread::ThreadContext;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::world::Reader;
use keyspace::{DbIndex, Entry, HeldEntry, Hold, Key, StripeData};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use structs::sync::lock;

/// The long commands that hold keys at present.
#[derive(Default)]
pub struct Holds {
    count: AtomicUsize,
    /// Those of them that hold keys just now.
    holding: AtomicUsize,
    last_holder: AtomicU64,
    /// Scripts that run on background threads, under locks.
    scripts: AtomicUsize,
    is_waited_for: AtomicBool,
    world_is_wanted: AtomicBool,
    /// No key is to be held now; see [`Holds::bar`].
    is_barred: AtomicBool,
    /// The long command that changes its keys one after the other just now; 0 if none does.
    changer: AtomicU64,
    /// Keys whose blocked clients could not be served because a long command was in the way.
    unserved: Mutex<Vec<Ready>>,
}

impl Holds {
    /// Whether any long command holds keys.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// How many commands hold keys just now.
    pub fn holding(&self) -> usize {
        self.holding.load(SeqCst)
    }

    /// From now on no key is held until [`Holds::unbar`], if none is held already and no long command is
    /// about to hold one; `false` otherwise. For a moment, and by one thread.
    pub(crate) fn bar(&self) -> bool {
        // A long command counts itself before it looks whether this is set.
        self.is_barred.store(true, SeqCst);
        let is_free = !self.any();
        if !is_free {
            self.unbar();
        }
        is_free
    }

    /// The end of what [`Holds::bar`] began.
    pub(crate) fn unbar(&self) {
        self.is_barred.store(false, SeqCst);
    }

    /// Whether a script must not take the turn: a long command that began before may hold a key that the
    /// script comes to want, and then want the script's stripes.
    pub(crate) fn blocks_turn(&self) -> bool {
        if !self.any() {
            return false;
        }
        self.wait();
        self.any()
    }

    /// Begins a script on a background thread, under locks, unless the world is wanted.
    pub(crate) fn begin_script(&self, clock: &Clock) {
        self.wait_for_world(clock);
        self.scripts.fetch_add(1, SeqCst);
    }

    /// Ends it.
    pub(crate) fn end_script(&self, mailboxes: &[Mailbox]) {
        self.scripts.fetch_sub(1, SeqCst);
        self.recheck(mailboxes);
    }

    /// Tells the threads to try again what could not be done, if one of them has said that it waits.
    pub(crate) fn recheck(&self, mailboxes: &[Mailbox]) {
        if self.is_waited_for.swap(false, SeqCst) {
            recheck_all(mailboxes);
        }
    }

    /// Whether anything runs in the background that the world must not wait for.
    fn is_in_background(&self) -> bool {
        self.any() || self.scripts.load(SeqCst) > 0
    }

    fn wait_for_world(&self, clock: &Clock) {
        while self.world_is_wanted.load(SeqCst) {
            if !self.is_in_background() {
                self.world_is_wanted.store(false, SeqCst);
            }
            clock.rest(GAP);
        }
    }

    /// Begins a long command; its number. Waits if a thread wants the world and has waited long
    /// enough for the commands that run already, and while a script has the turn.
    pub(crate) fn begin(&self, clock: &Clock, is_turn_taken: impl Fn() -> bool) -> u64 {
        loop {
            self.wait_for_world(clock);
            self.count.fetch_add(1, SeqCst);
            if !is_turn_taken() {
                break;
            }
            self.count.fetch_sub(1, SeqCst);
            clock.rest(GAP);
        }
        self.last_holder.fetch_add(1, SeqCst) + 1
    }

    /// Ends it, and tells the threads to try again what could not be done beside it.
    pub(crate) fn end(&self, mailboxes: &[Mailbox], clock: &Clock) {
        self.count.fetch_sub(1, SeqCst);
        if self.is_waited_for.swap(false, SeqCst) {
            recheck_all(mailboxes);
            // Without it the next long command might be faster than those that wait.
            clock.rest(GAP);
        }
    }

    /// The long command that is changing the keys it holds one after the other: until its end they must
    /// not be read either. 0 if there is none.
    #[inline]
    pub(crate) fn changer(&self) -> u64 {
        self.changer.load(SeqCst)
    }

    /// Begins such a change; one command at a time does that.
    fn begin_change(&self, holder: u64, clock: &Clock) {
        while self.changer.compare_exchange(0, holder, SeqCst, SeqCst).is_err() {
            clock.rest(GAP);
        }
    }

    fn end_change(&self) {
        self.changer.store(0, SeqCst);
    }

    /// Notes that a command waits for a long one to end. To be called before the last look at
    /// what is in the way, so that the end is either seen or announced.
    pub(crate) fn wait(&self) {
        self.is_waited_for.store(true, SeqCst);
    }

    /// Whether the world must not be stopped now; the caller is told when to try again.
    pub(crate) fn keep_world(&self) -> bool {
        if !self.is_in_background() {
            return false;
        }
        self.world_is_wanted.store(true, SeqCst);
        self.wait();
        self.is_in_background()
    }

    /// Leaves the serving of a key's blocked clients to the long command in the way. If that has
    /// ended meanwhile, what it may have missed is returned.
    pub(crate) fn serve_later(&self, ready: Ready) -> Vec<Ready> {
        lock(&self.unserved).push(ready);
        if self.any() { Vec::new() } else { self.take_unserved() }
    }

    pub(crate) fn take_unserved(&self) -> Vec<Ready> {
        std::mem::take(&mut *lock(&self.unserved))
    }
}

/// A key that a command names.
pub(crate) struct NamedKey {
    pub bytes: Box<[u8]>,
    pub hash: u64,
    pub stripe: usize,
    pub writes: bool,
}

/// The keys that a long command holds: all it may look at, and it needs no lock for that.
pub(crate) struct Held<'a> {
    engine: &'static Engine,
    db: DbIndex,
    holder: u64,
    reader: &'a Reader<'static>,
    stripes: Locked,
    /// In the order of stripes and hashes.
    keys: Vec<(NamedKey, Option<HeldEntry>)>,
    /// Whether the keys are changed one after the other; see [`Held::is_changing`].
    is_changing: bool,
    /// Those of the stripe that is locked for that which may have changed, by their index.
    touched: Vec<usize>,
    /// The index of the key that was looked for last.
    last: Cell<usize>,
}

/// A command that holds more keys than this for writing locks their stripes one at a time for its
/// changes, and not all at once.
const CHANGED_AT_ONCE: usize = 64;

impl<'a> Held<'a> {
    /// Holds `keys` of the selected database of `db`. The caller is outside the world and holds
    /// nothing; it waits as long as other long commands are in the way.
    pub(crate) fn acquire(
        db: &Db<'_>,
        holder: u64,
        mut keys: Vec<NamedKey>,
        thread: &'a ThreadContext,
    ) -> Held<'a> {
        let reader = &thread.reader;
        let order = |key: &NamedKey| (key.stripe, key.hash, !key.writes);
        keys.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.bytes.cmp(&b.bytes)));
        // A key that is named twice is held once, for writing if one of the two says so.
        keys.dedup_by(|later, first| later.bytes == first.bytes);
        let mut stripes = Locked::None;
        let mut entries = Vec::with_capacity(keys.len());
        // Everybody goes through the stripes in ascending order, and in one stripe takes all holds
        // or none, so long commands never wait for each other in a circle.
        for of_stripe in keys.chunk_by(|a, b| a.stripe == b.stripe) {
            stripes.add(of_stripe[0].stripe);
            loop {
                reader.enter();
                let given = db.hold_all(holder, of_stripe, &mut entries);
                reader.leave();
                if given {
                    break;
                }
                thread.clock.rest(GAP);
            }
        }
        let keys = keys.into_iter().zip(entries).collect();
        db.engine.holds.holding.fetch_add(1, SeqCst);
        Held {
            engine: db.engine,
            db: db.index,
            holder,
            reader,
            stripes,
            keys,
            is_changing: false,
            touched: Vec::new(),
            last: Cell::default(),
        }
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
        // SAFETY: the hold lasts as long as `self`, and what the command itself has changed was looked up
        // again when its stripe was unlocked.
        entry.as_ref().map(|entry| unsafe { entry.entry() })
    }

    /// Whether the command has begun to change its keys, one stripe at a time. The holds stay until it has
    /// changed all and its entry is in the journal, and meanwhile others must not read the keys either: so
    /// no other client sees a part of it. The thread is inside the world, which therefore cannot be stopped
    /// in between.
    pub(crate) fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// Whether the command is to change its keys that way.
    fn changes_by_stripe(&self) -> bool {
        self.keys.len() > CHANGED_AT_ONCE
            && self.keys.iter().filter(|(key, _)| key.writes).count() > CHANGED_AT_ONCE
    }

    /// Whether the command holds this key, one of its own, for writing.
    pub(crate) fn may_change(&self, db: DbIndex, key: Key<'_>) -> bool {
        self.keys[self.position(db, key)].0.writes
    }

    /// Locks the stripe of a key that the command is about to change, in place of the one before.
    fn move_to_key(&mut self, locks: &mut Locks<'_>, db: DbIndex, key: Key<'_>) {
        let at = self.position(db, key);
        assert!(self.keys[at].0.writes, "a command changed a key that it only reads");
        self.move_to(locks, self.keys[at].0.stripe);
        if self.touched.last() != Some(&at) {
            self.touched.push(at);
        }
    }

    /// Locks a stripe in place of the one before.
    fn move_to(&mut self, locks: &mut Locks<'_>, stripe: usize) {
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
        self.reader.enter();
        let keyspace = &self.engine.keyspace;
        self.stripes.for_each(|index| _ = keyspace.stripe(index).lock().end_holds(self.holder));
        self.reader.leave();
    }
}

impl Db<'_> {
    /// A long command is about to change this key: the end of its part without locks.
    #[cold]
    pub(crate) fn lock_held(&mut self, key: Key<'_>) {
        let Some(held) = &mut self.held else { return };
        if !held.is_changing {
            if !held.changes_by_stripe() {
                let held = self.held.take();
                return held.into_iter().for_each(|held| held.into_locks(&mut self.locks));
            }
            self.engine.holds.begin_change(held.holder, &self.engine.clock);
            held.reader.enter();
            held.is_changing = true;
        }
        held.move_to_key(&mut self.locks, self.index, key);
    }

    /// Locks this stripe, one of those that the command has keys in, if it locks them one at a time.
    #[inline]
    pub(crate) fn reach(&mut self, stripe: usize) {
        if let Some(held) = &mut self.held
            && held.is_changing
        {
            held.move_to(&mut self.locks, stripe);
        }
    }

    /// Holds all keys of one stripe, which is locked for that, or, if one of them must not be held
    /// now, none; says whether it did.
    fn hold_all(
        &self,
        holder: u64,
        keys: &[NamedKey],
        entries: &mut Vec<Option<HeldEntry>>,
    ) -> bool {
        let mut stripe = self.engine.keyspace.stripe(keys[0].stripe).lock();
        let may_change = |stripe: &mut StripeData, key: &NamedKey| {
            !key.writes || !stripe.is_delayed(self.index, key.hash, Touch::Whole, Urgency::Waiting)
        };
        for key in keys {
            let named = Key { bytes: &key.bytes, hash: key.hash };
            // What cannot be read stays cold: the command fails where it needs the value.
            let _ = cold::read_for_hold(self.engine, &mut stripe, self.index, named);
        }
        if self.engine.holds.is_barred.load(SeqCst) {
            return false;
        }
        if !keys
            .iter()
            .all(|key| stripe.may_hold(key.hash, key.writes) && may_change(&mut stripe, key))
        {
            return false;
        }
        entries.extend(keys.iter().map(|key| {
            let named = Key { bytes: &key.bytes, hash: key.hash };
            let writes = key.writes;
            let hold = Hold { hash: key.hash, holder, writes, is_wanted: false };
            stripe.hold(self.index, named, hold)
        }));
        true
    }
}
