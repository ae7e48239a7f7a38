//! Estimates that several commands share: how much a request asks for.

use engine::{Args, Db};

/// The word at `index` as a count.
fn count(args: Args<'_>, index: usize) -> Option<i64> {
    structs::numbers::parse_i64(args.get(index)?)
}

/// `COMMAND key count`: removes at most what is there. Without a count it is one element.
pub(crate) fn popped(db: &Db<'_>, args: Args<'_>) -> usize {
    let Some(count) = count(args, 2) else { return 1 };
    let count = usize::try_from(count).unwrap_or(0);
    // Finding an element by chance and removing it costs a few cache misses.
    count.min(db.size(args.key(1))).saturating_mul(4)
}

/// `COMMAND key count`: a negative count is not limited by what is there.
pub(crate) fn sampled(db: &Db<'_>, args: Args<'_>) -> usize {
    let Some(count) = count(args, 2) else { return 1 };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let wanted = if count < 0 { wanted } else { wanted.min(db.size(args.key(1))) };
    wanted.saturating_mul(3)
}

/// `… COUNT count …`: how much SCAN and its kin are to look at.
pub(crate) fn scanned(_: &Db<'_>, args: Args<'_>) -> usize {
    let wanted = (2..args.len())
        .filter(|&at| args.is(at, "count"))
        .find_map(|at| count(args, at + 1))
        .unwrap_or(10);
    usize::try_from(wanted).unwrap_or(0).saturating_mul(3)
}
