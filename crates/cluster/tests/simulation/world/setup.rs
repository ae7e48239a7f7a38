//! How a world begins: the copies, and the cluster they make.

use super::{Counts, Event, World, ms};
use crate::etcd::Etcd;
use crate::faults::Faults;
use crate::server::Server;
use cluster::Moment;
use cluster::change;
use cluster::coordinator::{Coordinator, LeaseCall, LeaseReply, Outcome, Transaction};
use cluster::id::{Epoch, Id, Incarnation};
use cluster::slots::{self, Slots};
use cluster::topology::{Address, Replica};
use cluster::view::{Alive, Keys, View};
use std::collections::{BTreeMap, BTreeSet};
use structs::random::Rng;

impl World {
    /// One to three shards of two to five copies each, in step with each other.
    pub(crate) fn new(seed: u64) -> World {
        let mut rng = Rng::seeded(seed);
        let (shards, copies) = match rng.below(2) {
            0 => (1, 2 + rng.index(4)),
            _ => (2 + rng.index(2), 2 + rng.index(2)),
        };
        let quorum = match rng.below(3) {
            0 => 0,
            _ => 2 + rng.index(copies - 1),
        };
        World::made(seed, rng, (shards, copies), quorum)
    }

    /// So many shards of so many copies each.
    pub(crate) fn with(seed: u64, shards: usize, copies: usize, quorum: usize) -> World {
        World::made(seed, Rng::seeded(seed), (shards, copies), quorum)
    }

    fn made(seed: u64, mut rng: Rng, (shards, copies): (usize, usize), quorum: usize) -> World {
        let count = shards * copies;
        let is_synced = rng.below(2) == 0;
        let id = |at: usize| Id::new([at as u8 + 1; 20]);
        let incarnation = |at: usize| Incarnation(1000 + at as u64);
        let server = |at: usize| {
            Server::new((id(at), at / copies), incarnation(at), 500 * at as i64, is_synced)
        };
        let mut world = World {
            now: Moment::ZERO,
            etcd: Etcd::new(),
            servers: (0..count).map(server).collect(),
            faults: Faults::new(count, quorum > 0 && rng.below(2) == 0),
            rng,
            counts: Counts::default(),
            queue: BTreeMap::new(),
            waiting: (0..count).map(|_| Vec::new()).collect(),
            last_delivery: BTreeMap::new(),
            drawn: 10_000,
            quorum,
            keys: Keys::new("test"),
            database: id(0),
            confirmed: vec![BTreeSet::new(); shards],
            seen: (0, vec![None; shards]),
            members: vec![BTreeSet::new(); shards],
            is_rolled_back: vec![false; shards],
            given_up: vec![Epoch(0); shards],
            rolled_back_at: None,
            recovering: None,
            trace: Vec::new(),
            seed,
        };
        world.found();
        for at in 0..count {
            world.schedule(ms(at as u64), Event::Step(at));
        }
        world.schedule(ms(3000), Event::Faults);
        world
    }

    /// Makes the cluster as a tool does: MEET, ADDSLOTS, REPLICATE.
    fn found(&mut self) {
        let ids: Vec<(Id, Incarnation)> =
            self.servers.iter().map(|server| (server.id, server.incarnation)).collect();
        for &(id, incarnation) in &ids {
            let reply = self.etcd.lease(LeaseCall::Grant(ms(4000)));
            let Ok(LeaseReply::Held { id: lease, .. }) = reply else { panic!("{reply:?}") };
            let address = Address { host: "10.0.0.1".into(), port: 7000, ..Address::default() };
            let copy = Replica { id, address, member: None, is_never_promoted: false };
            let alive = Alive { incarnation, lease, bus_port: 0 };
            self.commit(change::found(&self.keys, id, copy, alive));
        }
        for &(id, _) in &ids[1..] {
            let home =
                self.etcd.range(&self.keys.home(id), None).expect("it is up").items[0].revision;
            let meet = change::meet(&self.view_of(id), &self.view_of(ids[0].0), |_| Ok(home));
            self.commit(meet.expect("it is alone").expect("they are not one yet"));
        }
        let shards = self.confirmed.len();
        let mut first = None;
        for at in 0..self.servers.len() {
            let (id, shard) = (self.servers[at].id, self.servers[at].shard);
            let view = self.view_of(ids[0].0);
            let change = match first {
                Some((primary, of)) if of == shard => change::replicate(&view, id, primary, false),
                _ => {
                    first = Some((id, shard));
                    let all = usize::from(slots::COUNT);
                    let some = Slots::from_fn(|slot| usize::from(slot) * shards / all == shard);
                    change::add_slots(&view, id, &some)
                }
            };
            self.commit(change.expect("it is empty, and the slots are free"));
        }
        let view = self.view_of(ids[0].0);
        let mut topology = view.topology.value.clone();
        topology.quorum = self.quorum;
        self.commit(view.replace(&topology));
    }

    /// A shard that is none of these begins a leadership.
    pub(crate) fn use_up_an_epoch(&mut self) {
        let view = self.view_of(self.database);
        let mut topology = view.topology.value.clone();
        topology.epoch = topology.epoch.next();
        self.commit(view.replace(&topology));
    }

    pub(super) fn commit(&mut self, transaction: Transaction) {
        let outcome = self.etcd.commit(&transaction);
        assert!(matches!(outcome, Ok(Outcome::Done(_))), "seed {}: {outcome:?}", self.seed);
    }

    /// The view, unless the coordinator is down.
    pub(super) fn view_if_up(&mut self) -> Option<View> {
        (!self.etcd.is_down).then(|| self.view_of(self.database))
    }

    pub(super) fn view_of(&mut self, database: Id) -> View {
        let range = self.etcd.range(&self.keys.database(database), None).expect("it is up");
        View::decode(&self.keys, database, &range).expect("it is valid").expect("it is there")
    }
}
