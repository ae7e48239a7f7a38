//! `CLUSTER SLOT-STATS`: how many keys each slot of this server's shard has. CPU and traffic are
//! not counted by slot.
//!
//! `SLOTSRANGE first last MEMORY-BYTES` adds the bytes of keys and values, estimated from
//! [`SAMPLES`] keys of a slot. It is asked for by ranges, so that no request takes long.

use super::answers::{has_slots_of_keys, published};
use cluster::slots::COUNT;
use engine::{Args, Cx, DbIndex, Error, Outcome};
use keyspace::Slot;
use std::cmp::Reverse;

const LIMIT: Error =
    Error::text("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).");

/// The keys of a slot whose bytes are looked at.
const SAMPLES: usize = 64;

/// What is said of a slot.
struct Figures {
    slot: u16,
    keys: usize,
    /// None: it was not asked for.
    bytes: Option<u64>,
}

/// `CLUSTER SLOT-STATS`.
pub(super) fn slot_stats(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let own: Vec<u16> = {
        let published = published(cx)?;
        has_slots_of_keys(cx)?;
        let shard = published.own_shard();
        let ranges = shard.iter().flat_map(|shard| shard.slots.ranges());
        ranges.flat_map(|&(first, last)| first..=last).collect()
    };
    let has_bytes = args.len() == 6 && args.is(5, "memory-bytes");
    if args.is(2, "slotsrange") && (args.len() == 5 || has_bytes) {
        let (first, last) = (slot(args[3])?, slot(args[4])?);
        if first > last {
            return Err(Error::format(format!(
                "ERR Start slot number {first} is greater than end slot number {last}"
            )));
        }
        let asked = own.into_iter().filter(|slot| (first..=last).contains(slot));
        let figures = asked.map(|slot| {
            let bytes = if has_bytes { Some(bytes(cx, slot)?) } else { None };
            Ok(Figures { slot, keys: count(cx, slot)?, bytes })
        });
        let figures: Vec<Figures> = figures.collect::<Result<_, Error>>()?;
        write(cx, &figures);
        return Ok(());
    }
    if args.is(2, "orderby") {
        let Order { limit, is_ascending } = order(args)?;
        let figures =
            own.into_iter().map(|slot| Ok(Figures { slot, keys: count(cx, slot)?, bytes: None }));
        let mut figures: Vec<Figures> = figures.collect::<Result<_, Error>>()?;
        match is_ascending {
            true => figures.sort_by_key(|it| (it.keys, it.slot)),
            false => figures.sort_by_key(|it| (Reverse(it.keys), it.slot)),
        }
        figures.truncate(limit);
        write(cx, &figures);
        return Ok(());
    }
    Err(Error::Syntax)
}

struct Order {
    limit: usize,
    is_ascending: bool,
}

fn order(args: Args<'_>) -> Result<Order, Error> {
    if !args.is(3, "key-count") {
        return Err(Error::text("ERR Unrecognized sort metric for ORDERBY."));
    }
    let (mut limit, mut is_ascending) = (None, None);
    let mut at = 4;
    while at < args.len() {
        let is_new = if args.is(at, "limit") && at + 1 < args.len() {
            at += 1;
            let number = args.integer(at).map_err(|_| LIMIT)?;
            let number = usize::try_from(number).ok();
            let number = number.filter(|number| (1..=usize::from(COUNT)).contains(number));
            limit.replace(number.ok_or(LIMIT)?).is_none()
        } else if args.is(at, "asc") || args.is(at, "desc") {
            is_ascending.replace(args.is(at, "asc")).is_none()
        } else {
            return Err(Error::Syntax);
        };
        if !is_new {
            return Err(Error::text("ERR Multiple filters of the same type are disallowed."));
        }
        at += 1;
    }
    let (limit, is_ascending) = (limit.unwrap_or(COUNT.into()), is_ascending.unwrap_or(false));
    Ok(Order { limit, is_ascending })
}

fn slot(word: &[u8]) -> Result<u16, Error> {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    let number = number.filter(|&number| number < COUNT);
    number.ok_or(Error::text("ERR Invalid or out of range slot"))
}

/// The keys of a slot, in all databases.
fn count(cx: &mut Cx<'_>, slot: u16) -> Result<usize, Error> {
    let databases = cx.engine.keyspace().databases();
    let slot = Slot::new(slot).expect("slots of a shard are slots");
    let count = cx.db.visit(slot.stripe(), |stripe| {
        (0..databases).map(|db| stripe.slot_key_count(DbIndex(db), slot)).sum()
    });
    count.ok_or(Error::StripeTaken)
}

/// About how many bytes the keys of a slot have, in all databases.
fn bytes(cx: &mut Cx<'_>, slot: u16) -> Result<u64, Error> {
    let databases = cx.engine.keyspace().databases();
    let slot = Slot::new(slot).expect("slots of a shard are slots");
    let bytes = cx.db.visit(slot.stripe(), |stripe| {
        (0..databases).map(|db| stripe.slot_bytes(DbIndex(db), slot, SAMPLES)).sum()
    });
    bytes.ok_or(Error::StripeTaken)
}

fn write(cx: &mut Cx<'_>, figures: &[Figures]) {
    cx.reply.array(figures.len());
    for figures in figures {
        cx.reply.array(2);
        cx.reply.integer(i64::from(figures.slot));
        cx.reply.map(1 + usize::from(figures.bytes.is_some()));
        cx.reply.bulk(b"key-count");
        cx.reply.integer(figures.keys as i64);
        if let Some(bytes) = figures.bytes {
            cx.reply.bulk(b"memory-bytes");
            cx.reply.integer(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }
}
