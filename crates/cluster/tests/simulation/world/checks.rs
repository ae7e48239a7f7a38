//! What must hold at every moment, and in the end.

use super::World;
use crate::server::Server;
use cluster::Moment;
use cluster::change;
use cluster::id::Id;
use cluster::promotion::{self, Election};
use cluster::topology::{Holder, ROLLED_BACK, Replica, Shard};
use cluster::view::View;
use std::collections::BTreeSet;

/// How long after a rollback leases of before may last, and copies of before act on what they
/// read.
const UNSURE: Moment = Moment::from_secs(12);

impl World {
    /// Faults stop; the copies come together, and no operator has to recover a shard for that.
    pub(crate) fn settle_without_operator(&mut self) {
        let before = self.counts.recoveries;
        self.settle();
        let (seed, quorum) = (self.seed, self.quorum);
        assert_eq!(self.counts.recoveries, before, "seed {seed}, quorum {quorum}");
    }

    /// Faults stop; the copies come together.
    pub(crate) fn settle(&mut self) {
        self.stop_faults();
        self.run(40);
        let shards = 0..self.confirmed.len();
        let stuck: Vec<usize> = shards.clone().filter(|&shard| !self.is_in_step(shard)).collect();
        for &shard in &stuck {
            self.recover(shard);
        }
        if !stuck.is_empty() {
            self.run(40);
        }
        for shard in shards {
            let (seed, is_in_step) = (self.seed, self.is_in_step(shard));
            assert!(is_in_step, "seed {seed} does not converge:\n{}", self.describe(shard));
            self.is_rolled_back[shard] = false;
            self.check_confirmed(shard, "all is well again");
        }
    }

    fn copies(&self, shard: usize) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(move |server| server.shard == shard)
    }

    /// What the topology says of a shard of the world's.
    fn shard<'v>(&self, view: &'v View, shard: usize) -> &'v Shard {
        let copy = self.copies(shard).next().expect("each has some");
        view.topology.value.shard_of(copy.id).expect("it is in one")
    }

    fn is_in_step(&self, shard: usize) -> bool {
        let leaders: Vec<&Server> =
            self.copies(shard).filter(|server| server.leads().is_some()).collect();
        let [leader] = leaders[..] else { return false };
        let is_level =
            |server: &Server| server.is_whole && server.log.len() + 3 >= leader.log.len();
        let now = leader.clock(self.now);
        leader.machine.is_alone(now) && self.copies(shard).all(is_level)
    }

    /// Does what CLUSTER FAILOVER does. Returns whether it was not refused.
    pub(crate) fn ask_switch(&mut self, successor: Id) -> bool {
        let view = self.view_of(self.database);
        let transaction = change::ask_switch(&view, successor);
        let is_asked = transaction.is_ok();
        transaction.into_iter().for_each(|transaction| self.commit(transaction));
        is_asked
    }

    /// Does what an operator does when too many copies have lost their data.
    fn recover(&mut self, number: usize) {
        let view = self.view_of(self.database);
        let shard = self.shard(&view, number);
        let election = promotion::elect(&view, shard);
        let is_stuck = matches!(election, Election::Waiting { .. } | Election::Lost);
        let is_alive = view.is_alive(shard.holder);
        let (seed, state) = (self.seed, self.describe(number));
        assert!(is_stuck && !is_alive, "seed {seed}: {election:?}\n{state}");
        let rank = |server: &&Server| (server.is_whole, server.position());
        let best = self.copies(number).max_by_key(rank).expect("there are some").id;
        self.recovering = Some(number);
        self.counts.recoveries += 1;
        self.commit(promotion::recover(&view, shard, best).expect("it is alive"));
        self.check_topology();
        self.recovering = None;
    }

    fn describe(&mut self, shard: usize) -> String {
        let view = self.view_of(self.database);
        let mut text = format!("{:#?}\n{:?}\n", self.shard(&view, shard), view.fences);
        for server in self.copies(shard) {
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

    /// A process has ended that had not all on its disk. What was confirmed by memory, and is in
    /// no copy's memory and on no copy's disk any more, is gone whichever copy is elected: as many
    /// processes have ended as confirm a write, before others had it. Then a copy that went on and
    /// never had it leads rightly as soon as all have said what they have. A server promises the
    /// same, unless `commit-quorum-fsync` is on.
    pub(crate) fn note_lost_memory(&mut self, shard: usize) {
        let mut kept: BTreeSet<u64> = BTreeSet::new();
        for server in self.copies(shard) {
            let len = if server.is_up { server.log.len() } else { server.on_disk };
            kept.extend(server.log[..len].iter().map(|&(_, number)| number));
        }
        self.confirmed[shard].retain(|number| kept.contains(number));
    }

    /// Each confirmed write is in the data of the primary that the coordinator names.
    pub(super) fn check_confirmed(&self, shard: usize, when: &str) {
        let Some((epoch, holder)) = self.seen.1[shard] else { return };
        if self.is_rolled_back[shard] {
            return;
        }
        let named = self.servers.iter().find(|it| it.id == holder.id);
        let Some(server) = named.filter(|it| it.incarnation == holder.incarnation) else { return };
        let has: BTreeSet<u64> = server.log.iter().map(|&(_, number)| number).collect();
        let lost: Vec<&u64> = self.confirmed[shard].difference(&has).collect();
        let seed = self.seed;
        let trace = &self.trace[self.trace.len().saturating_sub(12)..];
        assert!(
            lost.is_empty(),
            "seed {seed}: {when}, and {holder:?} of {epoch:?} lacks {lost:?}: {trace:#?}"
        );
    }

    /// Epochs only grow; whoever is promoted has all that was confirmed.
    pub(super) fn check_topology(&mut self) {
        if self.etcd.revision == self.seen.0 || self.etcd.is_down {
            return;
        }
        let view = self.view_of(self.database);
        self.seen.0 = self.etcd.revision;
        for number in 0..self.confirmed.len() {
            let shard = self.shard(&view, number);
            let member =
                |copy: &Replica| copy.member.map(|incarnation| Holder { id: copy.id, incarnation });
            let members: BTreeSet<Holder> = shard.copies.iter().filter_map(member).collect();
            let before = std::mem::replace(&mut self.members[number], members);
            let is_dismissal =
                self.members[number].len() < before.len() && self.recovering.is_none();
            self.counts.dismissals += usize::from(is_dismissal);
            self.check_shard(number, shard, &before);
        }
    }

    fn check_shard(&mut self, number: usize, shard: &Shard, before: &BTreeSet<Holder>) {
        let new = (shard.epoch, shard.holder);
        let Some((epoch, holder)) = self.seen.1[number].replace(new) else { return };
        if new == (epoch, holder) {
            return;
        }
        let (now, seed) = (self.now, self.seed);
        self.trace.push(format!("{now:?} shard {number} {new:?} fence {}", shard.fence));
        assert!(new.0 > epoch, "seed {seed}: the epoch fell from {epoch:?} to {:?}", new.0);
        if shard.is_rolled_back() {
            return;
        }
        // Elected by what copies have, whatever the coordinator had forgotten.
        if holder.incarnation == ROLLED_BACK {
            self.is_rolled_back[number] = false;
            self.counts.reelections += 1;
        }
        let named = self.servers.iter().find(|it| it.id == new.1.id).expect("it is one of ours");
        let is_restored = !before.contains(&new.1);
        self.counts.restored += usize::from(is_restored && self.recovering.is_none());
        // What was confirmed by memory is gone with it. What was confirmed by disks is not.
        if self.recovering == Some(number) || (is_restored && !named.is_synced) {
            let kept: BTreeSet<u64> = named.log.iter().map(|&(_, number)| number).collect();
            self.confirmed[number].retain(|number| kept.contains(number));
            self.given_up[number] = new.0;
        }
        if self.recovering == Some(number) {
            return;
        }
        if named.incarnation == new.1.incarnation {
            assert!(named.is_whole, "seed {seed}: {new:?} was promoted while it synchronises");
            // Only a founder that has written nothing yet leads on without data: it takes the place
            // of no other.
            let leads_on = new.1 == holder;
            assert!(!named.log.is_empty() || leads_on, "seed {seed}: {new:?} has no data");
        }
        match new.1.id == holder.id {
            true => self.counts.retakes += 1,
            false if self.faults.successor == Some(new.1.id) => self.counts.switches += 1,
            false => self.counts.promotions += 1,
        }
        self.check_confirmed(number, "a primary is promoted");
    }

    /// Without clock faults at most one copy of a shard is provably alone.
    pub(super) fn check_alone(&mut self) {
        for shard in 0..self.confirmed.len() {
            let is_alone = |it: &&Server| it.runs() && it.machine.is_alone(it.clock(self.now));
            let alone: Vec<&Server> = self.copies(shard).filter(is_alone).collect();
            let is_cut_off = |server: &&Server| !server.machine.is_coordinator_present();
            let without_lease = alone.len() == 1 && alone.iter().all(is_cut_off);
            // A lease of the coordinator before does not keep a copy from being elected that knew
            // nothing newer than the one after.
            let has_forgotten = self.rolled_back_at.is_some_and(|at| self.now < at + UNSURE);
            if !self.faults.has_clock_faults && !has_forgotten {
                let ids: Vec<Id> = alone.iter().map(|it| it.id).collect();
                let known =
                    |it: &&Server| format!("{:?} {:?}", it.machine.role(), it.machine.known());
                let roles: Vec<String> = alone.iter().map(known).collect();
                let (seed, now) = (self.seed, self.now);
                assert!(ids.len() <= 1, "seed {seed}, {now:?}: {ids:?} are alone: {roles:#?}");
            }
            self.counts.alone += usize::from(without_lease);
        }
    }
}
