//! `XLEN key`

use engine::{Arg, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::stream::Stream;

/// `XLEN`.
pub static XLEN: Command = Command {
    name: "xlen",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "How many entries a stream has.",
    args: &[Arg::key("key", 0)],
    run: xlen,
    ..Command::ROW
};

fn xlen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let length = cx.db.read::<Stream>(args.key(1))?.map_or(0, Stream::len);
    cx.reply.integer(length as i64);
    Ok(())
}
