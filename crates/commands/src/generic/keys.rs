//! `KEYS pattern`
//!
//! Over a big keyspace it runs on a background thread. It locks one stripe at a time, so it
//! returns, like SCAN, every key that is there throughout. Inside MULTI it runs in place, in a
//! world that stands still.

use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, Outcome};
use structs::glob::{self, Case};

/// `KEYS`.
pub static KEYS: Command = Command {
    name: "keys",
    arity: 2,
    flags: Flags::READONLY.with(Flags::WALKS),
    group: Group::Generic,
    categories: &["dangerous"],
    since: "1.0.0",
    complexity: "O(N) for N keys in the database",
    effort: Effort::Estimate(|db, _| db.rough_key_count(db.index)),
    summary: "All keys whose names match a pattern.",
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    args: &[Arg::new("pattern", ArgKind::Pattern)],
    run: keys,
    ..Command::ROW
};

fn keys(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (db, horizon, pattern) = (cx.db.index, cx.db.horizon(), args[1]);
    let all = pattern == b"*";
    let place = cx.reply.deferred();
    let mut count = 0;
    cx.db.for_each_stripe(|_, stripe| {
        for entry in stripe.entries(db) {
            let matches = all || glob::matches(pattern, entry.key(), Case::Sensitive);
            if matches && !entry.is_expired(horizon) {
                cx.reply.bulk(entry.key());
                count += 1;
            }
        }
    });
    cx.reply.finish_array(place, count);
    Ok(())
}
