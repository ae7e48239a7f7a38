//! One stripe's part of a snapshot: the hook that sees every change first, and the walk.
//!
//! All of it runs under the stripe's lock or in a stopped world. What the stripe held at the
//! snapshot's moment is looked at when it is first touched: everything that could change it comes
//! by here before.

use super::big::BigValue;
use super::record;
use super::{BigRef, Chunk, Shared, Touch, Urgency, Workspace};
use crate::cold::{self, ColdLocation, ColdRef};
use crate::entry::Entry;
use crate::memory::block_size;
use crate::stripe::{DbTables, StripeData};
use crate::tables::TableId;
use crate::types::{DbIndex, Key};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use structs::cells::Cells;
use structs::table::{ScanPosition, Table};

/// Cells that the walk takes at a stretch, and bytes after which it stops all the same.
const STRETCH_CELLS: usize = 32;
const STRETCH_BYTES: usize = 32 << 10;

/// Where the tables of a database are that was there at the snapshot's moment.
enum Place {
    /// In the stripe, maybe under another number (SWAPDB).
    In(TableId),
    /// Taken out of the keyspace (FLUSHALL) and kept until they are written.
    Apart(Box<DbTables>),
}

/// Tables at the snapshot's moment.
struct View {
    id: TableId,
    place: Place,
    cells: Cells,
    /// Values of cells that are done which are streamed apart.
    big: Vec<BigValue>,
    /// Cold entries of cells that are done which are marked: their values are read later, with those that lie
    /// beside them. An entry that changes before is taken first.
    marked: usize,
}

/// The entries of one database that are on their way.
#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    keys: u64,
}

/// See the module's documentation.
pub(crate) struct StripeSnapshot {
    shared: Arc<Shared>,
    stripe: usize,
    /// `None` until the stripe is touched.
    views: Option<Vec<View>>,
    /// What writers have handed over, of database `taken_of`.
    taken: Taken,
    taken_of: DbIndex,
    /// The hook and its views. Last: it is dropped after them.
    workspace: Workspace,
}

/// What a hook takes that was not touched.
const HOOK_BYTES: usize = block_size(size_of::<StripeSnapshot>());

fn table_of<'d>(place: &'d Place, data: &'d StripeData) -> &'d Table<Entry> {
    match place {
        Place::In(id) => &data.table(*id).entries,
        Place::Apart(tables) => &tables.entries,
    }
}

impl View {
    fn is_done(&self) -> bool {
        self.cells.all_done() && self.big.is_empty() && self.marked == 0
    }
}

/// Whether an entry is cold and marked, and at this place if one is named.
fn is_marked(entry: &Entry, at: Option<ColdLocation>) -> bool {
    let marked = |cold: ColdRef| {
        at.is_none_or(|at| at == cold.location)
            && cold::store().is_some_and(|store| store.is_marked(cold.location))
    };
    entry.cold().is_some_and(marked)
}

/// Takes one entry out of a cell.
fn take(
    entry: &Entry,
    (big, marked): (&mut Vec<BigValue>, &mut usize),
    taken: &mut Taken,
    shared: &Arc<Shared>,
    (stripe, db): (usize, DbIndex),
) {
    taken.keys += 1;
    if let Some(cold) = entry.cold()
        && let Some(store) = cold::store()
    {
        if store.mark(cold.location) {
            *marked += 1;
            shared.marked.fetch_add(1, SeqCst);
            return;
        }
        store.pin(cold.location);
    }
    if record::write_entry(&mut taken.bytes, entry).is_err() {
        let hash = Key::new(entry.key()).hash;
        big.push(BigValue::new(entry, hash, shared));
        shared.add_big(BigRef { stripe, db, hash });
    }
}

impl StripeSnapshot {
    pub fn new(shared: Arc<Shared>, stripe: usize) -> StripeSnapshot {
        let workspace = Workspace::new(&shared, HOOK_BYTES);
        let taken = Taken::default();
        StripeSnapshot { shared, stripe, views: None, taken, taken_of: DbIndex(0), workspace }
    }

    fn begin(&mut self, data: &StripeData) {
        if self.views.is_none() {
            let ids = data.table_ids().filter(|&id| !data.table(id).entries.is_empty());
            let view = |id| View {
                id,
                place: Place::In(id),
                cells: Cells::of(&data.table(id).entries),
                big: Vec::new(),
                marked: 0,
            };
            let views: Vec<View> = ids.map(view).collect();
            let cells: usize = views.iter().map(|view| view.cells.allocated_bytes()).sum();
            let own = block_size(views.capacity() * size_of::<View>());
            self.workspace.set(HOOK_BYTES + own + cells);
            self.views = Some(views);
        }
    }

    fn views(&mut self) -> &mut [View] {
        self.views.as_deref_mut().unwrap_or_default()
    }

    /// Which view's tables have this name in the stripe now.
    fn view_in(&self, id: TableId) -> Option<usize> {
        let views = self.views.as_deref().unwrap_or_default();
        views.iter().position(|view| matches!(view.place, Place::In(place) if place == id))
    }

    /// Notes which tables there are, unless that was done before: others are about to come.
    pub fn note_tables(&mut self, data: &StripeData) {
        self.begin(data);
    }

    /// Takes the cell of a position unless that is done.
    fn take_cell(&mut self, data: &StripeData, index: usize, at: ScanPosition) {
        let (stripe, shared) = (self.stripe, Arc::clone(&self.shared));
        let Some(view) = self.views.as_mut().and_then(|views| views.get_mut(index)) else { return };
        if view.cells.is_done(at) {
            return;
        }
        let (before, capacity) =
            begin_taking(&shared, &mut self.taken_of, &mut self.taken, view.id.db);
        let (table, db) = (table_of(&view.place, data), view.id.db);
        let (big, marked, taken) = (&mut view.big, &mut view.marked, &mut self.taken);
        view.cells.take(table, at, |entry| {
            take(entry, (&mut *big, &mut *marked), taken, &shared, (stripe, db))
        });
        end_taking(&shared, db, taken, (before, capacity));
    }

    /// Takes the entries with this hash that are marked: one of them is about to change. They are handed over at
    /// once, for a place that is pinned keeps a whole segment from being used again.
    #[cold]
    fn take_marked_before_change(&mut self, data: &StripeData, index: usize, hash: u64) {
        let shared = Arc::clone(&self.shared);
        let Some(view) = self.views.as_mut().and_then(|views| views.get_mut(index)) else { return };
        let (table, db) = (table_of(&view.place, data), view.id.db);
        while let Some(entry) = table.find_item(hash, |entry| is_marked(entry, None)) {
            let mut taken = Taken::default();
            unmark_and_write(&mut taken.bytes, entry, Then::Pin);
            end_taking(&shared, db, &mut taken, (0, 0));
            hand_over(&shared, db, &mut taken);
            view.marked -= 1;
            if view.marked == 0 && view.cells.all_done() {
                hand_over(&shared, self.taken_of, &mut self.taken);
            }
            shared.marked.fetch_sub(1, SeqCst);
        }
    }

    /// See [`StripeData::take_marked`].
    pub fn take_marked(
        &mut self,
        data: &StripeData,
        hash: u64,
        location: ColdLocation,
    ) -> Option<Chunk> {
        // From the end on changes do not come by here: the entry may be another one.
        if self.shared.is_over() {
            return None;
        }
        let shared = Arc::clone(&self.shared);
        for view in self.views().iter_mut().filter(|view| view.marked > 0) {
            let table = table_of(&view.place, data);
            let is_it = |entry: &Entry| is_marked(entry, Some(location));
            if let Some(entry) = table.find_item(hash, is_it) {
                let mut bytes = Vec::new();
                unmark_and_write(&mut bytes, entry, Then::ReadNow);
                view.marked -= 1;
                shared.marked.fetch_sub(1, SeqCst);
                return Some(Chunk { db: view.id.db, bytes, keys: 1 });
            }
        }
        None
    }

    /// An entry with this hash in database `db` of the stripe is about to change, come or go.
    pub fn before_change(&mut self, data: &StripeData, db: DbIndex, hash: u64, touch: Touch) {
        if self.shared.is_over() {
            return;
        }
        self.begin(data);
        let Some(index) = self.view_in(data.table_id(db, hash)) else { return };
        self.take_cell(data, index, data.tables_of(db, hash).entries.position_of(hash));
        self.let_go_of_value(data, index, hash, touch);
    }

    /// The value of an entry with this hash is about to leave RAM, or to come back. That changes nothing: if the
    /// walk has not come by yet it takes the entry as it finds it. Only what refers to where the value is goes.
    pub fn before_move(&mut self, data: &StripeData, db: DbIndex, hash: u64) {
        if self.shared.is_over() {
            return;
        }
        if let Some(index) = self.view_in(data.table_id(db, hash)) {
            self.let_go_of_value(data, index, hash, Touch::Whole);
        }
    }

    /// Whether a value of an entry with this hash is being streamed from where it is.
    pub fn streams(&self, data: &StripeData, db: DbIndex, hash: u64) -> bool {
        let Some(index) = self.view_in(data.table_id(db, hash)) else { return false };
        let views = self.views.as_deref().unwrap_or_default();
        !self.shared.is_over() && views[index].big.iter().any(|big| big.needs_entry(hash))
    }

    /// Takes the marked entries with this hash, and what is left of a value that is being streamed.
    fn let_go_of_value(&mut self, data: &StripeData, index: usize, hash: u64, touch: Touch) {
        if self.views()[index].marked > 0 {
            self.take_marked_before_change(data, index, hash);
        }
        let Some(views) = &mut self.views else { return };
        let View { place, big, .. } = &mut views[index];
        let table = table_of(place, data);
        for big in big.iter_mut().filter(|big| big.needs_entry(hash)) {
            let goes_on = big.is_watched() && touch == Touch::Elements;
            if !goes_on && let Some(entry) = table.get(hash, &big.key) {
                self.shared.spend(big.finish(entry));
            }
        }
    }

    /// Whether a change of this key should wait: the budget is spent, or its value is streamed.
    pub fn delays(
        &mut self,
        data: &StripeData,
        db: DbIndex,
        hash: u64,
        touch: Touch,
        urgency: Urgency,
    ) -> bool {
        if self.shared.is_over() {
            return false;
        }
        self.begin(data);
        let Some(index) = self.view_in(data.table_id(db, hash)) else { return false };
        let at = data.tables_of(db, hash).entries.position_of(hash);
        if !self.views()[index].cells.is_done(at) {
            if self.shared.is_spent() {
                return true;
            }
            self.take_cell(data, index, at);
        }
        let (stripe, is_spent) = (self.stripe, self.shared.is_spent());
        let view = &self.views()[index];
        let db = view.id.db;
        let table = table_of(&view.place, data);
        if is_spent
            && view.marked > 0
            && table.find_item(hash, |entry| is_marked(entry, None)).is_some()
        {
            return true;
        }
        let is_in_the_way = |big: &BigValue| {
            big.needs_entry(hash) && (is_spent || touch == Touch::Whole || !big.is_watched())
        };
        let is_streamed = view.big.iter().any(is_in_the_way);
        if is_streamed && urgency == Urgency::Waiting {
            self.shared.hurry(BigRef { stripe, db, hash });
        }
        is_streamed
    }

    /// Whether tables that are taken out of the stripe are needed; if so, [`Self::keep`] them.
    pub fn needs(&mut self, data: &StripeData, id: TableId) -> bool {
        if self.shared.is_over() {
            return false;
        }
        self.begin(data);
        self.view_in(id).is_some_and(|index| !self.views()[index].is_done())
    }

    /// Keeps tables that had this name.
    pub fn keep(&mut self, id: TableId, tables: DbTables) {
        if let Some(index) = self.view_in(id) {
            self.views()[index].place = Place::Apart(Box::new(tables));
        }
    }

    /// Two databases are about to be exchanged.
    pub fn swap(&mut self, data: &StripeData, a: DbIndex, b: DbIndex) {
        self.begin(data);
        for view in self.views() {
            if let Place::In(id) = &mut view.place {
                id.db = match id.db {
                    db if db == a => b,
                    db if db == b => a,
                    db => db,
                };
            }
        }
    }

    /// Takes the next cells; `None` if there are none left.
    pub fn walk(&mut self, data: &StripeData) -> Option<Chunk> {
        self.begin(data);
        let (stripe, shared) = (self.stripe, Arc::clone(&self.shared));
        let Some(view) = self.views().iter_mut().find(|view| !view.cells.all_done()) else {
            hand_over(&shared, self.taken_of, &mut self.taken);
            return None;
        };
        let mut taken = Taken { bytes: Vec::with_capacity(STRETCH_BYTES), keys: 0 };
        let (table, db) = (table_of(&view.place, data), view.id.db);
        let (cells, big, marked) = (&mut view.cells, &mut view.big, &mut view.marked);
        for _ in 0..STRETCH_CELLS {
            let goes_on = cells.step(table, |entry| {
                take(entry, (&mut *big, &mut *marked), &mut taken, &shared, (stripe, db));
            });
            if !goes_on || taken.bytes.len() >= STRETCH_BYTES {
                break;
            }
        }
        shared.keys.fetch_add(taken.keys, Relaxed);
        Some(Chunk { db, bytes: taken.bytes, keys: taken.keys })
    }

    /// Whether nothing of the stripe is needed any more; if so, what writers have taken is handed
    /// over, since it is not fetched again.
    pub fn ends(&mut self) -> bool {
        let is_done = self.views.as_ref().is_some_and(|views| views.iter().all(View::is_done));
        if is_done {
            hand_over(&self.shared, self.taken_of, &mut self.taken);
        }
        is_done
    }

    /// Ends the snapshot in this stripe before it is through.
    pub fn abandon(&mut self, data: &StripeData) {
        for view in self.views.iter_mut().flatten() {
            let table = table_of(&view.place, data);
            for big in &mut view.big {
                if let Some(entry) = table.get(big.hash, &big.key) {
                    big.abandon(entry);
                }
            }
        }
    }

    /// Takes the next piece of a big value, of about `most` bytes, and says whether there is more.
    pub fn stream(
        &mut self,
        data: &StripeData,
        value: BigRef,
        out: &mut Vec<u8>,
        most: usize,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        // From the end on changes do not come by here: the value may be another one.
        if shared.is_over() {
            return false;
        }
        let id = data.table_id(value.db, value.hash);
        let Some(view) = self.views().iter_mut().find(|view| view.id == id) else {
            return false;
        };
        let table = table_of(&view.place, data);
        let Some(at) = view.big.iter().position(|big| big.hash == value.hash) else { return false };
        let big = &mut view.big[at];
        if big.is_apart() {
            big.advance_apart(out, most);
            if !big.is_finished() {
                return true;
            }
        }
        if !big.is_finished()
            && let Some(entry) = table.get(big.hash, &big.key)
        {
            big.advance(entry, out, most);
            if !big.is_finished() {
                return true;
            }
        }
        let rest = big.take_rest();
        out.extend_from_slice(&rest);
        shared.give_back(rest.len());
        view.big.swap_remove(at);
        false
    }
}

/// What becomes of a value whose mark goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is read by itself, some time later.
    Pin,
    /// The caller has it.
    ReadNow,
}

/// Appends the token of a marked entry, which is not marked from now on.
fn unmark_and_write(out: &mut Vec<u8>, entry: &Entry, then: Then) {
    if let Some(cold) = entry.cold()
        && let Some(store) = cold::store()
    {
        store.unmark(cold.location);
        if then == Then::Pin {
            store.pin(cold.location);
        }
    }
    let written = record::write_entry(out, entry);
    assert!(written.is_ok(), "a cold entry is small");
}

/// Before a writer takes entries of a database: the bytes that are taken, and how many have room.
fn begin_taking(
    shared: &Shared,
    taken_of: &mut DbIndex,
    taken: &mut Taken,
    db: DbIndex,
) -> (usize, usize) {
    if *taken_of != db {
        hand_over(shared, *taken_of, taken);
        *taken_of = db;
    }
    let before = (taken.bytes.len(), taken.bytes.capacity());
    if before.0 == 0 {
        let kept_back = shared.kept_back();
        taken.bytes.reserve(kept_back + kept_back / 4);
    }
    before
}

/// Afterwards: counts what was taken, and hands it over if it is enough.
fn end_taking(shared: &Shared, db: DbIndex, taken: &mut Taken, (before, capacity): (usize, usize)) {
    let (spent, grown) = (taken.bytes.len() - before, taken.bytes.capacity() - capacity);
    shared.spend(spent);
    shared.add_slack(grown as isize - spent as isize);
    if taken.bytes.len() >= shared.kept_back() {
        hand_over(shared, db, taken);
    }
}

fn hand_over(shared: &Shared, db: DbIndex, taken: &mut Taken) {
    let Taken { bytes, keys } = std::mem::take(taken);
    shared.keys.fetch_add(keys, Relaxed);
    if bytes.is_empty() {
        shared.give_back_chunk(0, bytes.capacity());
    } else {
        shared.hand_over(Chunk { db, bytes, keys });
    }
}
