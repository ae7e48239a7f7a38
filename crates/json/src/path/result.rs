//! What a path finds, or why it does not.

use crate::document::Document;
use crate::value::Value;
use std::fmt;

/// A text that is no path, or beyond the limits. The message has the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError(pub(crate) String);

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PathError {}

/// An evaluation that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// The path looks at too many values of the document.
    TooManyVisits,
    /// The path computes values, and the command needs values of the document.
    Projection,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvalError::TooManyVisits => "path visits too many values",
            EvalError::Projection => "path computes values and cannot be used here",
        })
    }
}

impl std::error::Error for EvalError {}

/// A value that a path finds: of the document, or computed.
#[derive(Debug)]
pub enum Found<'a> {
    /// A value of the document.
    Node(Value<'a>),
    /// A computed value.
    Computed(Document),
}

impl Found<'_> {
    /// Returns the value.
    pub fn value(&self) -> Value<'_> {
        match self {
            Found::Node(value) => *value,
            Found::Computed(document) => document.root(),
        }
    }
}
