//! What can be wrong with texts, paths and changes.

use crate::number::{FloatType, NotFinite};
use std::fmt;

/// A text that is no JSON, or beyond the limits. The message has line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(pub(crate) String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

/// A change that was not made. The document is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditError {
    /// The value is of another type than the change is for.
    WrongType,
    /// There is no value at the location.
    NotFound,
    /// Containers would be more deeply inside each other than the limit.
    TooDeep,
    /// The result is no number of JSON.
    NotFinite,
    /// An index is outside of the array.
    OutOfBounds,
    /// A number is too large for the type that FPHA names.
    OutOfRange(FloatType),
    /// A name, a string, an array or all names together are larger than a document can have.
    TooLarge,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditError::WrongType => f.write_str("wrong type of value"),
            EditError::NotFound => f.write_str("no value at this location"),
            EditError::TooDeep => f.write_str("nesting is too deep"),
            EditError::NotFinite => f.write_str("result is not a number"),
            EditError::OutOfBounds => f.write_str("index out of bounds"),
            EditError::OutOfRange(float) => write!(f, "value out of range for {}", float.name()),
            EditError::TooLarge => f.write_str("value is too large"),
        }
    }
}

impl std::error::Error for EditError {}

impl From<NotFinite> for EditError {
    fn from(_: NotFinite) -> EditError {
        EditError::NotFinite
    }
}
