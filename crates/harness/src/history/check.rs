//! The search for an order: Wing and Gong's algorithm with Lowe's memory of states already seen.
//!
//! All calls and returns stand in one list in the order of time. The search walks it from the
//! start: a call it meets may be the next operation in the order, if its reply is possible in the
//! present state; then call and return are taken out and the walk starts again. A return that is
//! still in the list means that its operation should have been taken by now: the last choice is
//! undone. A set of operations taken that leads to a state seen before is not tried twice.
//!
//! The time is exponential in the operations that overlap (bounded by the clients), not in the
//! length of the history, and so is the memory: of a set of operations only the part is kept in
//! which some are taken and some are not.

use super::{Operation, State};
use std::collections::HashSet;

/// Finds an order or says that there is none, showing where the search got stuck for good.
pub fn check(initial: &State, operations: &[Operation]) -> Result<(), String> {
    let mut operations: Vec<&Operation> = operations.iter().collect();
    operations.sort_by_key(|operation| operation.called);
    let operations = &operations[..];
    let mut events = Events::new(operations);
    let mut taken = Taken::new(operations.len());
    let mut seen = HashSet::new();
    let mut state = initial.clone();
    // The choices made: the operation, and the state before it.
    let mut chosen: Vec<(usize, State)> = Vec::new();
    let mut furthest = (0, 0, initial.clone());
    let mut at = events.first();
    while let Some(event) = at {
        let operation = event / 2;
        if event % 2 == 0 {
            if let Some(next) = state.after(&operations[operation].action) {
                taken.insert(operation);
                if seen.insert((taken.key(), next.clone())) {
                    chosen.push((operation, std::mem::replace(&mut state, next)));
                    events.take(operation);
                    at = events.first();
                    continue;
                }
                taken.remove(operation);
            }
            at = events.after(event);
        } else {
            if chosen.len() >= furthest.0 {
                furthest = (chosen.len(), operation, state.clone());
            }
            let Some((last, before)) = chosen.pop() else {
                return Err(explain(operations, &furthest));
            };
            state = before;
            taken.remove(last);
            events.put_back(last);
            at = events.after(2 * last);
        }
    }
    Ok(())
}

/// A set of operations in the order of their calls: a bit each.
struct Taken {
    words: Vec<u64>,
    /// All words before are full.
    first: usize,
    /// All words from here on are empty.
    end: usize,
}

impl Taken {
    fn new(operations: usize) -> Taken {
        Taken { words: vec![0; operations.div_ceil(64)], first: 0, end: 0 }
    }

    fn insert(&mut self, operation: usize) {
        self.words[operation / 64] |= 1 << (operation % 64);
        self.end = self.end.max(operation / 64 + 1);
        while self.first < self.end && self.words[self.first] == u64::MAX {
            self.first += 1;
        }
    }

    fn remove(&mut self, operation: usize) {
        self.words[operation / 64] &= !(1 << (operation % 64));
        self.first = self.first.min(operation / 64);
        while self.end > self.first && self.words[self.end - 1] == 0 {
            self.end -= 1;
        }
    }

    /// What tells the set from all others.
    fn key(&self) -> (usize, Box<[u64]>) {
        (self.first, Box::from(&self.words[self.first..self.end]))
    }
}

fn explain(operations: &[&Operation], (count, stuck, state): &(usize, usize, State)) -> String {
    let stuck = operations[*stuck];
    let mut around: Vec<&Operation> = operations
        .iter()
        .copied()
        .filter(|other| other.called <= stuck.returned && other.returned >= stuck.called)
        .collect();
    around.sort_by_key(|operation| operation.called);
    let mut text = format!(
        "no order explains the replies. {count} of {} operations can be ordered, after which the \
         state is {state:?} and nothing explains the reply to\n    {stuck:?}\n  among what ran then:",
        operations.len()
    );
    for operation in around {
        text += &format!("\n    {operation:?}");
    }
    text
}

/// The calls (2 × operation) and returns (2 × operation + 1) that are left, as a doubly linked
/// list in the order of time. The last index is the head and the end.
struct Events {
    next: Vec<usize>,
    previous: Vec<usize>,
    head: usize,
}

impl Events {
    fn new(operations: &[&Operation]) -> Events {
        let head = operations.len() * 2;
        let mut order: Vec<usize> = (0..head).collect();
        // At the same instant calls come first: such operations overlap.
        order.sort_by_key(|event| {
            let operation = &operations[event / 2];
            if event % 2 == 0 { (operation.called, 0) } else { (operation.returned, 1) }
        });
        let mut events =
            Events { next: vec![head; head + 1], previous: vec![head; head + 1], head };
        let mut last = head;
        for event in order {
            events.next[last] = event;
            events.previous[event] = last;
            last = event;
        }
        events.next[last] = head;
        events.previous[head] = last;
        events
    }

    fn first(&self) -> Option<usize> {
        self.after(self.head)
    }

    fn after(&self, event: usize) -> Option<usize> {
        Some(self.next[event]).filter(|next| *next != self.head)
    }

    fn take(&mut self, operation: usize) {
        for event in [2 * operation, 2 * operation + 1] {
            let (previous, next) = (self.previous[event], self.next[event]);
            self.next[previous] = next;
            self.previous[next] = previous;
        }
    }

    /// Undoes the last [`Events::take`] that is not undone; the links of what was taken still
    /// point to its neighbours.
    fn put_back(&mut self, operation: usize) {
        for event in [2 * operation + 1, 2 * operation] {
            let (previous, next) = (self.previous[event], self.next[event]);
            self.next[previous] = event;
            self.previous[next] = event;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Action;
    use crate::rng::Rng;

    fn operation(called: u64, returned: u64, action: Action) -> Operation {
        Operation { called, returned, client: 0, action }
    }

    const EMPTY: State = State::String(None);

    #[test]
    fn overlapping_operations_may_take_either_order() {
        for read in [None, Some(1)] {
            let history = [operation(0, 10, Action::Set(1)), operation(5, 6, Action::Get(read))];
            assert_eq!(check(&EMPTY, &history), Ok(()));
        }
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = [operation(0, 1, Action::Set(1)), operation(2, 3, Action::Get(None))];
        assert!(check(&EMPTY, &history).is_err());
    }

    #[test]
    fn a_value_that_comes_and_goes_is_found() {
        let history = [
            operation(0, 100, Action::Set(1)),
            operation(10, 20, Action::Get(Some(1))),
            operation(30, 40, Action::Get(None)),
        ];
        assert!(check(&EMPTY, &history).is_err());
    }

    #[test]
    fn a_lost_update_is_found() {
        let history = [
            operation(0, 10, Action::CompareAndSet(None, 1)),
            operation(0, 10, Action::CompareAndSet(None, 2)),
        ];
        assert!(check(&EMPTY, &history).is_err());
        let history =
            [operation(0, 10, Action::Increment(1)), operation(5, 15, Action::Increment(1))];
        assert!(check(&EMPTY, &history).is_err());
    }

    #[test]
    fn an_element_popped_twice_is_found() {
        let history = [
            operation(0, 1, Action::Push { front: false, values: vec![7], length: Some(1) }),
            operation(2, 9, Action::Pop { front: true, value: Some(7) }),
            operation(3, 8, Action::Pop { front: true, value: Some(7) }),
        ];
        assert!(check(&State::List([].into()), &history).is_err());
    }

    /// Runs operations of eight clients in a known order, blurs their times, and expects the check
    /// to accept; then spoils one reply and expects it to refuse.
    #[test]
    fn long_histories_are_accepted_and_spoiled_ones_refused() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut state = EMPTY;
            let mut history = Vec::new();
            let mut idle = [0u64; 8];
            for step in 0..2000u64 {
                let now = step * 10;
                let client = rng.below(8);
                if idle[client] > now {
                    continue;
                }
                let State::String(value) = state else { unreachable!() };
                let action = match rng.below(4) {
                    0 => Action::Set(step + 1),
                    1 => Action::Swap(step + 1, value),
                    _ => Action::Get(value),
                };
                state = state.after(&action).unwrap();
                let called = now.saturating_sub(rng.below(60) as u64).max(idle[client]);
                let returned = now + rng.below(60) as u64;
                idle[client] = returned + 1;
                history.push(Operation { called, returned, client, action });
            }
            assert_eq!(check(&EMPTY, &history), Ok(()));
            let at = history.len() / 2;
            history[at].action = Action::Get(Some(1_000_000));
            assert!(check(&EMPTY, &history).is_err());
        }
    }
}
