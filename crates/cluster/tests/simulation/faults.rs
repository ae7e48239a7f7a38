//! What goes wrong, drawn from the seed.

use crate::world::World;
use cluster::Moment;
use cluster::id::Id;
use std::collections::BTreeSet;

/// What is wrong at the moment. The last node is the coordinator.
pub(crate) struct Faults {
    is_on: bool,
    /// Clocks stop and jump.
    pub(crate) has_clock_faults: bool,
    /// From and to nodes between which nothing arrives.
    blocked: BTreeSet<(usize, usize)>,
    /// One of so many replies of the coordinator is lost, 0: none.
    loss: u64,
    /// The coordinator comes and goes each second.
    is_flapping: bool,
    /// The coordinator's files are copied, and it is started again with such a copy.
    pub(crate) has_rollbacks: bool,
    /// To whom the planned switch goes that was asked last.
    pub(crate) successor: Option<Id>,
    nodes: usize,
}

impl Faults {
    pub(crate) fn new(copies: usize, has_clock_faults: bool) -> Faults {
        Faults {
            is_on: true,
            has_clock_faults,
            blocked: BTreeSet::new(),
            loss: 0,
            is_flapping: false,
            has_rollbacks: false,
            successor: None,
            nodes: copies + 1,
        }
    }
}

impl Faults {
    /// No fault begins any more.
    pub(crate) fn end(&mut self) {
        self.is_on = false;
        self.has_clock_faults = false;
    }

    /// All reach each other again.
    pub(crate) fn mend_network(&mut self) {
        self.blocked.clear();
    }
}

impl World {
    /// How long something is under way. `None`: it does not arrive.
    pub(crate) fn draw_delay(&mut self, from: usize, to: usize) -> Option<Moment> {
        if self.faults.blocked.contains(&(from, to)) {
            return None;
        }
        let is_slow = self.faults.is_on && self.rng.below(40) == 0;
        let delay = if is_slow { self.rng.below(3000) } else { 1 + self.rng.below(10) };
        Some(Moment::from_millis(delay))
    }

    /// Whether a reply of the coordinator is lost.
    pub(crate) fn is_lost(&mut self) -> bool {
        self.faults.loss > 0 && self.rng.below(self.faults.loss) == 0
    }

    /// Draws what goes wrong next. Called five times a second.
    pub(crate) fn draw_faults(&mut self) {
        if !self.faults.is_on {
            return;
        }
        if self.faults.is_flapping && self.rng.below(5) < 2 {
            self.etcd.is_down = !self.etcd.is_down;
        }
        if self.rng.below(6) != 0 {
            return;
        }
        let leaders: Vec<usize> =
            (0..self.servers.len()).filter(|&at| self.servers[at].leads().is_some()).collect();
        let leader = leaders.get(self.rng.index(leaders.len().max(1))).copied();
        let any = self.rng.index(self.servers.len());
        let at = leader.filter(|_| self.rng.below(3) == 0).unwrap_or(any);
        let other = self.rng.index(self.faults.nodes);
        let kinds = if self.faults.has_rollbacks { 19 } else { 16 };
        match self.rng.below(kinds) {
            0 => self.crash(at),
            1 | 2 => self.start(at),
            3 => self.servers[at].is_paused = self.servers[at].is_up,
            4 | 5 if self.servers[at].is_paused => self.resume(at),
            6 => {
                self.faults.blocked.insert((at, other));
                if self.rng.below(2) == 0 {
                    self.faults.blocked.insert((other, at));
                }
            }
            7 | 8 => self.faults.mend_network(),
            9 => self.faults.loss = [0, 2, 10][self.rng.index(3)],
            10 => self.etcd_comes_or_goes(),
            11 => self.faults.is_flapping = !self.faults.is_flapping,
            12 => self.etcd.compact(),
            13 => self.etcd.change_leader(),
            14 => self.begin_switch(),
            15 if self.faults.has_clock_faults => self.break_clock(at),
            16 | 17 => self.etcd.back_up(),
            18 => self.roll_back(),
            _ => {}
        }
    }

    /// A copy does not reach the coordinator any more.
    pub(crate) fn cut_off_from_etcd(&mut self, at: usize) {
        self.faults.blocked.insert((at, self.servers.len()));
    }

    /// A copy reaches nothing any more.
    pub(crate) fn cut_off(&mut self, at: usize) {
        for other in 0..self.faults.nodes {
            self.faults.blocked.extend([(at, other), (other, at)]);
        }
    }

    pub(crate) fn crash(&mut self, at: usize) {
        let server = &mut self.servers[at];
        if server.is_up {
            server.is_up = false;
            server.is_paused = false;
            if !server.is_synced {
                let lost = self.rng.index(server.log.len() + 1);
                server.on_disk = server.on_disk.max(server.log.len() - lost).min(server.log.len());
                let shard = server.shard;
                self.note_lost_memory(shard);
            }
        }
    }

    fn start(&mut self, at: usize) {
        if !self.servers[at].is_up {
            self.restart(at);
        }
    }

    fn etcd_comes_or_goes(&mut self) {
        self.etcd.is_down = !self.etcd.is_down;
        if !self.etcd.is_down {
            self.etcd.change_leader();
        }
    }

    fn begin_switch(&mut self) {
        let successor = self.servers[self.rng.index(self.servers.len())].id;
        if !self.etcd.is_down && self.ask_switch(successor) {
            self.faults.successor = Some(successor);
        }
    }

    fn break_clock(&mut self, at: usize) {
        let (now, jump) = (self.now, self.rng.below(10_000) as i64);
        let server = &mut self.servers[at];
        match server.stopped {
            Some(_) => server.start_clock(now),
            None if jump % 2 == 0 => server.stopped = Some(server.clock(now)),
            None => server.ahead_ms += jump,
        }
    }

    /// Nothing goes wrong any more, and everything that was stopped goes on.
    pub(crate) fn stop_faults(&mut self) {
        let nodes = self.faults.nodes;
        let has_clock_faults = self.faults.has_clock_faults;
        self.faults = Faults { is_on: false, ..Faults::new(nodes - 1, has_clock_faults) };
        if self.etcd.is_down {
            self.etcd_comes_or_goes();
        }
        for at in 0..self.servers.len() {
            let now = self.now;
            self.start(at);
            self.servers[at].start_clock(now);
            if self.servers[at].is_paused {
                self.resume(at);
            }
        }
    }
}
