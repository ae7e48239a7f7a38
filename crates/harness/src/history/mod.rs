//! Histories of concurrent operations, and whether they can be explained by a single order.
//!
//! Clients record when an operation was called, when it returned, and what it returned. [`check`]
//! searches for an order of all operations on one object that respects these times (an operation
//! that returned before another was called comes first) and in which every reply is the one a
//! sequential server gives. If there is none, the history is not linearizable.
//!
//! Linearizability is local: a history is linearizable if it is so for each object alone, so each
//! key (and each member of a set) is checked by itself. What an operation on several keys does to
//! each of them is recorded as an operation on each; that it happens to all *at once* is for the
//! tests to check by other means: sums that never change, values that are always equal, and
//! [transactions] over lists.

mod check;
pub mod model;
pub mod transactions;

pub use check::check;
pub use model::{Action, State};

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

/// One operation on one object.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Nanoseconds from the recorder's start to the call.
    pub called: u64,
    /// Nanoseconds to the return.
    pub returned: u64,
    /// Which client, for reading a failure.
    pub client: usize,
    /// What it did and what came back.
    pub action: Action,
}

/// Collects operations by the object they are about.
pub struct Recorder {
    start: Instant,
    objects: Mutex<BTreeMap<String, (State, Vec<Operation>)>>,
}

impl Recorder {
    /// An empty history that starts now.
    pub fn new() -> Recorder {
        Recorder { start: Instant::now(), objects: Mutex::default() }
    }

    /// The time now, to pass to [`Recorder::record`] as the time of the call.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a test does not run for centuries")
    }

    /// Records operations that have just returned, each with its object and that object's state at
    /// the start of the history.
    pub fn record(
        &self,
        client: usize,
        called: u64,
        operations: impl IntoIterator<Item = (String, State, Action)>,
    ) {
        let returned = self.now();
        let mut objects = self.objects.lock().expect("no test thread panics while it records");
        for (object, initial, action) in operations {
            let entry = objects.entry(object).or_insert_with(|| (initial, Vec::new()));
            entry.1.push(Operation { called, returned, client, action });
        }
    }

    /// Records an operation of which no reply has come: it may take effect at any time, or never.
    /// It must be one that is possible in each state.
    pub fn record_unknown(
        &self,
        client: usize,
        called: u64,
        (object, initial, action): (String, State, Action),
    ) {
        let mut objects = self.objects.lock().expect("no test thread panics while it records");
        let entry = objects.entry(object).or_insert_with(|| (initial, Vec::new()));
        entry.1.push(Operation { called, returned: u64::MAX, client, action });
    }

    /// The objects that operations were recorded of.
    pub fn objects(&self) -> Vec<String> {
        let objects = self.objects.lock().expect("no test thread panics while it records");
        objects.keys().cloned().collect()
    }

    /// Checks every object; describes the first that no order explains.
    pub fn verdict(&self) -> Result<usize, String> {
        let objects = self.objects.lock().expect("the test's threads are done");
        let mut count = 0;
        for (object, (initial, operations)) in objects.iter() {
            let operations = without_unseen(operations);
            check(initial, &operations).map_err(|why| format!("{object}: {why}"))?;
            count += operations.len();
        }
        Ok(count)
    }
}

/// Leaves out writes without a reply that no read has seen: an order with them is one without them,
/// too, for a list if it was read at the end. Each of the others doubles the work of the search.
fn without_unseen(operations: &[Operation]) -> Vec<Operation> {
    let mut seen: HashSet<model::Value> = HashSet::new();
    for operation in operations {
        match &operation.action {
            Action::Get(value) => seen.extend(value),
            Action::All(values) => seen.extend(values),
            _ => {}
        }
    }
    let counts = |operation: &&Operation| match &operation.action {
        _ if operation.returned != u64::MAX => true,
        Action::Set(value) => seen.contains(value),
        Action::Push { values, .. } => values.iter().any(|value| seen.contains(value)),
        _ => true,
    };
    operations.iter().filter(counts).cloned().collect()
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}
