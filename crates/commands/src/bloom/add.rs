//! `BF.ADD key item`, `BF.MADD key item [item …]`, `BF.INSERT key [CAPACITY capacity] [ERROR error]
//! [EXPANSION expansion] [NOCREATE] [NONSCALING] ITEMS item [item …]`
//!
//! A filter that cannot take an item ends the reply of several with the error, as in Redis.

use super::{ADDED, NOT_FOUND, is_rate, not_added, not_created, options, reservation};
use crate::typed::{self, Created};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::bloom::{Bloom, BloomOptions, MAX_CAPACITY, MAX_EXPANSION};
use structs::numbers::{parse_f64, parse_i64};

/// `BF.ADD`.
pub static BF_ADD: Command = Command {
    name: "bf.add",
    arity: 3,
    summary: "Adds an item to a Bloom filter, which is created if it is not there.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String)],
    run: add,
    ..WRITES
};

/// `BF.MADD`.
pub static BF_MADD: Command = Command {
    name: "bf.madd",
    arity: -3,
    complexity: "O(k * n), where k is the number of hash functions and n is the number of items",
    effort: Effort::Words(3),
    summary: "Adds items to a Bloom filter, which is created if it is not there.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String).multiple()],
    run: madd,
    ..WRITES
};

/// `BF.INSERT`.
pub static BF_INSERT: Command = Command {
    name: "bf.insert",
    arity: -2,
    complexity: "O(k * n), where k is the number of hash functions and n is the number of items",
    effort: Effort::Words(3),
    summary: "Adds items to a Bloom filter, which may be created with options.",
    args: &[
        Arg::key("key", 0),
        Arg::new("capacity", ArgKind::Integer).after("CAPACITY").optional(),
        Arg::new("error", ArgKind::Double).after("ERROR").optional(),
        Arg::new("expansion", ArgKind::Integer).after("EXPANSION").optional(),
        Arg::token("nocreate", "NOCREATE").optional(),
        Arg::token("nonscaling", "NONSCALING").optional(),
        Arg::token("items", "ITEMS"),
        Arg::new("item", ArgKind::String).multiple(),
    ],
    run: insert,
    ..WRITES
};

/// What the rows have in common.
const WRITES: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["bloom"],
    since: "1.0.0",
    complexity: "O(k), where k is the number of hash functions used by the last sub-filter",
    ..Command::ROW
};

fn add(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let created = create_if_absent(cx, args, Ok)?;
    let bloom = typed::write::<Bloom>(&mut cx.db, key)?.ok_or(NOT_FOUND)?;
    let is_new = bloom.add(args[2], limit).map_err(not_added)?;
    if is_new {
        cx.db.changed(key, ADDED);
    }
    cx.reply.boolean(is_new);
    typed::propagate_creation(cx, args, created, reservation);
    Ok(())
}

fn madd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let created = create_if_absent(cx, args, Ok)?;
    add_all(cx, args, args.from(2), created)
}

fn insert(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (_, creates, items) = parse(args, BloomOptions::default())?;
    let created = match creates {
        true => create_if_absent(cx, args, |usual| parse(args, usual).map(|read| read.0))?,
        false => None,
    };
    add_all(cx, args, items, created)
}

/// Creates the filter if the key is absent.
fn create_if_absent(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    read: impl Fn(BloomOptions) -> Result<BloomOptions, Error>,
) -> Result<Created<BloomOptions>, Error> {
    let make = |chosen, limit| Bloom::new(chosen, limit).map_err(not_created);
    typed::create_if_absent(cx, args.key(1), |cx| options(cx, read), make)
}

fn add_all(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    items: &[&[u8]],
    created: Created<BloomOptions>,
) -> Outcome {
    let key = args.key(1);
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let bloom = typed::write::<Bloom>(&mut cx.db, key)?.ok_or(NOT_FOUND)?;
    let place = cx.reply.deferred();
    let reply = &mut cx.reply;
    let (mut replies, mut added) = (0, 0);
    bloom.add_all(items, limit, |new| {
        replies += 1;
        match new {
            Ok(is_new) => {
                added += u64::from(is_new);
                reply.boolean(is_new);
            }
            Err(error) => reply.error_bytes(&not_added(error).line()),
        }
    });
    cx.reply.finish_array(place, replies);
    if added > 0 {
        cx.db.changed_in(key, ADDED, added);
    }
    typed::propagate_creation(cx, args, created, reservation);
    Ok(())
}

/// Returns the options of BF.INSERT, whether it creates the key, and the items.
fn parse<'a>(
    args: Args<'a>,
    usual: BloomOptions,
) -> Result<(BloomOptions, bool, &'a [&'a [u8]]), Error> {
    let arity = || Error::Arity("bf.insert".into());
    let mut options = usual;
    let (mut creates, mut is_fixed) = (true, false);
    let mut at = 2;
    while at < args.len() && !args.is(at, "items") {
        if args.is(at, "nocreate") {
            creates = false;
        } else if args.is(at, "nonscaling") {
            is_fixed = true;
        } else if args.is(at, "capacity") {
            at += 1;
            let capacity = parse_i64(args.get(at).ok_or_else(arity)?);
            let capacity = capacity.and_then(|capacity| u64::try_from(capacity).ok());
            let capacity = capacity.filter(|capacity| (1..=MAX_CAPACITY).contains(capacity));
            options.capacity = capacity.ok_or(Error::text("Bad capacity"))?;
        } else if args.is(at, "error") {
            at += 1;
            let rate = parse_f64(args.get(at).ok_or_else(arity)?).filter(|&rate| is_rate(rate));
            options.rate = rate.ok_or(Error::text("Bad error rate"))?;
        } else if args.is(at, "expansion") {
            at += 1;
            let by = parse_i64(args.get(at).ok_or_else(arity)?);
            let by = by.and_then(|by| u32::try_from(by).ok());
            let by = by.filter(|by| (1..=MAX_EXPANSION).contains(by));
            options.expansion = by.ok_or(Error::text("Bad expansion"))?;
        } else {
            return Err(Error::text("Unknown argument received"));
        }
        at += 1;
    }
    let items = args.from(at + 1);
    if items.is_empty() {
        return Err(arity());
    }
    if is_fixed {
        options.expansion = 0;
    }
    Ok((options, creates, items))
}
