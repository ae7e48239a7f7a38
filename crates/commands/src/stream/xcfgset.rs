//! `XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE count]` sets for how long and of how many
//! messages of a producer a stream knows that it has them; `XIDMPRECORD key producer id entry-id`
//! has one known, which an append-only file needs.

use super::idempotency::EMPTY;
use super::ids;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::stream::Stream;

/// `XCFGSET`.
pub static XCFGSET: Command = Command {
    name: "xcfgset",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Stream,
    since: "8.6.0",
    complexity: "O(1)",
    summary: "Sets for how long a stream recognizes messages that it has.",
    args: &[
        Arg::key("key", 0),
        Arg::new("idmp-duration", ArgKind::Integer).after("IDMP-DURATION").optional(),
        Arg::new("idmp-maxsize", ArgKind::Integer).after("IDMP-MAXSIZE").optional(),
    ],
    run: xcfgset,
    ..Command::ROW
};

/// `XIDMPRECORD`.
pub static XIDMPRECORD: Command = Command {
    name: "xidmprecord",
    arity: 5,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Stream,
    since: "8.8.0",
    complexity: "O(1)",
    summary: "Notes which message of a producer an entry is, as files need it.",
    args: &[
        Arg::key("key", 0),
        Arg::new("pid", ArgKind::String),
        Arg::new("iid", ArgKind::String),
        Arg::new("stream-id", ArgKind::String),
    ],
    run: xidmprecord,
    ..Command::ROW
};

/// A number of an option, from 1 to `most`.
fn number(args: Args<'_>, at: usize, most: u32, wrong: &'static str) -> Result<u32, Error> {
    let number = u32::try_from(args.integer(at)?).ok();
    number.filter(|number| (1..=most).contains(number)).ok_or(Error::text(wrong))
}

fn xcfgset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (mut duration, mut count) = (None, None);
    let mut at = 2;
    while at + 1 < args.len() {
        if args.is(at, "idmp-duration") && duration.is_none() {
            duration = Some(number(args, at + 1, 86_400, "ERR invalid duration")?);
        } else if args.is(at, "idmp-maxsize") && count.is_none() {
            count = Some(number(args, at + 1, 10_000, "ERR invalid maxsize")?);
        } else {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    if at != args.len() || at == 2 {
        return Err(Error::Syntax);
    }
    let Some(stream) = cx.db.write::<Stream>(args.key(1))? else { return Err(Error::NoSuchKey) };
    stream.idempotency_mut().configure(duration, count);
    cx.db.add_dirty(1);
    cx.reply.ok();
    Ok(())
}

fn xidmprecord(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (producer, message, now_ms) = (args[2], args[3], cx.now().0);
    let entry = ids::strict(args[4], 0)?;
    if producer.is_empty() || message.is_empty() {
        return Err(EMPTY);
    }
    let is_replay = cx.db.repeats_history();
    let Some(stream) = cx.db.write::<Stream>(args.key(1))? else { return Err(Error::NoSuchKey) };
    // The history may know of entries that are deleted.
    if !is_replay && !stream.contains(entry) {
        return Err(Error::text("ERR there is no entry with this ID"));
    }
    let found = stream.idempotency().and_then(|ids| ids.find(producer, message, now_ms));
    if found.is_some_and(|found| found != entry) && !is_replay {
        return Err(Error::text("ERR the message is another entry already"));
    }
    if found != Some(entry) {
        stream.idempotency_mut().add(producer, message, entry, now_ms);
        cx.db.add_dirty(1);
    }
    cx.reply.ok();
    Ok(())
}
