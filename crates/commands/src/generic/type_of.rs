//! `TYPE key`

use engine::{Arg, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `TYPE`.
pub static TYPE: Command = Command {
    name: "type",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST).with(Flags::NO_VALUES),
    keys: &[KeySpec::one(KeyFlags::RO)],
    group: Group::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "What kind of value a key has.",
    args: &[Arg::key("key", 0)],
    run: type_of,
    ..Command::ROW
};

fn type_of(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let name = cx.db.lookup_no_touch(args.key(1)).map_or("none", |entry| entry.type_name());
    cx.reply.simple(name);
    Ok(())
}
