//! What is sent: operations, and in which order.

pub mod digits;
pub mod keys;
pub mod template;
pub mod tests;
pub mod values;

use keys::Pattern;
use std::sync::Arc;
use template::{Placeholders, Template};

/// What a request does, as far as counting and checking care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Stores the value of its key.
    Writes,
    /// Answers the values of its keys; none is a miss.
    Reads,
    /// Anything else.
    Other,
}

/// One kind of request.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What reports call it.
    pub name: String,
    /// How it is written.
    pub template: Template,
    /// How `__key__` is drawn.
    pub pattern: Pattern,
    /// What it does.
    pub effect: Effect,
}

/// Operations and the order in which every client sends them.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What reports call the whole.
    pub name: String,
    /// The kinds of requests.
    pub operations: Vec<Operation>,
    /// Which operation how many times in a row; then from the beginning.
    pub cycle: Vec<(usize, u64)>,
    /// The cycle is a sequence that means something (MULTI … EXEC), so that every client begins it
    /// at its beginning and a pipeline holds whole cycles.
    pub in_order: bool,
    /// What placeholders stand for.
    pub places: Arc<Placeholders>,
    /// The numbers of the keys, both included.
    pub keys: (u64, u64),
}

/// Where a client is in the cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    step: usize,
    done: u64,
}

impl Workload {
    /// A workload of one operation.
    pub fn single(operation: Operation, places: Arc<Placeholders>, keys: (u64, u64)) -> Workload {
        Workload {
            name: operation.name.clone(),
            operations: vec![operation],
            cycle: vec![(0, 1)],
            in_order: false,
            places,
            keys,
        }
    }

    /// Whether clients walk through keys, each on its own: then each has its own share of the
    /// requests, or a quick one would walk on where a slow one has not been.
    pub fn walks(&self) -> bool {
        let walk = |operation: &Operation| {
            matches!(operation.pattern, Pattern::Sequential | Pattern::Parallel)
        };
        self.operations.iter().any(|operation| operation.template.keys() > 0 && walk(operation))
    }

    /// Requests in one cycle.
    pub fn cycle_length(&self) -> u64 {
        self.cycle.iter().map(|&(_, times)| times).sum()
    }

    /// Where client `index` begins: spread over the cycle, or else with a ratio of 1:9 all clients
    /// would write at the same time.
    pub fn start(&self, index: u64) -> Turn {
        let mut turn = Turn::default();
        if !self.in_order && self.cycle.len() > 1 {
            let length = self.cycle_length();
            // The golden ratio's share spreads any number of clients evenly.
            let steps =
                (u128::from(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * u128::from(length)) >> 64;
            let mut steps = steps as u64;
            while steps >= self.cycle[turn.step].1 {
                steps -= self.cycle[turn.step].1;
                turn.step += 1;
            }
            turn.done = steps;
        }
        turn
    }

    /// The operation whose turn it is, and how many times in a row, at most `limit`.
    #[inline]
    pub fn next(&self, turn: &mut Turn, limit: u64) -> (usize, u64) {
        let (operation, times) = self.cycle[turn.step];
        if self.cycle.len() == 1 {
            return (operation, limit);
        }
        let count = limit.min(times - turn.done);
        turn.done += count;
        if turn.done == times {
            turn.done = 0;
            turn.step += 1;
            if turn.step == self.cycle.len() {
                turn.step = 0;
            }
        }
        (operation, count)
    }
}

#[cfg(test)]
mod order {
    use super::template::Placeholders;
    use super::values::{Content, Sizes, Values};
    use super::*;

    #[test]
    fn every_client_keeps_the_ratio_and_clients_are_spread() {
        let places = Arc::new(Placeholders {
            space: None,
            sequential: false,
            field_space: 1,
            expiry: (0, 0),
            tagged: false,
            prefix: Vec::new(),
            padded: false,
            values: Values::new(Sizes::Fixed(1), Content::Plain, 0, 0),
            counters: Default::default(),
        });
        let operation = |name: &str| Operation {
            name: name.into(),
            template: Template::raw(b""),
            pattern: Pattern::Uniform,
            effect: Effect::Other,
        };
        let mut workload = Workload::single(operation("a"), places, (0, 0));
        workload.operations.push(operation("b"));
        workload.cycle = vec![(0, 1), (1, 9)];
        let mut first = 0;
        for client in 0..1000 {
            let mut turn = workload.start(client);
            let drawn: Vec<usize> = (0..20).map(|_| workload.next(&mut turn, 1).0).collect();
            assert_eq!(drawn.iter().filter(|&&operation| operation == 0).count(), 2);
            first += usize::from(drawn[0] == 0);
        }
        assert!((95..=105).contains(&first), "{first} of 1000 begin with a");
        workload.in_order = true;
        assert!((0..9).all(|client| workload.next(&mut workload.start(client), 5) == (0, 1)));
        let mut turn = workload.start(0);
        let counts = [9, 9, 4, 9].map(|limit| workload.next(&mut turn, limit));
        assert_eq!(counts, [(0, 1), (1, 9), (0, 1), (1, 9)]);
        assert_eq!([3, 9].map(|limit| workload.next(&mut turn, limit)), [(0, 1), (1, 9)]);
        workload.next(&mut turn, 1);
        assert_eq!([3, 9].map(|limit| workload.next(&mut turn, limit)), [(1, 3), (1, 6)]);
    }
}
