//! `GET key`

use engine::{Arg, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome, write_string};

/// `GET`.
pub static GET: Command = Command {
    name: "get",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::READS_STRING),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "The value of a string.",
    args: &[Arg::key("key", 0)],
    run: get,
    ..Command::ROW
};

fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    write_string(&mut cx.reply, cx.db.string(args.key(1))?);
    Ok(())
}
