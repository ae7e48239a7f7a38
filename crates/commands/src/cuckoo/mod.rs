//! The commands of the group `cf`: cuckoo filters.

mod add;
mod chunks;
mod info;
mod lookup;
mod reserve;

use engine::{Class, Command, Error, Event, event};
use sketches::cuckoo;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &reserve::CF_RESERVE,
    &add::CF_ADD,
    &add::CF_ADDNX,
    &add::CF_INSERT,
    &add::CF_INSERTNX,
    &add::CF_DEL,
    &lookup::CF_EXISTS,
    &lookup::CF_MEXISTS,
    &lookup::CF_COUNT,
    &info::CF_INFO,
    &info::CF_DEBUG,
    &chunks::CF_SCANDUMP,
    &chunks::CF_LOADCHUNK,
];

const RESERVED: Event = event(Class::MODULE, "cf.reserve");
const ADDED: Event = event(Class::MODULE, "cf.add");
const REMOVED: Event = event(Class::MODULE, "cf.del");
const LOADED: Event = event(Class::MODULE, "cf.loadchunk");

const NOT_FOUND: Error = Error::text("ERR not found");

/// Returns the error of a filter that cannot be created or take an item.
fn refused(error: cuckoo::Error) -> Error {
    match error {
        cuckoo::Error::Full => Error::text("Filter is full"),
        cuckoo::Error::Exhausted => Error::text("Maximum expansions reached"),
        cuckoo::Error::TooLarge => Error::text("ERR operation exceeds cuckoo filter memory limit"),
    }
}
