//! `DEBUG HTSTATS db [full]`, `DEBUG HTSTATS-KEY key [full]`, `DEBUG STRUCTSIZE`

use super::raw;
use engine::{Args, Cx, DbIndex, Error, Outcome};
use keyspace::{Entry, Stripe};
use std::fmt::Write as _;
use structs::hash::Hash;
use structs::set::Set;
use structs::table::{Item, Table};
use structs::zset::Zset;

/// Sums over tables.
#[derive(Default)]
struct Sums {
    tables: usize,
    slots: usize,
    items: usize,
    resizing: usize,
    bytes: usize,
}

impl Sums {
    fn add<T: Item>(&mut self, table: &Table<T>) {
        self.tables += usize::from(table.slots() > 0);
        self.slots += table.slots();
        self.items += table.len();
        self.resizing += usize::from(table.is_resizing());
        self.bytes += table.allocated_bytes();
    }

    /// The lines that the reference has too come first.
    fn write(&self, out: &mut String, is_full: bool) {
        let _ = writeln!(
            out,
            "Hash table 0 stats (main hash table):\n table size: {}\n number of entries: {}\n \
             rehashing index: {}",
            self.slots,
            self.items,
            if self.resizing > 0 { 0 } else { -1 },
        );
        if is_full {
            let _ = writeln!(
                out,
                " tables: {}\n tables that change their size: {}\n bytes: {}",
                self.tables, self.resizing, self.bytes
            );
        }
    }
}

pub(super) fn htstats(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let db = args.integer(2)?;
    let databases = i64::from(cx.engine.keyspace.databases());
    if !(0..databases).contains(&db) {
        return Err(Error::text("ERR Out of range database"));
    }
    let db = DbIndex(db as u32);
    let (mut entries, mut expiring) = (Sums::default(), Sums::default());
    cx.db.for_each_stripe(|_, data| {
        for tables in data.tables(db) {
            entries.add(tables.entries());
            expiring.add(tables.expiring());
        }
    });
    let mut text = "[Dictionary HT]\n".to_owned();
    let is_full = args.is(3, "full");
    entries.write(&mut text, is_full);
    text.push_str("[Expires HT]\n");
    if expiring.slots > 0 {
        expiring.write(&mut text, is_full);
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub(super) fn htstats_key(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(2);
    if cx.db.lookup_no_stats(key).is_none() {
        return Err(Error::NoSuchKey);
    }
    let (slots, items) = raw(cx, key, table_of)?.flatten().ok_or(Error::text(
        "ERR The value stored at the specified key is not represented using an hash table",
    ))?;
    let mut text = String::new();
    Sums { tables: 1, slots, items, ..Sums::default() }.write(&mut text, args.is(3, "full"));
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Slots and items of the table that a value is.
fn table_of(entry: &Entry) -> Option<(usize, usize)> {
    if let Some(set) = entry.view::<Set>() {
        return Some((set.table_slots()?, set.len()));
    }
    if let Some(hash) = entry.view::<Hash>() {
        return Some((hash.table_slots()?, hash.len()));
    }
    let zset = entry.view::<Zset>()?;
    Some((zset.table_slots()?, zset.len()))
}

pub(super) fn structsize(cx: &mut Cx<'_>) -> Outcome {
    let mut text = format!("bits:{} ", usize::BITS);
    let sizes = [
        ("entry", size_of::<Entry>()),
        ("stripe", size_of::<Stripe>()),
        ("set", size_of::<Set>()),
        ("hash", size_of::<Hash>()),
        ("zset", size_of::<Zset>()),
        ("list", size_of::<structs::list::List>()),
    ];
    for (name, bytes) in sizes {
        let _ = write!(text, "{name}:{bytes} ");
    }
    cx.reply.bulk(text.as_bytes());
    Ok(())
}
