//! `SSCAN`, `HSCAN`, `ZSCAN`: `key cursor [MATCH pattern] [COUNT count]`, `HSCAN … [NOVALUES]`,
//! `ZSCAN … [NOSCORES]`
//!
//! Of a key that is absent the options are not even looked at.

use super::scan::{self, ScanOptions, Walked, parse_cursor};
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use keyspace::Object;
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
    complexity: "O(1) for a call, O(N) for a whole walk over N elements",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Walks through a set in steps.",
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
    complexity: "O(1) for a call, O(N) for a whole walk over N elements",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Walks through a hash in steps.",
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
    complexity: "O(1) for a call, O(N) for a whole walk over N elements",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Walks through a sorted set in steps.",
    history: &[("8.0.0", "Takes `NOSCORES`.")],
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

impl ScanOptions<'_> {
    fn wants(&self, element: Element<'_>) -> bool {
        self.pattern.is_none_or(|pattern| {
            element.with_bytes(|bytes| glob::matches(pattern, bytes, Case::Sensitive))
        })
    }
}

/// One step through a collection. Options are looked at only if there is one.
fn walk<T: Object>(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    walked: Walked,
    step: impl FnOnce(&T, u64, &ScanOptions<'_>, &mut Vec<Vec<u8>>) -> u64,
) -> Outcome {
    let cursor = parse_cursor(args[2])?;
    let (mut next, mut words) = (0, Vec::new());
    if let Some(collection) = cx.db.read::<T>(args.key(1))? {
        let options = scan::parse(args, 3, walked)?;
        next = step(collection, cursor, &options, &mut words);
    }
    cx.reply.array(2);
    cx.reply.bulk(next.to_string().as_bytes());
    cx.reply.array(words.len());
    words.iter().for_each(|word| cx.reply.bulk(word));
    Ok(())
}

fn sscan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    walk(cx, args, Walked::Set, |set: &Set, cursor, options, words| {
        set.scan(cursor, options.count, |member| {
            if options.wants(member) {
                words.push(member.to_vec());
            }
        })
    })
}

fn hscan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let horizon = cx.db.horizon().0;
    walk(cx, args, Walked::Hash, |hash: &Hash, cursor, options, words| {
        hash.live(horizon).scan(cursor, options.count, |field, value| {
            if options.wants(field) {
                words.push(field.to_vec());
                if !options.is_bare {
                    words.push(value.to_vec());
                }
            }
        })
    })
}

fn zscan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    walk(cx, args, Walked::Zset, |zset: &Zset, cursor, options, words| {
        zset.scan(cursor, options.count, |member, score| {
            if options.wants(member) {
                words.push(member.to_vec());
                if !options.is_bare {
                    let mut text = Vec::new();
                    structs::numbers::push_f64(&mut text, score);
                    words.push(text);
                }
            }
        })
    })
}
