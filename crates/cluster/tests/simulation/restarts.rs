//! All copies of a shard end at the same moment, and some of them come back.

use crate::world::World;
use cluster::Moment;

/// A world without other faults, in step, all of whose copies have just ended.
fn ended(seed: u64, copies: usize, quorum: usize) -> World {
    let mut world = World::with(seed, 1, copies, quorum);
    world.faults.end();
    world.run(20);
    (0..copies).for_each(|at| world.crash(at));
    world.run_for(Moment::from_millis(300));
    world
}

impl World {
    fn leads(&self) -> bool {
        self.servers.iter().any(|server| server.leads().is_some())
    }
}

#[test]
fn the_best_leads_when_enough_are_back() {
    // Copies, quorum, and how many of the copies are enough.
    for (copies, quorum, enough) in [(3, 2, 2), (3, 0, 2), (2, 2, 1), (5, 3, 3), (2, 0, 2)] {
        for seed in 1..=20 {
            let what = format!("seed {seed}, {copies} copies, quorum {quorum}");
            let mut world = ended(seed, copies, quorum);
            (1..enough).for_each(|at| world.restart_after(at, false));
            world.run(60);
            assert!(!world.leads(), "{what}: too few are back");
            world.restart_after(0, false);
            world.run(30);
            assert!(world.leads(), "{what}: enough are back");
            assert_eq!(world.counts.restored, 1, "{what}");
            // The others may have more, and follow nevertheless.
            (enough..copies).for_each(|at| world.restart_after(at, false));
            world.settle();
        }
    }
}

/// A process that goes on may have in memory what was confirmed with another one that does not
/// answer.
#[test]
fn a_copy_that_was_not_restarted_makes_the_others_wait_for_all() {
    for seed in 1..=20 {
        let mut world = World::with(seed, 1, 3, 2);
        world.faults.end();
        world.run(20);
        let at = world.leader();
        let other = (at + 1) % 3;
        world.servers.iter_mut().for_each(|server| server.is_synced = false);
        [at, other].into_iter().for_each(|at| world.crash(at));
        world.restart(other);
        world.run(60);
        assert!(!world.leads(), "seed {seed}: the former primary may have more");
        world.restart(at);
        world.run(10);
        assert!(world.leads(), "seed {seed}: all have said what they have");
    }
}
