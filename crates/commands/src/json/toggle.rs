//! `JSON.TOGGLE key path`

use super::{change_at, json_event, matches, paths};
use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};
use json::{Document, Kind};

/// `JSON.TOGGLE`.
pub static TOGGLE: Command = Command {
    name: "json.toggle",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "2.0.0",
    complexity: "O(1) for a path with one match, O(N) otherwise, where N is the size of the \
                 document.",
    summary: "Turns the booleans at a path around.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String)],
    run: toggle,
    ..Command::ROW
};

fn toggle(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path(args[2])?;
    let key = args.key(1);
    let is_bool = |it: json::Value<'_>| matches!(it.kind(), Kind::Bool(_));
    let matches = matches(&cx.db, key, &path, "boolean", is_bool)?;
    let locations = matches.locations();
    let event = json_event("json.toggle");
    let results = change_at(cx, key, event, &locations, |_| true, Document::toggle)?;
    let places = matches.place(results);
    if matches.is_legacy {
        let is_true = places.into_iter().flatten().next_back().unwrap_or(false);
        cx.reply.bulk(if is_true { b"true" } else { b"false" });
        return Ok(());
    }
    cx.reply.array(places.len());
    for place in places {
        match place {
            Some(is_true) => cx.reply.integer(i64::from(is_true)),
            None => cx.reply.null(),
        }
    }
    Ok(())
}
