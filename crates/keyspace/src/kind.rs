//! The kinds of values, in one table: `collections!` below lists every type but the string.
//!
//! A new type is one `impl Collection` in a file of its own (`collection/`) and one row here. From
//! the rows come the [`Kind`]s, the [`Value`]s, the names that TYPE replies with, and the only place
//! where the address of a payload becomes a reference to a type.
#![allow(unsafe_code)]

use crate::collection::Collection;
use crate::entry::Entry;
use crate::types::Millis;
use structs::hash::Hash;
use structs::list::List;
use structs::set::Set;
use structs::stream::Stream;
use structs::zset::Zset;

/// A type that an entry can hold, other than a string.
///
/// # Safety
/// `KIND` must be unique to the type, and the type at most 16 bytes with an alignment of 8.
pub unsafe trait Object: Collection + Clone + Sized {
    /// Its kind.
    const KIND: Kind;
    /// An empty value, for commands that create a key.
    fn empty() -> Self;
}

macro_rules! collections {
    ($($(#[$doc:meta])* $type:ident = $number:literal, $name:literal, $empty:expr;)*) => {
        /// How a value is held; with the value itself this gives type and encoding.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Kind {
            /// A string inside the entry.
            InlineString = 0,
            /// A string that is the decimal form of a number.
            Integer = 1,
            /// A string in a block of its own.
            HeapString = 2,
            $($(#[$doc])* $type = $number,)*
        }

        /// A value on its own, out of any entry.
        pub enum Value {
            /// A string.
            String(Vec<u8>),
            $($(#[$doc])* $type($type),)*
        }

        impl Kind {
            /// The kind with this number.
            #[inline]
            pub(crate) fn from_number(number: u32) -> Kind {
                match number {
                    0 => Kind::InlineString,
                    1 => Kind::Integer,
                    2 => Kind::HeapString,
                    $($number => Kind::$type,)*
                    other => no_such_kind(other),
                }
            }

            /// The name of the type, as TYPE replies it.
            pub fn type_name(self) -> &'static str {
                match self {
                    Kind::InlineString | Kind::Integer | Kind::HeapString => "string",
                    $(Kind::$type => $name,)*
                }
            }

            /// The payload of an entry as what its type can do; `None` for strings. The pointer is
            /// only formed here, not read.
            #[inline]
            pub(crate) fn collection(self, payload: *mut u8) -> Option<*mut dyn Collection> {
                match self {
                    Kind::InlineString | Kind::Integer | Kind::HeapString => None,
                    $(Kind::$type => Some(payload.cast::<$type>() as *mut dyn Collection),)*
                }
            }
        }

        impl Value {
            /// The value in a new entry.
            pub(crate) fn into_entry(self, key: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
                match self {
                    Value::String(bytes) => Entry::new_string(key, &bytes, expiry, access),
                    $(Value::$type(value) => Entry::new_object(key, value, expiry, access),)*
                }
            }
        }

        $(
            const _: () = assert!(size_of::<$type>() <= 16 && align_of::<$type>() <= 8);
            // SAFETY: one kind a type, of the same name; size and alignment are checked above.
            unsafe impl Object for $type {
                const KIND: Kind = Kind::$type;
                fn empty() -> Self {
                    $empty
                }
            }

            impl From<$type> for Value {
                fn from(value: $type) -> Value {
                    Value::$type(value)
                }
            }
        )*
    };
}

collections! {
    /// A list.
    List = 3, "list", List::new();
    /// A set.
    Set = 4, "set", Set::empty();
    /// A hash.
    Hash = 5, "hash", Hash::new();
    /// A sorted set.
    Zset = 6, "zset", Zset::new();
    /// A stream.
    Stream = 7, "stream", Stream::new();
}

impl Kind {
    /// Whether the value is a string.
    #[inline]
    pub fn is_string(self) -> bool {
        matches!(self, Kind::InlineString | Kind::Integer | Kind::HeapString)
    }
}

/// Set in the number of a kind when the entry is cold, where the caller needs the value.
pub(crate) const COLD: u32 = 64;
/// Set beside the number of a kind where there is a copy of the value outside RAM. Of a cold entry it
/// means [`crate::Entry::is_credited`].
pub(crate) const COPIED: u32 = 128;

/// Numbers of kinds are written by this crate only, so another one means that memory is damaged; or
/// the value of a cold entry was asked for without a look at whether it is there.
#[cold]
fn no_such_kind(number: u32) -> ! {
    assert!(number & COLD == 0, "the value of a cold entry was used");
    panic!("an entry has the unknown kind {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "unknown kind 15")]
    fn an_unknown_kind_is_a_bug() {
        Kind::from_number(15);
    }

    #[test]
    fn every_kind_is_found_by_its_number() {
        let kinds = [Kind::InlineString, Kind::Integer, Kind::HeapString, Kind::Zset];
        assert!(kinds.iter().all(|&kind| Kind::from_number(kind as u32) == kind));
    }
}
