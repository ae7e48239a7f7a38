//! Every order of a few events, by the decisions that servers make: `stateright` visits each state
//! that these can reach.
//!
//! ```text
//!   fail_over    leases that end, planned switches
//!   moves        a slot that goes from one shard to another, or stays
//! ```

mod fail_over;
mod moves;

use cluster::coordinator::{Change, Item, LeaseId, Outcome, Range, Revision, Transaction};
use cluster::id::Id;
use cluster::topology::Address;
use cluster::view::{Keys, View};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Revisions begin here, where no other number of a state is. See [`Words`].
const REVISIONS: Revision = 1 << 40;

/// What the coordinator has.
type Items = BTreeMap<String, (Vec<u8>, Revision, Option<LeaseId>)>;

/// A transaction on its way. Equal ones are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held(Transaction);

fn id(at: usize) -> Id {
    Id::new([at as u8 + 1; 20])
}

fn address(at: usize) -> Address {
    let host = "127.0.0.1".to_owned();
    Address { host, port: 7000 + at as u16, ..Address::default() }
}

/// Makes a transaction, unless what it compares is another one.
fn commit(items: &mut Arc<Items>, revision: &mut Revision, transaction: &Transaction) -> Outcome {
    let present = |key: &String| items.get(key).map_or(0, |(_, revision, _)| *revision);
    if transaction.compares.iter().any(|it| present(&it.key) != it.revision) {
        return Outcome::Conflict;
    }
    *revision += 1;
    let items = Arc::make_mut(items);
    for change in &transaction.changes {
        match change {
            Change::Put { key, value, lease } => {
                items.insert(key.clone(), (value.clone(), *revision, *lease));
            }
            Change::Delete { key } => {
                items.remove(key);
            }
        }
    }
    Outcome::Done(*revision)
}

/// Reads all keys of a database.
fn view(keys: &Keys, database: Id, items: &Items, revision: Revision) -> View {
    let item = |(key, (value, revision, _)): (&String, &(Vec<u8>, Revision, _))| Item {
        key: key.clone(),
        value: value.clone(),
        revision: *revision,
    };
    let prefix = keys.database(database);
    let items = items.iter().filter(|(key, _)| key.starts_with(&prefix)).map(item).collect();
    View::decode(keys, database, &Range { items, revision }).expect("valid").expect("it is there")
}

/// Collects what a state hashes, to give each revision its rank for a number.
#[derive(Default)]
struct Words(Vec<u64>);

impl Words {
    fn is_revision(word: u64) -> bool {
        (REVISIONS..2 * REVISIONS).contains(&word)
    }

    fn ranked(mut self) -> Vec<u64> {
        let mut revisions: Vec<u64> =
            self.0.iter().copied().filter(|&it| Words::is_revision(it)).collect();
        revisions.sort_unstable();
        revisions.dedup();
        for word in &mut self.0 {
            if Words::is_revision(*word) {
                *word = REVISIONS + revisions.partition_point(|it| it < word) as u64;
            }
        }
        self.0
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        self.0.push(hasher.finish() | 1 << 63);
    }

    fn write_u64(&mut self, word: u64) {
        self.0.push(word);
    }

    fn finish(&self) -> u64 {
        unreachable!("the words are read, not a hash of them")
    }
}
