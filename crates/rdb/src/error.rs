//! What can be wrong with input.

use crate::module::Id;
use std::fmt;

/// Why input could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The payload was written by a newer version than is known, or the version is nonsense. To a
    /// client this and [`Error::Checksum`] are the same.
    Version(u16),
    /// The checksum does not fit the bytes: damaged in transit or not a payload at all.
    Checksum,
    /// The input ends before the value does.
    Truncated,
    /// A value type that is not supported here, by its number.
    UnsupportedType(u8),
    /// A module type that is not supported here, or not in this version.
    UnsupportedModule(Id),
    /// A collection without elements. Harmless: a loader skips the key, RESTORE refuses it.
    Empty,
    /// The bytes contradict the format; says where.
    Corrupt(&'static str),
    /// An element is there twice in what can have it once; says in what.
    Duplicate(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "unsupported RDB version {version}"),
            Self::Checksum => f.write_str("wrong checksum"),
            Self::Truncated => f.write_str("unexpected end of data"),
            Self::UnsupportedType(kind) => write!(f, "unsupported value type {kind}"),
            Self::UnsupportedModule(id) => {
                write!(f, "unsupported value of module type {} version {}", id.name(), id.version())
            }
            Self::Empty => f.write_str("empty collection"),
            // Redis's words, which tools look for.
            Self::Corrupt(what) if is_packed(what) => write!(f, "{what} integrity check failed"),
            Self::Corrupt(what) => write!(f, "corrupt data: {what}"),
            Self::Duplicate(what) => {
                write!(f, "{what} integrity check failed: it is a {what} with dup elements")
            }
        }
    }
}

/// Whether this names an encoding that is one string of bytes: "Listpack", "Hash ziplist".
fn is_packed(what: &str) -> bool {
    let encoding = what.rsplit(' ').next().unwrap_or(what);
    ["ziplist", "listpack", "zipmap", "intset"].iter().any(|it| encoding.eq_ignore_ascii_case(it))
}

impl std::error::Error for Error {}
