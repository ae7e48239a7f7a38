//! `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
//!
//! The cursor is a stripe, one of its tables and a position in the order of hashes, which growth
//! does not disturb: a key that is there from the first call to the last is returned. Expired keys
//! that it meets are deleted. There is one table in a stripe, except in cluster mode, where each
//! slot has one.
//!
//! ```text
//!    63 62 61   58 57        48 47                      0
//!   ┌─────┬───────┬────────────┬────────────────────────┐
//!   │  0  │ table │   stripe   │        position        │
//!   └─────┴───────┴────────────┴────────────────────────┘
//! ```

use engine::routing::{Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, Outcome};
use keyspace::Entry;
use keyspace::keyspace::STRIPES;
use keyspace::tables::WalkPlace;
use std::cell::Cell;
use structs::glob::{self, Case};
use structs::table::ScanPosition;

/// `SCAN`.
pub static SCAN: Command = Command {
    name: "scan",
    arity: -2,
    flags: Flags::READONLY.with(Flags::WALKS),
    group: Group::Generic,
    since: "2.8.0",
    complexity: "O(1) for a call, O(N) for a whole walk over N elements",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Walks through the keys of a database in steps.",
    history: &[("6.0.0", "Takes `TYPE`.")],
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    args: &[
        Arg::new("cursor", ArgKind::Integer),
        Arg::new("pattern", ArgKind::Pattern).after("MATCH").optional(),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("type", ArgKind::String).after("TYPE").optional().since("6.0.0"),
    ],
    routing: Routing::by(Way::Scan),
    run: scan,
    ..Command::ROW
};

/// Few, because a proxy and a node that forwards put the number of a server into the cursor, too.
const POSITION_BITS: u32 = 36;
/// Bits of [`ScanPosition::to_bits48`] that a cursor leaves out. They are zero where a page ends.
const LEFT_OUT: u32 = 48 - POSITION_BITS;
const STRIPE_BITS: u32 = STRIPES.trailing_zeros();

/// A cursor that leads to a place.
fn cursor_of(stripe: usize, place: WalkPlace) -> u64 {
    let stripe_and_table = place.table << STRIPE_BITS | stripe;
    (stripe_and_table as u64) << POSITION_BITS | place.at.to_bits48() >> LEFT_OUT
}

/// The place that a cursor leads to; any number is a cursor.
fn place_of(cursor: u64) -> (usize, WalkPlace) {
    let stripe_and_table = (cursor >> POSITION_BITS) as usize;
    let at = ScanPosition::from_bits48(cursor << LEFT_OUT);
    (stripe_and_table % STRIPES, WalkPlace { table: stripe_and_table >> STRIPE_BITS, at })
}

/// What is walked through; some options suit one of them only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walked {
    Keys,
    Slots,
    Set,
    Hash,
    Zset,
}

pub(crate) struct ScanOptions<'a> {
    pub count: usize,
    pub pattern: Option<&'a [u8]>,
    pub kind: Option<&'a [u8]>,
    /// The only slot.
    pub slot: Option<u16>,
    /// Whether the values of a hash and the scores of a sorted set are left out.
    pub is_bare: bool,
}

/// Reads a cursor.
/// A cursor, as C reads an unsigned number: blanks, a sign and zeros may come first and a NUL ends
/// it. But a plain negative number is refused.
pub(super) fn parse_cursor(word: &[u8]) -> Result<u64, Error> {
    let invalid = Error::text("ERR invalid cursor");
    if let Some(cursor) = structs::numbers::parse_u64(word) {
        return Ok(cursor);
    }
    if structs::numbers::parse_i64(word).is_some() {
        return Err(invalid);
    }
    let text = word.split(|&byte| byte == 0).next().unwrap_or_default();
    let blanks = text.iter().take_while(|byte| b" \t\n\x0b\x0c\r".contains(byte)).count();
    let (is_negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(invalid);
    }
    let cursor = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
    let cursor = cursor.ok_or(invalid)?;
    Ok(if is_negative { cursor.wrapping_neg() } else { cursor })
}

/// Reads the options from word `at` on.
pub(crate) fn parse(
    args: Args<'_>,
    mut at: usize,
    walked: Walked,
) -> Result<ScanOptions<'_>, Error> {
    let is_bare = false;
    let mut options = ScanOptions { count: 10, pattern: None, kind: None, slot: None, is_bare };
    let walks_keys = matches!(walked, Walked::Keys | Walked::Slots);
    while at < args.len() {
        let value = args.get(at + 1);
        match value {
            Some(_) if args.is(at, "count") => {
                let count = args.integer(at + 1)?;
                if count < 1 {
                    return Err(Error::Syntax);
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX);
                at += 1;
            }
            Some(pattern) if args.is(at, "match") => {
                options.pattern = (pattern != b"*").then_some(pattern);
                at += 1;
            }
            Some(kind) if walks_keys && args.is(at, "type") => {
                options.kind = Some(known_type(kind)?);
                at += 1;
            }
            Some(slot) if walked == Walked::Slots && args.is(at, "slot") => {
                if options.slot.is_some() {
                    return Err(Error::text("ERR SLOT option can only be specified once"));
                }
                options.slot = Some(crate::cluster::slot_number(slot)?);
                at += 1;
            }
            _ if args.is(at, "novalues") => {
                if walked != Walked::Hash {
                    return Err(Error::text("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.is_bare = true;
            }
            _ if args.is(at, "noscores") => {
                if walked != Walked::Zset {
                    return Err(Error::text("ERR NOSCORES option can only be used in ZSCAN"));
                }
                options.is_bare = true;
            }
            _ => return Err(Error::Syntax),
        }
        at += 1;
    }
    Ok(options)
}

fn known_type(name: &[u8]) -> Result<&[u8], Error> {
    const KNOWN: [&[u8]; 6] = [b"string", b"list", b"set", b"zset", b"hash", b"stream"];
    let modules = datatypes::ALL.iter().map(|row| row.name.as_bytes());
    if KNOWN.into_iter().chain(modules).any(|known| name.eq_ignore_ascii_case(known)) {
        return Ok(name);
    }
    Err(Error::Bytes([b"ERR unknown type name '", name, b"'"].concat()))
}

impl ScanOptions<'_> {
    /// Whether a key is of the type and matches the pattern that are asked for.
    pub(crate) fn wants_key(&self, entry: &Entry) -> bool {
        let kind = entry.type_name().as_bytes();
        self.kind.is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
            && self.pattern.is_none_or(|p| glob::matches(p, entry.key(), Case::Sensitive))
    }
}

fn scan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut cursor = parse_cursor(args[1])?;
    let options = parse(args, 2, Walked::Keys)?;
    let (db, horizon) = (cx.db.index, cx.db.horizon());
    let mut found: Vec<Box<[u8]>> = Vec::new();
    // Work is bounded by what is looked at, not by what matches.
    let (seen, mut steps) = (Cell::new(0), 0);
    let most_steps = options.count.saturating_mul(10).max(64);
    while seen.get() < options.count && steps < most_steps {
        let (stripe, place) = place_of(cursor);
        if place.table >= cx.engine.keyspace.tables_per_stripe() {
            cursor = 0;
            break;
        }
        let mut from = Some(place);
        let mut expired: Vec<Box<[u8]>> = Vec::new();
        let visited = cx.db.visit(stripe, |data| {
            let mut look = |entry: &Entry| {
                seen.set(seen.get() + 1);
                if entry.is_expired(horizon) {
                    expired.push(Box::from(entry.key()));
                } else if options.wants_key(entry) {
                    found.push(Box::from(entry.key()));
                }
            };
            while let Some(place) = from
                && seen.get() < options.count
                && steps < most_steps
            {
                // Empty stripes cost next to nothing, and there is a fixed number of them.
                if data.key_count(db) == 0 {
                    from = None;
                    break;
                }
                steps += 1;
                from = data.walk(db, place, &mut look);
            }
            // A little further, to a place that a cursor can say.
            if let Some(WalkPlace { table, at }) = from {
                let end = at.rounded_up(POSITION_BITS);
                while let Some(place) = from
                    && place.table == table
                    && end.is_none_or(|end| place.at < end)
                {
                    from = data.walk_until(db, place, end, &mut look);
                }
            }
        });
        if visited.is_none() {
            return Err(Error::StripeTaken);
        }
        cx.db.remove_met(stripe, &expired);
        cursor = match from {
            Some(place) => cursor_of(stripe, place),
            None if stripe + 1 == STRIPES => 0,
            None => cursor_of(stripe + 1, WalkPlace::START),
        };
        if cursor == 0 {
            break;
        }
    }
    cx.reply.array(2);
    cx.reply.bulk(cursor.to_string().as_bytes());
    cx.reply.array(found.len());
    found.iter().for_each(|key| cx.reply.bulk(key));
    Ok(())
}
