//! `INCREX key [BYINT increment|BYFLOAT increment] [LBOUND bound] [UBOUND bound] [SATURATE]
//! [EX s|PX ms|EXAT s|PXAT ms|PERSIST] [ENX]`
//!
//! The journal gets the value that came out, as a SET. A result beyond a bound changes nothing, the
//! expiry included, unless SATURATE puts the bound in its place.

use super::expiry::{self, EXPIRE_OR_PERSIST, Expiry, ExpiryOptions};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Event, Flags, Group, Key, KeyFlags, KeySpec,
    Outcome, event, events,
};
use keyspace::Entry;
use structs::numbers::LongDouble;

/// `INCREX`.
pub static INCREX: Command = Command {
    name: "increx",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "8.8.0",
    complexity: "O(1)",
    summary: "Adds to the number at a key within bounds, and sets when the key expires.",
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "increment",
            &[
                Arg::new("float", ArgKind::Double).after("BYFLOAT"),
                Arg::new("integer", ArgKind::Integer).after("BYINT"),
            ],
        )
        .optional(),
        Arg::token("saturate", "SATURATE").optional(),
        Arg::new("lowerbound", ArgKind::String).after("LBOUND").optional(),
        Arg::new("upperbound", ArgKind::String).after("UBOUND").optional(),
        EXPIRE_OR_PERSIST,
        Arg::token("enx", "ENX").optional(),
    ],
    run: increx,
    ..Command::ROW
};

/// The request; numbers are the places of their words, as a syntax error comes before a wrong
/// number.
#[derive(Default)]
struct IncrexOptions {
    increment_at: Option<usize>,
    is_float: bool,
    lower_at: Option<usize>,
    upper_at: Option<usize>,
    saturates: bool,
    only_if_none: bool,
    expiry: ExpiryOptions,
}

fn parse(args: Args<'_>) -> Result<IncrexOptions, Error> {
    let mut options = IncrexOptions::default();
    let mut has_time = false;
    let mut at = 2;
    while at < args.len() {
        let has_operand = at + 1 < args.len();
        let place = if args.is(at, "byint") || args.is(at, "byfloat") {
            options.is_float = args.is(at, "byfloat");
            &mut options.increment_at
        } else if args.is(at, "lbound") {
            &mut options.lower_at
        } else if args.is(at, "ubound") {
            &mut options.upper_at
        } else {
            at += if args.is(at, "saturate") {
                options.saturates = true;
                1
            } else if args.is(at, "enx") {
                options.only_if_none = true;
                1
            } else {
                has_time |= !args.is(at, "persist");
                options.expiry.take(args, at, "persist").ok_or(Error::Syntax)?
            };
            continue;
        };
        if !has_operand || place.replace(at + 1).is_some() {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    if options.only_if_none && !has_time {
        return Err(Error::text("ERR ENX requires one of EX, PX, EXAT or PXAT"));
    }
    Ok(options)
}

const INTEGER_EVENT: Event = event(Class::STRING, "incrby");
const FLOAT_EVENT: Event = event(Class::STRING, "incrbyfloat");
const BOUNDS: &str = "ERR LBOUND can't be greater than UBOUND";

fn increx(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    if options.is_float { add_float(cx, args, options) } else { add_integer(cx, args, options) }
}

fn add_integer(cx: &mut Cx<'_>, args: Args<'_>, options: IncrexOptions) -> Outcome {
    let key = args.key(1);
    let number = |at: Option<usize>, default| at.map_or(Ok(default), |at| args.integer(at));
    let increment = number(options.increment_at, 1)?;
    let lower = number(options.lower_at, i64::MIN)?;
    let upper = number(options.upper_at, i64::MAX)?;
    if lower > upper {
        return Err(Error::text(BOUNDS));
    }
    let (saturates, expiry) = (options.saturates, resolve(cx, args, options)?);
    let old = match cx.db.string_for_write(key)? {
        Some(old) => old.integer().ok_or(Error::NotInteger)?,
        None => 0,
    };
    let sum = i128::from(old) + i128::from(increment);
    let is_within = (i128::from(lower)..=i128::from(upper)).contains(&sum);
    if !is_within && !saturates {
        cx.reply.array(2);
        cx.reply.integer(old);
        cx.reply.integer(0);
        return Ok(());
    }
    // Within the bounds, which are numbers of 64 bits.
    let new = sum.clamp(i128::from(lower), i128::from(upper)) as i64;
    let applied = new.checked_sub(old).ok_or(Error::Overflow)?;
    cx.db.update_integer(key, |_| Ok(new))?;
    finish(cx, key, new.to_string().as_bytes(), INTEGER_EVENT, expiry);
    cx.reply.array(2);
    cx.reply.integer(new);
    cx.reply.integer(applied);
    Ok(())
}

fn add_float(cx: &mut Cx<'_>, args: Args<'_>, options: IncrexOptions) -> Outcome {
    let key = args.key(1);
    let number = |at: usize| LongDouble::parse(args[at]).ok_or(Error::NotFloat);
    let increment = options.increment_at.map_or(Ok(LongDouble::from(1i64)), number)?;
    let lower = options.lower_at.map(number).transpose()?;
    let upper = options.upper_at.map(number).transpose()?;
    if lower.zip(upper).is_some_and(|(lower, upper)| upper.is_below(lower)) {
        return Err(Error::text(BOUNDS));
    }
    let (saturates, expiry) = (options.saturates, resolve(cx, args, options)?);
    let old = match cx.db.string_for_write(key)? {
        Some(old) => LongDouble::parse(&old.to_vec()).ok_or(Error::NotFloat)?,
        None => LongDouble::from(0i64),
    };
    let mut new = old + increment;
    if !increment.is_finite() {
        return Err(Error::NanOrInfinity);
    }
    let below = lower.filter(|&lower| new.is_below(lower));
    let beyond = below.or(upper.filter(|upper| upper.is_below(new)));
    if let Some(bound) = beyond {
        if !saturates {
            cx.reply.array(2);
            write_float(cx, old);
            write_float(cx, LongDouble::from(0i64));
            return Ok(());
        }
        new = bound;
    }
    let applied = new + -old;
    if !new.is_finite() || !applied.is_finite() {
        return Err(Error::NanOrInfinity);
    }
    let mut text = Vec::new();
    new.push_human(&mut text);
    let (kept, access) = (cx.db.expiry(key), cx.db.fresh_access());
    cx.db.put_entry(key, Entry::new_text(key.bytes, &text, kept, access));
    finish(cx, key, &text, FLOAT_EVENT, expiry);
    cx.reply.array(2);
    write_float(cx, new);
    write_float(cx, applied);
    Ok(())
}

/// What becomes of the expiry of a key whose number changes.
fn resolve(cx: &Cx<'_>, args: Args<'_>, options: IncrexOptions) -> Result<Expiry, Error> {
    let wanted = options.expiry.resolve(args, cx.now(), "increx", Expiry::Clear)?;
    let keeps = options.only_if_none && cx.db.expiry(args.key(1)).is_some();
    Ok(wanted.filter(|_| !keeps).unwrap_or(Expiry::Keep))
}

/// Sets the expiry, reports the change and hands it on.
fn finish(cx: &mut Cx<'_>, key: Key<'_>, text: &[u8], event: Event, expiry: Expiry) {
    if let Expiry::At(at) = expiry
        && cx.db.has_passed(at)
    {
        return expiry::expire(cx, key);
    }
    cx.db.changed(key, event);
    match expiry {
        Expiry::Keep => {}
        Expiry::At(at) => {
            cx.db.set_expiry(key, Some(at));
            cx.db.notify(key, events::EXPIRE);
        }
        Expiry::Clear => {
            if cx.db.expiry(key).is_some() {
                cx.db.set_expiry(key, None);
                cx.db.notify(key, events::PERSIST);
            }
        }
    }
    cx.db.propagate_as(|p| match expiry {
        Expiry::At(at) => {
            p.begin(5);
            [b"SET", key.bytes, text, b"PXAT"].iter().for_each(|word| p.word(word));
            p.integer(at.0);
        }
        Expiry::Keep => p.command(&[b"SET", key.bytes, text, b"KEEPTTL"]),
        Expiry::Clear => p.command(&[b"SET", key.bytes, text]),
    });
}

fn write_float(cx: &mut Cx<'_>, number: LongDouble) {
    if cx.reply.is_resp3() {
        cx.reply.double(number.to_f64());
    } else {
        let mut text = Vec::new();
        number.push_human(&mut text);
        cx.reply.bulk(&text);
    }
}
