//! `TDIGEST.CREATE key [COMPRESSION compression]`, `TDIGEST.RESET key`, `TDIGEST.ADD key value
//! [value …]`

use super::{ADDED, COMPRESSION, CREATED, NO_KEY, RESET, compression, refused};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::tdigest::TDigest;
use structs::numbers::parse_f64;

/// `TDIGEST.CREATE`.
pub static TDIGEST_CREATE: Command = Command {
    name: "tdigest.create",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    summary: "Creates an empty t-digest.",
    args: &[
        Arg::key("key", 0),
        Arg::new("compression", ArgKind::Integer).after("COMPRESSION").optional(),
    ],
    run: create,
    ..WRITES
};

/// `TDIGEST.RESET`.
pub static TDIGEST_RESET: Command = Command {
    name: "tdigest.reset",
    arity: 2,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    summary: "Removes all numbers from a t-digest.",
    args: &[Arg::key("key", 0)],
    run: reset,
    ..WRITES
};

/// `TDIGEST.ADD`.
pub static TDIGEST_ADD: Command = Command {
    name: "tdigest.add",
    arity: -3,
    complexity: "O(N), where N is the number of samples to add",
    effort: Effort::Words(2),
    summary: "Adds numbers to a t-digest.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::Double).multiple()],
    run: add,
    ..WRITES
};

/// What the rows have in common.
const WRITES: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["tdigest"],
    since: "2.4.0",
    ..Command::ROW
};

fn create(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let compression = match args.len() {
        2 => COMPRESSION,
        4 if args.is(2, "compression") => compression(args[3])?,
        4 => return Err(Error::text("ERR T-Digest: wrong keyword")),
        _ => return Err(Error::Arity("tdigest.create".into())),
    };
    let key = args.key(1);
    if typed::read_for_write::<TDigest>(&cx.db, key)?.is_some() {
        return Err(Error::text("ERR T-Digest: key already exists"));
    }
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let digest = TDigest::new(compression, limit).map_err(refused)?;
    typed::create(&mut cx.db, key, digest);
    cx.db.changed(key, CREATED);
    cx.reply.ok();
    Ok(())
}

fn reset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    typed::write::<TDigest>(&mut cx.db, key)?.ok_or(NO_KEY)?.reset();
    cx.db.changed(key, RESET);
    cx.reply.ok();
    Ok(())
}

fn add(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let digest = typed::read_for_write::<TDigest>(&cx.db, key)?.ok_or(NO_KEY)?;
    let values = args.from(2).iter().map(|word| {
        let value =
            parse_f64(word).ok_or(Error::text("ERR T-Digest: error parsing val parameter"))?;
        let infinite = Error::text("ERR T-Digest: val parameter needs to be a finite number");
        if value.is_finite() { Ok(value) } else { Err(infinite) }
    });
    let values = values.collect::<Result<Vec<f64>, Error>>()?;
    // With space for all, none is added by half.
    if digest.weight().checked_add(values.len() as i64).is_none() {
        return Err(Error::text("ERR T-Digest: overflow detected"));
    }
    let digest = typed::write::<TDigest>(&mut cx.db, key)?.ok_or(NO_KEY)?;
    for &value in &values {
        digest.add(value).map_err(refused)?;
    }
    digest.settle();
    cx.db.changed_in(key, ADDED, values.len() as u64);
    cx.reply.ok();
    Ok(())
}
