//! `XDEL key id [id …]`, `XDELEX key [KEEPREF|DELREF|ACKED] IDS numids id [id …]`

use super::ids;
use super::references::{self, Fate, Taken};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome, event,
};
use structs::stream::Stream;

/// `XDEL`.
pub static XDEL: Command = Command {
    name: "xdel",
    arity: -3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for N entries",
    effort: Effort::Words(10),
    summary: "Deletes entries.",
    args: &[Arg::key("key", 0), Arg::new("id", ArgKind::String).multiple()],
    run: xdel,
    ..Command::ROW
};

/// `XDELEX`.
pub static XDELEX: Command = Command {
    name: "xdelex",
    arity: -5,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "8.2.0",
    complexity: "O(N) for N entries",
    effort: Effort::Words(10),
    summary: "Deletes entries, with a say in what groups remember of them.",
    args: &[Arg::key("key", 0), references::CONDITION, references::IDS],
    run: xdelex,
    ..Command::ROW
};

fn xdel(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    // A key that is not there makes the IDs no matter.
    if cx.db.object_for_write::<Stream>(key)?.is_none() {
        cx.reply.integer(0);
        return Ok(());
    }
    let ids = ids::all(args.from(2))?;
    let mut deleted = 0;
    if let Some(stream) = cx.db.write::<Stream>(key)? {
        deleted = ids.into_iter().filter(|&id| stream.delete(id)).count();
    }
    if deleted > 0 {
        cx.db.changed_in(key, event(Class::STREAM, "xdel"), deleted as u64);
    }
    cx.reply.integer(deleted as i64);
    Ok(())
}

fn xdelex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let (references, ids) = references::parse(args, 2)?;
    let mut taken = Taken::default();
    let fates: Vec<Fate> = match cx.db.write::<Stream>(key)? {
        None => vec![Fate::Absent; ids.len()],
        Some(stream) => {
            let before = stream.clone();
            let fates = ids.iter().map(|&id| references::delete(stream, id, references)).collect();
            taken = Taken::of_entries(&before, stream, ids);
            fates
        }
    };
    let deleted = fates.iter().filter(|&&fate| fate == Fate::Deleted).count();
    if deleted > 0 {
        cx.db.changed_in(key, event(Class::STREAM, "xdel"), deleted as u64);
    } else {
        // References to entries that were gone already.
        cx.db.add_dirty(u64::from(!taken.is_empty()));
    }
    if !taken.is_empty() {
        cx.db.propagate_as(|p| taken.write(p, args[1]));
    }
    references::write(&mut cx.reply, &fates);
    Ok(())
}
