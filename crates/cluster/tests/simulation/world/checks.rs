//! What must hold at every moment, and in the end.

use super::World;
use crate::server::Server;
use cluster::id::{Epoch, Id};
use cluster::promotion::{self, Election};
use std::collections::BTreeSet;

impl World {
    /// Faults stop; the copies come together.
    pub(crate) fn settle(&mut self) {
        self.stop_faults();
        self.run(40);
        if !self.is_in_step() {
            self.recover();
            self.run(40);
        }
        let seed = self.seed;
        assert!(self.is_in_step(), "seed {seed} does not converge:\n{}", self.describe());
    }

    fn is_in_step(&self) -> bool {
        let leaders: Vec<&Server> =
            self.servers.iter().filter(|server| server.leads().is_some()).collect();
        let [leader] = leaders[..] else { return false };
        let is_level =
            |server: &Server| server.is_whole && server.log.len() + 3 >= leader.log.len();
        let now = leader.clock(self.now);
        leader.machine.is_alone(now) && self.servers.iter().all(is_level)
    }

    /// Does what an operator does when too many copies have lost their data.
    fn recover(&mut self) {
        let view = self.view_of(self.database);
        let shard = view.topology.value.shards[0].clone();
        let election = promotion::elect(&view, &shard);
        let is_stuck = matches!(election, Election::Waiting { .. } | Election::Lost);
        let is_alive = view.is_alive(shard.holder);
        let (seed, state) = (self.seed, self.describe());
        assert!(is_stuck && !is_alive, "seed {seed}: {election:?}\n{state}");
        let rank = |server: &&Server| (server.is_whole, server.position());
        let best = self.servers.iter().max_by_key(rank).expect("there are some").id;
        self.is_recovering = true;
        self.counts.recoveries += 1;
        self.commit(promotion::recover(&view, &shard, best).expect("it is alive"));
        self.check_topology();
        self.is_recovering = false;
    }

    fn describe(&mut self) -> String {
        let view = self.view_of(self.database);
        let mut text = format!("{:#?}\n{:?}\n", view.topology.value.shards[0], view.fences);
        for server in &self.servers {
            let (role, whole) = (server.machine.role(), server.is_whole);
            let present = server.machine.is_coordinator_present();
            text += &format!(
                "{:?} {:?}: {role:?} position {:?} whole {whole} present {present} up {} paused {}\n",
                server.id,
                server.incarnation,
                server.position(),
                server.is_up,
                server.is_paused
            );
        }
        text
    }

    /// Each confirmed write is in the data of the primary that the coordinator names.
    pub(super) fn check_confirmed(&self, when: &str) {
        let Some((epoch, holder)) = self.seen.1 else { return };
        let named = self.servers.iter().find(|it| it.id == holder.id);
        let Some(server) = named.filter(|it| it.incarnation == holder.incarnation) else { return };
        let has: BTreeSet<u64> = server.log.iter().map(|&(_, number)| number).collect();
        let lost: Vec<&u64> = self.confirmed.difference(&has).collect();
        let seed = self.seed;
        assert!(lost.is_empty(), "seed {seed}: {when}, and {holder:?} of {epoch:?} lacks {lost:?}");
    }

    /// Epochs only grow; whoever is promoted has all that was confirmed.
    pub(super) fn check_topology(&mut self) {
        if self.etcd.revision == self.seen.0 || self.etcd.is_down {
            return;
        }
        let view = self.view_of(self.database);
        self.seen.0 = self.etcd.revision;
        let shard = &view.topology.value.shards[0];
        let new = (shard.epoch, shard.holder);
        let Some((epoch, holder)) = self.seen.1.replace(new) else { return };
        if new == (epoch, holder) {
            return;
        }
        let (now, seed) = (self.now, self.seed);
        self.trace.push(format!("{now:?} {new:?} fence {}", shard.fence));
        assert!(new.0 > epoch, "seed {seed}: the epoch fell from {epoch:?} to {:?}", new.0);
        if self.is_recovering {
            let best = self.servers.iter().find(|it| it.id == new.1.id).expect("it is one of ours");
            let kept: BTreeSet<u64> = best.log.iter().map(|&(_, number)| number).collect();
            self.confirmed.retain(|number| kept.contains(number));
            return;
        }
        let named = self.servers.iter().find(|it| it.id == new.1.id).expect("it is one of ours");
        if named.incarnation == new.1.incarnation {
            assert!(named.is_whole, "seed {seed}: {new:?} was promoted while it synchronises");
            assert!(!named.log.is_empty() || epoch == Epoch(0), "seed {seed}: {new:?} has no data");
        }
        match new.1.id == holder.id {
            true => self.counts.retakes += 1,
            false if self.faults.successor == Some(new.1.id) => self.counts.switches += 1,
            false => self.counts.promotions += 1,
        }
        self.check_confirmed("a primary is promoted");
    }

    /// Without clock faults at most one copy is provably alone.
    pub(super) fn check_alone(&mut self) {
        let alone: Vec<&Server> = self
            .servers
            .iter()
            .filter(|it| it.runs() && it.machine.is_alone(it.clock(self.now)))
            .collect();
        if let [server] = alone[..]
            && !server.machine.is_coordinator_present()
        {
            self.counts.alone += 1;
        }
        if !self.faults.has_clock_faults {
            let ids: Vec<Id> = alone.iter().map(|it| it.id).collect();
            assert!(ids.len() <= 1, "seed {}, {:?}: {ids:?} are alone", self.seed, self.now);
        }
    }
}
