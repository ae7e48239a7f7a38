//! The kinds of values, in one table: `collections!` below lists every type but the string.
//!
//! A new type needs one `impl Collection` in its own file (`collection/`) and one row here. The
//! rows generate the [`Kind`]s, the [`Value`]s, the names in replies of TYPE, and the only place
//! where the address of a payload becomes a reference to a type.
#![allow(unsafe_code)]

use crate::collection::Collection;
use crate::entry::Entry;
use crate::types::Millis;
use rdb::module::Module;
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
    /// The type's kind.
    const KIND: Kind;
}

/// A type whose values never lie in an entry: it has no [`Collection::extent`].
pub trait Whole: Object {}

/// A type that commands create a key with by putting the first element into an empty value.
pub trait Fillable: Object {
    /// Returns an empty value.
    fn empty() -> Self;
}

macro_rules! collections {
    ($(
        $(#[$doc:meta])*
        $type:ident = $number:literal, $name:literal $(, $empty:expr)? $(=> $whole:ident)?;
    )*) => {
        /// How a value is stored. Together with the value this gives type and encoding.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Kind {
            /// A string inside the entry.
            InlineString = 0,
            /// A string that is the decimal form of a number.
            Integer = 1,
            /// A string in its own block.
            HeapString = 2,
            $($(#[$doc])* $type = $number,)*
        }

        /// A value outside of any entry.
        pub enum Value {
            /// A string.
            String(Vec<u8>),
            $($(#[$doc])* $type($type),)*
        }

        impl Kind {
            /// Returns the kind with this number.
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

            /// Returns the name of the type in replies of TYPE, unless it is a module type, which
            /// the kind does not say.
            pub(crate) fn type_name(self) -> &'static str {
                match self {
                    Kind::InlineString | Kind::Integer | Kind::HeapString => "string",
                    $(Kind::$type => $name,)*
                }
            }

            /// Returns the payload of an entry as a collection, or `None` for strings. The pointer
            /// is only formed, not read.
            #[inline]
            pub(crate) fn collection(self, payload: *mut u8) -> Option<*mut dyn Collection> {
                match self {
                    Kind::InlineString | Kind::Integer | Kind::HeapString => None,
                    $(Kind::$type => Some(payload.cast::<$type>() as *mut dyn Collection),)*
                }
            }
        }

        impl Value {
            /// Returns a new entry with the value.
            pub(crate) fn into_entry(self, key: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
                match self {
                    Value::String(bytes) => Entry::new_string(key, &bytes, expiry, access),
                    $(Value::$type(value) => Entry::new_collection(key, value, expiry, access),)*
                }
            }

            /// Returns a new entry with the value in blocks of its own, to be changed.
            pub(crate) fn into_open_entry(
                self,
                key: &[u8],
                expiry: Option<Millis>,
                access: u32,
            ) -> Entry {
                match self {
                    Value::String(bytes) => Entry::new_string(key, &bytes, expiry, access),
                    $(Value::$type(value) => Entry::new_object(key, value, expiry, access),)*
                }
            }
        }

        $(
            const _: () = assert!(size_of::<$type>() <= 16 && align_of::<$type>() <= 8);
            // SAFETY: there is one kind for each type, of the same name; size and alignment are
            // checked above.
            unsafe impl Object for $type {
                const KIND: Kind = Kind::$type;
            }

            $(impl Fillable for $type {
                fn empty() -> Self {
                    $empty
                }
            })?

            $(impl $whole for $type {})?

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
    Stream = 7, "stream", Stream::new() => Whole;
    /// A value of a module type.
    Module = 8, "module" => Whole;
}

impl Kind {
    /// Returns whether the value is a string.
    #[inline]
    pub fn is_string(self) -> bool {
        matches!(self, Kind::InlineString | Kind::Integer | Kind::HeapString)
    }
}

/// Added to the number of a kind if the entry is cold and the caller needs the value.
pub(crate) const COLD: u32 = 64;
/// Added to the number of a kind if there is a copy of the value outside RAM. For a cold entry it
/// means [`crate::Entry::is_credited`].
pub(crate) const COPIED: u32 = 128;

/// Panics. Only this crate writes the numbers of kinds, so an unknown one means damaged memory. Or
/// the value of a cold entry was used without a check.
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
