//! `JSON.GET key [INDENT indent] [NEWLINE newline] [SPACE space] [FORMAT format] [path …]`,
//! `JSON.MGET key [key …] path`
//!
//! Several paths give an object with a member for each. One of them that begins with `$` makes all
//! members arrays.

use super::expand::{Format, format_at, write};
use super::{document, no_match, paths};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use json::{Document, Found, Layout, Path, write_string};

/// `JSON.GET`.
pub static GET: Command = Command {
    name: "json.get",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the values, or of the document if a path has \
                 several matches.",
    effort: Effort::Part(1, read_elements),
    summary: "Values of a document as JSON.",
    args: &[
        Arg::key("key", 0),
        Arg::new("indent", ArgKind::String).after("INDENT").optional(),
        Arg::new("newline", ArgKind::String).after("NEWLINE").optional(),
        Arg::new("space", ArgKind::String).after("SPACE").optional(),
        Arg::one_of(
            "format",
            &[
                Arg::token("string", "STRING"),
                Arg::token("strings", "STRINGS"),
                Arg::token("expand1", "EXPAND1"),
                Arg::token("expand", "EXPAND"),
            ],
        )
        .after("FORMAT")
        .optional(),
        Arg::new("path", ArgKind::String).optional().multiple(),
    ],
    run: get,
    ..Command::ROW
};

/// `JSON.MGET`.
pub static MGET: Command = Command {
    name: "json.mget",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::all_but_last(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(M*N) where M is the number of keys and N the size of a document.",
    effort: Effort::Elements(1),
    summary: "The values at a path of several documents.",
    tips: &["request_policy:multi_shard"],
    args: &[Arg::key("key", 0).multiple(), Arg::new("path", ArgKind::String)],
    run: mget,
    ..Command::ROW
};

/// Estimates the effort: a path that names one value below the root is taken for a small part.
fn read_elements(db: &Db<'_>, args: Args<'_>) -> usize {
    const SMALL: usize = 100;
    let is_small = args.len() > 2
        && args
            .from(2)
            .iter()
            .all(|word| paths::path(word).is_ok_and(|path| path.is_static() && !path.is_root()));
    if is_small { SMALL } else { db.size(args.key(1)) }
}

struct JsonGetOptions<'a> {
    layout: Layout<'a>,
    format: Format,
    paths: Vec<Path>,
}

fn parse<'a>(cx: &Cx<'_>, args: Args<'a>) -> Result<JsonGetOptions<'a>, Error> {
    let mut options =
        JsonGetOptions { layout: Layout::default(), format: Format::String, paths: Vec::new() };
    let mut at = 2;
    while at < args.len() {
        let next = || args.get(at + 1).ok_or(Error::Syntax);
        match () {
            () if args.is(at, "noescape") => {
                // Text is not escaped beyond what JSON needs.
                at += 1;
                continue;
            }
            () if args.is(at, "indent") => options.layout.indent = next()?,
            () if args.is(at, "newline") => options.layout.newline = next()?,
            () if args.is(at, "space") => options.layout.space = next()?,
            () if args.is(at, "format") => {
                next()?;
                options.format = format_at(cx, args, at + 1)?;
            }
            () => {
                options.paths.push(paths::path(args[at])?);
                at += 1;
                continue;
            }
        }
        at += 2;
    }
    if options.paths.is_empty() {
        options.paths.push(paths::path(super::ROOT)?);
    }
    Ok(options)
}

fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(cx, args)?;
    let Some(document) = document(&cx.db, args.key(1))? else {
        cx.reply.null();
        return Ok(());
    };
    if options.format != Format::String {
        let found: Result<Vec<_>, Error> =
            options.paths.iter().map(|path| paths::read(path, document)).collect();
        let found = found?;
        // An array of matches for each path.
        cx.reply.array(found.len());
        for found in &found {
            cx.reply.array(found.len());
            found.iter().for_each(|it| write(&mut cx.reply, it.value(), options.format));
        }
        return Ok(());
    }
    let mut text = Vec::with_capacity(expected_len(&options.paths, document));
    match options.paths.as_slice() {
        [path] => write_matches(path, document, path.is_legacy(), &options.layout, 0, &mut text)?,
        paths => write_object(paths, document, &options.layout, &mut text)?,
    }
    cx.reply.bulk(&text);
    Ok(())
}

/// Returns the bytes to allocate for the text of the matches, so that it seldom grows.
fn expected_len(paths: &[Path], document: &Document) -> usize {
    const SMALL: usize = 64;
    const MAX: usize = 64 << 10;
    match paths.iter().any(Path::is_root) {
        true => document.memory_used().clamp(SMALL, MAX),
        false => SMALL,
    }
}

/// Writes the matches of several paths as members of an object.
fn write_object(
    paths: &[Path],
    document: &Document,
    layout: &Layout<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let is_legacy = paths.iter().all(Path::is_legacy);
    out.push(b'{');
    for (at, path) in paths.iter().enumerate() {
        layout.line(at > 0, 1, out);
        write_string(path.text(), out);
        out.push(b':');
        out.extend_from_slice(layout.space);
        write_matches(path, document, is_legacy, layout, 1, out)?;
    }
    layout.end(paths.is_empty(), 0, out);
    out.push(b'}');
    Ok(())
}

/// Writes all matches as an array, or the first one for the older language.
fn write_matches(
    path: &Path,
    document: &Document,
    is_legacy: bool,
    layout: &Layout<'_>,
    level: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    if is_legacy {
        let first = paths::first(path, document)?.ok_or_else(|| no_match(path))?;
        first.value().write_at(layout, level, out);
        return Ok(());
    }
    let found: Vec<Found<'_>> = paths::read(path, document)?;
    out.push(b'[');
    for (at, it) in found.iter().enumerate() {
        layout.line(at > 0, level + 1, out);
        it.value().write_at(layout, level + 1, out);
    }
    layout.end(found.is_empty(), level, out);
    out.push(b']');
    Ok(())
}

/// A key of another type, or a path without a match, is null.
fn mget(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path(args[args.len() - 1])?;
    let layout = Layout::default();
    let mut texts = Vec::with_capacity(args.len() - 2);
    for at in 1..args.len() - 1 {
        let document = match document(&cx.db, args.key(at)) {
            Ok(document) => document,
            Err(Error::WrongType) => None,
            Err(error) => return Err(error),
        };
        let text = document.and_then(|document| {
            let mut text = Vec::new();
            let written = write_matches(&path, document, path.is_legacy(), &layout, 0, &mut text);
            written.is_ok().then_some(text)
        });
        texts.push(text);
    }
    cx.reply.array(texts.len());
    texts.iter().for_each(|text| cx.reply.bulk_or_null(text.as_deref()));
    Ok(())
}
