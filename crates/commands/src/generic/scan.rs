//! `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
//!
//! The cursor is a stripe and a position in the order of hashes, which growth does not disturb: a key
//! that is there from the first call to the last is returned.
//!
//! ```text
//!    63   58 57        48 47                      0
//!   ┌───────┬────────────┬────────────────────────┐
//!   │   0   │   stripe   │        position        │
//!   └───────┴────────────┴────────────────────────┘
//! ```

use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, Outcome};
use keyspace::keyspace::STRIPES;
use structs::glob::{self, Case};
use structs::table::ScanPosition;

/// `SCAN`.
pub static SCAN: Command = Command {
    name: "scan",
    arity: -2,
    flags: Flags::READONLY.with(Flags::WALKS),
    group: Group::Generic,
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough \
        command calls for the cursor to return back to 0. N is the number of elements \
        inside the collection.",
    effort: Effort::Estimate(crate::effort::scanned),
    summary: "Iterates over the key names in the database.",
    history: &[("6.0.0", "Added the `TYPE` subcommand.")],
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    args: &[
        Arg::new("cursor", ArgKind::Integer),
        Arg::new("pattern", ArgKind::Pattern).after("MATCH").optional(),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("type", ArgKind::String).after("TYPE").optional().since("6.0.0"),
    ],
    run: scan,
    ..Command::ROW
};

const POSITION_BITS: u32 = 48;

struct Options<'a> {
    count: usize,
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

/// Reads a cursor.
pub(crate) fn parse_cursor(word: &[u8]) -> Result<u64, Error> {
    structs::numbers::parse_u64(word).ok_or(Error::text("ERR invalid cursor"))
}

fn parse<'a>(args: Args<'a>) -> Result<Options<'a>, Error> {
    let mut options = Options { count: 10, pattern: None, kind: None };
    let mut at = 2;
    while at < args.len() {
        let Some(value) = args.get(at + 1) else { return Err(Error::Syntax) };
        if args.is(at, "count") {
            let count = args.integer(at + 1)?;
            if count < 1 {
                return Err(Error::Syntax);
            }
            options.count = usize::try_from(count).unwrap_or(usize::MAX);
        } else if args.is(at, "match") {
            options.pattern = (value != b"*").then_some(value);
        } else if args.is(at, "type") {
            const KNOWN: [&[u8]; 6] = [b"string", b"list", b"set", b"zset", b"hash", b"stream"];
            if !KNOWN.iter().any(|known| value.eq_ignore_ascii_case(known)) {
                let mut text = b"ERR unknown type name '".to_vec();
                text.extend_from_slice(value);
                text.push(b'\'');
                return Err(Error::Bytes(text));
            }
            options.kind = Some(value);
        } else {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    Ok(options)
}

fn scan(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut cursor = parse_cursor(args[1])?;
    let options = parse(args)?;
    let (db, now) = (cx.db.index, cx.now());
    let mut found: Vec<Box<[u8]>> = Vec::new();
    // Work is bounded by what is looked at, not by what matches; empty stripes cost little.
    let (mut seen, mut steps) = (0, 0);
    let most_steps = options.count.saturating_mul(10).max(64);
    while seen < options.count && steps < most_steps {
        let stripe = (cursor >> POSITION_BITS) as usize;
        if stripe >= STRIPES {
            cursor = 0;
            break;
        }
        let mut from = Some(ScanPosition::from_bits48(cursor));
        cx.db.with_stripe(stripe, |data| {
            while let Some(position) = from
                && seen < options.count
                && steps < most_steps
            {
                steps += 1;
                from = data.scan(db, position, |entry| {
                    seen += 1;
                    let wanted = !entry.is_expired(now)
                        && options.kind.is_none_or(|kind| {
                            kind.eq_ignore_ascii_case(entry.kind().type_name().as_bytes())
                        })
                        && options
                            .pattern
                            .is_none_or(|p| glob::matches(p, entry.key(), Case::Sensitive));
                    if wanted {
                        found.push(Box::from(entry.key()));
                    }
                });
            }
        });
        cursor = match from {
            Some(position) => (stripe as u64) << POSITION_BITS | position.to_bits48(),
            None if stripe + 1 == STRIPES => 0,
            None => (stripe as u64 + 1) << POSITION_BITS,
        };
        if cursor == 0 {
            break;
        }
        // An empty stripe took one step of ten that a key may take.
        steps = steps.saturating_sub(usize::from(seen == 0));
    }
    cx.reply.array(2);
    cx.reply.bulk(cursor.to_string().as_bytes());
    cx.reply.array(found.len());
    found.iter().for_each(|key| cx.reply.bulk(key));
    Ok(())
}
