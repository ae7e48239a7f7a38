//! `HGETALL key`, `HKEYS key`, `HVALS key`

use super::read;
use crate::list::write;
use engine::{Arg, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::hash::Live;

/// `HGETALL`.
pub static HGETALL: Command = Command {
    name: "hgetall",
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(N) for a hash of N fields",
    effort: Effort::Elements(2),
    summary: "Every field of a hash with its value.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0)],
    run: hgetall,
    ..Command::ROW
};

/// `HKEYS`.
pub static HKEYS: Command = Command {
    name: "hkeys",
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(N) for a hash of N fields",
    effort: Effort::Elements(1),
    summary: "The names of a hash's fields.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0)],
    run: hkeys,
    ..Command::ROW
};

/// `HVALS`.
pub static HVALS: Command = Command {
    name: "hvals",
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "2.0.0",
    complexity: "O(N) for a hash of N fields",
    effort: Effort::Elements(1),
    summary: "The values of a hash's fields.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0)],
    run: hvals,
    ..Command::ROW
};

fn hgetall(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    match read(db, args.key(1))? {
        None => reply.map(0),
        Some(hash) => {
            reply.map(hash.count());
            for (field, value) in hash.iter() {
                write(reply, field);
                write(reply, value);
            }
        }
    }
    Ok(())
}

fn hkeys(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let hash = read(db, args.key(1))?;
    reply.array(hash.map_or(0, Live::count));
    hash.into_iter().flat_map(Live::iter).for_each(|(field, _)| write(reply, field));
    Ok(())
}

fn hvals(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let hash = read(db, args.key(1))?;
    reply.array(hash.map_or(0, Live::count));
    hash.into_iter().flat_map(Live::iter).for_each(|(_, value)| write(reply, value));
    Ok(())
}
