//! The coordinator is started again with older files: it has forgotten the last primary and
//! the last members. A copy that knew nothing newer either may believe it, until the others say so.

use crate::number;
use crate::world::{Counts, World};

/// A world whose coordinator is rolled back now and then.
fn with_rollbacks(seed: u64) -> World {
    let mut world = World::new(seed);
    world.faults.has_rollbacks = true;
    world
}

#[test]
fn nothing_confirmed_is_lost_with_older_files() {
    let seeds = match number("DUNLIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("DUNLIN_SEEDS").unwrap_or(200),
    };
    let mut total = Counts::default();
    for seed in seeds.clone() {
        let mut world = with_rollbacks(seed);
        world.run(60);
        world.settle();
        total.add(&world.counts);
    }
    println!("{total:?}");
    if seeds.count() >= 200 {
        assert!(total.rollbacks > 100 && total.reelections > 50 && total.confirmed > 5000);
    }
}

/// Nothing else goes wrong: etcd forgets the last fail-over, or two.
#[test]
fn a_shard_that_etcd_has_forgotten_elects_a_primary() {
    for quorum in [0, 2] {
        for seed in 1..=20 {
            let mut world = World::with(seed, 1, 3, quorum);
            world.faults.end();
            world.run(20);
            world.etcd.back_up();
            for _ in 0..1 + seed % 2 {
                let at = world.leader();
                world.crash(at);
                world.run(12);
                world.restart_after(at, false);
                world.run(8);
            }
            world.roll_back();
            world.run(20);
            let leaders = world.servers.iter().filter(|server| server.leads().is_some()).count();
            assert_eq!(leaders, 1, "seed {seed}, quorum {quorum}");
            assert_eq!(world.counts.reelections, 1, "seed {seed}, quorum {quorum}");
            world.settle_without_operator();
        }
    }
}

/// The holder of the backup has been cut off since, and leads on. What others do raises the numbers
/// of the coordinator above those that its successor knew. Only then the successor reads.
#[test]
fn copies_find_out_when_the_numbers_of_another_history_are_greater() {
    for seed in 1..=20 {
        let mut world = World::with(seed, 1, 3, 2);
        world.faults.end();
        world.run(20);
        world.etcd.back_up();
        let former = world.leader();
        world.cut_off(former);
        world.run(12);
        world.faults.mend_network();
        let others = (0..world.servers.len()).filter(|&at| at != former);
        others.for_each(|at| world.cut_off_from_etcd(at));
        world.roll_back();
        (0..20).for_each(|_| world.use_up_an_epoch());
        world.run(2);
        assert!(world.servers[former].leads().is_some(), "seed {seed}");
        assert_eq!(world.counts.reelections, 0, "seed {seed}: no other has read yet");
        world.faults.mend_network();
        world.run(20);
        assert_eq!(world.counts.reelections, 1, "seed {seed}");
        world.settle_without_operator();
    }
}

/// Another shard finds out first, which uses up epochs. The former primary comes back before its
/// successor reads, and does not begin an epoch above that one's.
#[test]
fn a_forgotten_successor_is_elected_although_epochs_have_been_used_up() {
    for seed in 1..=40 {
        let mut world = World::with(seed, 2, 3, 2);
        world.faults.end();
        // Only then a copy keeps the name of its data over a start.
        if !world.servers[0].is_synced {
            continue;
        }
        world.run(20);
        world.etcd.back_up();
        let formers: Vec<usize> =
            (0..6).filter(|&at| world.servers[at].leads().is_some()).collect();
        let [of_first, former] = formers[..] else { panic!("seed {seed}: {formers:?} lead") };
        world.crash(former);
        world.run(8);
        world.crash(of_first);
        world.run(12);
        world.restart_after(of_first, true);
        (3..6).filter(|&at| at != former).for_each(|at| world.cut_off_from_etcd(at));
        world.roll_back();
        world.run(2);
        world.restart_after(former, true);
        world.run(3);
        world.faults.mend_network();
        world.run(20);
        assert_eq!(world.counts.reelections, 2, "seed {seed}");
        world.settle_without_operator();
    }
}
