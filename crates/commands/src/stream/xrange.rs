//! `XRANGE key start end [COUNT count]`, `XREVRANGE key end start [COUNT count]`

use super::{entries, ids};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use structs::stream::{Range, Stream};

/// `XRANGE`.
pub static XRANGE: Command = Command {
    name: "xrange",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for N entries in the reply",
    effort: Effort::Part(8, asked),
    summary: "The entries between two IDs, the oldest first.",
    history: &[("6.2.0", "Ends of ranges may be exclusive.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("start", ArgKind::String),
        Arg::new("end", ArgKind::String),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
    ],
    run: xrange,
    ..Command::ROW
};

/// `XREVRANGE`.
pub static XREVRANGE: Command = Command {
    name: "xrevrange",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for N entries in the reply",
    effort: Effort::Part(8, asked),
    summary: "The entries between two IDs, the newest first.",
    history: &[("6.2.0", "Ends of ranges may be exclusive.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("end", ArgKind::String),
        Arg::new("start", ArgKind::String),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
    ],
    run: xrevrange,
    ..Command::ROW
};

fn xrange(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    range(cx, args, false)
}
fn xrevrange(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    range(cx, args, true)
}

/// `COUNT count`, given as often as one likes; the last one counts.
fn parse_count(args: Args<'_>) -> Result<Option<usize>, Error> {
    let mut count = None;
    for at in (4..args.len()).step_by(2) {
        if !args.is(at, "count") || at + 1 == args.len() {
            return Err(Error::Syntax);
        }
        count = Some(usize::try_from(args.integer(at + 1)?).unwrap_or(0));
    }
    Ok(count)
}

/// So many entries may be asked for.
fn asked(db: &Db<'_>, args: Args<'_>) -> usize {
    let size = db.size(args.key(1));
    parse_count(args).ok().flatten().unwrap_or(usize::MAX).min(size)
}

fn range(cx: &mut Cx<'_>, args: Args<'_>, is_reverse: bool) -> Outcome {
    let (first, last) = if is_reverse { (3, 2) } else { (2, 3) };
    let (start, end) = (ids::start(args[first])?, ids::end(args[last])?);
    let count = parse_count(args)?;
    let Cx { db, reply, .. } = cx;
    match db.read::<Stream>(args.key(1))? {
        None => reply.array(0),
        Some(_) if count == Some(0) => reply.null_array(),
        Some(stream) => {
            let range = Range { start, end, is_reverse };
            entries::write_range(reply, stream, range, count.unwrap_or(usize::MAX));
        }
    }
    Ok(())
}
