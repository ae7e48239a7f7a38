//! Entries as the RDB codec wants them, and values that it gives as entries.

use engine::Engine;
pub use engine::load::entry;
use keyspace::{Entry, Kind, StringRef};
use rdb::{Compression, ObjectRef};
use structs::hash::Hash;
use structs::list::List;
use structs::set::Set;
use structs::zset::Zset;

/// An entry's value as the codec wants it; `None` if it is not in memory.
pub fn view(entry: &Entry) -> Option<ObjectRef<'_>> {
    match entry.kind() {
        Kind::InlineString | Kind::Integer | Kind::HeapString => match entry.string()? {
            StringRef::Bytes(bytes) => Some(ObjectRef::String(bytes)),
            StringRef::Integer(number) => Some(ObjectRef::Int(number)),
        },
        Kind::List => entry.object::<List>().map(ObjectRef::List),
        Kind::Set => entry.object::<Set>().map(ObjectRef::Set),
        Kind::Hash => entry.object::<Hash>().map(ObjectRef::Hash),
        Kind::Zset => entry.object::<Zset>().map(ObjectRef::Zset),
        Kind::Cold => None,
    }
}

/// The thresholds of the encodings that a value read may take.
pub fn limits(engine: &Engine) -> rdb::Limits {
    rdb::Limits {
        list: crate::limits::list(engine),
        set: crate::limits::set(&engine.config),
        hash: crate::limits::hash(&engine.config),
        zset: crate::limits::zset(&engine.config),
    }
}

/// Whether values are compressed, as `rdbcompression` says.
pub fn compression(engine: &Engine) -> Compression {
    if engine.config.rdbcompression() { Compression::Lzf } else { Compression::Off }
}
