//! `BF.RESERVE key error_rate capacity [EXPANSION expansion] [NONSCALING]`
//!
//! As in Redis, other words behind the capacity are passed over.

use super::{RESERVED, is_rate, not_created, options, reservation};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use sketches::bloom::{Bloom, BloomOptions, MAX_CAPACITY, MAX_EXPANSION};
use structs::numbers::{parse_f64, parse_i64};

/// `BF.RESERVE`.
pub static BF_RESERVE: Command = Command {
    name: "bf.reserve",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["bloom"],
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Creates an empty Bloom filter.",
    args: &[
        Arg::key("key", 0),
        Arg::new("error_rate", ArgKind::Double),
        Arg::new("capacity", ArgKind::Integer),
        Arg::new("expansion", ArgKind::Integer).after("EXPANSION").optional(),
        Arg::token("nonscaling", "NONSCALING").optional(),
    ],
    run: reserve,
    ..Command::ROW
};

/// The most words of a request.
const MOST_WORDS: usize = 7;

fn reserve(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = options(cx, |usual| parse(args, usual))?;
    let key = args.key(1);
    if typed::read_for_write::<Bloom>(&cx.db, key)?.is_some() {
        return Err(Error::text("ERR item exists"));
    }
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let bloom = Bloom::new(options.chosen, limit).map_err(not_created)?;
    typed::create(&mut cx.db, key, bloom);
    cx.db.changed(key, RESERVED);
    options.propagate(cx, &reservation(key, options.chosen), None);
    cx.reply.ok();
    Ok(())
}

fn parse(args: Args<'_>, usual: BloomOptions) -> Result<BloomOptions, Error> {
    if args.len() > MOST_WORDS {
        return Err(Error::Arity("bf.reserve".into()));
    }
    let rate = parse_f64(args[2]).ok_or(Error::text("ERR bad error rate"))?;
    if !is_rate(rate) {
        return Err(Error::text("ERR error rate must be in the range (0.000000, 1.000000)"));
    }
    let capacity = parse_i64(args[3]).ok_or(Error::text("ERR bad capacity"))?;
    let capacity = u64::try_from(capacity).unwrap_or(0);
    if !(1..=MAX_CAPACITY).contains(&capacity) {
        return Err(Error::text("ERR capacity must be in the range [1, 1073741824]"));
    }
    let is_fixed = (4..args.len()).any(|at| args.is(at, "nonscaling"));
    let given = match (4..args.len()).find(|&at| args.is(at, "expansion")) {
        None => None,
        Some(at) => {
            let word = args.get(at + 1).ok_or(Error::text("ERR no expansion"))?;
            Some(parse_i64(word).ok_or(Error::text("ERR bad expansion"))?)
        }
    };
    let expansion = match given {
        Some(0) => 0,
        Some(_) if is_fixed => return Err(Error::text("Nonscaling filters cannot expand")),
        Some(by) => match u32::try_from(by) {
            Ok(by) if by <= MAX_EXPANSION => by,
            _ => return Err(Error::text("ERR expansion must be in the range [0, 32768]")),
        },
        None if is_fixed => 0,
        None => usual.expansion,
    };
    Ok(BloomOptions { capacity, rate, expansion })
}
