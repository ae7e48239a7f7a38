//! `PFCOUNT key [key …]`: how many different elements were added to the union of the keys, about.
//!
//! The count of one key is kept with its registers, so a read may change the value's bytes. As in
//! Redis that counts as a change and reaches the journal.

use super::{checked, corrupted};
use engine::{Arg, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::hyperloglog::{self, REGISTERS, Registers};

/// `PFCOUNT`.
pub static PFCOUNT: Command = Command {
    name: "pfcount",
    arity: -2,
    flags: Flags::READONLY.with(Flags::MAY_REPLICATE),
    keys: &[KeySpec::rest(1, 1, KeyFlags::RW.with(KeyFlags::ACCESS)).note(
        "RW because it may change the internal representation of the key, and propagate to \
         replicas",
    )],
    group: Group::Hyperloglog,
    since: "2.8.9",
    complexity: "O(1) for a key whose count is kept, O(N) for N keys, which are merged",
    effort: Effort::Words(100),
    summary: "About how many distinct elements were added.",
    args: &[Arg::key("key", 0).multiple()],
    run: pfcount,
    ..Command::ROW
};

fn pfcount(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let count = if args.len() == 2 { count_one(cx, args)? } else { count_union(cx, args)? };
    cx.reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

fn count_union(cx: &Cx<'_>, args: Args<'_>) -> Result<u64, engine::Error> {
    let mut registers: Box<Registers> = Box::new([0; REGISTERS]);
    for index in 1..args.len() {
        if let Some((_, bytes)) = checked(cx.db.string(args.key(index))?)? {
            hyperloglog::merge(&mut registers, bytes).map_err(corrupted)?;
        }
    }
    Ok(hyperloglog::estimate(&registers))
}

fn count_one(cx: &mut Cx<'_>, args: Args<'_>) -> Result<u64, engine::Error> {
    let key = args.key(1);
    let Some((_, bytes)) = checked(cx.db.string(key)?)? else { return Ok(0) };
    if let Some(count) = hyperloglog::cached_count(bytes) {
        return Ok(count);
    }
    let mut registers: Box<Registers> = Box::new([0; REGISTERS]);
    hyperloglog::merge(&mut registers, bytes).map_err(corrupted)?;
    let count = hyperloglog::estimate(&registers);
    hyperloglog::set_cached_count(cx.db.edit_string(key)?.as_mut_slice(), count);
    cx.db.changed_silently(key);
    cx.db.add_dirty(1);
    Ok(count)
}
