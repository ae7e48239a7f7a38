//! Values as this crate takes and gives them.

use crate::Kind;
use crate::module::{Module, Types};
use structs::hash::{Hash, HashContents, HashLimits};
use structs::list::{List, ListLimits};
use structs::set::{Set, SetContents, SetLimits};
use structs::stream::Stream;
use structs::zset::{Zset, ZsetContents, ZsetLimits};

/// A value that has been read.
pub enum Object {
    /// A string, or the decimal form of an integer.
    String(Vec<u8>),
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A hash.
    Hash(Hash),
    /// A sorted set.
    Zset(Zset),
    /// A stream.
    Stream(Stream),
    /// A value of a module type.
    Module(Module),
}

/// A value to write.
#[derive(Clone, Copy)]
pub enum ObjectRef<'a> {
    /// A string.
    String(&'a [u8]),
    /// A string that is stored as an integer.
    Int(i64),
    /// A list.
    List(&'a List),
    /// A set.
    Set(&'a Set),
    /// A hash.
    Hash(&'a Hash),
    /// A sorted set.
    Zset(&'a Zset),
    /// A stream.
    Stream(&'a Stream),
    /// A value of a module type.
    Module(&'a Module),
}

impl Object {
    /// The value, borrowed.
    pub fn as_ref(&self) -> ObjectRef<'_> {
        match self {
            Self::String(string) => ObjectRef::String(string),
            Self::List(list) => ObjectRef::List(list),
            Self::Set(set) => ObjectRef::Set(set),
            Self::Hash(hash) => ObjectRef::Hash(hash),
            Self::Zset(zset) => ObjectRef::Zset(zset),
            Self::Stream(stream) => ObjectRef::Stream(stream),
            Self::Module(module) => ObjectRef::Module(module),
        }
    }
}

impl ObjectRef<'_> {
    /// The type it is written as.
    pub fn kind(self) -> Kind {
        match self {
            Self::String(_) | Self::Int(_) => Kind::String,
            Self::List(_) => Kind::ListQuicklist2,
            Self::Set(set) => match set.contents() {
                SetContents::Intset(_) => Kind::SetIntset,
                SetContents::Listpack(_) => Kind::SetListpack,
                SetContents::Table(_) => Kind::Set,
            },
            Self::Hash(hash) => match hash.contents() {
                HashContents::Listpack(_) => Kind::HashListpack,
                HashContents::Table(_) => Kind::Hash,
                HashContents::Timed(_) => Kind::TimedHash,
            },
            Self::Zset(zset) => match zset.contents() {
                ZsetContents::Listpack(_) => Kind::ZsetListpack,
                ZsetContents::Sorted(_) => Kind::Zset2,
            },
            Self::Stream(_) => Kind::StreamListpacks3,
            Self::Module(_) => Kind::Module,
        }
    }
}

/// The thresholds by which values that are read choose their encoding, and the module types that
/// are read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For lists.
    pub list: ListLimits,
    /// For sets.
    pub set: SetLimits,
    /// For hashes.
    pub hash: HashLimits,
    /// For sorted sets.
    pub zset: ZsetLimits,
    /// The module types.
    pub types: Types,
}

impl Default for Limits {
    /// The defaults of the options, without module types.
    fn default() -> Self {
        Self {
            list: ListLimits::new(-2),
            set: SetLimits::default(),
            hash: HashLimits::default(),
            zset: ZsetLimits::default(),
            types: &[],
        }
    }
}
