//! `DEL key [key …]`, `UNLINK key [key …]`: the same, since big values are freed in the background
//! anyway.

use engine::{Arg, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `DEL`.
pub static DEL: Command = Command {
    name: "del",
    arity: -2,
    flags: Flags::WRITE.with(Flags::NO_VALUES),
    keys: &[KeySpec::rest(1, 1, KeyFlags::RM.with(KeyFlags::DELETE))],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(N+M) for N keys whose collections have M elements together",
    effort: Effort::Words(5),
    summary: "Deletes keys.",
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: del,
    ..Command::ROW
};

/// `UNLINK`.
pub static UNLINK: Command = Command {
    name: "unlink",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::rest(1, 1, KeyFlags::RM.with(KeyFlags::DELETE))],
    group: Group::Generic,
    since: "4.0.0",
    complexity: "O(N) for N keys, of whatever size; a background thread frees the memory",
    effort: Effort::Words(5),
    summary: "Deletes keys; large values are freed in the background.",
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: del,
    ..Command::ROW
};

fn del(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut deleted = 0;
    cx.db.for_each_key(args, 1, 1, |db, _, key| deleted += i64::from(db.delete(key)));
    cx.reply.integer(deleted);
    Ok(())
}
