//! `JSON.ARRAPPEND key path value [value …]`, `JSON.ARRINDEX key path value [start [stop]]`,
//! `JSON.ARRINSERT key path index value [value …]`, `JSON.ARRTRIM key path start stop`

use super::{
    NO_KEY, change_and_count, document, document_for_write, json_event, matches, no_match, parse,
    paths, refused, wrong_type,
};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use json::{Document, EditError, Value};

/// `JSON.ARRAPPEND`.
pub static ARRAPPEND: Command = Command {
    name: "json.arrappend",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(1) for each value and a path with one match, O(N) otherwise, where N is the \
                 size of the document.",
    summary: "Appends values to the arrays at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("value", ArgKind::String).multiple(),
    ],
    run: arrappend,
    ..Command::ROW
};

/// `JSON.ARRINDEX`.
pub static ARRINDEX: Command = Command {
    name: "json.arrindex",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the array, or of the document if the path has \
                 several matches.",
    summary: "The place of a value in the arrays at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("value", ArgKind::String),
        Arg::block(
            "range",
            &[Arg::new("start", ArgKind::Integer), Arg::new("stop", ArgKind::Integer).optional()],
        )
        .optional(),
    ],
    run: arrindex,
    ..Command::ROW
};

/// `JSON.ARRINSERT`.
pub static ARRINSERT: Command = Command {
    name: "json.arrinsert",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the array, or of the document if the path has \
                 several matches.",
    summary: "Inserts values before an element of the arrays at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("index", ArgKind::Integer),
        Arg::new("value", ArgKind::String).multiple(),
    ],
    run: arrinsert,
    ..Command::ROW
};

/// `JSON.ARRTRIM`.
pub static ARRTRIM: Command = Command {
    name: "json.arrtrim",
    arity: 5,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the array, or of the document if the path has \
                 several matches.",
    summary: "Keeps a range of the arrays at a path.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("start", ArgKind::Integer),
        Arg::new("stop", ArgKind::Integer),
    ],
    run: arrtrim,
    ..Command::ROW
};

fn is_array(value: Value<'_>) -> bool {
    value.as_array().is_some()
}

fn values(words: &[&[u8]]) -> Result<Vec<Document>, Error> {
    words.iter().map(|word| parse(word)).collect()
}

fn arrappend(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path(args[2])?;
    let parsed = values(args.from(3))?;
    let values: Vec<Value<'_>> = parsed.iter().map(Document::root).collect();
    let key = args.key(1);
    let matches = matches(&cx.db, key, &path, "array", is_array)?;
    check_elements(&matches.locations(), &values)?;
    change_and_count(cx, key, json_event("json.arrappend"), &matches, |document, at| {
        document.array_append(at, &values)
    })
}

/// Refuses elements that would lie too deep in one of the arrays.
fn check_elements(arrays: &[json::Location], values: &[Value<'_>]) -> Result<(), Error> {
    let deepest = arrays.iter().map(json::Location::depth).max().unwrap_or(0);
    let height = values.iter().map(|value| value.depth()).max().unwrap_or(0);
    if deepest + 1 + height > json::MAX_DEPTH { Err(refused(EditError::TooDeep)) } else { Ok(()) }
}

fn arrinsert(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path(args[2])?;
    let index = args.integer(3)?;
    let parsed = values(args.from(4))?;
    let values: Vec<Value<'_>> = parsed.iter().map(Document::root).collect();
    let key = args.key(1);
    let matches = matches(&cx.db, key, &path, "array", is_array)?;
    let locations = matches.locations();
    check_elements(&locations, &values)?;
    // Nothing changes if the index is outside of one of the arrays.
    if let Some(document) = document_for_write(&cx.db, key)? {
        for array in locations.iter().filter_map(|at| document.at(at).and_then(Value::as_array)) {
            let len = array.len() as i64;
            if !(-len..=len).contains(&index) {
                return Err(Error::text("ERR index out of bounds"));
            }
        }
    }
    change_and_count(cx, key, json_event("json.arrinsert"), &matches, |document, at| {
        document.array_insert(at, index, &values)
    })
}

fn arrtrim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path(args[2])?;
    let (start, stop) = (args.integer(3)?, args.integer(4)?);
    let key = args.key(1);
    let matches = matches(&cx.db, key, &path, "array", is_array)?;
    change_and_count(cx, key, json_event("json.arrtrim"), &matches, |document, at| {
        document.array_trim(at, start, stop)
    })
}

fn arrindex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 6 {
        return Err(Error::Arity("json.arrindex".into()));
    }
    let path = paths::selection(args[2])?;
    let needle = parse(args[3])?;
    let start = args.get(4).map_or(Ok(0), |_| args.integer(4))?;
    // 0 is the end of the array.
    let stop = args.get(5).map_or(Ok(0), |_| args.integer(5))?;
    let position = |value: Value<'_>| {
        let array = value.as_array()?;
        let found = array.position(needle.root(), start, stop);
        Some(found.map_or(-1, |at| at as i64))
    };
    let document = document(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    if path.is_legacy() {
        let first = paths::first(&path, document)?.ok_or_else(|| no_match(&path))?;
        let at = position(first.value()).ok_or_else(|| wrong_type("array", first.value()))?;
        cx.reply.integer(at);
        return Ok(());
    }
    let found = paths::read(&path, document)?;
    cx.reply.array(found.len());
    for it in &found {
        match position(it.value()) {
            Some(at) => cx.reply.integer(at),
            None => cx.reply.null(),
        }
    }
    Ok(())
}
