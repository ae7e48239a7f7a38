//! Figures of whole databases, for INFO and its like, which wait for no script.
//!
//! A script on a background thread holds the locks of its stripes for as long as it runs. Before it
//! begins, the figures of these stripes are noted; a walk takes them where it finds such a stripe
//! locked, and so sees the moment before the script.

use keyspace::locks::Locks;
use keyspace::{DbIndex, Millis, StripeData};
use std::collections::HashMap;
use std::sync::Mutex;
use structs::sync::lock;

/// Keys of each table that the average time to live is worked out from.
const SAMPLED: usize = 2;

/// What a database has in one stripe, or in all.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct KeyFigures {
    /// Keys.
    pub keys: usize,
    /// Keys with an expiry.
    pub expiring: usize,
    /// Hashes with fields that expire.
    pub with_field_times: usize,
    /// Keys in the sample of times to live.
    pub sampled: usize,
    /// Their times to live together, in milliseconds.
    pub ttl_sum_ms: i128,
    /// Bytes of the tables of entries.
    pub entry_bytes: usize,
    /// Bytes of the tables of expiries.
    pub expiring_bytes: usize,
}

impl KeyFigures {
    pub(crate) fn of(data: &StripeData, db: DbIndex, now: Millis) -> KeyFigures {
        let mut figures = KeyFigures::default();
        for tables in data.tables(db) {
            figures.keys += tables.entries().len();
            figures.expiring += tables.expiring().len();
            figures.with_field_times += tables.field_times().len();
            figures.entry_bytes += tables.entries().allocated_bytes();
            figures.expiring_bytes += tables.expiring().allocated_bytes();
            for item in tables.expiring().iter().take(SAMPLED) {
                figures.sampled += 1;
                figures.ttl_sum_ms +=
                    i128::from(item.entry().expiry().map_or(0, |at| at.left(now)));
            }
        }
        figures
    }

    pub(crate) fn add(&mut self, other: &KeyFigures) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.with_field_times += other.with_field_times;
        self.sampled += other.sampled;
        self.ttl_sum_ms += other.ttl_sum_ms;
        self.entry_bytes += other.entry_bytes;
        self.expiring_bytes += other.expiring_bytes;
    }

    /// The average time to live of a sample, in milliseconds; 0 if no key expires.
    pub fn average_ttl_ms(&self) -> i128 {
        if self.sampled == 0 { 0 } else { self.ttl_sum_ms / self.sampled as i128 }
    }
}

/// Of each stripe that a background script has locked, the figures of its databases when that
/// began.
#[derive(Default)]
pub struct LockedFigures {
    stripes: Mutex<HashMap<usize, Vec<(DbIndex, KeyFigures)>>>,
    /// The last figures of databases that operators' thread has seen.
    last: Mutex<HashMap<DbIndex, KeyFigures>>,
}

impl LockedFigures {
    /// Notes the figures of the stripes that a script has locked and is about to keep.
    pub(crate) fn note(&self, locks: &Locks<'_>, now: Millis) {
        let mut noted = Vec::new();
        locks.held().for_each(|stripe| {
            let data = locks.data(stripe);
            let of_dbs = data.dbs().map(|db| (db, KeyFigures::of(data, db, now)));
            noted.push((stripe, of_dbs.collect()));
        });
        lock(&self.stripes).extend(noted);
    }

    /// Forgets them; the stripes are locked still.
    pub(crate) fn forget(&self, locks: &Locks<'_>) {
        let mut stripes = lock(&self.stripes);
        locks.held().for_each(|stripe| _ = stripes.remove(&stripe));
    }

    /// Notes the figures of a database, as they are at this moment.
    pub(crate) fn note_last(&self, db: DbIndex, figures: KeyFigures) {
        lock(&self.last).insert(db, figures);
    }

    /// Returns the figures of a database that were noted last.
    pub(crate) fn last(&self, db: DbIndex) -> KeyFigures {
        lock(&self.last).get(&db).copied().unwrap_or_default()
    }

    pub(crate) fn get(&self, stripe: usize, db: DbIndex) -> Option<KeyFigures> {
        let stripes = lock(&self.stripes);
        let of_dbs = stripes.get(&stripe)?;
        Some(of_dbs.iter().find(|(index, _)| *index == db).map_or_else(Default::default, |f| f.1))
    }
}
