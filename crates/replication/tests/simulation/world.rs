//! All servers, the clock, and the arbiter that crashes, promotes and checks.

use crate::network::{Connection, Rng};
use crate::server::Server;
use journal::HistoryId;
use journal::safe::SafePositions;
use keyspace::Millis;
use replication::failover::{Address, Candidate, FailoverStep, Plan, Stage as Handover};
use replication::primary::{self, Settings};
use replication::wire::{self, DualChannels};
use std::collections::{BTreeMap, HashMap};

const SERVERS: usize = 3;

fn settings(diskless: bool) -> Settings {
    Settings {
        diskless,
        delay_s: 0,
        max_replicas: 0,
        ping_period_s: 1,
        timeout_s: 3,
        rdb: primary::RdbVersions::OLDEST,
        rdb_of_files: primary::RdbVersions::OLDEST,
    }
}

pub struct World {
    pub seed: u64,
    pub rng: Rng,
    pub now: i64,
    pub servers: Vec<Server>,
    pub connections: BTreeMap<u64, Connection>,
    pub next_client: u64,
    /// Every history, as its primary has written it.
    pub truth: HashMap<HistoryId, Vec<u8>>,
    pub ids: u64,
    /// The server that is the primary, or was when it crashed.
    pub leader: usize,
    pub cut: [[bool; SERVERS]; SERVERS],
    /// What a majority has: the history and the position.
    pub confirmed: (HistoryId, u64),
    pub last: Vec<(HistoryId, u64)>,
    pub safe: SafePositions,
    pub digest: u64,
    pub diskless: bool,
    pub confirmed_writes: u64,
    pub promotions: u64,
    pub handovers: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let ids: Vec<HistoryId> = (0..SERVERS as u64).map(history_id).collect();
        let diskless = rng.chance(50);
        let mut dual = || DualChannels { valkey: rng.chance(50), redis: rng.chance(50) };
        let servers = ids.iter().map(|&id| Server::new(id, dual())).collect();
        let mut world = World {
            seed,
            diskless,
            rng,
            now: 1000,
            servers,
            connections: BTreeMap::new(),
            next_client: 1,
            truth: ids.iter().map(|&id| (id, Vec::new())).collect(),
            ids: SERVERS as u64,
            leader: 0,
            cut: [[false; SERVERS]; SERVERS],
            confirmed: (ids[0], 0),
            last: ids.iter().map(|&id| (id, 0)).collect(),
            safe: SafePositions::default(),
            digest: 0,
            confirmed_writes: 0,
            promotions: 0,
            handovers: 0,
        };
        (1..SERVERS).for_each(|server| world.follow(server, 0));
        world
    }

    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.disturb();
            self.step();
        }
    }

    pub fn full_syncs(&self) -> u64 {
        self.servers.iter().map(|server| server.full).sum()
    }

    pub fn parallel_syncs(&self) -> u64 {
        self.servers.iter().map(|server| server.parallel).sum()
    }

    pub fn partial_syncs(&self) -> u64 {
        self.servers.iter().map(|server| server.partial).sum()
    }

    /// What depends on everything that has happened.
    pub fn trace(&self) -> u64 {
        self.digest
    }

    /// Mends everything, and waits until all have the same.
    pub fn settle(&mut self) {
        self.cut = [[false; SERVERS]; SERVERS];
        for _ in 0..4000 {
            self.mend();
            self.step();
            let leader = &self.servers[self.leader];
            let (id, len) = (leader.history.id, leader.stream.len());
            let is_same = |server: &Server| (server.history.id, server.stream.len()) == (id, len);
            if leader.upstream.is_none() && self.servers.iter().all(is_same) {
                return;
            }
        }
        panic!("seed {}: they do not come together", self.seed);
    }

    fn mend(&mut self) {
        for server in 0..SERVERS {
            if !self.servers[server].is_running {
                self.restart(server);
            }
        }
        self.end_stuck_handover();
        self.repoint();
    }

    // The arbiter.

    /// Something may happen.
    fn disturb(&mut self) {
        let one = self.rng.below(SERVERS);
        let other = (one + 1) % SERVERS;
        match self.rng.below(300) {
            0..5 => {
                let is_cut = !self.cut[one][other];
                (self.cut[one][other], self.cut[other][one]) = (is_cut, is_cut);
            }
            5..15 => self.cut_some(|connection| connection.replica == one),
            15..18 => self.crash(one),
            18..30 if !self.servers[one].is_running => self.restart(one),
            30..34 => self.replace_leader(),
            34..38 => self.begin_handover(),
            38..41 => self.end_stuck_handover(),
            41..46 => self.repoint(),
            46..49 => {
                // The backlog is short.
                let server = &mut self.servers[one];
                let kept = (self.rng.below(100) as u64).min(server.position().0 - server.kept_from);
                server.kept_from = server.position().0 - kept;
            }
            100..200 => self.write(),
            _ => {}
        }
    }

    fn new_id(&mut self) -> HistoryId {
        self.ids += 1;
        history_id(self.ids)
    }

    pub fn follow(&mut self, server: usize, primary: usize) {
        self.cut_some(|connection| connection.replica == server);
        self.servers[server].close();
        self.servers[server].upstream = Some(primary);
        self.servers[server].replica.restart(Millis(self.now));
    }

    /// This server is the primary from now on: it must have all that was confirmed.
    pub fn promote(&mut self, server: usize) {
        let (of, position) = self.confirmed;
        let stream = &self.servers[server].stream;
        let confirmed = &self.truth[&of][..position as usize];
        assert!(
            stream.len() >= confirmed.len() && stream[..confirmed.len()] == *confirmed,
            "seed {}: server {server} is promoted at {} without what was confirmed up to {position}",
            self.seed,
            stream.len(),
        );
        self.begin_history(server);
        self.leader = server;
    }

    /// A new history begins where this server is.
    pub fn begin_history(&mut self, server: usize) {
        let id = self.new_id();
        self.truth.insert(id, self.servers[server].stream.clone());
        self.cut_some(|connection| connection.primary == server || connection.replica == server);
        self.servers[server].promote(id, Millis(self.now));
    }

    fn crash(&mut self, server: usize) {
        let is_running = |server: &&Server| server.is_running;
        // A majority stays.
        if self.servers.iter().filter(is_running).count() == SERVERS {
            self.cut_some(|one| one.primary == server || one.replica == server);
            self.servers[server].crash();
        }
    }

    fn restart(&mut self, server: usize) {
        self.servers[server].is_running = true;
        if server == self.leader {
            // Its replicas may have more than a disk keeps, so a history does not go on.
            self.promote(server);
        } else if self.servers[server].upstream.is_none() {
            self.follow(server, self.leader);
        } else {
            self.servers[server].replica.restart(Millis(self.now));
        }
    }

    /// The primary is gone: the replica takes its place that has most of its history.
    fn replace_leader(&mut self) {
        let leader = &self.servers[self.leader];
        if leader.is_running {
            return;
        }
        let history = leader.history;
        let others: Vec<usize> = (0..SERVERS).filter(|&one| self.servers[one].is_running).collect();
        // What was confirmed may be on one of the others alone, so both must be comparable. One of
        // them may not have heard of the latest id yet.
        let is_comparable = |&one: &usize| {
            let server = &self.servers[one];
            history.contains(&server.history.id, server.position())
        };
        if !others.iter().all(is_comparable) {
            return;
        }
        if let Some(next) = others.into_iter().max_by_key(|&one| self.servers[one].position().0) {
            self.promotions += 1;
            self.promote(next);
            self.repoint();
        }
    }

    fn repoint(&mut self) {
        let leader = self.leader;
        if self.servers[leader].failover.stage() != Handover::Nothing {
            return;
        }
        for server in 0..SERVERS {
            let one = &self.servers[server];
            let follows = one.upstream == Some(leader);
            // REPLICAOF is refused while a server hands over its role.
            let is_idle = one.failover.stage() == Handover::Nothing;
            if server != leader && one.is_running && is_idle && !follows {
                self.follow(server, leader);
            }
        }
    }

    fn begin_handover(&mut self) {
        let server = &mut self.servers[self.leader];
        if !server.is_running || server.failover.stage() != Handover::Nothing {
            return;
        }
        let before = server.position();
        let deadline = Some(Millis(self.now + 2000));
        self.append(self.leader, wire::GETACK);
        let server = &mut self.servers[self.leader];
        let plan = Plan { target: None, deadline, is_forced: false };
        server.failover.begin(plan, (before, server.position()));
    }

    /// Calls a hand-over off whose successor is not a primary yet.
    fn end_stuck_handover(&mut self) {
        for server in 0..SERVERS {
            let failover = &self.servers[server].failover;
            let target = failover.target().map(|target| usize::from(target.port));
            if failover.stage() != Handover::Handing || !self.servers[server].is_running {
                continue;
            }
            let has_successor = server != self.leader;
            if has_successor {
                self.servers[server].failover.end();
                self.follow(server, self.leader);
            } else if target.is_some_and(|target| self.servers[target].upstream.is_some()) {
                self.servers[server].failover.end();
                self.promote(server);
            }
        }
    }

    // The network and the clock.

    pub fn cut_quietly(&mut self, which: impl Fn(&Connection) -> bool) -> Vec<Connection> {
        let cut: Vec<(u64, Connection)> =
            self.connections.extract_if(.., |_, one| which(one)).collect();
        for (client, connection) in &cut {
            let link = self.servers[connection.primary].primary.disconnected(*client);
            if let Some(copy) = link.and_then(|link| link.copy) {
                self.safe.remove_copy(&copy);
            }
        }
        cut.into_iter().map(|(_, connection)| connection).collect()
    }

    /// Cuts connections, which both ends notice.
    pub fn cut_some(&mut self, which: impl Fn(&Connection) -> bool) {
        for connection in self.cut_quietly(which) {
            let replica = connection.replica;
            if self.servers[replica].is_running {
                let actions = self.servers[replica].replica.lost("it is cut", Millis(self.now));
                self.act(replica, actions);
            }
        }
    }

    fn step(&mut self) {
        self.now += 1 + self.rng.below(50) as i64;
        let cut = self.cut;
        self.cut_some(|connection| cut[connection.replica][connection.primary]);
        for server in 0..SERVERS {
            if self.servers[server].is_running {
                self.tick(server);
            }
        }
        for client in self.connections.keys().copied().collect::<Vec<u64>>() {
            self.serve(client);
            self.feed(client);
        }
        (0..SERVERS).for_each(|server| self.listen(server));
        self.check();
    }

    fn tick(&mut self, server: usize) {
        let now = Millis(self.now);
        if self.servers[server].upstream.is_some() {
            let around = self.servers[server].around(server as u16);
            let actions = self.servers[server].replica.tick(&around, now);
            self.act(server, actions);
        }
        self.tick_failover(server);
        let is_still = self.servers[server].upstream.is_some()
            || self.servers[server].failover.stage() != Handover::Nothing;
        for action in self.servers[server].primary.tick(&settings(self.diskless), now) {
            match action {
                primary::Action::Ping if is_still => {}
                primary::Action::Ping => self.append(server, wire::PING),
                primary::Action::Keepalive(client) => self.reply(client, wire::KEEPALIVE),
                primary::Action::Disconnect(client) => {
                    self.cut_some(|one| one.client == client);
                }
                primary::Action::Send(group) => self.send_snapshot(server, &group),
                primary::Action::CallOff => unreachable!("a snapshot is sent at once"),
            }
        }
    }

    fn tick_failover(&mut self, server: usize) {
        let one = &mut self.servers[server];
        let candidates: Vec<Candidate> = one
            .primary
            .replicas()
            .filter(|link| link.stage == primary::Stage::Online)
            .map(|link| Candidate {
                address: Address { host: link.shown_ip().to_owned(), port: link.facts.port },
                acknowledged: link.acknowledged(),
            })
            .collect();
        match one.failover.due(one.position(), &candidates, Millis(self.now)) {
            None => {}
            Some(FailoverStep::Abort(_)) => {
                one.failover.end();
            }
            Some(FailoverStep::HandOver { to, .. }) => {
                let target = usize::from(to.port);
                one.failover.hand_over(to);
                self.follow(server, target);
            }
        }
    }

    fn check(&mut self) {
        for (number, server) in self.servers.iter().enumerate() {
            let (id, position) = (server.history.id, server.position().0);
            let truth = &self.truth[&id];
            assert!(
                truth.starts_with(&server.stream),
                "seed {}: server {number} has no prefix of its history",
                self.seed
            );
            let (last_id, last_position) = self.last[number];
            assert!(
                id != last_id || position >= last_position,
                "seed {}: server {number} went back from {last_position} to {position}",
                self.seed
            );
            self.last[number] = (id, position);
            let role = u64::from(server.upstream.is_some());
            self.digest = self.digest.wrapping_mul(31).wrapping_add(position * 2 + role);
        }
    }
}

fn history_id(number: u64) -> HistoryId {
    HistoryId::parse(format!("{number:040x}").as_bytes()).expect("forty digits")
}
