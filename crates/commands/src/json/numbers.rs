//! `JSON.NUMINCRBY key path value`, `JSON.NUMMULTBY key path value`
//!
//! The reply is a JSON text; under RESP3 an array of numbers, with null where no number is.

use super::{change_at, document_for_write, json_event, matches, paths, refused};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use json::{Document, EditError, Location, NotFinite, Number, Value};

/// `JSON.NUMINCRBY`.
pub static NUMINCRBY: Command = Command {
    name: "json.numincrby",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(1) for a path with one match, O(N) otherwise, where N is the size of the \
                 document.",
    summary: "Adds to the numbers at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("value", ArgKind::Double),
    ],
    run: numincrby,
    ..Command::ROW
};

/// `JSON.NUMMULTBY`.
pub static NUMMULTBY: Command = Command {
    name: "json.nummultby",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(1) for a path with one match, O(N) otherwise, where N is the size of the \
                 document.",
    summary: "Multiplies the numbers at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("value", ArgKind::Double),
    ],
    run: nummultby,
    ..Command::ROW
};

/// Computes a result, and makes the change.
struct Operation {
    compute: fn(Number, Number) -> Result<Number, NotFinite>,
    apply: fn(&mut Document, &Location, Number) -> Result<Number, EditError>,
    event: &'static str,
}

fn numincrby(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let operation =
        Operation { compute: Number::plus, apply: Document::add, event: "json.numincrby" };
    change(cx, args, &operation)
}

fn nummultby(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let operation =
        Operation { compute: Number::times, apply: Document::multiply, event: "json.nummultby" };
    change(cx, args, &operation)
}

fn change(cx: &mut Cx<'_>, args: Args<'_>, operation: &Operation) -> Outcome {
    let path = paths::path(args[2])?;
    let by = Number::parse(args[3]).ok_or(Error::text("ERR expected a number"))?;
    let key = args.key(1);
    let matches = matches(&cx.db, key, &path, "a number", |it| it.as_number().is_some())?;
    let locations = matches.locations();
    // Nothing changes if one of the results is no number.
    if let Some(document) = document_for_write(&cx.db, key)? {
        for number in locations.iter().filter_map(|at| document.at(at).and_then(Value::as_number)) {
            (operation.compute)(number, by).map_err(|error| refused(error.into()))?;
        }
    }
    let event = json_event(operation.event);
    let results = change_at(
        cx,
        key,
        event,
        &locations,
        |_| true,
        |document, at| (operation.apply)(document, at, by),
    )?;
    let places = matches.place(results);
    if cx.reply.is_resp3() {
        let last = places.iter().flatten().next_back().copied();
        let places = if matches.is_legacy { vec![last] } else { places };
        cx.reply.array(places.len());
        for place in places {
            match place {
                Some(Number::Int(number)) => cx.reply.integer(number),
                Some(number) => cx.reply.double(number.as_f64()),
                None => cx.reply.null(),
            }
        }
        return Ok(());
    }
    let mut text = Vec::new();
    if matches.is_legacy {
        if let Some(number) = places.iter().flatten().next_back() {
            number.write(&mut text);
        }
    } else {
        text.push(b'[');
        for (at, place) in places.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            match place {
                Some(number) => number.write(&mut text),
                None => text.extend_from_slice(b"null"),
            }
        }
        text.push(b']');
    }
    cx.reply.bulk(&text);
    Ok(())
}
