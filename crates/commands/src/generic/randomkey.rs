//! `RANDOMKEY`
//!
//! A stripe is chosen with a probability that follows its number of keys, then a key of it, so
//! every key is equally likely.

use engine::routing::{About, Merge, Routing};
use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};
use keyspace::keyspace::STRIPES;

/// `RANDOMKEY`.
pub static RANDOMKEY: Command = Command {
    name: "randomkey",
    arity: 1,
    flags: Flags::READONLY.with(Flags::WALKS),
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Some key of the database.",
    tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
    routing: Routing::all(Merge::AnyValue, About::AllKeys),
    run: randomkey,
    ..Command::ROW
};

/// Attempts before expired keys are taken for all there is.
const ATTEMPTS: usize = 100;

fn randomkey(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let (db, horizon) = (cx.db.index, cx.db.horizon());
    let mut sizes = vec![0u64; STRIPES];
    let mut is_missed = false;
    for (index, size) in sizes.iter_mut().enumerate() {
        let seen = cx.db.try_visit(index, |data| data.key_count(db) as u64);
        is_missed |= seen.is_none();
        *size = seen.unwrap_or_default();
    }
    let total: u64 = sizes.iter().sum();
    for _ in 0..if total == 0 { 0 } else { ATTEMPTS } {
        let mut number = cx.db.random() % total;
        let stripe = sizes.iter().position(|&size| {
            let here = number < size;
            number = number.saturating_sub(size);
            here
        });
        let view = &cx.db;
        let key = view.try_visit(stripe.unwrap_or_default(), |stripe| {
            let entry = stripe.sample(db, || view.random())?;
            (!entry.is_expired(horizon)).then(|| entry.key().to_vec())
        });
        if let Some(Some(key)) = key {
            cx.reply.bulk(&key);
            return Ok(());
        }
        is_missed |= key.is_none();
    }
    if is_missed {
        // There may be keys in a stripe that could not be had.
        return Err(Error::StripeTaken);
    }
    cx.reply.null();
    Ok(())
}
