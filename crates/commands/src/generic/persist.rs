//! `PERSIST key`

use engine::{Arg, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome, events};

/// `PERSIST`.
pub static PERSIST: Command = Command {
    name: "persist",
    arity: 2,
    flags: Flags::WRITE.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Generic,
    since: "2.2.0",
    complexity: "O(1)",
    summary: "Lets a key stay that would have expired.",
    args: &[Arg::key("key", 0)],
    run: persist,
    ..Command::ROW
};

fn persist(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let had_expiry = cx.db.lookup_write(key).is_some_and(|entry| entry.expiry().is_some());
    if had_expiry {
        cx.db.set_expiry(key, None);
        cx.db.changed(key, events::PERSIST);
    }
    cx.reply.integer(i64::from(had_expiry));
    Ok(())
}
