//! Every interleaving of scripts that cross, by the rules of `docs/internals/scripts.md`, against a
//! model of stripes, turn and world: no state is a dead end, and every result is that of some
//! order.

use std::collections::{HashMap, HashSet};

const STRIPES: usize = 3;

/// A script appends its number to one stripe's value after the other. A large value cannot be
/// undone.
struct Script {
    declared: Vec<usize>,
    writes: Vec<(usize, Size)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Size {
    Small,
    Large,
}
use Size::{Large, Small};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// It holds nothing; `true`: it needs the world.
    Outside(bool),
    /// It has asked the world to stop.
    Stopping,
    /// It has done so many of its writes.
    Inside {
        done: usize,
        has_world: bool,
        is_hard: bool,
    },
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    phases: Vec<Phase>,
    values: [Vec<usize>; STRIPES],
    holders: [Option<usize>; STRIPES],
    turn: Option<usize>,
    /// What each script would put back.
    undo: Vec<Vec<(usize, Vec<usize>)>>,
}

impl State {
    fn new(scripts: &[Script]) -> State {
        State {
            phases: vec![Phase::Outside(false); scripts.len()],
            values: Default::default(),
            holders: [None; STRIPES],
            turn: None,
            undo: vec![Vec::new(); scripts.len()],
        }
    }

    fn is_anyone(&self, but: usize, is_it: impl Fn(&Phase) -> bool) -> bool {
        self.phases.iter().enumerate().any(|(at, phase)| at != but && is_it(phase))
    }

    fn release(&mut self, me: usize) {
        self.holders.iter_mut().filter(|holder| **holder == Some(me)).for_each(|h| *h = None);
        if self.turn == Some(me) {
            self.turn = None;
        }
        self.undo[me].clear();
    }

    fn begin_again(mut self, me: usize, with_world: bool) -> State {
        for (stripe, value) in std::mem::take(&mut self.undo[me]).into_iter().rev() {
            self.values[stripe] = value;
        }
        self.release(me);
        self.phases[me] = Phase::Outside(with_world);
        self
    }

    /// What the script does next; `None` if it has to wait.
    fn step(&self, me: usize, script: &Script) -> Option<State> {
        let mut next = self.clone();
        match self.phases[me] {
            Phase::Done => return None,
            Phase::Outside(true) => {
                if self.is_anyone(me, |phase| *phase == Phase::Stopping) {
                    return None;
                }
                next.phases[me] = Phase::Stopping;
            }
            Phase::Stopping => {
                if self.is_anyone(me, |phase| matches!(phase, Phase::Inside { .. })) {
                    return None;
                }
                next.holders = [Some(me); STRIPES];
                next.phases[me] = Phase::Inside { done: 0, has_world: true, is_hard: false };
            }
            Phase::Outside(false) => {
                let is_stopped = |phase: &Phase| {
                    matches!(phase, Phase::Stopping | Phase::Inside { has_world: true, .. })
                };
                let is_free = script.declared.iter().all(|&at| self.holders[at].is_none());
                if self.is_anyone(me, is_stopped) || !is_free {
                    return None;
                }
                script.declared.iter().for_each(|&at| next.holders[at] = Some(me));
                next.phases[me] = Phase::Inside { done: 0, has_world: false, is_hard: false };
            }
            Phase::Inside { done, has_world, is_hard } => {
                return next.run(me, script, done, has_world, is_hard);
            }
        }
        Some(next)
    }

    fn run(
        mut self,
        me: usize,
        script: &Script,
        done: usize,
        has_world: bool,
        is_hard: bool,
    ) -> Option<State> {
        let Some(&(stripe, size)) = script.writes.get(done) else {
            self.release(me);
            self.phases[me] = Phase::Done;
            return Some(self);
        };
        match self.holders[stripe] {
            Some(holder) if holder == me => {}
            _ if !is_hard => return Some(self.begin_again(me, true)),
            Some(_) => return None,
            None => {
                self.holders[stripe] = Some(me);
                return Some(self);
            }
        }
        let mut is_hard = is_hard;
        if size == Large && !is_hard && !has_world {
            if self.turn.is_some() {
                return Some(self.begin_again(me, false));
            }
            self.turn = Some(me);
            self.undo[me].clear();
            is_hard = true;
        }
        if !is_hard && !has_world {
            let before = (stripe, self.values[stripe].clone());
            self.undo[me].push(before);
        }
        self.values[stripe].push(me);
        self.phases[me] = Phase::Inside { done: done + 1, has_world, is_hard };
        Some(self)
    }
}

/// The results of all orders of the scripts.
fn serial_results(scripts: &[Script]) -> HashSet<[Vec<usize>; STRIPES]> {
    fn extend(
        scripts: &[Script],
        left: &[usize],
        values: &[Vec<usize>; STRIPES],
        found: &mut HashSet<[Vec<usize>; STRIPES]>,
    ) {
        if left.is_empty() {
            found.insert(values.clone());
        }
        for &script in left {
            let mut values = values.clone();
            scripts[script].writes.iter().for_each(|&(stripe, _)| values[stripe].push(script));
            let left: Vec<usize> = left.iter().copied().filter(|&other| other != script).collect();
            extend(scripts, &left, &values, found);
        }
    }
    let mut found = HashSet::new();
    let all: Vec<usize> = (0..scripts.len()).collect();
    extend(scripts, &all, &Default::default(), &mut found);
    found
}

/// Explores all states; returns how many there are.
fn check(scripts: &[Script]) -> usize {
    let allowed = serial_results(scripts);
    let mut successors: HashMap<State, Vec<State>> = HashMap::new();
    let mut left = vec![State::new(scripts)];
    while let Some(state) = left.pop() {
        if successors.contains_key(&state) {
            continue;
        }
        let next: Vec<State> =
            (0..scripts.len()).filter_map(|me| state.step(me, &scripts[me])).collect();
        let is_done = state.phases.iter().all(|phase| *phase == Phase::Done);
        assert!(is_done || !next.is_empty(), "no script can go on: {state:?}");
        assert!(!is_done || allowed.contains(&state.values), "no order gives {:?}", state.values);
        left.extend(next.iter().cloned());
        successors.insert(state, next);
    }
    // From every state the end can be reached: none is left only in a circle.
    let mut ending: HashSet<&State> = successors
        .keys()
        .filter(|state| state.phases.iter().all(|phase| *phase == Phase::Done))
        .collect();
    loop {
        let more: Vec<&State> = successors
            .iter()
            .filter(|(state, next)| {
                !ending.contains(state) && next.iter().any(|next| ending.contains(next))
            })
            .map(|(state, _)| state)
            .collect();
        if more.is_empty() {
            break;
        }
        ending.extend(more);
    }
    assert_eq!(ending.len(), successors.len(), "some states never end");
    successors.len()
}

fn script(declared: &[usize], writes: &[(usize, Size)]) -> Script {
    Script { declared: declared.to_vec(), writes: writes.to_vec() }
}

#[test]
fn two_scripts_that_cross() {
    for first in [Small, Large] {
        for second in [Small, Large] {
            let scripts = [
                script(&[0], &[(0, first), (1, second)]),
                script(&[1], &[(1, first), (0, second)]),
            ];
            assert!(check(&scripts) > 20);
        }
    }
}

#[test]
fn three_scripts_in_a_circle_and_a_command() {
    for sizes in [[Small; 3], [Large; 3], [Large, Small, Large], [Small, Large, Large]] {
        let scripts = [
            script(&[0], &[(0, sizes[0]), (1, Small)]),
            script(&[1], &[(1, sizes[1]), (2, Small)]),
            script(&[2], &[(2, sizes[2]), (0, Large)]),
        ];
        assert!(check(&scripts) > 20);
        // An ordinary command touches what it declares.
        let scripts = [
            script(&[0], &[(0, sizes[0]), (1, sizes[1])]),
            script(&[1], &[(1, sizes[1]), (0, sizes[2])]),
            script(&[0, 1, 2], &[(0, Small), (1, Small), (2, Small)]),
        ];
        assert!(check(&scripts) > 20);
    }
}
