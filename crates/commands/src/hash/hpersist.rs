//! `HPERSIST key FIELDS numfields field [field …]`: for each field 1 if it expires no longer, −1 if
//! it did not expire, −2 if there is none.

use super::fields::{FIELDS, plain, report_expiries};
use engine::{Arg, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::hash::Hash;

/// `HPERSIST`.
pub static HPERSIST: Command = Command {
    name: "hpersist",
    arity: -5,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Hash,
    since: "9.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "Lets fields stay that would have expired.",
    args: &[Arg::key("key", 0), FIELDS],
    run: hpersist,
    ..Command::ROW
};

fn hpersist(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (fields, key, horizon) = (plain(args)?, args.key(1), cx.db.horizon().0);
    let Cx { db, reply, .. } = cx;
    let mut hash = db.write::<Hash>(key)?;
    let mut changed: Vec<&[u8]> = Vec::new();
    reply.array(fields.len());
    for &field in fields {
        let found = hash.as_deref_mut().map(|hash| (hash.live(horizon).expiry(field), hash));
        reply.integer(match found {
            None | Some((None, _)) => -2,
            Some((Some(None), _)) => -1,
            Some((Some(Some(_)), hash)) => {
                hash.set_expiry(field, None);
                changed.push(field);
                1
            }
        });
    }
    if !changed.is_empty() {
        report_expiries(cx, key, &changed, None);
    }
    Ok(())
}
