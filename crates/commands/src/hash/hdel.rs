//! `HDEL key field [field …]`

use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Event, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
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
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "Deletes fields.",
    history: &[("2.4.0", "Takes more than one `field`.")],
    args: &[Arg::key("key", 0), Arg::new("field", ArgKind::String).multiple()],
    run: hdel,
    ..Command::ROW
};

/// Fields were deleted.
pub(super) const HDEL_EVENT: Event = event(Class::HASH, "hdel");

fn hdel(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (key, horizon) = (args.key(1), cx.db.horizon().0);
    let publishes_fields = cx.db.publishes_fields();
    let (mut removed, mut is_timed) = (0, false);
    let mut names = Vec::new();
    if let Some(hash) = cx.db.write::<Hash>(key)? {
        is_timed = hash.is_timed();
        // A field that has expired is absent; the expiry cycle removes it.
        let is_there = |hash: &Hash, field| !is_timed || hash.live(horizon).contains(field);
        for &field in args.from(2) {
            if is_there(hash, field) && hash.remove(field) {
                removed += 1;
                if publishes_fields {
                    names.push(field);
                }
            }
        }
    }
    if removed > 0 {
        if is_timed {
            cx.db.list_fields(key);
        }
        cx.db.changed_in(key, HDEL_EVENT, removed as u64);
        cx.db.notify_fields(key, HDEL_EVENT, names);
        cx.db.remove_if_empty::<Hash>(key);
    }
    cx.reply.integer(removed as i64);
    Ok(())
}
