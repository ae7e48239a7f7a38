//! Finding the keys of a request.
//!
//! Most commands have exactly one key at a fixed place, which the command table works out
//! beforehand; that is all the hot path ever looks at. For the others [`for_each_key`] follows the
//! key specifications of the row, and where these cannot express the truth, the row names a
//! function for it (`find_keys`), written beside the command.
//!
//! Which stripes a command locks depends on this, so the rule is: every key that a command may
//! touch is reported, or an error is returned and the command, run with whatever was reported
//! before, answers with a syntax error of its own.

use crate::key_spec::{Begin, Find, KeyFlags, KeySpec};
pub use crate::key_spec::{FindKeys, InvalidKeys};
use crate::row::{Flags, Row, Runner};
use structs::numbers;

/// Calls `found` with the index in `argv` and the flags of every key, in the order of the
/// specifications; words that only look like keys (shard channels) are left out.
///
/// `argv` starts with the command's name and has as many words as the row's arity asks for. Keys
/// may already have been reported when an error is returned.
pub fn for_each_key<R: Runner>(
    command: &Row<R>,
    argv: &[&[u8]],
    mut found: impl FnMut(usize, KeyFlags),
) -> Result<(), InvalidKeys> {
    if let Some(find) = command.find_keys {
        return find(argv, &mut found);
    }
    for spec in command.keys {
        if !spec.flags.has(KeyFlags::NOT_KEY) {
            let no_keys = command.flags.has(Flags::NO_MANDATORY_KEYS);
            keys_of_spec(spec, argv, no_keys, &mut found)?;
        }
    }
    Ok(())
}

/// Calls `found` with the beginning of the names of each set of keys that a request reads and that
/// its words do not name.
pub fn for_each_prefix<R: Runner>(command: &Row<R>, argv: &[&[u8]], mut found: impl FnMut(&[u8])) {
    if let Some(find) = command.key_prefixes {
        find(argv, &mut found);
    }
}

/// Returns whether a request reads keys that its words do not name.
pub fn reads_unnamed<R: Runner>(command: &Row<R>, argv: &[&[u8]]) -> bool {
    let mut reads = false;
    for_each_prefix(command, argv, |_| reads = true);
    reads
}

/// Calls `found` with the index in `argv` of every shard channel, which belongs to a slot as a key
/// does.
pub fn for_each_shard_channel<R: Runner>(
    command: &Row<R>,
    argv: &[&[u8]],
    mut found: impl FnMut(usize),
) -> Result<(), InvalidKeys> {
    for spec in command.keys.iter().filter(|spec| spec.flags.has(KeyFlags::NOT_KEY)) {
        keys_of_spec(spec, argv, false, &mut |index, _| found(index))?;
    }
    Ok(())
}

/// Whether requests of this command have shard channels.
pub fn has_shard_channels<R: Runner>(command: &Row<R>) -> bool {
    command.keys.iter().any(|spec| spec.flags.has(KeyFlags::NOT_KEY))
}

/// Whether requests of this command have keys at all (COMMAND GETKEYS).
pub fn has_keys<R: Runner>(command: &Row<R>) -> bool {
    command.find_keys.is_some()
        || command.keys.iter().any(|spec| !spec.flags.has(KeyFlags::NOT_KEY))
}

/// Calls `found` with the index in `argv` and the flags of every key of one specification.
/// `may_be_none`: a request that states zero keys is valid.
pub fn keys_of_spec(
    spec: &KeySpec,
    argv: &[&[u8]],
    may_be_none: bool,
    found: &mut impl FnMut(usize, KeyFlags),
) -> Result<(), InvalidKeys> {
    let first = match spec.begin {
        Begin::Index(index) => index,
        Begin::Keyword(keyword, from) => match after_keyword(argv, keyword, from) {
            Some(index) => index,
            None => return Ok(()),
        },
        Begin::Unknown => return Err(InvalidKeys),
    };
    // `first` is at most one past the last word of some request, so the sums below cannot
    // overflow once the client's number is known to be no more than the number of words.
    let (first, end, step) = match spec.find {
        Find::Range { last, step, limit } => {
            let end = if last >= 0 {
                Some(first + last as usize + 1)
            } else if limit > 1 {
                argv.len().checked_sub(first).map(|words| first + words / limit)
            } else {
                (argv.len() + 1).checked_sub(last.unsigned_abs() as usize)
            };
            (first, end.ok_or(InvalidKeys)?, step)
        }
        Find::KeyNum { index, first: offset, step } => {
            let number = argv.get(first + index).and_then(|word| numbers::parse_i64(word));
            let number = number.and_then(|number| usize::try_from(number).ok());
            let number = number.filter(|&number| number <= argv.len()).ok_or(InvalidKeys)?;
            if number == 0 && may_be_none {
                return Ok(());
            }
            let first = first + offset;
            // The last of the words that come with a key need not be there for a key to be.
            (first, first + (number * step + 1).saturating_sub(step), step)
        }
        Find::Unknown => return Err(InvalidKeys),
    };
    if end > argv.len() || end <= first {
        return Err(InvalidKeys);
    }
    for index in (first..end).step_by(step) {
        found(index, spec.flags);
    }
    if spec.flags.has(KeyFlags::INCOMPLETE) { Err(InvalidKeys) } else { Ok(()) }
}

/// The place after a keyword, searched from word `from`, or if that is negative from so many
/// words before the end backwards; the last word is never it, nothing could follow.
fn after_keyword(argv: &[&[u8]], keyword: &str, from: i32) -> Option<usize> {
    let is_keyword = |&index: &usize| argv[index].eq_ignore_ascii_case(keyword.as_bytes());
    let from_end = from.unsigned_abs() as usize;
    let found = if from > 0 {
        (from_end..argv.len().saturating_sub(1)).find(is_keyword)
    } else {
        (2..(argv.len() + 1).saturating_sub(from_end)).rev().find(is_keyword)
    };
    found.map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::NotRun;

    type Command = Row<NotRun>;

    const RO: KeyFlags = KeyFlags::RO;
    const OW: KeyFlags = KeyFlags::OW;

    const fn row(keys: &'static [KeySpec]) -> Command {
        Command { keys, ..Command::ROW }
    }
    static MGET: Command = row(&[KeySpec::rest(1, 1, RO)]);
    static MSET: Command = row(&[KeySpec::rest(1, 2, OW)]);
    static BLPOP: Command = row(&[KeySpec::all_but_last(1, RO)]);
    static LCS: Command =
        row(&[KeySpec::new(RO, Begin::Index(1), Find::Range { last: 1, step: 1, limit: 0 })]);
    static ZUNIONSTORE: Command = row(&[KeySpec::one(OW), KeySpec::counted(2, RO)]);
    static MSETEX: Command =
        row(&[KeySpec::new(OW, Begin::Index(1), Find::KeyNum { index: 0, first: 1, step: 2 })]);
    static EVAL: Command = Command {
        flags: Flags::NO_MANDATORY_KEYS,
        keys: &[KeySpec::counted(2, RO)],
        ..Command::ROW
    };
    static XREAD: Command = row(&[KeySpec::new(
        RO,
        Begin::Keyword("STREAMS", 1),
        Find::Range { last: -1, step: 1, limit: 2 },
    )]);
    static GEORADIUS: Command = row(&[
        KeySpec::one(RO),
        KeySpec::new(OW, Begin::Keyword("STORE", 6), Find::Range { last: 0, step: 1, limit: 0 }),
    ]);
    static MIGRATE: Command = row(&[KeySpec::new(
        RO,
        Begin::Keyword("KEYS", -2),
        Find::Range { last: -1, step: 1, limit: 0 },
    )]);
    static SPUBLISH: Command = row(&[KeySpec::one(KeyFlags::NOT_KEY)]);
    static UNKNOWN: Command = row(&[KeySpec::new(RO, Begin::Unknown, Find::Unknown)]);
    static PARTIAL: Command = row(&[KeySpec::one(RO.with(KeyFlags::INCOMPLETE))]);

    fn find(command: &Command, request: &str) -> Result<Vec<(usize, KeyFlags)>, InvalidKeys> {
        let argv: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let mut keys = Vec::new();
        for_each_key(command, &argv, |index, flags| keys.push((index, flags)))?;
        Ok(keys)
    }

    #[track_caller]
    fn check(command: &Command, request: &str, expected: &[usize]) {
        let keys = find(command, request).expect("the request is valid");
        assert_eq!(keys.iter().map(|&(index, _)| index).collect::<Vec<_>>(), expected);
    }

    #[track_caller]
    fn invalid(command: &Command, request: &str) {
        assert_eq!(find(command, request), Err(InvalidKeys));
    }

    #[test]
    fn ranges_end_where_the_row_says() {
        check(&MGET, "mget a b c", &[1, 2, 3]);
        check(&MSET, "mset a 1 b 2", &[1, 3]);
        check(&MSET, "mset a 1 b", &[1, 3]);
        check(&BLPOP, "blpop a b 0", &[1, 2]);
        invalid(&BLPOP, "blpop 0");
        check(&LCS, "lcs a b LEN", &[1, 2]);
        invalid(&LCS, "lcs a");
    }

    #[test]
    fn counts_are_checked_against_the_words_there_are() {
        check(&ZUNIONSTORE, "zunionstore d 2 a b WEIGHTS 1 2", &[1, 3, 4]);
        for count in ["0", "-1", "3", "x", "", "9223372036854775807", "99999999999999999999"] {
            invalid(&ZUNIONSTORE, &format!("zunionstore d {count} a b"));
        }
        invalid(&ZUNIONSTORE, "zunionstore d");
        check(&MSETEX, "msetex 2 a 1 b 2 EX 1", &[2, 4]);
        check(&MSETEX, "msetex 2 a 1 b", &[2, 4]);
        invalid(&MSETEX, "msetex 2 a 1");
        check(&EVAL, "eval s 0 a", &[]);
        check(&EVAL, "eval s 1 a b", &[3]);
        invalid(&EVAL, "eval s 2 a");
    }

    #[test]
    fn keywords_are_searched_from_either_end() {
        check(&XREAD, "xread COUNT 1 streams a b 0 0", &[4, 5]);
        check(&XREAD, "xread streams a b 0", &[2]);
        check(&XREAD, "xread COUNT 1", &[]);
        check(&XREAD, "xread COUNT streams", &[]);
        invalid(&XREAD, "xread streams a");
        check(&GEORADIUS, "georadius k 1 2 3 m store d", &[1, 7]);
        check(&GEORADIUS, "georadius k 1 2 3 m", &[1]);
        check(&GEORADIUS, "georadius k", &[1]);
        check(&MIGRATE, "migrate h 1 k 0 1 COPY keys a b", &[8, 9]);
        check(&MIGRATE, "migrate", &[]);
    }

    #[test]
    fn what_looks_like_a_key_is_none() {
        check(&SPUBLISH, "spublish c m", &[]);
        assert!(!has_keys(&SPUBLISH));
        assert!(has_keys(&MGET) && has_keys(&EVAL));
    }

    #[test]
    fn what_specifications_cannot_say_is_an_error() {
        invalid(&UNKNOWN, "x a b");
        invalid(&PARTIAL, "x a");
    }

    /// Whatever is sent, only words that exist are reported.
    #[test]
    fn hostile_requests_stay_within_bounds() {
        let words = ["k", "0", "1", "2", "-1", "9223372036854775807", "STREAMS", "STORE", "KEYS"];
        let rows = [
            &MGET,
            &MSET,
            &BLPOP,
            &LCS,
            &ZUNIONSTORE,
            &MSETEX,
            &EVAL,
            &XREAD,
            &GEORADIUS,
            &MIGRATE,
        ];
        for number in 0..9usize.pow(5) {
            let mut argv: Vec<&[u8]> = vec![b"x"];
            let mut rest = number;
            while rest > 0 {
                argv.push(words[rest % 9].as_bytes());
                rest /= 9;
            }
            if argv.len() < 2 {
                continue;
            }
            for row in rows {
                let _ =
                    for_each_key(row, &argv, |index, _| assert!((1..argv.len()).contains(&index)));
            }
        }
    }
}
