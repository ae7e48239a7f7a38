//! The commands of the group `list`, one file each or a tight family.

mod blpop;
mod edit;
mod lmove;
mod lmovem;
mod lpos;
mod pop;
mod push;
mod range;

use engine::{Args, Command, Error};
use std::ops::Range;

pub(crate) use blpop::parse_pop_count;
pub(crate) use pop::write;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &lpos::LPOS,
    &blpop::BLMPOP,
    &blpop::LMPOP,
    &blpop::BRPOP,
    &blpop::BLPOP,
    &lmove::BRPOPLPUSH,
    &lmovem::BLMOVEM,
    &lmovem::LMOVEM,
    &lmove::BLMOVE,
    &lmove::RPOPLPUSH,
    &lmove::LMOVE,
    &edit::LTRIM,
    &edit::LREM,
    &edit::LINSERT,
    &edit::LSET,
    &range::LINDEX,
    &range::LLEN,
    &range::LRANGE,
    &pop::RPOP,
    &pop::LPOP,
    &push::RPUSHX,
    &push::LPUSHX,
    &push::RPUSH,
    &push::LPUSH,
];

/// The word as an integer whose negative is one too.
pub(crate) fn negatable(args: Args<'_>, at: usize) -> Result<i64, Error> {
    let number = args.integer(at)?;
    if number == i64::MIN {
        return Err(Error::OutOfRange(
            "value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ));
    }
    Ok(number)
}

/// The place of an index, which counts from the end if negative; `None` if it is outside.
pub(crate) fn place(index: i64, len: usize) -> Option<usize> {
    let place = if index < 0 { index + len as i64 } else { index };
    usize::try_from(place).ok().filter(|&place| place < len)
}

/// The places from `start` to `stop`, both inclusive and counted from the end if negative; `None`
/// if there are none.
pub(crate) fn range(start: i64, stop: i64, len: usize) -> Option<Range<usize>> {
    let len = len as i64;
    let start = if start < 0 { (start + len).max(0) } else { start };
    let stop = if stop < 0 { stop + len } else { stop.min(len - 1) };
    (start <= stop && start < len).then(|| start as usize..stop as usize + 1)
}
