//! `HGETDEL key FIELDS numfields field [field …]`

use super::fields::{FIELDS, plain};
use super::hdel::HDEL_EVENT;
use crate::list::write;
use engine::{Arg, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::hash::Hash;

/// `HGETDEL`.
pub static HGETDEL: Command = Command {
    name: "hgetdel",
    arity: -5,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::Hash,
    since: "9.1.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "Takes fields out of a hash and answers with their values.",
    args: &[Arg::key("key", 0), FIELDS],
    run: hgetdel,
    ..Command::ROW
};

fn hgetdel(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (fields, key, horizon) = (plain(args)?, args.key(1), cx.db.horizon().0);
    // It counts as a look at the key.
    cx.db.read::<Hash>(key)?;
    let Cx { db, reply, .. } = cx;
    let mut hash = db.write::<Hash>(key)?;
    let mut removed: Vec<&[u8]> = Vec::new();
    reply.array(fields.len());
    for &field in fields {
        let found = hash.as_deref_mut().filter(|hash| hash.live(horizon).contains(field));
        match found.and_then(|hash| hash.remove_with(field, |value| write(reply, value))) {
            None => reply.null(),
            Some(()) => removed.push(field),
        }
    }
    if !removed.is_empty() {
        cx.db.list_fields(key);
        cx.db.changed_in(key, HDEL_EVENT, removed.len() as u64);
        cx.db.notify_fields(key, HDEL_EVENT, removed);
        cx.db.remove_if_empty::<Hash>(key);
    }
    Ok(())
}
