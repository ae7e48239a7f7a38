//! Three servers that replicate in one process, on a clock and a network of the test's: the
//! machines of both sides, with latency, cut links, crashes, promotions by an arbiter and
//! hand-overs, all drawn from a seed.
//!
//! A server's data is its stream. What must hold at every moment:
//! - a server has a prefix of its history, byte for byte;
//! - within a history its position never falls;
//! - a write that a majority of copies has confirmed is in every history that is begun later.
//!
//! `DUNLIN_SEED` runs one seed, `DUNLIN_SEEDS` so many. A failure names its seed.

mod downstream;
mod network;
mod server;
mod upstream;
mod world;

use world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_is_lost_or_doubled_on_any_seed() {
    let seeds = match number("DUNLIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("DUNLIN_SEEDS").unwrap_or(2000),
    };
    let (mut confirmed, mut full, mut partial, mut promotions, mut handovers) = (0, 0, 0, 0, 0);
    let mut parallel = 0;
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        world.run(400);
        world.settle();
        confirmed += world.confirmed_writes;
        full += world.full_syncs();
        parallel += world.parallel_syncs();
        partial += world.partial_syncs();
        promotions += world.promotions;
        handovers += world.handovers;
    }
    println!(
        "{confirmed} confirmed writes, {full} full synchronisations, {parallel} of them over two \
         channels, {partial} partial ones, {promotions} promotions, {handovers} hand-overs"
    );
    if seeds.count() >= 1000 {
        // The test tests something only if all of it happens.
        assert!(confirmed > 1000 && full > 1000 && parallel > 1000 && partial > 1000);
        assert!(promotions > 100 && handovers > 100);
    }
}

#[test]
fn a_seed_replays() {
    let trace = |seed| {
        let mut world = World::new(seed);
        world.run(400);
        world.trace()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
