//! `VADD key [REDUCE dim] (FP32 | VALUES num) vector element [CAS] [NOQUANT | Q8 | BIN] [EF ef]
//! [SETATTR attributes] [M links]`, `VREM key element`
//!
//! CAS is accepted: the request runs in one step all the same.

use super::{ADDED, REMOVED, numbers};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use rdb::module::Module;
use structs::numbers::parse_i64;
use vectors::{MAX_DIM, MAX_LINKS, Quant, VectorSet};

/// `VADD`.
pub static VADD: Command = Command {
    name: "vadd",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    complexity: "O(log(N)), where N is the number of elements",
    effort: Effort::Estimate(effort),
    summary: "Adds an element to a vector set, or replaces its vector.",
    args: &[
        Arg::key("key", 0),
        Arg::new("dim", ArgKind::Integer).after("REDUCE").optional(),
        Arg::one_of("format", &[numbers::BLOB, numbers::VALUES]),
        Arg::new("element", ArgKind::String),
        Arg::token("cas", "CAS").optional(),
        Arg::one_of(
            "quantization",
            &[Arg::token("noquant", "NOQUANT"), Arg::token("bin", "BIN"), Arg::token("q8", "Q8")],
        )
        .optional(),
        Arg::new("build-exploration-factor", ArgKind::Integer).after("EF").optional(),
        Arg::new("attributes", ArgKind::String).after("SETATTR").optional(),
        Arg::new("numlinks", ArgKind::Integer).after("M").optional(),
    ],
    run: vadd,
    ..WRITES
};

/// `VREM`.
pub static VREM: Command = Command {
    name: "vrem",
    arity: 3,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    complexity: "O(log(N)), where N is the number of elements",
    summary: "Removes an element from a vector set.",
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String)],
    run: vrem,
    ..WRITES
};

/// What the rows have in common.
const WRITES: Command =
    Command { group: Group::Module, categories: &["vector"], since: "8.0.0", ..Command::ROW };

const DEFAULT_EF: usize = 200;
const DEFAULT_LINKS: usize = 16;
const MAX_EF: i64 = 1_000_000;

/// What a request asks for.
struct VaddOptions<'a> {
    reduce: Option<usize>,
    numbers: Vec<f32>,
    element: &'a [u8],
    attributes: Option<&'a [u8]>,
    quant: Option<Quant>,
    links: Option<usize>,
    ef: usize,
}

fn vadd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    let key = args.key(1);
    let set = typed::read_for_write::<VectorSet>(&cx.db, key)?;
    if let Some(set) = set {
        check(set, &options)?;
    }
    let is_there = set.is_some();
    let VaddOptions { numbers, element, ef, .. } = options;
    let mut new;
    let set = if is_there {
        typed::write::<VectorSet>(&mut cx.db, key)?.ok_or(Error::NoSuchKey)?
    } else {
        let (dim, input) = match options.reduce {
            Some(reduce) => (reduce, Some(numbers.len())),
            None => (numbers.len(), None),
        };
        let quant = options.quant.unwrap_or(Quant::Q8);
        new = VectorSet::new(dim, quant, options.links.unwrap_or(DEFAULT_LINKS), input);
        &mut new
    };
    let (vector, norm) = set.form(numbers);
    let is_new = set.add(element, vector, norm, ef);
    if let Some(attributes) = options.attributes {
        set.set_attributes(element, attributes);
    }
    if !is_there {
        let set = std::mem::replace(set, VectorSet::new(1, Quant::Q8, DEFAULT_LINKS, None));
        typed::create(&mut cx.db, key, set);
    }
    cx.db.changed(key, ADDED);
    // The map of RESP3 is a boolean, of RESP2 a number.
    cx.reply.boolean(is_new);
    Ok(())
}

/// Compares a request with the set that is there.
fn check(set: &VectorSet, options: &VaddOptions<'_>) -> Result<(), Error> {
    let got = options.numbers.len();
    match (options.reduce, set.input_dim()) {
        (None, _) if got != set.dim() || set.input_dim().is_some() => {
            return Err(numbers::mismatch(got, set.dim()));
        }
        (Some(_), None) => {
            let text = "ERR cannot add projection to existing set without projection";
            return Err(Error::text(text));
        }
        (Some(reduce), Some(_)) if reduce != set.dim() => {
            return Err(numbers::mismatch(reduce, set.dim()));
        }
        (Some(_), Some(input)) if got != input => {
            return Err(Error::format(format!(
                "ERR Input dimension mismatch for projection - got {got} but projection expects \
                 {input}"
            )));
        }
        _ => (),
    }
    if options.quant.is_some_and(|quant| quant != set.quant()) {
        return Err(Error::text("ERR asked quantization mismatch with existing vector set"));
    }
    if options.links.is_some_and(|links| links != set.links()) {
        return Err(Error::text("ERR asked M value mismatch with existing vector set"));
    }
    Ok(())
}

fn parse(args: Args<'_>) -> Result<VaddOptions<'_>, Error> {
    let mut at = 2;
    let mut reduce = None;
    if args.is(at, "reduce") {
        let dim = number(args, at + 1, 1..=MAX_DIM as i64);
        reduce = Some(dim.ok_or(numbers::INVALID)?);
        at += 2;
    }
    let (numbers, end) = numbers::read(args, at)?;
    let element = args.get(end).ok_or(numbers::INVALID)?;
    if reduce.is_some_and(|reduce| reduce > numbers.len()) {
        return Err(numbers::INVALID);
    }
    let mut options = VaddOptions {
        reduce,
        numbers,
        element,
        attributes: None,
        quant: None,
        links: None,
        ef: DEFAULT_EF,
    };
    let mut at = end + 1;
    while at < args.len() {
        let has_more = at + 1 < args.len();
        if args.is(at, "cas") {
        } else if args.is(at, "noquant") {
            options.quant = Some(Quant::F32);
        } else if args.is(at, "q8") {
            options.quant = Some(Quant::Q8);
        } else if args.is(at, "bin") {
            options.quant = Some(Quant::Bin);
        } else if args.is(at, "ef") && has_more {
            let ef = number(args, at + 1, 1..=MAX_EF);
            options.ef = ef.ok_or(Error::text("ERR invalid EF"))?;
            at += 1;
        } else if args.is(at, "m") && has_more {
            let links = number(args, at + 1, 4..=MAX_LINKS as i64);
            options.links = Some(links.ok_or(Error::text("ERR invalid M"))?);
            at += 1;
        } else if args.is(at, "setattr") && has_more {
            options.attributes = args.get(at + 1);
            at += 1;
        } else {
            return Err(Error::text("ERR invalid option after element"));
        }
        at += 1;
    }
    Ok(options)
}

fn number(args: Args<'_>, at: usize, bounds: std::ops::RangeInclusive<i64>) -> Option<usize> {
    let number = args.get(at).and_then(parse_i64).filter(|number| bounds.contains(number))?;
    usize::try_from(number).ok()
}

/// An insertion compares with `ef` elements and the neighbours of each.
fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    let Some(set) = super::estimated(db, args) else { return 0 };
    let ef = (2..args.len()).rev().find(|&at| args.is(at, "ef"));
    let ef = ef.and_then(|at| number(args, at + 1, 1..=MAX_EF)).unwrap_or(DEFAULT_EF);
    let compared = ef.saturating_mul(set.links()).min(set.len());
    compared.saturating_mul(1 + set.dim() / super::UNIT_DIM)
}

fn vrem(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let set = typed::read_for_write::<VectorSet>(&cx.db, key)?;
    if !set.is_some_and(|set| set.contains(args[2])) {
        cx.reply.boolean(false);
        return Ok(());
    }
    let set = typed::write::<VectorSet>(&mut cx.db, key)?.ok_or(Error::NoSuchKey)?;
    set.remove(args[2]);
    cx.db.changed(key, REMOVED);
    cx.db.remove_if_empty::<Module>(key);
    cx.reply.boolean(true);
    Ok(())
}
