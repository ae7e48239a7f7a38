//! `JSON.ARRPOP key [FORMAT format] [path [index]]`
//!
//! Elements are removed in the order of the matches, as in Redis: an array inside of an element
//! that was removed before, or behind it, may no longer be where the path has found it. Its place
//! in the reply is null, or an element of the array that is there now.

use super::expand::{Format, format_at, write};
use super::{ROOT, change_at_in_order, json_event, matches, paths};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use json::{Document, EditError};

/// `JSON.ARRPOP`.
pub static ARRPOP: Command = Command {
    name: "json.arrpop",
    arity: -2,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the number of elements behind the removed one, or the size of \
                 the document if the path has several matches.",
    summary: "Removes an element from the arrays at a path and returns it.",
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "format",
            &[
                Arg::token("string", "STRING"),
                Arg::token("expand1", "EXPAND1"),
                Arg::token("expand", "EXPAND"),
            ],
        )
        .after("FORMAT")
        .optional(),
        Arg::block(
            "place",
            &[Arg::new("path", ArgKind::String), Arg::new("index", ArgKind::Integer).optional()],
        )
        .optional(),
    ],
    run: arrpop,
    ..Command::ROW
};

fn arrpop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (format, at) = match args.is(2, "format") {
        true => (format_at(cx, args, 3)?, 4),
        false => (Format::String, 2),
    };
    if args.len() > at + 2 {
        return Err(Error::Arity("json.arrpop".into()));
    }
    let path = paths::path(args.get(at).unwrap_or(ROOT))?;
    let index = args.get(at + 1).map_or(Ok(-1), |_| args.integer(at + 1))?;
    let key = args.key(1);
    let matches = matches(&cx.db, key, &path, "array", |it| it.as_array().is_some())?;
    let locations = matches.locations();
    let event = json_event("json.arrpop");
    let order: Vec<usize> = (0..locations.len()).collect();
    let in_order = (&locations[..], &order[..]);
    let results =
        change_at_in_order(
            cx,
            key,
            event,
            in_order,
            Option::is_some,
            |document, at| match document.array_pop(at, index) {
                Err(EditError::NotFound | EditError::WrongType) => Ok(None),
                popped => popped,
            },
        )?;
    let places = matches.place(results);
    if matches.is_legacy {
        show(cx, places.into_iter().flatten().next_back().flatten(), format);
        return Ok(());
    }
    cx.reply.array(places.len());
    places.into_iter().for_each(|place| show(cx, place.flatten(), format));
    Ok(())
}

fn show(cx: &mut Cx<'_>, element: Option<Document>, format: Format) {
    match element {
        Some(element) => write(&mut cx.reply, element.root(), format),
        None => cx.reply.null(),
    }
}
