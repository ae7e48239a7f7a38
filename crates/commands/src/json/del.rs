//! `JSON.DEL key [path]`, `JSON.FORGET key [path]`, `JSON.CLEAR key [path]`
//!
//! Removing the root removes the key. CLEAR empties arrays and objects and sets numbers to 0.

use super::{NO_KEY, change_at, document_for_write, json_event, paths};
use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};
use json::{Location, location};

/// `JSON.DEL`.
pub static DEL: Command = Command {
    name: "json.del",
    arity: -2,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the removed values, or of the document if the path \
                 has several matches.",
    summary: "Removes values from a document, or a document.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String).optional()],
    run: del,
    ..Command::ROW
};

/// `JSON.FORGET`.
pub static FORGET: Command = Command {
    name: "json.forget",
    arity: -2,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the removed values, or of the document if the path \
                 has several matches.",
    summary: "Removes values from a document, or a document.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String).optional()],
    run: del,
    ..Command::ROW
};

/// `JSON.CLEAR`.
pub static CLEAR: Command = Command {
    name: "json.clear",
    arity: -2,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "2.0.0",
    complexity: "O(N) where N is the size of the values, or of the document if the path has \
                 several matches.",
    summary: "Empties containers and sets numbers to 0.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String).optional()],
    run: clear,
    ..Command::ROW
};

fn del(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path_at(args, 2)?;
    let key = args.key(1);
    let Some(document) = document_for_write(&cx.db, key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let mut locations = paths::locations(&path, document)?;
    location::outermost(&mut locations);
    let count = locations.len();
    if locations.first().is_some_and(Location::is_root) {
        cx.db.delete(key);
        cx.db.notify(key, json_event("json.del"));
    } else {
        let event = json_event("json.del");
        change_at(
            cx,
            key,
            event,
            &locations,
            |&is_gone| is_gone,
            |document, at| Ok(document.remove(at)),
        )?;
    }
    cx.reply.integer(count as i64);
    Ok(())
}

fn clear(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path_at(args, 2)?;
    let key = args.key(1);
    let document = document_for_write(&cx.db, key)?.ok_or(NO_KEY)?;
    let mut locations = paths::locations(&path, document)?;
    location::outermost(&mut locations);
    let event = json_event("json.clear");
    let results = change_at(
        cx,
        key,
        event,
        &locations,
        |&is_changed| is_changed,
        |document, at| Ok(document.clear(at)),
    )?;
    let cleared = results.into_iter().filter(|&is_changed| is_changed).count();
    cx.reply.integer(cleared as i64);
    Ok(())
}
