//! `XACK key group id [id …]`, `XACKDEL key group [KEEPREF|DELREF|ACKED] IDS numids id [id …]`

use super::ids;
use super::references::{self, Fate, Taken};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome, event,
};
use structs::stream::{References, Stream, StreamId};

/// `XACK`.
pub static XACK: Command = Command {
    name: "xack",
    arity: -4,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for N entries",
    effort: Effort::Words(8),
    summary: "Says that a group is done with entries.",
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::new("id", ArgKind::String).multiple(),
    ],
    run: xack,
    ..Command::ROW
};

/// `XACKDEL`.
pub static XACKDEL: Command = Command {
    name: "xackdel",
    arity: -6,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "8.2.0",
    complexity: "O(N) for N entries",
    effort: Effort::Words(10),
    summary: "Says that a group is done with entries, and deletes them.",
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        references::CONDITION,
        references::IDS,
    ],
    run: xackdel,
    ..Command::ROW
};

fn xack(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let is_there = cx.db.read::<Stream>(key)?.is_some_and(|stream| stream.group(args[2]).is_some());
    if !is_there {
        cx.reply.integer(0);
        return Ok(());
    }
    let ids = ids::all(args.from(3))?;
    let mut acknowledged = 0;
    if let Some(group) = cx.db.write::<Stream>(key)?.and_then(|stream| stream.group_mut(args[2])) {
        acknowledged = ids.into_iter().filter(|&id| group.acknowledge(id)).count();
    }
    cx.db.add_dirty(acknowledged as u64);
    cx.reply.integer(acknowledged as i64);
    Ok(())
}

/// Acknowledges an entry and deletes it unless another group needs it.
fn settle(stream: &mut Stream, group: &[u8], id: StreamId, references: References) -> Fate {
    let is_pending = stream.group_mut(group).is_some_and(|group| group.acknowledge(id));
    if !is_pending {
        return Fate::Absent;
    }
    match references::delete(stream, id, references) {
        // It was acknowledged, and there is nothing left to delete.
        Fate::Absent => Fate::Deleted,
        fate => fate,
    }
}

fn xackdel(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let (references, ids) = references::parse(args, 3)?;
    let mut fates = vec![Fate::Absent; ids.len()];
    let mut taken = Taken::default();
    let mut deleted = 0;
    if let Some(stream) = cx.db.write::<Stream>(key)? {
        let before = stream.clone();
        for (fate, &id) in fates.iter_mut().zip(&ids) {
            *fate = settle(stream, args[2], id, references);
        }
        deleted = before.len() - stream.len();
        taken = Taken::of_entries(&before, stream, ids);
    }
    let acknowledged = fates.iter().filter(|&&fate| fate != Fate::Absent).count();
    if deleted > 0 {
        cx.db.changed_in(key, event(Class::STREAM, "xdel"), acknowledged as u64);
    } else {
        cx.db.add_dirty(acknowledged as u64);
    }
    if !taken.is_empty() {
        cx.db.propagate_as(|p| taken.write(p, args[1]));
    }
    references::write(&mut cx.reply, &fates);
    Ok(())
}
