//! `CLUSTER SLOT-STATS`: how many keys each slot of this server's shard has. CPU and traffic are not counted by slot.

use super::answers::{has_slots_of_keys, published};
use cluster::slots::COUNT;
use engine::{Args, Cx, DbIndex, Error, Outcome};
use keyspace::Slot;
use std::cmp::Reverse;

const LIMIT: Error =
    Error::text("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).");

/// `CLUSTER SLOT-STATS`.
pub(super) fn slot_stats(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let own: Vec<u16> = {
        let published = published(cx)?;
        has_slots_of_keys(cx)?;
        let shard = published.own_shard();
        let ranges = shard.iter().flat_map(|shard| shard.slots.ranges());
        ranges.flat_map(|&(first, last)| first..=last).collect()
    };
    if args.is(2, "slotsrange") && args.len() == 5 {
        let (first, last) = (slot(args[3])?, slot(args[4])?);
        if first > last {
            return Err(Error::format(format!(
                "ERR Start slot number {first} is greater than end slot number {last}"
            )));
        }
        let asked = own.into_iter().filter(|slot| (first..=last).contains(slot));
        let counts = asked.map(|slot| Ok((slot, count(cx, slot)?)));
        let counts: Vec<_> = counts.collect::<Result<_, Error>>()?;
        write(cx, &counts);
        return Ok(());
    }
    if args.is(2, "orderby") {
        let Order { limit, is_ascending } = order(args)?;
        let counts = own.into_iter().map(|slot| Ok((slot, count(cx, slot)?)));
        let mut counts: Vec<(u16, usize)> = counts.collect::<Result<_, Error>>()?;
        match is_ascending {
            true => counts.sort_by_key(|&(slot, count)| (count, slot)),
            false => counts.sort_by_key(|&(slot, count)| (Reverse(count), slot)),
        }
        counts.truncate(limit);
        write(cx, &counts);
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
    let databases = cx.engine.keyspace.databases();
    let slot = Slot::new(slot).expect("slots of a shard are slots");
    let count = cx.db.visit(slot.stripe(), |stripe| {
        (0..databases).map(|db| stripe.slot_key_count(DbIndex(db), slot)).sum()
    });
    count.ok_or(Error::StripeTaken)
}

fn write(cx: &mut Cx<'_>, counts: &[(u16, usize)]) {
    cx.reply.array(counts.len());
    for &(slot, count) in counts {
        cx.reply.array(2);
        cx.reply.integer(i64::from(slot));
        cx.reply.map(1);
        cx.reply.bulk(b"key-count");
        cx.reply.integer(count as i64);
    }
}
