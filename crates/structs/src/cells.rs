//! A table's order cut into equal parts, and which of them have been dealt with.
//!
//! A snapshot has to see every item of a table once, as it was at one moment, while the table goes
//! on changing and growing. So it cuts the *order of hashes* into as many cells as the table has
//! homes at that moment, and keeps a bit for each: an item is always in the same cell, however the
//! table grows. A writer that is about to change an item of a cell that is not done takes all of
//! the cell's items first; a walk takes the others. Memory: a bit for some six items.

use crate::size_class::block_size;
use crate::table::{Item, Order, ScanPosition, Table};

/// The cells; see the module's documentation.
#[derive(Debug)]
pub struct Cells {
    count: usize,
    done: Box<[u64]>,
    /// The walk stands here: all cells before it are done.
    next: usize,
}

impl Cells {
    /// Cells for a table as it is now, none of them done. An empty table has none.
    pub fn of<T: Item, O: Order>(table: &Table<T, O>) -> Cells {
        let count = if table.is_empty() { 0 } else { table.homes() };
        Cells { count, done: vec![0; count.div_ceil(64)].into(), next: 0 }
    }

    /// Bytes allocated for them.
    pub fn allocated_bytes(&self) -> usize {
        block_size(size_of_val(&*self.done))
    }

    /// Whether every cell is done.
    pub fn all_done(&self) -> bool {
        self.next == self.count
    }

    /// Whether the cell of an item at this position is done.
    #[inline]
    pub fn is_done(&self, at: ScanPosition) -> bool {
        self.count == 0 || self.is_cell_done(at.part(self.count))
    }

    #[inline]
    fn is_cell_done(&self, cell: usize) -> bool {
        cell < self.next || self.done[cell / 64] & 1 << (cell % 64) != 0
    }

    /// Visits the items of the cell that a position is in, which is not done, and marks it.
    #[cold]
    pub fn take<T: Item, O: Order>(
        &mut self,
        table: &Table<T, O>,
        at: ScanPosition,
        visit: impl FnMut(&T),
    ) {
        let cell = at.part(self.count);
        debug_assert!(!self.is_cell_done(cell), "a cell is taken once");
        self.done[cell / 64] |= 1 << (cell % 64);
        // They were not prefetched, and one cache miss after the other is what takes time.
        table.prefetch_items_at(at);
        self.visit(table, cell, visit);
    }

    /// One step of the walk: visits the items of the next cell, unless it is done; `false` if there
    /// is none.
    pub fn step<T: Item, O: Order>(&mut self, table: &Table<T, O>, visit: impl FnMut(&T)) -> bool {
        /// Cells from the one whose items are asked for to the one that is visited.
        const AHEAD: usize = 4;
        if self.next >= self.count {
            return false;
        }
        let cell = self.next;
        if let Some(at) = ScanPosition::of_part(cell + 2 * AHEAD, self.count) {
            table.prefetch_bucket_at(at);
        }
        if let Some(at) = ScanPosition::of_part(cell + AHEAD, self.count) {
            table.prefetch_items_at(at);
        }
        if !self.is_cell_done(cell) {
            self.visit(table, cell, visit);
        }
        self.next += 1;
        true
    }

    fn visit<T: Item, O: Order>(
        &self,
        table: &Table<T, O>,
        cell: usize,
        mut visit: impl FnMut(&T),
    ) {
        let end = ScanPosition::of_part(cell + 1, self.count);
        let mut at = ScanPosition::of_part(cell, self.count);
        while let Some(from) = at
            && end.is_none_or(|end| from < end)
        {
            at = table.scan_until(from, end, &mut visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::hash;
    use crate::table::ByHash;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::ptr::NonNull;

    /// A leaked string: tests own what little they leak.
    #[repr(transparent)]
    struct Word(NonNull<u8>);

    #[allow(unsafe_code)]
    // SAFETY: transparent over a pointer; the key is never changed.
    unsafe impl Item for Word {
        fn key(&self) -> &[u8] {
            // SAFETY: points to a leaked `Vec<u8>`.
            unsafe { self.0.cast::<Vec<u8>>().as_ref() }
        }
    }

    fn word(number: u32) -> Word {
        let text = Box::leak(Box::new(number.to_string().into_bytes()));
        Word(NonNull::from(text).cast())
    }

    fn add(table: &mut Table<Word, ByHash>, number: u32) {
        let word = word(number);
        let hash = hash(word.key());
        assert!(table.insert(hash, word).is_ok());
        drop(table.take_retired());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
        #[test]
        fn every_item_of_the_beginning_is_seen_once(
            start in 0u32..if cfg!(miri) { 200 } else { 3000 },
            ops in proptest::collection::vec((0u8..3, 0u32..6000), 0..if cfg!(miri) { 100 } else { 3000 }),
            pace in 1usize..20,
        ) {
            let mut table = Table::new();
            (0..start).for_each(|number| add(&mut table, number));
            let mut cells = Cells::of(&table);
            let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            let mut see = |item: &Word| *seen.entry(item.key().to_vec()).or_default() += 1;
            for (round, (op, number)) in ops.into_iter().enumerate() {
                if round % pace == 0 {
                    cells.step(&table, &mut see);
                }
                let key = number.to_string().into_bytes();
                let hash = hash(&key);
                let at = table.position_of(hash);
                if !cells.is_done(at) {
                    cells.take(&table, at, &mut see);
                }
                if op == 0 {
                    table.remove(hash, &key);
                } else if table.get(hash, &key).is_none() {
                    add(&mut table, number);
                }
                drop(table.take_retired());
            }
            while cells.step(&table, &mut see) {}
            prop_assert!(cells.all_done());
            let expected = (0..start).map(|n| (n.to_string().into_bytes(), 1)).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
