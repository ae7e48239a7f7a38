//! `BF.SCANDUMP key iterator`, `BF.LOADCHUNK key iterator data`, `BF.LOAD key data`
//!
//! BF.LOAD is Valkey's: it takes a whole filter of Valkey's family, as Valkey writes it into its
//! append-only file.

use super::{LOADED, NOT_FOUND, TOO_LARGE};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::bloom::valkey::{self, LoadError};
use sketches::bloom::{Bloom, ChunkError};
use structs::numbers::parse_i64;

/// `BF.SCANDUMP`.
pub static BF_SCANDUMP: Command = Command {
    name: "bf.scandump",
    arity: 3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["bloom"],
    since: "1.0.0",
    complexity: "O(n), where n is the capacity",
    effort: Effort::Elements(1),
    summary: "Returns a Bloom filter piece by piece.",
    args: &[Arg::key("key", 0), Arg::new("iterator", ArgKind::Integer)],
    run: scandump,
    ..Command::ROW
};

/// `BF.LOADCHUNK`.
pub static BF_LOADCHUNK: Command = Command {
    name: "bf.loadchunk",
    arity: 4,
    summary: "Restores a Bloom filter from what BF.SCANDUMP has returned.",
    args: &[
        Arg::key("key", 0),
        Arg::new("iterator", ArgKind::Integer),
        Arg::new("data", ArgKind::String),
    ],
    run: loadchunk,
    ..LOADS
};

/// `BF.LOAD`.
pub static BF_LOAD: Command = Command {
    name: "bf.load",
    arity: 3,
    summary: "Restores a Bloom filter of Valkey's from its append-only file.",
    args: &[Arg::key("key", 0), Arg::new("data", ArgKind::String)],
    run: load,
    ..LOADS
};

/// What the rows have in common.
const LOADS: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["bloom"],
    since: "1.0.0",
    complexity: "O(n), where n is the capacity",
    ..Command::ROW
};

const BAD_DATA: Error = Error::text("ERR received bad data");

fn scandump(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let bloom = typed::read::<Bloom>(&cx.db, args.key(1))?.ok_or(NOT_FOUND)?;
    let cursor = parse_i64(args[2]).ok_or(Error::text("Second argument must be numeric"))?;
    // What is below all has no piece, as what is above all.
    let cursor = u64::try_from(cursor).unwrap_or(u64::MAX);
    let chunk = bloom.chunk(cursor);
    let (next, piece) = chunk.ok_or(Error::text("ERR a filter of Valkey has no chunks"))?;
    cx.reply.array(2);
    cx.reply.integer(i64::try_from(next).unwrap_or(i64::MAX));
    cx.reply.bulk(&piece);
    Ok(())
}

fn loadchunk(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let found = typed::read_for_write::<Bloom>(&cx.db, key)?;
    let not_numeric = Error::text("ERR Second argument must be numeric");
    let cursor = parse_i64(args[2]).ok_or(not_numeric)?;
    match (found.is_some(), cursor) {
        (false, 1) => {
            let limit = typed::limit(&cx.db, &cx.engine.config);
            let bloom = Bloom::from_header(args[3], limit).map_err(refused)?;
            typed::create(&mut cx.db, key, bloom);
        }
        (true, 1) => return Err(BAD_DATA),
        (false, _) => return Err(NOT_FOUND),
        (true, _) => {
            let bloom = typed::write::<Bloom>(&mut cx.db, key)?.ok_or(NOT_FOUND)?;
            bloom.load_chunk(cursor, args[3]).map_err(refused)?;
        }
    }
    cx.db.changed(key, LOADED);
    cx.reply.ok();
    Ok(())
}

fn refused(error: ChunkError) -> Error {
    match error {
        ChunkError::Bad => BAD_DATA,
        ChunkError::TooLarge => TOO_LARGE,
        ChunkError::NoLayer => Error::text("ERR invalid offset - no link found"),
        ChunkError::TooLong => Error::text("ERR invalid chunk - Too big for current filter"),
    }
}

fn load(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    if typed::read_for_write::<Bloom>(&cx.db, key)?.is_some() {
        return Err(Error::text("BUSYKEY Target key name already exists."));
    }
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let bloom = valkey::decode(args[2], limit).map_err(|error| match error {
        LoadError::Damaged => Error::text("ERR bloom object decoding failed"),
        LoadError::Version => Error::text("ERR bloom object decoding failed. Unsupported version"),
        LoadError::Expansion => Error::text("ERR bad expansion"),
        LoadError::Rate => Error::text("ERR (0 < error rate range < 1)"),
        LoadError::TooLarge => TOO_LARGE,
    })?;
    typed::create(&mut cx.db, key, bloom);
    cx.db.changed(key, LOADED);
    cx.reply.ok();
    Ok(())
}
