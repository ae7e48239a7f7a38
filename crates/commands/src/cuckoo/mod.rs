//! The commands of the group `cf`: cuckoo filters.

mod add;
mod chunks;
mod info;
mod lookup;
mod reserve;

use crate::typed::{self, word};
use engine::{Class, Command, Cx, Error, Event, Key, event};
use sketches::cuckoo::{self, CuckooOptions};

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

/// Returns the options of a filter that is created, which `read` makes of the usual ones.
fn options(
    cx: &Cx<'_>,
    read: impl Fn(CuckooOptions) -> Result<CuckooOptions, Error>,
) -> Result<typed::TypedOptions<CuckooOptions>, Error> {
    let configured = |config: &config::Config| {
        let bucket_size = config.cf_bucket_size();
        CuckooOptions {
            capacity: config.cf_initial_size().max(2 * u64::from(bucket_size)),
            bucket_size,
            max_iterations: config.cf_max_iterations(),
            expansion: config.cf_expansion_factor(),
        }
    };
    typed::TypedOptions::read(cx, configured, CuckooOptions::default(), read)
}

/// Returns the command that makes a filter with these options.
fn reservation(key: Key<'_>, options: CuckooOptions) -> Vec<Vec<u8>> {
    let CuckooOptions { capacity, bucket_size, max_iterations, expansion } = options;
    let named = |name: &[u8], number: u16| [name.to_vec(), word(number)];
    [
        &[b"CF.RESERVE".to_vec(), key.bytes.to_vec(), word(capacity)][..],
        &named(b"BUCKETSIZE", bucket_size),
        &named(b"MAXITERATIONS", max_iterations),
        &named(b"EXPANSION", expansion),
    ]
    .concat()
}

/// Returns the error of a filter that cannot be created or take an item.
fn refused(error: cuckoo::Error) -> Error {
    match error {
        cuckoo::Error::Full => Error::text("Filter is full"),
        cuckoo::Error::Exhausted => Error::text("Maximum expansions reached"),
        cuckoo::Error::TooLarge => Error::text("ERR operation exceeds cuckoo filter memory limit"),
    }
}
