//! `DBSIZE`

use engine::{Args, Command, Cx, Flags, Group, Outcome};

/// `DBSIZE`.
pub static DBSIZE: Command = Command {
    name: "dbsize",
    arity: 1,
    flags: Flags::WALKS.with(Flags::READONLY).with(Flags::FAST),
    group: Group::Server,
    categories: &["keyspace"],
    since: "1.0.0",
    complexity: "O(1)",
    summary: "How many keys the database has.",
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    run: dbsize,
    ..Command::ROW
};

fn dbsize(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let count = cx.db.key_count(cx.db.index);
    cx.reply.integer(count as i64);
    Ok(())
}
