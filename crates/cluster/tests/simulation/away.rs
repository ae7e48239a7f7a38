//! The coordinator is away for an hour, and comes back.

use crate::world::World;
use cluster::Moment;
use cluster::copy::Role;
use cluster::id::Epoch;

/// How long it is away.
const HOUR: u64 = 3600;

/// A world without other faults, in step, whose coordinator is away since a while.
fn without_coordinator(seed: u64, quorum: usize) -> World {
    let mut world = World::with(seed, 1, 3, quorum);
    world.faults.end();
    world.run(20);
    assert_eq!(world.etcd_goes(), Ok(()), "seed {seed}");
    world.run(20);
    world
}

impl World {
    fn primary(&self) -> (usize, Epoch) {
        let found = self.servers.iter().enumerate().find_map(|(at, it)| Some((at, it.leads()?)));
        found.unwrap_or_else(|| panic!("no copy leads"))
    }

    fn may_confirm(&self, at: usize) -> bool {
        let server = &self.servers[at];
        server.machine.may_confirm(server.clock(self.now))
    }

    fn is_alone(&self, at: usize) -> bool {
        let server = &self.servers[at];
        server.machine.is_alone(server.clock(self.now))
    }

    fn etcd_goes(&mut self) -> Result<(), &'static str> {
        let was_down = std::mem::replace(&mut self.etcd.is_down, true);
        if was_down { Err("it was away before") } else { Ok(()) }
    }

    fn etcd_comes(&mut self) {
        self.etcd.is_down = false;
    }
}

#[test]
fn an_hour_without_the_coordinator_demotes_no_primary_and_refuses_nothing() {
    for seed in 1..=4 {
        for quorum in [0, 2] {
            let mut world = without_coordinator(seed, quorum);
            let (at, epoch) = world.primary();
            let confirmed = world.counts.confirmed;
            for second in 0..HOUR {
                world.run(1);
                assert_eq!(world.primary(), (at, epoch), "seed {seed}, {second} s");
                let may = world.may_confirm(at) && world.is_alone(at);
                assert!(may, "seed {seed}, {second} s: it refuses");
            }
            assert!(world.counts.confirmed > confirmed + 1000);
            let promotions = world.counts.promotions;
            // All leases have ended, and the primary is the last to find that out.
            world.etcd_comes();
            for second in 0..30 {
                world.run(1);
                assert_eq!(world.primary().0, at, "seed {seed}, {second} s later");
                assert!(world.is_alone(at), "seed {seed}, {second} s later");
            }
            assert_eq!(world.counts.promotions, promotions, "seed {seed}");
            // A primary that ends now has a successor again.
            world.servers[at].is_up = false;
            world.run(20);
            assert_ne!(world.primary().0, at);
        }
    }
}

#[test]
fn without_a_copy_and_the_coordinator_only_a_quorum_goes_on() {
    for (quorum, goes_on) in [(0, false), (2, true)] {
        let mut world = without_coordinator(7, quorum);
        let (at, epoch) = world.primary();
        let copy = (0..3).find(|&copy| copy != at).expect("there are three");
        world.servers[copy].is_up = false;
        world.run(10);
        let confirmed = world.counts.confirmed;
        world.run(60);
        assert_eq!(world.servers[at].machine.role(), Role::Leads(epoch), "no other takes over");
        assert_eq!(world.may_confirm(at), goes_on, "quorum {quorum}");
        assert_eq!(world.is_alone(at), goes_on, "quorum {quorum}");
        assert_eq!(world.counts.confirmed > confirmed, goes_on, "quorum {quorum}");
    }
}

/// Calls that succeed now and then count for nothing: only the copies' promises, or a renewal and a
/// read behind it.
#[test]
fn a_coordinator_that_flaps_demotes_no_primary() {
    for seed in 1..=10 {
        let mut world = without_coordinator(seed, 0);
        let (at, _) = world.primary();
        for second in 0..300 {
            world.etcd.is_down = second % 2 == 0;
            world.run_for(Moment::from_millis(1000));
            assert_eq!(world.primary().0, at, "seed {seed}, {second} s");
            assert!(world.is_alone(at), "seed {seed}, {second} s");
        }
    }
}
