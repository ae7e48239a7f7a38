//! `JSON.TYPE key [path]`
//!
//! Under RESP3 the reply of any path is an array with one more array around it.

use super::{OF_VALUES, document, paths};
use engine::{Args, Command, Cx, Outcome};

/// `JSON.TYPE`.
pub static TYPE: Command = Command {
    name: "json.type",
    summary: "The types of values in a document.",
    run: type_of,
    ..OF_VALUES
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
