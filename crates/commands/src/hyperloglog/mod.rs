//! The commands of the group `hyperloglog`, one file each or a tight family.

mod pfadd;
mod pfcount;
mod pfdebug;
mod pfmerge;
mod pfselftest;

use engine::{Class, Command, Cx, Error, Event, Key, event};
use keyspace::StringRef;
use structs::hyperloglog::{self, Corrupted, Encoding};

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &pfselftest::PFSELFTEST,
    &pfdebug::PFDEBUG,
    &pfmerge::PFMERGE,
    &pfcount::PFCOUNT,
    &pfadd::PFADD,
];

/// What PFADD and PFMERGE report.
const EVENT: Event = event(Class::STRING, "pfadd");

const NOT_HYPERLOGLOG: Error =
    Error::text("WRONGTYPE Key is not a valid HyperLogLog string value.");

fn corrupted(_: Corrupted) -> Error {
    Error::text("INVALIDOBJ Corrupted HLL object detected")
}

/// The encoding and the bytes of a key's value, `None` if the key is absent.
fn checked(string: Option<StringRef<'_>>) -> Result<Option<(Encoding, &[u8])>, Error> {
    let Some(string) = string else { return Ok(None) };
    let bytes = string.text().ok_or(NOT_HYPERLOGLOG)?;
    let encoding = hyperloglog::encoding(bytes).map_err(|_| NOT_HYPERLOGLOG)?;
    Ok(Some((encoding, bytes)))
}

/// Replaces the bytes of a key; its expiry stays.
fn store(cx: &mut Cx<'_>, key: Key<'_>, bytes: &[u8]) -> Result<(), Error> {
    let string = cx.db.edit_string(key)?;
    string.resize(bytes.len());
    string.as_mut_slice().copy_from_slice(bytes);
    Ok(())
}
