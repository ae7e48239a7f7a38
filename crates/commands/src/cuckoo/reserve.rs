//! `CF.RESERVE key capacity [BUCKETSIZE bucketsize] [MAXITERATIONS maxiterations] [EXPANSION
//! expansion]`

use super::{RESERVED, options, refused, reservation};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use sketches::cuckoo::{Cuckoo, CuckooOptions, MAX_BUCKET_SIZE, MAX_EXPANSION};
use structs::numbers::parse_i64;

/// `CF.RESERVE`.
pub static CF_RESERVE: Command = Command {
    name: "cf.reserve",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["cuckoo"],
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Creates an empty cuckoo filter.",
    args: &[
        Arg::key("key", 0),
        Arg::new("capacity", ArgKind::Integer),
        Arg::new("bucketsize", ArgKind::Integer).after("BUCKETSIZE").optional(),
        Arg::new("maxiterations", ArgKind::Integer).after("MAXITERATIONS").optional(),
        Arg::new("expansion", ArgKind::Integer).after("EXPANSION").optional(),
    ],
    run: reserve,
    ..Command::ROW
};

fn reserve(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = options(cx, |usual| parse(args, usual))?;
    let key = args.key(1);
    if typed::read_for_write::<Cuckoo>(&cx.db, key)?.is_some() {
        return Err(Error::text("ERR item exists"));
    }
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let filter = Cuckoo::new(options.chosen, limit).map_err(refused)?;
    typed::create(&mut cx.db, key, filter);
    cx.db.changed(key, RESERVED);
    options.propagate(cx, &reservation(key, options.chosen), None);
    cx.reply.ok();
    Ok(())
}

fn parse(args: Args<'_>, usual: CuckooOptions) -> Result<CuckooOptions, Error> {
    if args.len().is_multiple_of(2) {
        return Err(Error::Arity("cf.reserve".into()));
    }
    let number = |word: &str, range: std::ops::RangeInclusive<u16>, error: &'static str| {
        let Some(at) = (3..args.len()).step_by(2).find(|&at| args.is(at, word)) else {
            return Ok(None);
        };
        let number = args.get(at + 1).and_then(parse_i64).and_then(|it| u16::try_from(it).ok());
        number.filter(|it| range.contains(it)).map(Some).ok_or(Error::text(error))
    };
    let bucket_size = number("bucketsize", 1..=MAX_BUCKET_SIZE, "Couldn't parse BUCKETSIZE")?;
    let max_iterations = number("maxiterations", 1..=u16::MAX, "Couldn't parse MAXITERATIONS")?;
    let expansion = number("expansion", 0..=MAX_EXPANSION, "Couldn't parse EXPANSION")?;
    let options = CuckooOptions {
        capacity: capacity(args.get(2))?,
        bucket_size: bucket_size.unwrap_or(usual.bucket_size),
        max_iterations: max_iterations.unwrap_or(usual.max_iterations),
        expansion: expansion.unwrap_or(usual.expansion),
    };
    if options.capacity < u64::from(options.bucket_size) * 2 {
        return Err(Error::text("Capacity must be at least (BucketSize * 2)"));
    }
    Ok(options)
}

/// Returns a word as a capacity.
pub(super) fn capacity(word: Option<&[u8]>) -> Result<u64, Error> {
    let capacity = word.and_then(parse_i64).and_then(|capacity| u64::try_from(capacity).ok());
    capacity.filter(|&capacity| capacity > 0).ok_or(Error::text("Bad capacity"))
}
