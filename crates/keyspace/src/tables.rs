//! The tables of a stripe, and the assignment of keys to them.
//!
//! ```text
//!  standalone    first = database 0            others = [(database, tables)], sorted
//!  by slot       by_slot = slots of database 0  others = [(database, slot, tables)], sorted
//! ```
//!
//! If each slot has its own tables, operations on a slot are operations on its tables, and an empty
//! slot costs nothing. A range of one table per slot is not possible: hash tags can put any number
//! of keys into one slot, and the buckets of its range would overflow.

use crate::entry::Entry;
use crate::keyspace::STRIPES;
use crate::stripe::{DbTables, StripeData};
use crate::types::{DbIndex, Slot};
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use structs::table::{ScanPosition, Table};

/// Identifies tables of a stripe: a database, and the slot if each slot has its own tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TableId {
    /// The database.
    pub db: DbIndex,
    /// The slot, or `None` if keys are assigned by hash.
    pub slot: Option<Slot>,
}

impl TableId {
    /// Returns an id that comes before all other ids of a database.
    const fn before(db: DbIndex) -> TableId {
        TableId { db, slot: None }
    }
}

/// The place where a walk over the keys of a database in one stripe continues. It stays valid for
/// ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkPlace {
    /// The index of the stripe's table: 0 standalone, else the slot's number divided by the number
    /// of stripes.
    pub table: usize,
    /// The position in that table.
    pub at: ScanPosition,
}

impl WalkPlace {
    /// The beginning.
    pub const START: WalkPlace = WalkPlace::start_of(0);

    /// Returns the place as a number.
    pub fn to_bits(self) -> u64 {
        self.at.to_bits48() | (self.table as u64) << 48
    }

    /// Returns the place of a number from [`WalkPlace::to_bits`].
    pub fn from_bits(bits: u64) -> WalkPlace {
        WalkPlace { table: (bits >> 48) as usize, at: ScanPosition::from_bits48(bits) }
    }

    const fn start_of(table: usize) -> WalkPlace {
        WalkPlace { table, at: ScanPosition::START }
    }
}

/// A walk over all databases of a stripe, of which each step is one turn under the stripe's lock.
/// Databases that come meanwhile may be missed, as keys are.
pub struct StripeWalk {
    db: Option<DbIndex>,
    at: WalkPlace,
}

impl Default for StripeWalk {
    fn default() -> StripeWalk {
        StripeWalk { db: Some(DbIndex(0)), at: WalkPlace::START }
    }
}

impl StripeWalk {
    /// Makes a step: `visit` looks at some buckets of a database from a place on, and returns where
    /// in it to go on. Returns whether there is more.
    pub fn step(
        &mut self,
        data: &mut StripeData,
        visit: impl FnOnce(&mut StripeData, DbIndex, WalkPlace) -> Option<WalkPlace>,
    ) -> bool {
        let Some(db) = self.db else { return false };
        match visit(data, db, self.at) {
            Some(next) => self.at = next,
            None => *self = StripeWalk { db: data.next_db(db), at: WalkPlace::START },
        }
        self.db.is_some()
    }
}

/// Tables without entries.
static EMPTY: LazyLock<DbTables> = LazyLock::new(DbTables::default);

impl StripeData {
    /// Returns whether each slot has its own tables.
    #[inline]
    pub(crate) fn has_slots(&self) -> bool {
        self.by_slot.is_on()
    }

    /// Returns the id of the tables of a key with this hash.
    #[inline]
    pub(crate) fn table_id(&self, db: DbIndex, hash: u64) -> TableId {
        TableId { db, slot: self.has_slots().then(|| Slot::in_hash(hash)) }
    }

    /// Returns whether `first` contains the keys of a database.
    #[inline]
    fn is_first(&self, db: DbIndex) -> bool {
        db.0 == 0 && !self.has_slots()
    }

    /// Returns the tables of a key with this hash, for reading.
    #[inline]
    pub(crate) fn tables_of(&self, db: DbIndex, hash: u64) -> &DbTables {
        if db.0 == 0 {
            return self.by_slot.get(Slot::in_hash(hash)).unwrap_or(&self.first);
        }
        self.table(self.table_id(db, hash))
    }

    /// Returns these tables. If they hold nothing, returns empty ones.
    pub fn table(&self, id: TableId) -> &DbTables {
        match id {
            TableId { db: DbIndex(0), slot: None } => &self.first,
            TableId { db: DbIndex(0), slot: Some(slot) } => {
                self.by_slot.get(slot).unwrap_or(&EMPTY)
            }
            id => self.place(id).map_or(&EMPTY, |at| &*self.others[at].1),
        }
    }

    /// Returns the index of tables in `others`, or the index at which to insert them.
    fn place(&self, id: TableId) -> Result<usize, usize> {
        self.others.binary_search_by_key(&id, |(other, _)| *other)
    }

    /// Returns the tables of a key with this hash, for changes. Creates them if necessary.
    #[inline]
    pub(crate) fn tables_mut(&mut self, db: DbIndex, hash: u64) -> &mut DbTables {
        if self.is_first(db) {
            return &mut self.first;
        }
        self.other_or_new(self.table_id(db, hash))
    }

    /// Returns the same tables, if they can hold anything.
    #[inline]
    pub(crate) fn held_tables_mut(&mut self, db: DbIndex, hash: u64) -> Option<&mut DbTables> {
        if self.is_first(db) {
            return Some(&mut self.first);
        }
        if db.0 == 0 {
            return self.by_slot.get_mut(Slot::in_hash(hash));
        }
        self.place(self.table_id(db, hash)).ok().map(|at| &mut *self.others[at].1)
    }

    /// Returns tables other than `first`.
    #[inline]
    fn other_or_new(&mut self, id: TableId) -> &mut DbTables {
        match id {
            TableId { db: DbIndex(0), slot: Some(slot) } => self.by_slot.begin(slot),
            id => self.boxed_or_new(id),
        }
    }

    fn boxed_or_new(&mut self, id: TableId) -> &mut DbTables {
        let at = self.place(id).unwrap_or_else(|at| {
            self.others.insert(at, (id, Box::default()));
            self.common.stripes_with[id.db.0 as usize].fetch_add(1, Relaxed);
            at
        });
        &mut self.others[at].1
    }

    /// These tables hold nothing any more.
    pub(crate) fn end_tables(&mut self, id: TableId) {
        match id {
            TableId { db: DbIndex(0), slot: Some(slot) } => self.by_slot.end(slot),
            TableId { db: DbIndex(0), slot: None } => {}
            id => drop(self.remove_boxed(id)),
        }
    }

    fn remove_boxed(&mut self, id: TableId) -> Option<Box<DbTables>> {
        let at = self.place(id).ok()?;
        self.common.stripes_with[id.db.0 as usize].fetch_sub(1, Relaxed);
        let (_, tables) = self.others.remove(at);
        if self.others.is_empty() {
            self.others = Vec::new();
        }
        Some(tables)
    }

    /// Returns whether nothing in this stripe expires, as far as that takes no walk.
    #[inline]
    pub fn is_lasting(&self) -> bool {
        let first = &self.first;
        !self.has_slots()
            && self.others.is_empty()
            && first.expiring().is_empty()
            && first.field_times().is_empty()
    }

    /// Returns the id of the first tables that a walk over the stripe visits.
    pub fn first_table(&self) -> Option<TableId> {
        let first = TableId::before(DbIndex(0));
        if self.has_slots() { self.next_table(first) } else { Some(first) }
    }

    /// Returns the id of the first tables of database 0 after those of a slot.
    fn next_of_slot(&self, after: Option<Slot>) -> Option<TableId> {
        let slot = self.by_slot.next_used(after)?;
        Some(TableId { db: DbIndex(0), slot: Some(slot) })
    }

    /// Returns the id of the next tables after these that hold anything.
    pub fn next_table(&self, after: TableId) -> Option<TableId> {
        if after.db.0 == 0
            && let Some(next) = self.next_of_slot(after.slot)
        {
            return Some(next);
        }
        let at = self.others.partition_point(|(id, _)| *id <= after);
        self.others.get(at).map(|(id, _)| *id)
    }

    /// Returns the ids of database 0's tables and of all others that hold anything. If each slot
    /// has its own tables, returns only ids of tables that hold anything.
    pub fn table_ids(&self) -> impl Iterator<Item = TableId> + Clone + '_ {
        std::iter::successors(self.first_table(), |&id| self.next_table(id))
    }

    /// Returns the next database after this one that holds anything.
    pub fn next_db(&self, after: DbIndex) -> Option<DbIndex> {
        let at = self.others.partition_point(|(id, _)| id.db <= after);
        self.others.get(at).map(|(id, _)| id.db)
    }

    /// Returns the first database and those that hold anything.
    pub fn dbs(&self) -> impl Iterator<Item = DbIndex> + Clone + '_ {
        std::iter::successors(Some(DbIndex(0)), |&db| self.next_db(db))
    }

    /// Whether these are tables of a hidden slot: see [`crate::Keyspace::hide_slots`].
    #[inline]
    pub fn is_hidden(&self, id: TableId) -> bool {
        self.common.hidden.any() && id.slot.is_some_and(|slot| self.common.hidden.has(slot))
    }

    /// Returns the ids of a database's tables that hold anything, in the order of slots.
    fn all_ids_of(&self, db: DbIndex) -> impl Iterator<Item = TableId> + Clone + '_ {
        let first = match db.0 {
            0 => self.first_table(),
            _ => self.others.get(self.others.partition_point(|(id, _)| id.db < db)).map(|it| it.0),
        };
        let is_of_db = move |id: &TableId| id.db == db;
        let next = move |id: &TableId| self.next_table(*id).filter(is_of_db);
        std::iter::successors(first.filter(is_of_db), next)
    }

    /// Returns the same ids without those of hidden slots.
    fn ids_of(&self, db: DbIndex) -> impl Iterator<Item = TableId> + Clone + '_ {
        self.all_ids_of(db).filter(|&id| !self.is_hidden(id))
    }

    /// Returns the tables of a database that hold anything: one set, or one for each slot that is
    /// not hidden.
    pub fn tables(&self, db: DbIndex) -> impl Iterator<Item = &DbTables> + Clone + '_ {
        self.ids_of(db).map(|id| self.table(id))
    }

    /// Returns the number of keys of a database.
    pub fn key_count(&self, db: DbIndex) -> usize {
        self.tables(db).map(|tables| tables.entries.len()).sum()
    }

    /// Returns the number of those that expire.
    pub fn expiring_count(&self, db: DbIndex) -> usize {
        self.tables(db).map(|tables| tables.expiring.len()).sum()
    }

    /// Returns all entries of a database, in no particular order.
    pub fn entries(&self, db: DbIndex) -> impl Iterator<Item = &Entry> + '_ {
        self.tables(db).flat_map(|tables| tables.entries.iter())
    }

    /// Returns a random entry of a database, each with equal probability. `random` returns uniform
    /// numbers.
    pub fn sample(&self, db: DbIndex, random: impl FnMut() -> u64) -> Option<&Entry> {
        self.sample_of(db, |tables| &tables.entries, random)
    }

    /// Does the same for the entries that expire.
    pub fn sample_expiring(&self, db: DbIndex, random: impl FnMut() -> u64) -> Option<&Entry> {
        self.sample_of(db, |tables| &tables.expiring, random).map(|item| item.entry())
    }

    fn sample_of<T: structs::table::Item>(
        &self,
        db: DbIndex,
        table: impl Fn(&DbTables) -> &Table<T>,
        mut random: impl FnMut() -> u64,
    ) -> Option<&T> {
        if self.is_first(db) {
            return table(&self.first).sample(random);
        }
        let tables = || self.tables(db).map(&table);
        let total: usize = tables().map(Table::len).sum();
        let mut number = random().checked_rem(total as u64)? as usize;
        for table in tables() {
            match number.checked_sub(table.len()) {
                Some(rest) => number = rest,
                None => return table.sample(random),
            }
        }
        None
    }

    /// Reserves memory in a database that has never held anything. The world must be stopped. Does
    /// nothing if each slot has its own tables, because the distribution of keys over slots is
    /// unknown.
    pub fn reserve(&mut self, db: DbIndex, entries: usize, expiring: usize) {
        if self.has_slots() {
            return;
        }
        let tables = self.tables_mut(db, 0);
        if tables.entries.slots() == 0 {
            tables.entries = Table::with_capacity(entries);
        }
        if tables.expiring.slots() == 0 {
            tables.expiring = Table::with_capacity(expiring);
        }
    }

    /// Takes a database's tables, and leaves it empty (FLUSHDB). The caller frees them. Tables that
    /// a snapshot still needs are kept by it and not returned. No thread may prefetch meanwhile, so
    /// the world must be stopped.
    pub fn take_db(&mut self, db: DbIndex) -> Vec<DbTables> {
        let ids: Vec<TableId> = self.all_ids_of(db).collect();
        ids.into_iter().filter_map(|id| self.take_tables(id)).collect()
    }

    /// Takes tables. Returns `None` if there is nothing in them, or if a snapshot needs and keeps
    /// them.
    pub(crate) fn take_tables(&mut self, id: TableId) -> Option<DbTables> {
        assert!(self.holds().is_empty(), "tables were taken away that a long command reads");
        let is_needed = self.with_snapshot(|hook, data| hook.needs(data, id)) == Some(true);
        let tables = self.move_tables(id)?;
        match &mut self.snapshot {
            Some(hook) if is_needed => {
                hook.keep(id, tables);
                None
            }
            _ => Some(tables),
        }
    }

    pub(crate) fn move_tables(&mut self, id: TableId) -> Option<DbTables> {
        match id {
            TableId { db: DbIndex(0), slot: None } => {
                let tables = std::mem::take(&mut self.first);
                (tables.entries.slots() > 0).then_some(tables)
            }
            TableId { db: DbIndex(0), slot: Some(slot) } => self.by_slot.take(slot),
            id => self.remove_boxed(id).map(|tables| *tables),
        }
    }

    /// Exchanges two databases (SWAPDB). The world must be stopped.
    pub fn swap_dbs(&mut self, a: DbIndex, b: DbIndex) {
        if a == b {
            return;
        }
        assert!(self.holds().is_empty(), "a database was exchanged that a long command reads");
        self.with_snapshot(|hook, data| hook.swap(data, a, b));
        let (from_a, from_b) = (self.move_all(a), self.move_all(b));
        from_a
            .into_iter()
            .for_each(|(slot, tables)| self.give_tables(TableId { db: b, slot }, tables));
        from_b
            .into_iter()
            .for_each(|(slot, tables)| self.give_tables(TableId { db: a, slot }, tables));
    }

    /// Exchanges all tables with those of the same stripe of a keyspace in the same world. The
    /// world must be stopped. A snapshot of this stripe ends.
    pub fn exchange(&mut self, other: &mut StripeData) {
        assert!(self.holds().is_empty(), "tables were exchanged that a long command reads");
        self.abandon_snapshot();
        std::mem::swap(&mut self.first, &mut other.first);
        self.by_slot.exchange(&mut other.by_slot);
        std::mem::swap(&mut self.others, &mut other.others);
    }

    fn move_all(&mut self, db: DbIndex) -> Vec<(Option<Slot>, DbTables)> {
        let ids: Vec<TableId> = self.all_ids_of(db).collect();
        let moved = ids.into_iter().map(|id| (id.slot, self.move_tables(id)));
        moved.filter_map(|(slot, tables)| Some((slot, tables?))).collect()
    }

    pub(crate) fn give_tables(&mut self, id: TableId, tables: DbTables) {
        if self.is_first(id.db) {
            self.first = tables;
        } else if !tables.entries.is_empty() {
            *self.other_or_new(id) = tables;
        }
    }

    /// Makes one step of a walk over a database. Returns where to continue, or `None` at the end.
    pub fn walk(
        &self,
        db: DbIndex,
        from: WalkPlace,
        visit: impl FnMut(&Entry),
    ) -> Option<WalkPlace> {
        self.walk_until(db, from, None, visit)
    }

    /// Does the same, but does not pass `end` in the table of `from`.
    pub fn walk_until(
        &self,
        db: DbIndex,
        from: WalkPlace,
        end: Option<ScanPosition>,
        visit: impl FnMut(&Entry),
    ) -> Option<WalkPlace> {
        self.walk_tables(self.ids_of(db), from, end, visit)
    }

    /// One step of a walk over all entries of a database, those of hidden slots included.
    pub fn walk_all(
        &self,
        db: DbIndex,
        from: WalkPlace,
        visit: impl FnMut(&Entry),
    ) -> Option<WalkPlace> {
        self.walk_tables(self.all_ids_of(db), from, None, visit)
    }

    fn walk_tables(
        &self,
        ids: impl Iterator<Item = TableId>,
        from: WalkPlace,
        end: Option<ScanPosition>,
        visit: impl FnMut(&Entry),
    ) -> Option<WalkPlace> {
        let place = |id: &TableId| id.slot.map_or(0, |slot| usize::from(slot.number()) / STRIPES);
        let mut left = ids.skip_while(|id| place(id) < from.table);
        let id = left.next()?;
        let table = place(&id);
        let is_same = table == from.table;
        let (at, end) = if is_same { (from.at, end) } else { (ScanPosition::START, None) };
        let next = self.table(id).entries.scan_until(at, end, visit);
        let next = next.map(|at| WalkPlace { table, at });
        next.or_else(|| left.next().map(|id| WalkPlace::start_of(place(&id))))
    }

    /// Makes one step of a walk over tables in the order of hashes. Returns where to continue.
    pub fn scan(
        &self,
        id: TableId,
        from: ScanPosition,
        visit: impl FnMut(&Entry),
    ) -> Option<ScanPosition> {
        self.table(id).entries.scan(from, visit)
    }
}
