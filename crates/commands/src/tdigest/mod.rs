//! The commands of the group `tdigest`: quantiles and ranks of numbers.

mod answers;
mod create;
mod merge;

use engine::{Class, Command, Error, Event, event};
use sketches::tdigest::DigestError;
use structs::numbers::parse_i64;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &create::TDIGEST_CREATE,
    &create::TDIGEST_RESET,
    &create::TDIGEST_ADD,
    &merge::TDIGEST_MERGE,
    &answers::TDIGEST_MIN,
    &answers::TDIGEST_MAX,
    &answers::TDIGEST_QUANTILE,
    &answers::TDIGEST_CDF,
    &answers::TDIGEST_TRIMMED_MEAN,
    &answers::TDIGEST_RANK,
    &answers::TDIGEST_REVRANK,
    &answers::TDIGEST_BYRANK,
    &answers::TDIGEST_BYREVRANK,
    &answers::TDIGEST_INFO,
];

const CREATED: Event = event(Class::MODULE, "tdigest.create");
const RESET: Event = event(Class::MODULE, "tdigest.reset");
const ADDED: Event = event(Class::MODULE, "tdigest.add");
const MERGED: Event = event(Class::MODULE, "tdigest.merge");

const NO_KEY: Error = Error::text("ERR T-Digest: key does not exist");

/// The compression of a digest that is created without one.
const COMPRESSION: u64 = 100;

/// Returns the error of a digest that cannot be created or changed.
fn refused(error: DigestError) -> Error {
    match error {
        DigestError::TooLarge => Error::text("ERR T-Digest: allocation failed"),
        DigestError::Overflow => Error::text("ERR T-Digest: overflow detected"),
    }
}

/// Returns a word as a compression.
fn compression(word: &[u8]) -> Result<u64, Error> {
    let unreadable = Error::text("ERR T-Digest: error parsing compression parameter");
    let compression = parse_i64(word).ok_or(unreadable)?;
    u64::try_from(compression)
        .ok()
        .filter(|&compression| compression > 0)
        .ok_or(Error::text("ERR T-Digest: compression parameter needs to be a positive integer"))
}
