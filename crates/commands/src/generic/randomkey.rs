//! `RANDOMKEY`
//!
//! A stripe is chosen with a probability that follows its number of keys, then a key of it, so every
//! key is equally likely.

use engine::{Args, Command, Cx, Flags, Group, Outcome};
use keyspace::keyspace::STRIPES;

/// `RANDOMKEY`.
pub static RANDOMKEY: Command = Command {
    name: "randomkey",
    arity: 1,
    flags: Flags::READONLY.with(Flags::WALKS),
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Returns a random key name from the database.",
    tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
    run: randomkey,
    ..Command::ROW
};

/// Attempts before expired keys are taken for all there is.
const ATTEMPTS: usize = 100;

fn randomkey(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let (db, horizon) = (cx.db.index, cx.db.horizon());
    let mut sizes = vec![0u64; STRIPES];
    cx.db.for_each_stripe(|index, stripe| sizes[index] = stripe.key_count(db) as u64);
    let total: u64 = sizes.iter().sum();
    for _ in 0..if total == 0 { 0 } else { ATTEMPTS } {
        let mut number = cx.db.random() % total;
        let stripe = sizes.iter().position(|&size| {
            let here = number < size;
            number = number.saturating_sub(size);
            here
        });
        let view = &cx.db;
        let key = view.with_stripe(stripe.unwrap_or_default(), |stripe| {
            let entry = stripe.sample(db, || view.random())?;
            (!entry.is_expired(horizon)).then(|| entry.key().to_vec())
        });
        if let Some(key) = key {
            cx.reply.bulk(&key);
            return Ok(());
        }
    }
    cx.reply.null();
    Ok(())
}
