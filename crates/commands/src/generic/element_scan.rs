//! `SSCAN`, `HSCAN`, `ZSCAN`: `key cursor [MATCH pattern] [COUNT count]`, `HSCAN … [NOVALUES]`,
//! `ZSCAN … [NOSCORES]`
//!
//! Of a key that is absent the options are not even looked at.

use super::scan::parse_cursor;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use keyspace::Kind;
use structs::glob::{self, Case};
use structs::hash::Hash;
use structs::listpack::Element;
use structs::set::Set;
use structs::zset::Zset;

/// `SSCAN`.
pub static SSCAN: Command = Command {
    name: "sscan",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough \
        command calls for the cursor to return back to 0. N is the number of elements \
        inside the collection.",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Iterates over members of a set.",
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::new("cursor", ArgKind::Integer),
        Arg::new("pattern", ArgKind::Pattern).after("MATCH").optional(),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
    ],
    run: sscan,
    ..Command::ROW
};

/// `HSCAN`.
pub static HSCAN: Command = Command {
    name: "hscan",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough \
        command calls for the cursor to return back to 0. N is the number of elements \
        inside the collection.",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Iterates over fields and values of a hash.",
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::new("cursor", ArgKind::Integer),
        Arg::new("pattern", ArgKind::Pattern).after("MATCH").optional(),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::token("novalues", "NOVALUES").optional(),
    ],
    run: hscan,
    ..Command::ROW
};

/// `ZSCAN`.
pub static ZSCAN: Command = Command {
    name: "zscan",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough \
        command calls for the cursor to return back to 0. N is the number of elements \
        inside the collection.",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Iterates over members and scores of a sorted set.",
    history: &[("8.0.0", "Added noscores option.")],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::new("cursor", ArgKind::Integer),
        Arg::new("pattern", ArgKind::Pattern).after("MATCH").optional(),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::token("noscores", "NOSCORES").optional(),
    ],
    run: zscan,
    ..Command::ROW
};

struct Options<'a> {
    count: usize,
    pattern: Option<&'a [u8]>,
    with_values: bool,
}

fn parse<'a>(args: Args<'a>, kind: Kind) -> Result<Options<'a>, Error> {
    let mut options = Options { count: 10, pattern: None, with_values: true };
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "count") && at + 1 < args.len() {
            let count = args.integer(at + 1)?;
            if count < 1 {
                return Err(Error::Syntax);
            }
            options.count = count as usize;
            at += 2;
        } else if args.is(at, "match") && at + 1 < args.len() {
            options.pattern = (args[at + 1] != b"*").then_some(args[at + 1]);
            at += 2;
        } else if args.is(at, "novalues") {
            if kind != Kind::Hash {
                return Err(Error::text("ERR NOVALUES option can only be used in HSCAN"));
            }
            options.with_values = false;
            at += 1;
        } else if args.is(at, "noscores") {
            if kind != Kind::Zset {
                return Err(Error::text("ERR NOSCORES option can only be used in ZSCAN"));
            }
            options.with_values = false;
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(options)
}

impl Options<'_> {
    fn wants(&self, element: Element<'_>) -> bool {
        self.pattern.is_none_or(|pattern| {
            element.with_bytes(|bytes| glob::matches(pattern, bytes, Case::Sensitive))
        })
    }
}

fn answer(cx: &mut Cx<'_>, cursor: u64, words: &[Vec<u8>]) -> Outcome {
    cx.reply.array(2);
    cx.reply.bulk(cursor.to_string().as_bytes());
    cx.reply.array(words.len());
    words.iter().for_each(|word| cx.reply.bulk(word));
    Ok(())
}

fn sscan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let cursor = parse_cursor(args[2])?;
    let (mut next, mut words) = (0, Vec::new());
    if let Some(set) = cx.db.read::<Set>(args.key(1))? {
        let options = parse(args, Kind::Set)?;
        next = set.scan(cursor, options.count, |member| {
            if options.wants(member) {
                words.push(member.to_vec());
            }
        });
    }
    answer(cx, next, &words)
}

fn hscan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let cursor = parse_cursor(args[2])?;
    let (mut next, mut words) = (0, Vec::new());
    if let Some(hash) = cx.db.read::<Hash>(args.key(1))? {
        let options = parse(args, Kind::Hash)?;
        next = hash.scan(cursor, options.count, |field, value| {
            if options.wants(field) {
                words.push(field.to_vec());
                if options.with_values {
                    words.push(value.to_vec());
                }
            }
        });
    }
    answer(cx, next, &words)
}

fn zscan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let cursor = parse_cursor(args[2])?;
    let (mut next, mut words) = (0, Vec::new());
    if let Some(zset) = cx.db.read::<Zset>(args.key(1))? {
        let options = parse(args, Kind::Zset)?;
        next = zset.scan(cursor, options.count, |member, score| {
            if options.wants(member) {
                words.push(member.to_vec());
                if options.with_values {
                    let mut text = Vec::new();
                    structs::numbers::push_f64(&mut text, score);
                    words.push(text);
                }
            }
        });
    }
    answer(cx, next, &words)
}
