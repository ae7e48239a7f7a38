//! `CF.SCANDUMP key iterator`, `CF.LOADCHUNK key iterator data`

use super::{LOADED, NOT_FOUND};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::cuckoo::{ChunkError, Cuckoo};
use structs::numbers::parse_i64;

/// `CF.SCANDUMP`.
pub static CF_SCANDUMP: Command = Command {
    name: "cf.scandump",
    arity: 3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["cuckoo"],
    since: "1.0.0",
    complexity: "O(n), where n is the capacity",
    effort: Effort::Elements(1),
    summary: "Returns a cuckoo filter piece by piece.",
    args: &[Arg::key("key", 0), Arg::new("iterator", ArgKind::Integer)],
    run: scandump,
    ..Command::ROW
};

/// `CF.LOADCHUNK`.
pub static CF_LOADCHUNK: Command = Command {
    name: "cf.loadchunk",
    arity: 4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["cuckoo"],
    since: "1.0.0",
    complexity: "O(n), where n is the capacity",
    summary: "Restores a cuckoo filter from what CF.SCANDUMP has returned.",
    args: &[
        Arg::key("key", 0),
        Arg::new("iterator", ArgKind::Integer),
        Arg::new("data", ArgKind::String),
    ],
    run: loadchunk,
    ..Command::ROW
};

const INVALID_POSITION: Error = Error::text("Invalid position");

fn scandump(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filter = typed::read::<Cuckoo>(&cx.db, args.key(1))?.ok_or(NOT_FOUND)?;
    let cursor = parse_i64(args[2]).and_then(|cursor| u64::try_from(cursor).ok());
    let chunk = filter.chunk(cursor.ok_or(INVALID_POSITION)?);
    cx.reply.array(2);
    match chunk {
        Some((next, piece)) => {
            cx.reply.integer(i64::try_from(next).unwrap_or(i64::MAX));
            cx.reply.bulk(&piece);
        }
        None => {
            cx.reply.integer(0);
            cx.reply.null();
        }
    }
    Ok(())
}

fn loadchunk(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let found = typed::read_for_write::<Cuckoo>(&cx.db, key)?;
    let cursor = parse_i64(args[2]).filter(|&cursor| cursor > 0).ok_or(INVALID_POSITION)?;
    match (found.is_some(), cursor) {
        (false, 1) => {
            let limit = typed::limit(&cx.db, &cx.engine.config);
            let filter = Cuckoo::from_header(args[3], limit).map_err(refused)?;
            typed::create(&mut cx.db, key, filter);
        }
        (true, 1) => return Err(Error::text("ERR item exists")),
        (false, _) => return Err(NOT_FOUND),
        (true, _) => {
            let filter = typed::write::<Cuckoo>(&mut cx.db, key)?.ok_or(NOT_FOUND)?;
            filter.load_chunk(cursor, args[3]).map_err(refused)?;
        }
    }
    cx.db.changed(key, LOADED);
    cx.reply.ok();
    Ok(())
}

fn refused(error: ChunkError) -> Error {
    match error {
        ChunkError::Header => Error::text("Couldn't create filter!"),
        ChunkError::Piece => Error::text("Couldn't load chunk!"),
    }
}
