//! `DELIFEQ key value`: deletes the key if its value is this one.

use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `DELIFEQ`.
pub static DELIFEQ: Command = Command {
    name: "delifeq",
    arity: 3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RM.with(KeyFlags::DELETE).with(KeyFlags::COMPARES))],
    group: Group::String,
    since: "9.0.0",
    complexity: "O(1)",
    summary: "Deletes a key if its value is the given one.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::String)],
    run: delifeq,
    ..Command::ROW
};

fn delifeq(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    let is_equal =
        cx.db.string_for_write(key)?.is_some_and(|value| value.bytes(&mut digits) == args[2]);
    if is_equal {
        cx.db.delete(key);
        cx.db.propagate_as(|p| p.command(&[b"DEL", key.bytes]));
    }
    cx.reply.integer(i64::from(is_equal));
    Ok(())
}
