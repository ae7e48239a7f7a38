//! `EXISTS key [key …]`, `TOUCH key [key …]`: TOUCH counts as a use of the key, even for a
//! client with CLIENT NO-TOUCH; EXISTS never does.

use engine::{Arg, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `EXISTS`.
pub static EXISTS: Command = Command {
    name: "exists",
    arity: -2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::rest(1, 1, KeyFlags::RO)],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(N) for N keys",
    effort: Effort::Words(2),
    summary: "How many of the keys are there.",
    history: &[("3.0.3", "Takes more than one `key`.")],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: exists,
    ..Command::ROW
};

/// `TOUCH`.
pub static TOUCH: Command = Command {
    name: "touch",
    arity: -2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::rest(1, 1, KeyFlags::RO)],
    group: Group::Generic,
    since: "3.2.1",
    complexity: "O(N) for N keys",
    effort: Effort::Words(2),
    summary: "Marks keys as just used, and counts those that are there.",
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: touch,
    ..Command::ROW
};

fn exists(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut count = 0;
    cx.db.for_each_key(args, 1, 1, |db, _, key| count += i64::from(db.exists(key)));
    cx.reply.integer(count);
    Ok(())
}

fn touch(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let touches = std::mem::replace(&mut cx.db.touches, true);
    let mut count = 0;
    cx.db.for_each_key(args, 1, 1, |db, _, key| count += i64::from(db.lookup_read(key).is_some()));
    cx.db.touches = touches;
    cx.reply.integer(count);
    Ok(())
}
