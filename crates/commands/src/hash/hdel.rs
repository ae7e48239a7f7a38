//! `HDEL key field [field …]`

use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome, event,
};
use structs::hash::Hash;

/// `HDEL`.
pub static HDEL: Command = Command {
    name: "hdel",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields to be removed.",
    effort: Effort::Words(3),
    summary: "Deletes one or more fields and their values from a hash. Deletes the \
        hash if no fields remain.",
    history: &[("2.4.0", "Accepts multiple `field` arguments.")],
    args: &[Arg::key("key", 0), Arg::new("field", ArgKind::String).multiple()],
    run: hdel,
    ..Command::ROW
};

fn hdel(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let mut removed = 0;
    if let Some(hash) = cx.db.write::<Hash>(key)? {
        removed = args.from(2).iter().filter(|field| hash.remove(field)).count();
    }
    if removed > 0 {
        cx.db.changed_in(key, event(Class::HASH, "hdel"), removed as u64);
        cx.db.remove_if_empty::<Hash>(key);
    }
    cx.reply.integer(removed as i64);
    Ok(())
}
