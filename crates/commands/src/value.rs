//! Entries as the RDB codec wants them, and values that it gives as entries.

use engine::Engine;
pub use engine::load::entry;
use keyspace::{Entry, Kind, Object, StringRef};
use rdb::{Compression, ObjectRef};

/// An entry's value as the codec wants it.
pub fn view(entry: &Entry) -> ObjectRef<'_> {
    fn object<T: Object>(entry: &Entry) -> &T {
        entry.object().expect("the kind says which type it is")
    }
    match entry.kind() {
        Kind::InlineString | Kind::Integer | Kind::HeapString => match entry.string() {
            Some(StringRef::Bytes(bytes)) => ObjectRef::String(bytes),
            Some(StringRef::Integer(number)) => ObjectRef::Int(number),
            None => unreachable!("the kind says that it is a string"),
        },
        Kind::List => ObjectRef::List(object(entry)),
        Kind::Set => ObjectRef::Set(object(entry)),
        Kind::Hash => ObjectRef::Hash(object(entry)),
        Kind::Zset => ObjectRef::Zset(object(entry)),
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
