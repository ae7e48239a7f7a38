//! `JSON.STRAPPEND key [path] value`

use super::{ROOT, change_and_count, json_event, matches, parse, paths, wrong_type};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `JSON.STRAPPEND`.
pub static STRAPPEND: Command = Command {
    name: "json.strappend",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(1) for a path with one match, O(N) otherwise, where N is the size of the \
                 document.",
    summary: "Appends to the strings at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String).optional(),
        Arg::new("value", ArgKind::String),
    ],
    run: strappend,
    ..Command::ROW
};

fn strappend(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (path, text) = match args.len() {
        3 => (ROOT, args[2]),
        4 => (args[2], args[3]),
        _ => return Err(Error::Arity("json.strappend".into())),
    };
    let path = paths::path(path)?;
    let more = parse(text)?;
    let more = more.root().as_str().ok_or_else(|| wrong_type("string", more.root()))?;
    let key = args.key(1);
    let matches = matches(&cx.db, key, &path, "string", |it| it.as_str().is_some())?;
    change_and_count(cx, key, json_event("json.strappend"), &matches, |document, at| {
        document.append_string(at, more)
    })
}
