//! `JSON.MERGE key path value`
//!
//! A merge patch (RFC 7396): members of objects are merged, one that is null removes, anything else
//! replaces.

use super::set::{Change, put};
use super::{
    NOT_ROOT, change_at, check_depth, document_for_write, json_event, parse, paths, refused,
};
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use json::{Document, Location};

/// `JSON.MERGE`.
pub static MERGE: Command = Command {
    name: "json.merge",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "2.6.0",
    complexity: "O(M+N) where M is the size of the old value and N that of the patch.",
    effort: Effort::Estimate(super::parsing),
    summary: "Merges a value into those at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("value", ArgKind::String),
    ],
    run: merge,
    ..Command::ROW
};

fn merge(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path(args[2])?;
    let patch = parse(args[3])?;
    let key = args.key(1);
    let Some(document) = document_for_write(&cx.db, key)? else {
        if !path.is_root() {
            return Err(NOT_ROOT);
        }
        let value = applied_to_nothing(&patch)?;
        put(cx, key, value);
        cx.db.changed(key, json_event("json.merge"));
        cx.reply.ok();
        return Ok(());
    };
    let change = if path.is_root() {
        Some(Change::Replace(vec![Location::root()]))
    } else {
        Change::find(paths::targets(&path, document)?)?
    };
    let event = json_event("json.merge");
    match change {
        None => {
            cx.reply.null();
            return Ok(());
        }
        Some(Change::Replace(locations)) => {
            check_depth(&locations, [patch.root()])?;
            change_at(
                cx,
                key,
                event,
                &locations,
                |()| true,
                |document, at| document.merge(at, patch.root()),
            )?;
        }
        Some(change @ Change::Insert(..)) => {
            let value = applied_to_nothing(&patch)?;
            change.check(&value)?;
            change.apply(cx, key, event, &value)?;
        }
    }
    cx.reply.ok();
    Ok(())
}

/// Returns the value that a patch makes where nothing was: the patch without nulls.
fn applied_to_nothing(patch: &Document) -> Result<Document, engine::Error> {
    let mut value = Document::null();
    value.merge(&Location::root(), patch.root()).map_err(refused)?;
    Ok(value)
}
