//! Entries as the RDB codec wants them, and values that it gives as entries.

use config::Config;
use keyspace::{Entry, Kind, Millis, Object, StringRef, Value, View, Whole};
use rdb::{Compression, Object as Decoded, ObjectRef};
use structs::hash::Hash;
use structs::list::List;
use structs::set::Set;
use structs::zset::Zset;

/// An entry's value, to be shown to the codec.
pub enum Viewed<'a> {
    /// One that is not shown from within its entry.
    Whole(ObjectRef<'a>),
    /// A list.
    List(View<'a, List>),
    /// A set.
    Set(View<'a, Set>),
    /// A hash.
    Hash(View<'a, Hash>),
    /// A sorted set.
    Zset(View<'a, Zset>),
}

impl Viewed<'_> {
    /// Returns the value as the codec wants it.
    pub fn object(&self) -> ObjectRef<'_> {
        match self {
            Viewed::Whole(object) => *object,
            Viewed::List(list) => ObjectRef::List(list),
            Viewed::Set(set) => ObjectRef::Set(set),
            Viewed::Hash(hash) => ObjectRef::Hash(hash),
            Viewed::Zset(zset) => ObjectRef::Zset(zset),
        }
    }
}

/// Returns an entry's value for the codec.
pub fn view(entry: &Entry) -> Viewed<'_> {
    fn typed<T: Object>(entry: &Entry) -> View<'_, T> {
        entry.view().expect("the kind says which type it is")
    }
    fn whole<T: Whole>(entry: &Entry) -> &T {
        entry.object().expect("the kind says which type it is")
    }
    match entry.kind() {
        Kind::InlineString | Kind::Integer | Kind::HeapString => {
            Viewed::Whole(match entry.string() {
                Some(StringRef::Integer(number)) => ObjectRef::Int(number),
                string => ObjectRef::String(
                    string.and_then(StringRef::text).expect("the kind says that it is a string"),
                ),
            })
        }
        Kind::List => Viewed::List(typed(entry)),
        Kind::Set => Viewed::Set(typed(entry)),
        Kind::Hash => Viewed::Hash(typed(entry)),
        Kind::Zset => Viewed::Zset(typed(entry)),
        Kind::Stream => Viewed::Whole(ObjectRef::Stream(whole(entry))),
        Kind::Module => Viewed::Whole(ObjectRef::Module(whole(entry))),
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
