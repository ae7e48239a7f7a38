//! `JSON.TYPE key [path]`
//!
//! Under RESP3 the reply of any path is an array with one more array around it.

use super::{document, paths};
use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `JSON.TYPE`.
pub static TYPE: Command = Command {
    name: "json.type",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(1) for a path with one match, O(N) otherwise, where N is the size of the \
                 document.",
    summary: "The types of values in a document.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String).optional()],
    run: type_of,
    ..Command::ROW
};

fn type_of(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::selection_at(args, 2)?;
    let found = document(&cx.db, args.key(1))?;
    if cx.reply.is_resp3() {
        cx.reply.array(1);
    }
    let Some(document) = found else {
        cx.reply.null();
        return Ok(());
    };
    if path.is_legacy() {
        let first = paths::first(&path, document)?;
        cx.reply.bulk_or_null(first.as_ref().map(|it| it.value().type_name().as_bytes()));
        return Ok(());
    }
    let found = paths::read(&path, document)?;
    cx.reply.array(found.len());
    found.iter().for_each(|it| cx.reply.bulk(it.value().type_name().as_bytes()));
    Ok(())
}
