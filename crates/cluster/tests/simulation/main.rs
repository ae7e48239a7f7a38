//! Copies of one to three shards in one process, on clocks, a network, disks and a coordinator of
//! the test's. Everything is drawn from a seed: lost and late calls, leader changes, an etcd that
//! is away or flaps, partitions in one direction or both, crashes with and without what was on
//! disk, paused processes, planned switches, and in seeds with a quorum clocks that stop and jump.
//!
//! What must hold at every moment:
//! - with a quorum, whatever clocks do: each confirmed write is in the data of each later primary,
//!   also when all were restarted, if what is acknowledged is on disk;
//! - without clock faults: at most one copy of a shard is provably alone, which is what reads and
//!   the other commit modes need;
//! - a shard's epoch only grows, and its holder changes only with it;
//! - a copy that synchronises is never promoted, nor one without data.
//!
//! In the end faults stop, and the copies come together: one primary a shard, equal data. If all
//! copies have lost theirs, their shard waits until an operator recovers it.
//!
//! `DUNLIN_SEED` runs one seed, `DUNLIN_SEEDS` so many. A failure names its seed.

mod away;
mod etcd;
mod faults;
mod moving;
mod restarts;
mod rollbacks;
mod server;
mod turns;
mod world;

use world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_confirmed_is_lost_on_any_seed() {
    let seeds = match number("DUNLIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("DUNLIN_SEEDS").unwrap_or(200),
    };
    let mut total = world::Counts::default();
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        world.run(60);
        world.settle();
        total.add(&world.counts);
    }
    println!("{total:?}");
    if seeds.count() >= 200 {
        // The test tests something only if all of it happens.
        let world::Counts { confirmed, promotions, retakes, switches, .. } = total;
        assert!(confirmed > 5000 && promotions > 100 && retakes > 50 && switches > 20);
        let world::Counts { resyncs, restored, dismissals, alone, .. } = total;
        assert!(resyncs > 15 && restored > 10 && dismissals > 10 && alone > 50);
    }
}

#[test]
fn a_seed_replays() {
    let trace = |seed| {
        let mut world = World::new(seed);
        world.run(20);
        world.trace()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
