//! `CLUSTER SLOT-STATS`: how many keys each slot of this server's shard has, and with
//! `cluster-slot-stats-enabled` the time and bytes of its requests. Not in these bytes: the stream
//! to replicas, and messages to subscribers of shard channels.
//!
//! `SLOTSRANGE first last MEMORY-BYTES` adds the bytes of keys and values, estimated from
//! [`SAMPLES`] keys of a slot. It is asked for by ranges, so that no request takes long. `REQUESTS`
//! behind it adds the number of requests, if they are counted.

use super::answers::{has_slots_of_keys, published};
use cluster::slots::COUNT;
use engine::slot_usage::Used;
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
    /// None: it is not counted.
    used: Option<Used>,
    /// None: it was not asked for.
    bytes: Option<u64>,
}

impl Figures {
    fn new(cx: &mut Cx<'_>, slot: u16, has_bytes: bool) -> Result<Figures, Error> {
        let is_counted = cx.engine.config.cluster_slot_stats_enabled();
        let used = is_counted.then(|| cx.engine.slot_usage.of(slot));
        let bytes = if has_bytes { Some(bytes(cx, slot)?) } else { None };
        Ok(Figures { slot, keys: count(cx, slot)?, used, bytes })
    }

    fn get(&self, metric: Metric) -> u64 {
        let used = self.used.unwrap_or_default();
        match metric {
            Metric::Keys => self.keys as u64,
            // Rounded as in INFO commandstats.
            Metric::Time => (used.nanoseconds + 500) / 1000,
            Metric::BytesIn => used.bytes_in,
            Metric::BytesOut => used.bytes_out,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Metric {
    Keys,
    Time,
    BytesIn,
    BytesOut,
}

impl Metric {
    const ALL: [Metric; 4] = [Metric::Keys, Metric::Time, Metric::BytesIn, Metric::BytesOut];

    fn name(self) -> &'static str {
        match self {
            Metric::Keys => "key-count",
            Metric::Time => "cpu-usec",
            Metric::BytesIn => "network-bytes-in",
            Metric::BytesOut => "network-bytes-out",
        }
    }
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
    let has_requests = args.len() == 7 && args.is(6, "requests");
    let has_bytes = (args.len() == 6 || has_requests) && args.is(5, "memory-bytes");
    if args.is(2, "slotsrange") && (args.len() == 5 || has_bytes) {
        let (first, last) = (slot_number(args[3])?, slot_number(args[4])?);
        if first > last {
            return Err(Error::format(format!(
                "ERR Start slot number {first} is greater than end slot number {last}"
            )));
        }
        let asked = own.into_iter().filter(|slot| (first..=last).contains(slot));
        let figures = asked.map(|slot| Figures::new(cx, slot, has_bytes));
        let figures: Vec<Figures> = figures.collect::<Result<_, Error>>()?;
        write(cx, &figures, has_requests);
        return Ok(());
    }
    if args.is(2, "orderby") {
        let is_counted = cx.engine.config.cluster_slot_stats_enabled();
        let Order { by, limit, is_ascending } = order(args, is_counted)?;
        let figures = own.into_iter().map(|slot| Figures::new(cx, slot, false));
        let mut figures: Vec<Figures> = figures.collect::<Result<_, Error>>()?;
        match is_ascending {
            true => figures.sort_by_key(|it| (it.get(by), it.slot)),
            false => figures.sort_by_key(|it| (Reverse(it.get(by)), it.slot)),
        }
        figures.truncate(limit);
        write(cx, &figures, false);
        return Ok(());
    }
    Err(Error::Syntax)
}

struct Order {
    by: Metric,
    limit: usize,
    is_ascending: bool,
}

fn order(args: Args<'_>, is_counted: bool) -> Result<Order, Error> {
    let known = Metric::ALL.into_iter().filter(|&it| is_counted || it == Metric::Keys);
    let mut asked = known.filter(|metric| args.is(3, metric.name()));
    let unknown = Error::text("ERR Unrecognized sort metric for ORDERBY.");
    let by = asked.next().ok_or(unknown)?;
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
    Ok(Order { by, limit, is_ascending })
}

/// Reads a slot.
pub(crate) fn slot_number(word: &[u8]) -> Result<u16, Error> {
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

/// About how many bytes the keys of a slot have, in all databases.
fn bytes(cx: &mut Cx<'_>, slot: u16) -> Result<u64, Error> {
    let databases = cx.engine.keyspace.databases();
    let slot = Slot::new(slot).expect("slots of a shard are slots");
    let bytes = cx.db.visit(slot.stripe(), |stripe| {
        (0..databases).map(|db| stripe.slot_bytes(DbIndex(db), slot, SAMPLES)).sum()
    });
    bytes.ok_or(Error::StripeTaken)
}

fn write(cx: &mut Cx<'_>, figures: &[Figures], has_requests: bool) {
    cx.reply.array(figures.len());
    for figures in figures {
        cx.reply.array(2);
        cx.reply.integer(i64::from(figures.slot));
        let shown = if figures.used.is_some() { &Metric::ALL[..] } else { &[Metric::Keys] };
        let shown = shown.iter().map(|&metric| (metric.name(), figures.get(metric)));
        let bytes = figures.bytes.map(|bytes| ("memory-bytes", bytes));
        let requests =
            figures.used.filter(|_| has_requests).map(|used| ("requests", used.requests));
        let all: Vec<(&str, u64)> = shown.chain(bytes).chain(requests).collect();
        cx.reply.map(all.len());
        for (name, figure) in all {
            cx.reply.bulk(name.as_bytes());
            cx.reply.integer(i64::try_from(figure).unwrap_or(i64::MAX));
        }
    }
}
