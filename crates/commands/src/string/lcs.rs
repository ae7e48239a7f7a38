//! `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]`
//!
//! The textbook table has a number for each pair of positions. Only its current row is kept as
//! numbers; of the others one bit a pair is enough to walk back: whether the longer subsequence is
//! reached by dropping the first string's byte rather than the second's. That takes a thirty-second
//! of the memory, and none of it if only the length is wanted.

use engine::{
    Arg, ArgKind, Args, Begin, Command, Cx, Db, Effort, Error, Find, Flags, Group, KeyFlags,
    KeySpec, Outcome,
};
use resp::Reply;
use std::borrow::Cow;
use std::ops::Range;

/// `LCS`.
pub static LCS: Command = Command {
    name: "lcs",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::new(
        KeyFlags::RO.with(KeyFlags::ACCESS),
        Begin::Index(1),
        Find::Range { last: 1, step: 1, limit: 0 },
    )],
    group: Group::String,
    since: "7.0.0",
    complexity: "O(N*M) for strings of N and M bytes",
    effort: Effort::Estimate(compared),
    summary: "What two strings have in common, in the order of both.",
    args: &[
        Arg::key("key1", 0),
        Arg::key("key2", 0),
        Arg::token("len", "LEN").optional(),
        Arg::token("idx", "IDX").optional(),
        Arg::new("min-match-len", ArgKind::Integer).after("MINMATCHLEN").optional(),
        Arg::token("withmatchlen", "WITHMATCHLEN").optional(),
    ],
    run: lcs,
    ..Command::ROW
};

#[derive(Default)]
struct LcsOptions {
    len: bool,
    idx: bool,
    min_match_len: usize,
    with_match_len: bool,
}

fn parse(args: Args<'_>) -> Result<LcsOptions, Error> {
    let mut options = LcsOptions::default();
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "idx") {
            options.idx = true;
        } else if args.is(at, "len") {
            options.len = true;
        } else if args.is(at, "withmatchlen") {
            options.with_match_len = true;
        } else if args.is(at, "minmatchlen") && at + 1 < args.len() {
            at += 1;
            options.min_match_len = args.integer(at)?.max(0) as usize;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    if options.idx && options.len {
        return Err(Error::text(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    Ok(options)
}

/// Every byte of the one is compared with every byte of the other, some thirty in a unit.
fn compared(db: &Db<'_>, args: Args<'_>) -> usize {
    let len = |index| {
        db.lookup_no_effects(args.key(index)).and_then(|e| e.string()).map_or(0, |s| s.len())
    };
    len(1).saturating_mul(len(2)) / 32
}

fn lcs(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let read = |index: usize| match db.string(args.key(index)) {
        Ok(None) => Ok(Cow::Borrowed(&b""[..])),
        Ok(Some(string)) => {
            Ok(string.text().map_or_else(|| Cow::Owned(string.to_vec()), Cow::Borrowed))
        }
        Err(_) => Err(Error::text("ERR The specified keys must contain string values")),
    };
    let (a, b) = (read(1)?, read(2)?);
    let options = parse(args)?;
    check_size(a.len(), b.len(), cx.engine.config.proto_max_bulk_len() as u64)?;
    let mut turns = if options.len { None } else { Some(Turns::new(a.len(), b.len())?) };
    let len = fill(&a, &b, turns.as_mut(), || db.is_wanted());
    if !db.is_wanted() {
        return Ok(());
    }
    match turns {
        None => reply.integer(len as i64),
        Some(turns) if options.idx => write_matches(reply, &a, &b, &turns, len, &options),
        Some(turns) => {
            let mut common = Vec::with_capacity(len);
            turns.walk_back(&a, &b, |i, _| common.push(a[i]));
            common.reverse();
            reply.bulk(&common);
        }
    }
    Ok(())
}

/// Refuses what the reference refuses, which has four bytes for each pair of positions and keeps
/// them within `proto-max-bulk-len`. Here they would be bits, but there would be as many steps.
fn check_size(a: usize, b: usize, limit: u64) -> Result<(), Error> {
    let pairs = (a as u128 + 1) * (b as u128 + 1);
    if pairs * 4 > u128::from(limit) {
        return Err(Error::text(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    Ok(())
}

/// One bit for each pair of positions; see the file's documentation.
struct Turns {
    width: usize,
    bits: Vec<u64>,
}

impl Turns {
    fn new(rows: usize, width: usize) -> Result<Turns, Error> {
        let too_big =
            || Error::text("ERR Insufficient memory, failed allocating transient memory for LCS");
        let words = rows.checked_mul(width).ok_or_else(too_big)?.div_ceil(64);
        let mut bits = Vec::new();
        bits.try_reserve_exact(words).map_err(|_| too_big())?;
        bits.resize(words, 0);
        Ok(Turns { width, bits })
    }

    fn set(&mut self, i: usize, j: usize) {
        let at = i * self.width + j;
        self.bits[at / 64] |= 1 << (at % 64);
    }

    fn is_set(&self, i: usize, j: usize) -> bool {
        let at = i * self.width + j;
        self.bits[at / 64] >> (at % 64) & 1 == 1
    }

    /// Visits the pairs of equal bytes that make up the subsequence, the last one first.
    fn walk_back(&self, a: &[u8], b: &[u8], mut visit: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                visit(i, j);
            } else if self.is_set(i - 1, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
}

/// The length of the longest common subsequence, unless it turns out in between that it is no
/// longer wanted.
fn fill(a: &[u8], b: &[u8], mut turns: Option<&mut Turns>, is_wanted: impl Fn() -> bool) -> usize {
    let mut row = vec![0u32; b.len() + 1];
    for (i, &byte) in a.iter().enumerate().take_while(|_| is_wanted()) {
        // What was in the row one place to the left before this round.
        let mut diagonal = 0;
        for j in 0..b.len() {
            let above = row[j + 1];
            if byte == b[j] {
                row[j + 1] = diagonal + 1;
            } else if above > row[j] {
                if let Some(turns) = turns.as_deref_mut() {
                    turns.set(i, j);
                }
            } else {
                row[j + 1] = row[j];
            }
            diagonal = above;
        }
    }
    row[b.len()] as usize
}

/// Stretches that lie side by side in both strings, the last one first.
fn matches(a: &[u8], b: &[u8], turns: &Turns) -> Vec<(Range<usize>, Range<usize>)> {
    let mut found: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    turns.walk_back(a, b, |i, j| match found.last_mut() {
        Some((in_a, in_b)) if in_a.start == i + 1 && in_b.start == j + 1 => {
            (in_a.start, in_b.start) = (i, j);
        }
        _ => found.push((i..i + 1, j..j + 1)),
    });
    found
}

fn write_matches(
    reply: &mut Reply<'_>,
    a: &[u8],
    b: &[u8],
    turns: &Turns,
    len: usize,
    options: &LcsOptions,
) {
    let mut found = matches(a, b, turns);
    found.retain(|(in_a, _)| in_a.len() >= options.min_match_len);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(found.len());
    for (in_a, in_b) in &found {
        reply.array(if options.with_match_len { 3 } else { 2 });
        for range in [in_a, in_b] {
            reply.array(2);
            reply.integer(range.start as i64);
            reply.integer(range.end as i64 - 1);
        }
        if options.with_match_len {
            reply.integer(in_a.len() as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(len as i64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(a: &str, b: &str) -> (usize, String) {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut turns = Turns::new(a.len(), b.len()).unwrap();
        let len = fill(a, b, Some(&mut turns), || true);
        assert_eq!(fill(a, b, None, || true), len);
        let mut text = Vec::new();
        turns.walk_back(a, b, |i, _| text.push(a[i]));
        text.reverse();
        (len, String::from_utf8(text).unwrap())
    }

    #[test]
    fn longest_common_subsequences() {
        assert_eq!(common("ohmytext", "mynewtext"), (6, "mytext".into()));
        assert_eq!(common("", "abc"), (0, String::new()));
        assert_eq!(common("abc", "xyz"), (0, String::new()));
        assert_eq!(common("banana", "banana"), (6, "banana".into()));
    }

    #[test]
    fn stretches_are_joined_only_where_both_strings_go_on() {
        let (a, b) = (b"ohmytext", b"mynewtext");
        let mut turns = Turns::new(a.len(), b.len()).unwrap();
        fill(a, b, Some(&mut turns), || true);
        assert_eq!(matches(a, b, &turns), [(4..8, 5..9), (2..4, 0..2)]);
    }
}
