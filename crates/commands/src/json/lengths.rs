//! `JSON.ARRLEN key [path]`, `JSON.OBJKEYS key [path]`, `JSON.OBJLEN key [path]`,
//! `JSON.STRLEN key [path]`
//!
//! A key that is not there is null for a path of the older language, and an error for the others.

use super::{NO_KEY, OF_VALUES, document, no_match, paths, wrong_type};
use engine::{Args, Command, Cx, Outcome};
use json::{Kind, Value};
use resp::Reply;

/// `JSON.ARRLEN`.
pub static ARRLEN: Command = Command {
    name: "json.arrlen",
    summary: "The length of an array in a document.",
    run: arrlen,
    ..OF_VALUES
};

/// `JSON.OBJKEYS`.
pub static OBJKEYS: Command = Command {
    name: "json.objkeys",
    complexity: "O(N) where N is the number of members, or the size of the document.",
    summary: "The names of an object's members.",
    run: objkeys,
    ..OF_VALUES
};

/// `JSON.OBJLEN`.
pub static OBJLEN: Command = Command {
    name: "json.objlen",
    summary: "The number of an object's members.",
    run: objlen,
    ..OF_VALUES
};

/// `JSON.STRLEN`.
pub static STRLEN: Command = Command {
    name: "json.strlen",
    summary: "The length of a string in a document, in bytes.",
    run: strlen,
    ..OF_VALUES
};

fn arrlen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    of_values(cx, args, "array", IfNoMatch::Error, |reply, value| match value.kind() {
        Kind::Array(array) => integer(reply, array.len()),
        _ => false,
    })
}

fn objlen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    of_values(cx, args, "object", IfNoMatch::Null, |reply, value| match value.kind() {
        Kind::Object(object) => integer(reply, object.len()),
        _ => false,
    })
}

fn strlen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    of_values(cx, args, "string", IfNoMatch::Error, |reply, value| match value.kind() {
        Kind::Str(text) => integer(reply, text.len()),
        _ => false,
    })
}

fn objkeys(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    of_values(cx, args, "object", IfNoMatch::Null, |reply, value| match value.kind() {
        Kind::Object(object) => {
            reply.array(object.len());
            object.names().for_each(|name| reply.bulk(name.as_bytes()));
            true
        }
        _ => false,
    })
}

fn integer(reply: &mut Reply<'_>, len: usize) -> bool {
    reply.integer(len as i64);
    true
}

/// What a path of the older language without a match gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfNoMatch {
    Null,
    Error,
}

/// Replies with what `show` writes for each match. It returns false, having written nothing, for
/// values of another type.
fn of_values(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    expected: &str,
    if_no_match: IfNoMatch,
    show: impl Fn(&mut Reply<'_>, Value<'_>) -> bool,
) -> Outcome {
    let path = paths::selection_at(args, 2)?;
    let Some(document) = document(&cx.db, args.key(1))? else {
        if path.is_legacy() {
            cx.reply.null();
            return Ok(());
        }
        return Err(NO_KEY);
    };
    if path.is_legacy() {
        let Some(found) = paths::first(&path, document)? else {
            if if_no_match == IfNoMatch::Error {
                return Err(no_match(&path));
            }
            cx.reply.null();
            return Ok(());
        };
        if !show(&mut cx.reply, found.value()) {
            return Err(wrong_type(expected, found.value()));
        }
        return Ok(());
    }
    let found = paths::read(&path, document)?;
    cx.reply.array(found.len());
    for found in &found {
        if !show(&mut cx.reply, found.value()) {
            cx.reply.null();
        }
    }
    Ok(())
}
