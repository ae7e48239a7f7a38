//! `CLUSTERSCAN cursor [MATCH pattern] [COUNT count] [TYPE type] [SLOT slot]`
//!
//! Walks through the keys of all slots, from slot 0 on, at the nodes that have them. The cursor is
//! `fingerprint-{tag}-position`: a tag whose slot is next, so that clients send it to the node of
//! that slot, and a position among the slot's keys. Positions are in the order of hashes, which
//! each process draws anew: one of another process begins the slot again.

use super::DISABLED;
use super::answers::{has_slots_of_keys, published};
use crate::generic::scan::{ScanOptions, Walked, parse};
use engine::routing::{Refusal, Routing, Way};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome, View,
};
use keyspace::{Entry, Key, Slot};
use std::sync::OnceLock;
use structs::crc16::key_slot;
use structs::numbers::parse_u64;
use structs::table::ScanPosition;

/// `CLUSTERSCAN`.
pub static CLUSTERSCAN: Command = Command {
    name: "clusterscan",
    arity: -2,
    flags: Flags::READONLY.with(Flags::WALKS),
    categories: &["keyspace"],
    group: Group::Cluster,
    since: "9.1.0",
    complexity: "O(N) for N elements in the reply",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Walks through the keys of a cluster in steps.",
    keys: &[KeySpec::one(KeyFlags::NOT_KEY)],
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    args: &[
        Arg::new("cursor", ArgKind::String),
        Arg::new("match-pattern", ArgKind::Pattern).after("MATCH").optional(),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("type", ArgKind::String).after("TYPE").optional(),
        Arg::new("slot", ArgKind::Integer).after("SLOT").optional(),
    ],
    routing: Routing::by(Way::Refused(Refusal::ClusterWalk)),
    run: clusterscan,
    ..Command::ROW
};

fn clusterscan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // A link brings it for a client of a single address, within a transaction.
    if cx.view() != View::Node || cx.session.is_link {
        return Err(DISABLED);
    }
    has_slots_of_keys(cx)?;
    let options = parse(args, 2, Walked::Slots)?;
    let matched = options.pattern.and_then(slot_of_pattern);
    // Nothing is in two slots.
    let is_void = matches!((options.slot, matched), (Some(one), Some(other)) if one != other);
    let only = options.slot.or(matched);
    if args[1] == b"0" {
        let next = (!is_void).then(|| start_of(only.unwrap_or(0)));
        reply(cx, next, &[]);
        return Ok(());
    }
    let (slot, position) = parse_cursor(args[1]).ok_or(Error::text("ERR Invalid cursor"))?;
    if options.slot.is_some_and(|given| given != slot) {
        return Err(Error::text("ERR Cursor slot mismatch with SLOT argument"));
    }
    if let Some(matched) = matched.filter(|&matched| matched != slot) {
        let is_ahead = !is_void && matched > slot;
        reply(cx, is_ahead.then(|| start_of(matched)), &[]);
        return Ok(());
    }
    let last = match only {
        Some(_) => slot,
        None => last_of_range(cx, slot)?,
    };
    let (next, found) = walk(cx, &options, slot..=last, position)?;
    let next = match next {
        Some((slot, ScanPosition::START)) => Some(start_of(slot)),
        Some((slot, at)) => Some(format!("{}-{{{}}}-{}", fingerprint(), tag(slot), at.to_bits48())),
        None if only.is_none() && usize::from(last) + 1 < Slot::COUNT => Some(start_of(last + 1)),
        None => None,
    };
    reply(cx, next, &found);
    Ok(())
}

/// Where a walk goes on: the slot, and the position in it.
type Next = Option<(u16, ScanPosition)>;

/// The names of keys.
type Names = Vec<Box<[u8]>>;

/// Looks at about as many keys as are asked for. Returns where to continue in these slots, and the
/// keys that are wanted.
fn walk(
    cx: &mut Cx<'_>,
    options: &ScanOptions<'_>,
    slots: std::ops::RangeInclusive<u16>,
    position: ScanPosition,
) -> Result<(Next, Names), Error> {
    let (db, horizon) = (cx.db.index, cx.db.horizon());
    let (mut seen, mut steps) = (0, 0);
    let most_steps = options.count.saturating_mul(10).max(64);
    let (mut found, mut from) = (Vec::new(), Some(position));
    let last = *slots.end();
    for number in slots {
        let slot = Slot::new(number).expect("slots of a cursor are slots");
        let mut expired: Vec<Box<[u8]>> = Vec::new();
        let visited = cx.db.visit(slot.stripe(), |stripe| {
            // Those without keys cost next to nothing.
            if stripe.slot_key_count(db, slot) == 0 {
                from = None;
            }
            while let Some(at) = from
                && seen < options.count
                && steps < most_steps
            {
                from = stripe.walk_slot(db, slot, at, |entry: &Entry| {
                    seen += 1;
                    if entry.is_expired(horizon) {
                        expired.push(Box::from(entry.key()));
                    } else if options.wants_key(entry) {
                        found.push(Box::from(entry.key()));
                    }
                });
                steps += 1;
            }
            stripe.is_slot_hidden(slot)
        });
        match visited {
            None => return Err(Error::StripeTaken),
            // It has left since the request was let in.
            Some(true) => return Err(Error::Elsewhere(LEFT.to_owned())),
            Some(false) => cx.db.remove_met(slot.stripe(), &expired),
        }
        if let Some(at) = from {
            return Ok((Some((number, at)), found));
        }
        from = (number < last).then_some(ScanPosition::START);
    }
    Ok((None, found))
}

const LEFT: &str = "TRYAGAIN The slot of the cursor is moving";

/// The last slot behind this one without a slot of another shard in between.
fn last_of_range(cx: &Cx<'_>, slot: u16) -> Result<u16, Error> {
    let published = published(cx)?;
    let shard = published.shard_of(slot);
    let is_same =
        |other: &u16| usize::from(*other) < Slot::COUNT && published.shard_of(*other) == shard;
    Ok((slot..).take_while(is_same).last().unwrap_or(slot))
}

fn reply(cx: &mut Cx<'_>, next: Option<String>, found: &[Box<[u8]>]) {
    cx.reply.array(2);
    cx.reply.bulk(next.as_deref().unwrap_or("0").as_bytes());
    cx.reply.array(found.len());
    found.iter().for_each(|key| cx.reply.bulk(key));
}

/// The cursor of a slot's beginning, which every process understands.
fn start_of(slot: u16) -> String {
    format!("0-{{{}}}-0", tag(slot))
}

/// The slot and the position of a cursor.
fn parse_cursor(word: &[u8]) -> Option<(u16, ScanPosition)> {
    let mut parts = word.splitn(3, |&byte| byte == b'-');
    let (print, tag, position) = (parts.next()?, parts.next()?, parts.next()?);
    let position = parse_u64(position)?;
    let is_ours = print == fingerprint().as_bytes();
    let at = if is_ours { ScanPosition::from_bits48(position) } else { ScanPosition::START };
    Some((key_slot(tag), at))
}

/// Six characters that stand for the order of hashes in this process.
fn fingerprint() -> &'static str {
    static PRINT: OnceLock<String> = OnceLock::new();
    PRINT.get_or_init(|| {
        let hash = Key::new(b"the order of hashes").hash >> 28;
        (0..6).map(|at| char::from(b'0' + (hash >> (6 * at) & 0x3f) as u8)).collect()
    })
}

/// A short tag of a slot. These are the tags of valkey-benchmark: the first of the slot among the
/// words of one letter, two and three.
fn tag(slot: u16) -> &'static str {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut tags = vec![String::new(); Slot::COUNT];
        let mut words: Vec<String> = vec![String::new()];
        for _ in 0..3 {
            let longer = |word: &String| {
                LETTERS
                    .iter()
                    .map(move |&it| format!("{word}{}", char::from(it)))
                    .collect::<Vec<_>>()
            };
            words = words.iter().flat_map(longer).collect();
            for word in &words {
                let tag = &mut tags[usize::from(key_slot(word.as_bytes()))];
                if tag.is_empty() {
                    tag.clone_from(word);
                }
            }
        }
        tags
    });
    &tags[usize::from(slot)]
}

/// The slot of all keys that a pattern matches, if it says so: nothing in it, up to the end of a
/// tag, stands for other characters.
fn slot_of_pattern(pattern: &[u8]) -> Option<u16> {
    let open = pattern.iter().position(|&byte| byte == b'{');
    let tag_end = open.and_then(|open| {
        let close = pattern[open + 1..].iter().position(|&byte| byte == b'}')?;
        (close > 0).then_some(open + 1 + close + 1)
    });
    let fixed = &pattern[..tag_end.unwrap_or(pattern.len())];
    (!fixed.iter().any(|byte| b"*?[\\".contains(byte))).then(|| key_slot(fixed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_in_their_slots() {
        assert_eq!([tag(0), tag(1), tag(2), tag(16383)], ["06S", "Qi", "5L5", "6ZJ"]);
        for slot in 0..Slot::COUNT as u16 {
            assert_eq!(key_slot(tag(slot).as_bytes()), slot);
        }
    }

    #[test]
    fn a_cursor_of_another_process_begins_its_slot_again() {
        let at = ScanPosition::from_bits48(1 << 40);
        let own = format!("{}-{{Qi}}-{}", fingerprint(), 1u64 << 40);
        assert!(parse_cursor(own.as_bytes()) == Some((1, at)));
        assert!(parse_cursor(b"0-{Qi}-77") == Some((1, ScanPosition::START)));
        for wrong in ["invalid", "abc-def-ghi", "0-", "0-{0}", "0-{0}-", "0-{0}--1"] {
            assert!(parse_cursor(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_without_wildcards_before_the_end_of_its_tag_is_of_one_slot() {
        assert_eq!(slot_of_pattern(b"{Qi}-*"), Some(1));
        assert_eq!(slot_of_pattern(b"a{Qi}*"), Some(1));
        assert_eq!(slot_of_pattern(b"foo"), Some(key_slot(b"foo")));
        assert_eq!(slot_of_pattern(b"{}foo"), Some(key_slot(b"{}foo")));
        for of_any in ["*{Qi}", "{Q?}", "{}*", "{}{Qi}*", "f[o]o", "fo\\o"] {
            assert_eq!(slot_of_pattern(of_any.as_bytes()), None, "{of_any}");
        }
    }
}
