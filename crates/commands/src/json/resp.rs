//! `JSON.RESP key [path]`
//!
//! A value as a reply: an array begins with `[`, an object with `{` and has names and values in
//! turns, booleans are simple strings.

use super::{document, no_match, paths};
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use json::{Kind, Value};
use resp::Reply;

/// `JSON.RESP`.
pub static RESP: Command = Command {
    name: "json.resp",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the values.",
    effort: Effort::Elements(1),
    summary: "Values of a document as replies.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String).optional()],
    run: resp,
    ..Command::ROW
};

fn resp(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path_at(args, 2)?;
    let Some(document) = document(&cx.db, args.key(1))? else {
        cx.reply.null();
        return Ok(());
    };
    if path.is_legacy() {
        let first = paths::first(&path, document)?.ok_or_else(|| no_match(&path))?;
        show(&mut cx.reply, first.value());
        return Ok(());
    }
    let found = paths::read(&path, document)?;
    cx.reply.array(found.len());
    found.iter().for_each(|it| show(&mut cx.reply, it.value()));
    Ok(())
}

fn show(reply: &mut Reply<'_>, value: Value<'_>) {
    match value.kind() {
        Kind::Null => reply.null(),
        Kind::Bool(is_true) => reply.simple(if is_true { "true" } else { "false" }),
        Kind::Int(number) => reply.integer(number),
        Kind::Uint(number) => reply.double(number as f64),
        Kind::Double(number) => reply.double(number),
        Kind::Str(text) => reply.bulk(text.as_bytes()),
        Kind::Array(array) => {
            reply.array(array.len() + 1);
            reply.simple("[");
            array.iter().for_each(|element| show(reply, element));
        }
        Kind::Object(object) => {
            reply.array(2 * object.len() + 1);
            reply.simple("{");
            for (name, member) in object.iter() {
                reply.bulk(name.as_bytes());
                show(reply, member);
            }
        }
    }
}
