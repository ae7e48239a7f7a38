//! `JSON.MSET key path value [key path value …]`
//!
//! All values are set or none. Those that come later find what those before have set, so the
//! changes are made on copies, which take the place of the documents in the end. A path without a
//! place in its document is passed over.

use super::set::{Change, put};
use super::{NOT_ROOT, document_for_write, json_event, parse, paths, refused};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use json::Document;

/// `JSON.MSET`.
pub static MSET: Command = Command {
    name: "json.mset",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::rest(1, 3, KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "2.6.0",
    complexity: "O(K*(M+N)) where K is the number of keys, M the size of an old value and N that \
                 of a new one.",
    effort: Effort::Estimate(super::parsing),
    summary: "Sets values in several documents at once.",
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    args: &[Arg::block(
        "triplet",
        &[
            Arg::key("key", 0),
            Arg::new("path", ArgKind::String),
            Arg::new("value", ArgKind::String),
        ],
    )
    .multiple()],
    run: mset,
    ..Command::ROW
};

/// A document as it is going to be, and the word that is its key.
struct Staged {
    at: usize,
    document: Document,
}

fn mset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !(args.len() - 1).is_multiple_of(3) {
        return Err(Error::Arity("json.mset".into()));
    }
    let mut staged: Vec<Staged> = Vec::new();
    for at in (1..args.len()).step_by(3) {
        let path = paths::path(args[at + 1])?;
        let value = parse(args[at + 2])?;
        let known = staged.iter().position(|it| args[it.at] == args[at]);
        if path.is_root() {
            // A key of another type is refused here, too.
            document_for_write(&cx.db, args.key(at))?;
            match known {
                Some(known) => staged[known].document = value,
                None => staged.push(Staged { at, document: value }),
            }
            continue;
        }
        let known = match known {
            Some(known) => known,
            None => {
                let document = document_for_write(&cx.db, args.key(at))?.ok_or(NOT_ROOT)?;
                staged.push(Staged { at, document: document.clone() });
                staged.len() - 1
            }
        };
        let document = &mut staged[known].document;
        if let Some(change) = Change::find(paths::targets(&path, document)?)? {
            change.check(&value)?;
            change.make(document, &value).map_err(refused)?;
        }
    }
    for Staged { at, document } in staged {
        let key = args.key(at);
        put(cx, key, document);
        cx.db.changed(key, json_event("json.mset"));
    }
    cx.reply.ok();
    Ok(())
}
