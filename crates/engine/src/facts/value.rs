//! Entries as the RDB codec wants them, and values that it gives as entries.

use config::Config;
use keyspace::{Entry, Kind, Millis, Object, StringRef, Value};
use rdb::{Compression, Object as Decoded, ObjectRef};

/// Returns an entry's value as the codec wants it.
pub fn view(entry: &Entry) -> ObjectRef<'_> {
    fn object<T: Object>(entry: &Entry) -> &T {
        entry.object().expect("the kind says which type it is")
    }
    match entry.kind() {
        Kind::InlineString | Kind::Integer | Kind::HeapString => match entry.string() {
            Some(StringRef::Integer(number)) => ObjectRef::Int(number),
            string => ObjectRef::String(
                string.and_then(StringRef::text).expect("the kind says that it is a string"),
            ),
        },
        Kind::List => ObjectRef::List(object(entry)),
        Kind::Set => ObjectRef::Set(object(entry)),
        Kind::Hash => ObjectRef::Hash(object(entry)),
        Kind::Zset => ObjectRef::Zset(object(entry)),
        Kind::Stream => ObjectRef::Stream(object(entry)),
        Kind::Module => ObjectRef::Module(object(entry)),
    }
}

/// Returns whether values are compressed, as `rdbcompression` says.
pub fn compression(config: &Config) -> Compression {
    if config.rdbcompression() { Compression::Lzf } else { Compression::Off }
}

/// Makes a value of what the codec has read.
pub fn of_object(object: Decoded) -> Value {
    match object {
        Decoded::String(bytes) => Value::String(bytes),
        Decoded::List(list) => Value::List(list),
        Decoded::Set(set) => Value::Set(set),
        Decoded::Hash(hash) => Value::Hash(hash),
        Decoded::Zset(zset) => Value::Zset(zset),
        Decoded::Stream(stream) => Value::Stream(stream),
        Decoded::Module(module) => Value::Module(module),
    }
}

/// Makes an entry of what the codec has read.
pub fn entry(key: &[u8], object: Decoded, expiry: Option<Millis>, access: u32) -> Entry {
    Entry::new(key, of_object(object), expiry, access)
}
