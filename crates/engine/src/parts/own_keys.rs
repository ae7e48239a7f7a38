//! Keys with an expiry that clients of a writable replica have written. Their primary knows nothing
//! of them and never says that their time has come, so the replica deletes them itself.
//!
//! They are listed by key and in the order of their ends, so that a look costs what is due and no
//! more. What the primary does to such a key later is not noted: if it has another end by then, it
//! is listed again under that one, as Redis does.

use keyspace::{DbIndex, Millis};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use structs::sync::lock;

/// A key of a database.
pub(crate) type OwnKey = (DbIndex, Arc<[u8]>);

/// See the module's documentation.
#[derive(Default)]
pub struct OwnKeys {
    listed: Mutex<Listed>,
    count: AtomicUsize,
}

#[derive(Default)]
struct Listed {
    ends: HashMap<OwnKey, Millis>,
    in_order: BTreeSet<(Millis, OwnKey)>,
}

impl OwnKeys {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A client has changed a key, which has this end now.
    pub(crate) fn note(&self, db: DbIndex, key: &[u8], end: Option<Millis>) {
        if end.is_none() && self.is_empty() {
            return;
        }
        let mut listed = lock(&self.listed);
        let key = (db, Arc::from(key));
        if let Some(old) = listed.ends.remove(&key) {
            listed.in_order.remove(&(old, key.clone()));
        }
        if let Some(end) = end {
            listed.ends.insert(key.clone(), end);
            listed.in_order.insert((end, key));
        }
        self.count.store(listed.ends.len(), Relaxed);
    }

    /// Takes out some of those whose time has come. The caller looks at each, and lists it again if
    /// it is to stay.
    pub(crate) fn take_due(&self, now: Millis, most: usize) -> Vec<OwnKey> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut listed = lock(&self.listed);
        let mut due = Vec::new();
        while due.len() < most
            && let Some((end, key)) = listed.in_order.pop_first()
        {
            if end > now {
                listed.in_order.insert((end, key));
                break;
            }
            listed.ends.remove(&key);
            due.push(key);
        }
        self.count.store(listed.ends.len(), Relaxed);
        due
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        let mut listed = lock(&self.listed);
        *listed = Listed::default();
        self.count.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_listed_once_under_its_last_end() {
        let keys = OwnKeys::default();
        let db = DbIndex(0);
        keys.note(db, b"a", None);
        assert!(keys.is_empty());
        keys.note(db, b"a", Some(Millis(10)));
        keys.note(db, b"a", Some(Millis(30)));
        keys.note(db, b"b", Some(Millis(20)));
        keys.note(DbIndex(1), b"b", Some(Millis(20)));
        keys.note(db, b"c", Some(Millis(5)));
        keys.note(db, b"c", None);
        assert_eq!(keys.len(), 3);
        let names = |due: Vec<OwnKey>| -> Vec<(u32, Vec<u8>)> {
            due.into_iter().map(|(db, key)| (db.0, key.to_vec())).collect()
        };
        assert!(keys.take_due(Millis(19), 9).is_empty());
        assert_eq!(names(keys.take_due(Millis(20), 1)), [(0, b"b".to_vec())]);
        assert_eq!(names(keys.take_due(Millis(99), 9)), [(1, b"b".to_vec()), (0, b"a".to_vec())]);
        assert!(keys.is_empty());
    }
}
