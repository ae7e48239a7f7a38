//! One stripe's part of a snapshot: the hook that is called before every change, and the walk.
//!
//! All of it runs under the stripe's lock or in a stopped world. The contents of the stripe at the
//! snapshot's moment are recorded when the stripe is first touched, which is early enough because
//! every change is reported here before it is made.

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

/// Greatest number of cells that the walk takes at a stretch, and number of bytes after which it
/// stops earlier.
const STRETCH_CELLS: usize = 32;
const STRETCH_BYTES: usize = 32 << 10;

/// Where the tables of a database of the snapshot's moment are now.
enum TablesPlace {
    /// In the stripe, possibly under another number (SWAPDB).
    In(TableId),
    /// Taken out of the keyspace (FLUSHALL), and kept until they are written.
    Apart(Box<DbTables>),
}

/// Tables at the snapshot's moment.
struct View {
    id: TableId,
    place: TablesPlace,
    cells: Cells,
    /// Big values of finished cells, which are streamed separately.
    big: Vec<BigValue>,
    /// Number of marked cold entries in finished cells. Their values are read later, together with
    /// their neighbours. An entry that changes before is taken first.
    marked: usize,
}

/// Entries of one database that have been taken.
#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    keys: u64,
}

/// The hook of a stripe. The module's documentation describes it.
pub(crate) struct StripeSnapshot {
    shared: Arc<Shared>,
    stripe: usize,
    /// `None` until the stripe is touched.
    views: Option<Vec<View>>,
    /// Entries of database `taken_of` that writers have taken.
    taken: Taken,
    taken_of: DbIndex,
    /// Memory of the hook and its views. It is the last field, so it is dropped after them.
    workspace: Workspace,
}

/// Memory of a hook that was not touched, in bytes.
const HOOK_BYTES: usize = block_size(size_of::<StripeSnapshot>());

fn table_of<'d>(place: &'d TablesPlace, data: &'d StripeData) -> &'d Table<Entry> {
    match place {
        TablesPlace::In(id) => &data.table(*id).entries,
        TablesPlace::Apart(tables) => &tables.entries,
    }
}

impl View {
    fn is_done(&self) -> bool {
        self.cells.all_done() && self.big.is_empty() && self.marked == 0
    }
}

/// Returns whether an entry is cold and marked, and is at this location if one is given.
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
                place: TablesPlace::In(id),
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

    /// Returns the index of the view whose tables have this name in the stripe now.
    fn view_in(&self, id: TableId) -> Option<usize> {
        let views = self.views.as_deref().unwrap_or_default();
        views.iter().position(|view| matches!(view.place, TablesPlace::In(place) if place == id))
    }

    /// Takes the cell of a position, unless it was taken before.
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

    /// Takes the marked entries with this hash, because one of them is about to change. They are
    /// handed over at once, because a pinned location prevents the reuse of a whole segment.
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

    /// Implements [`StripeData::take_marked`].
    pub fn take_marked(
        &mut self,
        data: &StripeData,
        hash: u64,
        location: ColdLocation,
    ) -> Option<Chunk> {
        // After the end, changes are no longer reported here, so the entry may be another one.
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

    /// Prepares for a change, an insertion or a removal of an entry with this hash in database `db`
    /// of the stripe.
    pub fn before_change(&mut self, data: &StripeData, db: DbIndex, hash: u64, touch: Touch) {
        if self.shared.is_over() {
            return;
        }
        self.begin(data);
        let Some(index) = self.view_in(data.table_id(db, hash)) else { return };
        self.take_cell(data, index, data.tables_of(db, hash).entries.position_of(hash));
        self.let_go_of_value(data, index, hash, touch);
    }

    /// Prepares for the value of an entry with this hash leaving RAM or returning. This changes
    /// nothing: if the walk has not taken the entry yet, it takes it in its new state. Only
    /// references to the value's place are dropped.
    pub fn before_move(&mut self, data: &StripeData, db: DbIndex, hash: u64) {
        if self.shared.is_over() {
            return;
        }
        if let Some(index) = self.view_in(data.table_id(db, hash)) {
            self.let_go_of_value(data, index, hash, Touch::Whole);
        }
    }

    /// Returns whether a value of an entry with this hash is being streamed from its place.
    pub fn streams(&self, data: &StripeData, db: DbIndex, hash: u64) -> bool {
        let Some(index) = self.view_in(data.table_id(db, hash)) else { return false };
        let views = self.views.as_deref().unwrap_or_default();
        !self.shared.is_over() && views[index].big.iter().any(|big| big.needs_entry(hash))
    }

    /// Takes the marked entries with this hash, and the rest of a value that is being streamed.
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

    /// Returns whether a change of this key should wait, because the budget is spent or its value
    /// is being streamed.
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

    /// Returns whether tables that are taken out of the stripe are still needed. If so,
    /// [`Self::keep`] keeps them.
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
            self.views()[index].place = TablesPlace::Apart(Box::new(tables));
        }
    }

    /// Prepares for the exchange of two databases.
    pub fn swap(&mut self, data: &StripeData, a: DbIndex, b: DbIndex) {
        self.begin(data);
        for view in self.views() {
            if let TablesPlace::In(id) = &mut view.place {
                id.db = match id.db {
                    db if db == a => b,
                    db if db == b => a,
                    db => db,
                };
            }
        }
    }

    /// Takes the next cells. Returns `None` if there are none left.
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

    /// Returns whether nothing of the stripe is needed any more. If so, entries that writers have
    /// taken are handed over, because no walk fetches them later.
    pub fn ends(&mut self) -> bool {
        let is_done = self.views.as_ref().is_some_and(|views| views.iter().all(View::is_done));
        if is_done {
            hand_over(&self.shared, self.taken_of, &mut self.taken);
        }
        is_done
    }

    /// Ends the snapshot in this stripe early.
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

    /// Takes the next piece of a big value, of about `most` bytes. Returns whether there is more.
    pub fn stream(
        &mut self,
        data: &StripeData,
        value: BigRef,
        out: &mut Vec<u8>,
        most: usize,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        // After the end, changes are no longer reported here, so the value may be another one.
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

/// What happens to a value whose mark is cleared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is pinned and read separately, some time later.
    Pin,
    /// The caller has read it.
    ReadNow,
}

/// Appends the token of a marked entry, and clears its mark.
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

/// Prepares for a writer that takes entries of a database. Returns the number of bytes taken so
/// far, and the buffer's capacity.
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

/// Counts the entries that a writer has taken, and hands them over if there are enough.
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
