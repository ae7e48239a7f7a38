//! The commands of the group `string`, one file each or a tight family.

mod append;
mod comparison;
mod delex;
mod delifeq;
pub(crate) mod expiry;
mod get;
mod getdel;
mod getrange;
mod incr;
mod incrbyfloat;
mod increx;
mod lcs;
mod mget;
mod msetex;
mod set;

use engine::{Command, Cx, Error};
use std::ops::Range;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &msetex::MSETEX,
    &increx::INCREX,
    &delex::DIGEST,
    &delex::DELEX,
    &delifeq::DELIFEQ,
    &lcs::LCS,
    &getrange::SETRANGE,
    &getrange::SUBSTR,
    &getrange::GETRANGE,
    &getdel::GETEX,
    &getdel::GETDEL,
    &mget::MSETNX,
    &mget::MSET,
    &mget::MGET,
    &append::STRLEN,
    &append::APPEND,
    &incrbyfloat::INCRBYFLOAT,
    &incr::DECRBY,
    &incr::INCRBY,
    &incr::DECR,
    &incr::INCR,
    &set::GETSET,
    &set::PSETEX,
    &set::SETEX,
    &set::SETNX,
    &set::SET,
    &get::GET,
];

/// The bytes from `start` to `end`, both inclusive and counted from the end if negative, of a
/// string of `len`; `None` if there are none.
pub(crate) fn clamp(start: i64, end: i64, len: usize) -> Option<Range<usize>> {
    let len = len as i64;
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let from_end = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end && len > 0).then(|| start as usize..end as usize + 1)
}

/// The longest string that may be made: `proto-max-bulk-len`, or what the store can hold with some
/// room to grow.
pub(crate) fn most_bytes(cx: &Cx<'_>) -> usize {
    const ROOM_TO_GROW: usize = 8 << 20;
    cx.engine.config.proto_max_bulk_len().min(u32::MAX as usize - ROOM_TO_GROW)
}

/// Refuses a string that is too long.
pub(crate) fn check_len(cx: &Cx<'_>, len: usize) -> Result<(), Error> {
    if len > most_bytes(cx) { Err(Error::StringTooLong) } else { Ok(()) }
}
