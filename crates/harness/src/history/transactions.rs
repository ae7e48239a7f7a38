//! Histories of transactions that append to lists and read them, and whether one order of them
//! explains what they saw.
//!
//! Each element is appended once, so a list that was read tells in which order all elements came
//! to it, and from that follows which transaction came before which:
//!
//! - one appended what stands before what the other appended;
//! - one read what the other appended;
//! - one did not read what the other appended;
//! - one was confirmed before the other began.
//!
//! If these relations have a cycle, no order explains the history. The idea is that of Kingsbury
//! and Alvaro, "Elle: inferring isolation anomalies from experimental observations" (VLDB 2020).
//!
//! Transactions that have no list in common may be checked apart (linearizability is local). All
//! lists have to be read once more behind everything else: what was confirmed has to be there.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// What a transaction did with a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It appended an element, which nothing else appends to any list.
    Append {
        /// The list.
        list: usize,
        /// The element.
        element: u64,
    },
    /// It read a list.
    Read {
        /// The list.
        list: usize,
        /// What was in it.
        elements: Vec<u64>,
    },
}

/// A transaction of a history.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The client, for reading a failure.
    pub client: usize,
    /// When it began, in nanoseconds.
    pub called: u64,
    /// When it was confirmed. `None`: it may have run or not, and the steps are its appends alone.
    pub returned: Option<u64>,
    /// What it did, in order.
    pub steps: Vec<Step>,
}

impl Transaction {
    fn reads(&self) -> impl Iterator<Item = (usize, &[u64])> {
        self.steps.iter().filter_map(|step| match step {
            Step::Read { list, elements } => Some((*list, elements.as_slice())),
            Step::Append { .. } => None,
        })
    }

    fn appends(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Append { list, element } => Some((*list, *element)),
            Step::Read { .. } => None,
        })
    }

    /// Looks whether its reads of a list go on from one another and have what it appended itself.
    fn check_itself(&self) -> Result<(), String> {
        let mut known: HashMap<usize, (Option<Vec<u64>>, Vec<u64>)> = HashMap::new();
        for step in &self.steps {
            match step {
                Step::Append { list, element } => known.entry(*list).or_default().1.push(*element),
                Step::Read { list, elements } => {
                    let (before, own) = known.entry(*list).or_default();
                    let is_whole = match before {
                        Some(before) => *elements == [before.as_slice(), own].concat(),
                        None => elements.ends_with(own),
                    };
                    if !is_whole {
                        return Err(format!(
                            "a transaction does not see its own changes: {self:?}"
                        ));
                    }
                    (*before, *own) = (Some(elements.clone()), Vec::new());
                }
            }
        }
        Ok(())
    }
}

/// Why one transaction came before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// Its element stands before the other's, in this list.
    AppendedBefore(usize),
    /// The other has read its element.
    WasReadBy(usize),
    /// It has not read the other's element.
    DidNotRead(usize),
    /// It was confirmed before the other began.
    WasOver,
}

/// Checks transactions of the same lists.
///
/// # Errors
/// What no order explains.
pub fn check(transactions: &[Transaction]) -> Result<(), String> {
    let mut writers: HashMap<(usize, u64), usize> = HashMap::new();
    for (number, transaction) in transactions.iter().enumerate() {
        for append in transaction.appends() {
            let other = writers.insert(append, number);
            assert!(other.is_none(), "{append:?} was appended twice by the test");
        }
    }
    let orders = orders_of(transactions, &writers)?;
    for transaction in transactions {
        transaction.check_itself()?;
        check_wholeness(transaction, &orders)?;
    }
    for (number, transaction) in transactions.iter().enumerate() {
        check_last_read(transactions, (number, transaction), &writers)?;
    }
    let relations = relations_of(transactions, &orders, &writers);
    match shortest_cycle(&relations) {
        None => Ok(()),
        Some(cycle) => Err(shown(transactions, &cycle)),
    }
}

/// Returns each list as it was when it was longest. All that was read of it is a beginning of that.
fn orders_of(
    transactions: &[Transaction],
    writers: &HashMap<(usize, u64), usize>,
) -> Result<BTreeMap<usize, Vec<u64>>, String> {
    let mut orders: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    let reads = || transactions.iter().flat_map(Transaction::reads);
    for (list, elements) in reads() {
        let longest = orders.entry(list).or_default();
        if elements.len() > longest.len() {
            *longest = elements.to_vec();
        }
    }
    if let Some((list, elements)) = reads().find(|(list, read)| !orders[list].starts_with(read)) {
        let longest = &orders[&list];
        return Err(format!("list {list} had two orders: {elements:?} and {longest:?}"));
    }
    for (&list, order) in &orders {
        if let Some(element) = order.iter().find(|&&it| !writers.contains_key(&(list, it))) {
            return Err(format!("list {list} has {element}, which nothing has appended"));
        }
        if order.iter().collect::<BTreeSet<_>>().len() < order.len() {
            return Err(format!("list {list} has an element twice: {order:?}"));
        }
    }
    Ok(orders)
}

/// What a transaction appended is there if it was confirmed, and else all of it or nothing.
fn check_wholeness(
    transaction: &Transaction,
    orders: &BTreeMap<usize, Vec<u64>>,
) -> Result<(), String> {
    let is_there = |(list, element): &(usize, u64)| {
        orders.get(list).is_some_and(|order| order.contains(element))
    };
    let (there, missing): (Vec<_>, Vec<_>) = transaction.appends().partition(is_there);
    if missing.is_empty() || (there.is_empty() && transaction.returned.is_none()) {
        return Ok(());
    }
    let how = if transaction.returned.is_some() { "confirmed" } else { "torn" };
    Err(format!("{how}, but {missing:?} is missing: {transaction:?}"))
}

/// A transaction has not read what another had only begun to append.
fn check_last_read(
    transactions: &[Transaction],
    (number, transaction): (usize, &Transaction),
    writers: &HashMap<(usize, u64), usize>,
) -> Result<(), String> {
    for (list, elements) in transaction.reads() {
        let Some(&last) = elements.last() else { continue };
        let writer = writers[&(list, last)];
        let whole = transactions[writer].appends().rev().find(|&(at, _)| at == list);
        if writer != number && whole != Some((list, last)) {
            let writer = &transactions[writer];
            return Err(format!("half of {writer:?} was read by {transaction:?}"));
        }
    }
    Ok(())
}

type Relations = Vec<BTreeMap<usize, Relation>>;

fn relations_of(
    transactions: &[Transaction],
    orders: &BTreeMap<usize, Vec<u64>>,
    writers: &HashMap<(usize, u64), usize>,
) -> Relations {
    let mut relations: Relations = vec![BTreeMap::new(); transactions.len()];
    let mut relate = |before: usize, after: usize, relation: Relation| {
        if before != after {
            relations[before].entry(after).or_insert(relation);
        }
    };
    for (&list, order) in orders {
        for pair in order.windows(2) {
            let [before, after] = [0, 1].map(|at| writers[&(list, pair[at])]);
            relate(before, after, Relation::AppendedBefore(list));
        }
    }
    for (number, transaction) in transactions.iter().enumerate() {
        for (list, elements) in transaction.reads() {
            if let Some(&last) = elements.last() {
                relate(writers[&(list, last)], number, Relation::WasReadBy(list));
            }
            if let Some(&next) = orders[&list].get(elements.len()) {
                relate(number, writers[&(list, next)], Relation::DidNotRead(list));
            }
        }
        for (other, later) in transactions.iter().enumerate() {
            if transaction.returned.is_some_and(|returned| returned < later.called) {
                relate(number, other, Relation::WasOver);
            }
        }
    }
    relations
}

/// Returns the transactions of a shortest cycle, each with its relation to the next.
fn shortest_cycle(relations: &Relations) -> Option<Vec<(usize, Relation)>> {
    (0..relations.len())
        .filter_map(|start| cycle_through(relations, start))
        .min_by_key(std::vec::Vec::len)
}

fn cycle_through(relations: &Relations, start: usize) -> Option<Vec<(usize, Relation)>> {
    // From which transaction, and by which relation, each was reached.
    let mut reached: HashMap<usize, (usize, Relation)> = HashMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for (&after, &relation) in &relations[at] {
            if reached.contains_key(&after) {
                continue;
            }
            reached.insert(after, (at, relation));
            if after == start {
                return Some(path_to(&reached, start));
            }
            next.push_back(after);
        }
    }
    None
}

fn path_to(reached: &HashMap<usize, (usize, Relation)>, end: usize) -> Vec<(usize, Relation)> {
    let mut path = vec![reached[&end]];
    while path[path.len() - 1].0 != end {
        path.push(reached[&path[path.len() - 1].0]);
    }
    path.reverse();
    path
}

fn shown(transactions: &[Transaction], cycle: &[(usize, Relation)]) -> String {
    let line = |(number, relation): &(usize, Relation)| {
        format!("  {:?}\n    {relation:?} the next\n", transactions[*number])
    };
    format!("a cycle, so no order explains it:\n{}", cycle.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(list: usize, element: u64) -> Step {
        Step::Append { list, element }
    }

    fn read(list: usize, elements: &[u64]) -> Step {
        Step::Read { list, elements: elements.to_vec() }
    }

    /// Transactions that all ran at the same time.
    fn at_once(steps: &[&[Step]]) -> Vec<Transaction> {
        let transaction = |(client, steps): (usize, &&[Step])| Transaction {
            client,
            called: 0,
            returned: Some(100),
            steps: steps.to_vec(),
        };
        steps.iter().enumerate().map(transaction).collect()
    }

    #[track_caller]
    fn is_found(transactions: &[Transaction], what: &str) {
        let found = check(transactions).expect_err(what);
        assert!(found.contains(what), "{found}");
    }

    #[test]
    fn what_one_order_explains_is_right() {
        let mut history = at_once(&[
            &[append(0, 1), append(1, 2)],
            &[read(0, &[1]), append(0, 3), read(0, &[1, 3])],
            &[read(0, &[]), read(1, &[])],
            &[read(0, &[1, 3]), read(1, &[2])],
        ]);
        assert_eq!(check(&history), Ok(()));
        // A transaction that may have run, and has not.
        history.push(Transaction {
            client: 9,
            called: 1,
            returned: None,
            steps: vec![append(0, 7), append(1, 8)],
        });
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn writes_that_cross_are_found() {
        let end = [read(0, &[1, 2]), read(1, &[4, 3])];
        let history =
            at_once(&[&[append(0, 1), append(1, 3)], &[append(0, 2), append(1, 4)], &end]);
        is_found(&history, "AppendedBefore");
    }

    #[test]
    fn reads_that_cross_are_found() {
        let end = [read(0, &[1]), read(1, &[2])];
        // Each of both has missed what the other wrote.
        let history =
            at_once(&[&[read(1, &[]), append(0, 1)], &[read(0, &[]), append(1, 2)], &end]);
        is_found(&history, "DidNotRead");
        // Each has read what the other wrote.
        let history =
            at_once(&[&[read(1, &[2]), append(0, 1)], &[read(0, &[1]), append(1, 2)], &end]);
        is_found(&history, "WasReadBy");
        // One list is read before a transaction, the other behind it.
        let history =
            at_once(&[&[append(0, 1), append(1, 2)], &[read(0, &[1]), read(1, &[])], &end]);
        is_found(&history, "DidNotRead");
    }

    #[test]
    fn a_read_that_is_out_of_date_is_found() {
        let mut history = at_once(&[&[append(0, 1)], &[read(0, &[])], &[read(0, &[1])]]);
        assert_eq!(check(&history), Ok(()));
        (history[1].called, history[1].returned) = (101, Some(102));
        is_found(&history, "WasOver");
    }

    #[test]
    fn what_is_lost_torn_doubled_or_invented_is_found() {
        is_found(&at_once(&[&[append(0, 1)], &[read(0, &[])]]), "confirmed, but");
        let mut torn = at_once(&[&[append(0, 1), append(1, 2)], &[read(0, &[1]), read(1, &[])]]);
        torn[0].returned = None;
        is_found(&torn, "torn, but");
        is_found(&at_once(&[&[append(0, 1)], &[read(0, &[1, 1])]]), "twice");
        is_found(&at_once(&[&[read(0, &[7])]]), "nothing has appended");
        let two = [&[append(0, 1)][..], &[append(0, 2)], &[read(0, &[1, 2])], &[read(0, &[2])]];
        is_found(&at_once(&two), "two orders");
        let half = [&[append(0, 1), append(0, 2)][..], &[read(0, &[1])], &[read(0, &[1, 2])]];
        is_found(&at_once(&half), "half of");
        let blind = [&[append(0, 1), read(0, &[])][..], &[read(0, &[1])]];
        is_found(&at_once(&blind), "its own changes");
    }
}
