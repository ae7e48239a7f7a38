//! The commands of the group `bf`: Bloom filters.

mod add;
mod chunks;
mod exists;
mod info;
mod reserve;

use crate::typed::{self, word};
use engine::{Class, Command, Cx, Error, Event, Key, event};
use sketches::bloom::{self, BloomOptions};
use structs::numbers::push_f64;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &reserve::BF_RESERVE,
    &add::BF_ADD,
    &add::BF_MADD,
    &add::BF_INSERT,
    &exists::BF_EXISTS,
    &exists::BF_MEXISTS,
    &info::BF_INFO,
    &info::BF_CARD,
    &info::BF_DEBUG,
    &chunks::BF_SCANDUMP,
    &chunks::BF_LOADCHUNK,
    &chunks::BF_LOAD,
];

const RESERVED: Event = event(Class::MODULE, "bf.reserve");
const ADDED: Event = event(Class::MODULE, "bf.add");
const LOADED: Event = event(Class::MODULE, "bf.loadchunk");

const NOT_FOUND: Error = Error::text("ERR not found");
const TOO_LARGE: Error = Error::text("ERR operation exceeds bloom object memory limit");

/// Returns the options of a filter that is created, which `read` makes of the usual ones.
fn options(
    cx: &Cx<'_>,
    read: impl Fn(BloomOptions) -> Result<BloomOptions, Error>,
) -> Result<typed::TypedOptions<BloomOptions>, Error> {
    let configured = |config: &config::Config| BloomOptions {
        capacity: config.bf_initial_size(),
        rate: config.bf_error_rate(),
        expansion: config.bf_expansion_factor(),
    };
    typed::TypedOptions::read(cx, configured, BloomOptions::default(), read)
}

/// Returns the command that makes a filter with these options.
fn reservation(key: Key<'_>, options: BloomOptions) -> Vec<Vec<u8>> {
    let mut rate = Vec::new();
    push_f64(&mut rate, options.rate);
    let (capacity, expansion) = (word(options.capacity), word(options.expansion));
    let expansion = [b"EXPANSION".to_vec(), expansion];
    [&[b"BF.RESERVE".to_vec(), key.bytes.to_vec(), rate, capacity][..], &expansion].concat()
}

/// Returns the error of a filter that cannot be created.
fn not_created(error: bloom::Error) -> Error {
    match error {
        bloom::Error::TooLarge => TOO_LARGE,
        _ => Error::text("ERR could not create filter"),
    }
}

/// Returns the error of an item that cannot be added.
fn not_added(error: bloom::Error) -> Error {
    match error {
        bloom::Error::TooLarge => TOO_LARGE,
        bloom::Error::Full => Error::text("ERR non scaling filter is full"),
        bloom::Error::Degenerate => Error::text("ERR problem inserting into filter"),
    }
}

/// Returns whether a rate of wrong yeses makes sense.
fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}
