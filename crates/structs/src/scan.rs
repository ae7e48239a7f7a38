//! The SCAN family over one collection's table.

use crate::table::{Item, Order, ScanPosition, Table};

/// One step: visits the items at `cursor` (0 at first) until about `count` have been seen, and
/// returns the cursor to go on with, 0 at the end.
///
/// An item that is in the table from the first step to the last is visited exactly once, whatever
/// the table's growth and shrinking in between. A cursor from elsewhere is harmless.
pub(crate) fn scan_table<T: Item, O: Order>(
    table: &Table<T, O>,
    cursor: u64,
    count: usize,
    mut visit: impl FnMut(&T),
) -> u64 {
    let count = count.max(1);
    let mut position = ScanPosition::from_bits48(cursor);
    let mut seen = 0;
    // A sparse table has many homes without an item: they must bound the step as well.
    for _ in 0..count.saturating_mul(10) {
        let next = table.scan(position, |item| {
            seen += 1;
            visit(item);
        });
        match next {
            None => return 0,
            Some(next) => position = next,
        }
        if seen >= count {
            break;
        }
    }
    position.to_bits48()
}
