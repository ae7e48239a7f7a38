//! The commands of JSON documents.
//!
//! A path that begins with `$` means all values that it matches, and its reply is an array with a
//! place for each. Any other path is of the older language: its reply is one value's, of the first
//! match when reading and of the last when changing, and it is an error if nothing matches.
//!
//! The journal gets the requests as they are: what they do depends on the document alone.

mod arrays;
mod arrpop;
mod debug;
mod del;
mod expand;
mod get;
mod lengths;
mod merge;
mod mset;
mod numbers;
mod paths;
mod resp;
mod set;
mod strings;
mod toggle;
mod type_of;

use crate::typed;
use datatypes::Json;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Error, Event, Flags, Group, KeyFlags, KeySpec,
    event,
};
use json::{Document, EditError, Limits, Location, Path, Value, location};
use keyspace::Key;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &arrays::ARRAPPEND,
    &arrays::ARRINDEX,
    &arrays::ARRINSERT,
    &lengths::ARRLEN,
    &arrpop::ARRPOP,
    &arrays::ARRTRIM,
    &del::CLEAR,
    &debug::DEBUG,
    &del::DEL,
    &del::FORGET,
    &get::GET,
    &merge::MERGE,
    &get::MGET,
    &mset::MSET,
    &numbers::NUMINCRBY,
    &numbers::NUMMULTBY,
    &lengths::OBJKEYS,
    &lengths::OBJLEN,
    &resp::RESP,
    &set::SET,
    &strings::STRAPPEND,
    &lengths::STRLEN,
    &toggle::TOGGLE,
    &type_of::TYPE,
];

/// What the rows of commands have in common that say something of the values at a path.
const OF_VALUES: Command = Command {
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(1) for a path with one match, O(N) otherwise, where N is the size of the \
                 document.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String).optional()],
    ..Command::ROW
};

/// The path of requests that name none.
const ROOT: &[u8] = b".";

/// The error for a key that must be there.
const NO_KEY: Error =
    Error::text("ERR could not perform this operation on a key that doesn't exist");
/// The error for a path into a document that is not there.
const NOT_ROOT: Error = Error::text("ERR new objects must be created at the root");

/// Returns the event of a JSON command.
const fn json_event(name: &'static str) -> Event {
    event(Class::MODULE, name)
}

/// Returns the document of a key that is read.
fn document<'d>(db: &'d Db<'_>, key: Key<'_>) -> Result<Option<&'d Document>, Error> {
    Ok(typed::read(db, key)?.map(Json::document))
}

/// Returns the document of a key that the command goes on to change: not counted.
fn document_for_write<'d>(db: &'d Db<'_>, key: Key<'_>) -> Result<Option<&'d Document>, Error> {
    Ok(typed::read_for_write(db, key)?.map(Json::document))
}

/// Bytes of JSON text that are parsed in one unit of effort.
const BYTES_PER_UNIT: usize = 10;

/// Estimates the effort of a request whose words from the third argument on are parsed.
fn parsing(_db: &Db<'_>, args: Args<'_>) -> usize {
    args.from(3).iter().map(|word| word.len()).sum::<usize>() / BYTES_PER_UNIT
}

/// Parses an argument that is a JSON text.
fn parse(text: &[u8]) -> Result<Document, Error> {
    Document::parse(text, &Limits::default()).map_err(|error| Error::format(format!("ERR {error}")))
}

/// Returns the error for a change that a document refuses.
fn refused(error: EditError) -> Error {
    Error::format(format!("ERR {error}"))
}

/// Returns the error for a path without a match.
fn no_match(path: &Path) -> Error {
    Error::format(format!("ERR Path '{}' does not exist", shown(path)))
}

/// Returns the error for a match of another type than the command is for.
fn wrong_type(expected: &str, found: Value<'_>) -> Error {
    let found = found.type_name();
    Error::format(format!(
        "WRONGTYPE wrong type of path value - expected {expected} but found {found}"
    ))
}

/// Returns a path as errors show it: in the newer language.
fn shown(path: &Path) -> String {
    let text = path.text();
    match text {
        "." => "$".to_owned(),
        _ if !path.is_legacy() => text.to_owned(),
        _ if text.starts_with(['.', '[']) => format!("${text}"),
        _ => format!("$.{text}"),
    }
}

/// What a changing command does with the matches of a path.
struct Matches {
    /// The matches in the order of the reply; nothing where the type is another.
    places: Vec<Option<Location>>,
    is_legacy: bool,
}

/// Finds the matches of a path whose type a changing command is for.
///
/// # Errors
/// The key or, in the older language, a match is missing.
fn matches(
    db: &Db<'_>,
    key: Key<'_>,
    path: &Path,
    expected: &str,
    is_right: impl Fn(Value<'_>) -> bool,
) -> Result<Matches, Error> {
    let document = document_for_write(db, key)?.ok_or(NO_KEY)?;
    let found = paths::locations(path, document)?;
    let mut wrong = None;
    let mut places = Vec::with_capacity(found.len());
    for location in found {
        let Some(value) = document.at(&location) else { continue };
        let is_right = is_right(value);
        if !is_right {
            wrong = Some(value);
        }
        places.push(is_right.then_some(location));
    }
    if path.is_legacy() && places.iter().all(Option::is_none) {
        return Err(wrong.map_or_else(|| no_match(path), |value| wrong_type(expected, value)));
    }
    Ok(Matches { places, is_legacy: path.is_legacy() })
}

impl Matches {
    /// Returns the locations to change.
    fn locations(&self) -> Vec<Location> {
        self.places.iter().flatten().cloned().collect()
    }

    /// Puts the results, one for each of [`Matches::locations`], at the places of the reply.
    fn place<R>(&self, results: Vec<R>) -> Vec<Option<R>> {
        let mut results = results.into_iter();
        self.places.iter().map(|place| place.as_ref().and_then(|_| results.next())).collect()
    }
}

/// Makes a change at each location, in an order in which none moves another. Returns the results in
/// the order of the locations.
///
/// # Errors
/// The first error of a change. Callers have checked before what makes a change fail.
fn change_each<R>(
    document: &mut Document,
    locations: &[Location],
    change: impl FnMut(&mut Document, &Location) -> Result<R, EditError>,
) -> Result<Vec<R>, EditError> {
    change_in_order(document, locations, &location::update_order(locations), change)
}

/// Makes a change at each location, in the order of the places in `order`. Returns the results in
/// the order of the locations.
///
/// # Errors
/// The first error of a change.
fn change_in_order<R>(
    document: &mut Document,
    locations: &[Location],
    order: &[usize],
    mut change: impl FnMut(&mut Document, &Location) -> Result<R, EditError>,
) -> Result<Vec<R>, EditError> {
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(locations.len(), || None);
    for &at in order {
        results[at] = Some(change(document, &locations[at])?);
    }
    Ok(results.into_iter().flatten().collect())
}

/// Makes a change at each location of the document of a key, which [`document_for_write`] has
/// found, and reports it if one of the results is a change. Returns the results in the order of the
/// locations.
///
/// # Errors
/// The first error of a change. If others were made before, they are reported: the same request
/// stops at the same place where it is repeated.
fn change_at<R>(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    event: Event,
    locations: &[Location],
    is_change: impl Fn(&R) -> bool,
    change: impl FnMut(&mut Document, &Location) -> Result<R, EditError>,
) -> Result<Vec<R>, Error> {
    let order = location::update_order(locations);
    change_at_in_order(cx, key, event, (locations, &order), is_change, change)
}

/// Makes a change at each location as [`change_at`] does, in the order of the places that stand
/// beside the locations. A location may lead elsewhere after the changes before it.
fn change_at_in_order<R>(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    event: Event,
    (locations, order): (&[Location], &[usize]),
    is_change: impl Fn(&R) -> bool,
    mut change: impl FnMut(&mut Document, &Location) -> Result<R, EditError>,
) -> Result<Vec<R>, Error> {
    if locations.is_empty() {
        return Ok(Vec::new());
    }
    let json: &mut Json = typed::write(&mut cx.db, key)?.ok_or(NO_KEY)?;
    let mut has_changed = false;
    let results = change_in_order(json.document_mut(), locations, order, |document, at| {
        let result = change(document, at)?;
        has_changed |= is_change(&result);
        Ok(result)
    });
    if has_changed {
        cx.db.changed(key, event);
    }
    results.map_err(refused)
}

/// Makes the same change at all matches, and replies with the integers that it gives.
fn change_and_count(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    event: Event,
    matches: &Matches,
    change: impl FnMut(&mut Document, &Location) -> Result<usize, EditError>,
) -> Result<(), Error> {
    let results = change_at(cx, key, event, &matches.locations(), |_| true, change)?;
    reply_counts(cx, matches, results);
    Ok(())
}

fn reply_counts(cx: &mut Cx<'_>, matches: &Matches, results: Vec<usize>) {
    let places = matches.place(results);
    if matches.is_legacy {
        let last = places.into_iter().flatten().next_back().unwrap_or(0);
        return cx.reply.integer(last as i64);
    }
    cx.reply.array(places.len());
    for place in places {
        match place {
            Some(count) => cx.reply.integer(count as i64),
            None => cx.reply.null(),
        }
    }
}

/// Refuses values that would lie too deep at one of the locations. So a change is made at all of
/// them or at none.
fn check_depth<'v>(
    locations: &[Location],
    values: impl IntoIterator<Item = Value<'v>>,
) -> Result<(), Error> {
    let deepest = locations.iter().map(Location::depth).max().unwrap_or(0);
    let height = values.into_iter().map(Value::depth).max().unwrap_or(0);
    if deepest + height > json::MAX_DEPTH { Err(refused(EditError::TooDeep)) } else { Ok(()) }
}
