//! Paths: which values of a document a command is about.
//!
//! There are two languages. A path that begins with `$` finds any number of values, or computes
//! some (a projection, `$.a + 1`). Any other is *legacy* and stands for one value; it has the same
//! steps. Both are compiled to one tree (`ast.rs` has the grammar), which is shared when a path is
//! cloned.
//!
//! Redis's dialect is neither RFC 9535 nor that of a library: names without quotes may have almost
//! any character, filters select children of arrays and of objects, and there are operators and
//! functions of its own.

mod ast;
mod compile;
mod compute;
mod functions;
mod limits;
mod pattern;
mod result;
mod select;

use crate::document::Document;
use crate::location::Location;
use crate::value::Value;
use ast::{Expression, Query, Selector};
pub use limits::{MAX_PATH_LEN, MAX_RECURSIVE_STEPS};
pub use result::{EvalError, Found, PathError};
use select::Walk;
use std::fmt;
use std::sync::Arc;

/// A compiled path. A clone shares the compiled form.
#[derive(Clone)]
pub struct Path(Arc<Inner>);

struct Inner {
    text: Box<str>,
    expression: Expression,
    names: Box<[Box<str>]>,
    legacy: bool,
}

/// What SET and MERGE do with a path.
#[derive(Debug, PartialEq, Eq)]
pub enum Targets<'p> {
    /// The path finds these: replace them.
    Existing(Vec<Location>),
    /// The last name is new in an object.
    New {
        /// The objects. A static path has one.
        objects: Vec<Location>,
        /// The name of the new member.
        name: &'p str,
    },
    /// The parent is missing or no container for the last step: nothing can be made.
    Missing,
    /// The path finds nothing and may find several: it does not say what to make.
    NotStatic,
    /// The last step is an index outside of its array.
    OutOfBounds,
}

impl Path {
    /// Compiles a path of either language.
    ///
    /// # Errors
    /// The text is no path, or beyond the limits.
    pub fn parse(text: &[u8]) -> Result<Path, PathError> {
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(PathError("path is not UTF-8".to_owned()));
        };
        let compiled = compile::compile(text)?;
        Ok(Path(Arc::new(Inner {
            text: text.into(),
            expression: compiled.expression,
            names: compiled.names.into(),
            legacy: compiled.legacy,
        })))
    }

    /// Returns the text that it was compiled of.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns whether it is a legacy path, which stands for one value.
    pub fn is_legacy(&self) -> bool {
        self.0.legacy
    }

    /// Returns whether it is the root itself.
    pub fn is_root(&self) -> bool {
        self.query().is_some_and(|query| query.steps.is_empty())
    }

    /// Returns whether it has names and single indexes only, so that it finds one value at most.
    pub fn is_static(&self) -> bool {
        self.query().is_some_and(|query| query.is_static)
    }

    /// Returns whether it computes values instead of selecting them.
    pub fn is_projection(&self) -> bool {
        self.query().is_none()
    }

    fn query(&self) -> Option<&Query> {
        match &self.0.expression {
            Expression::Query(query) => Some(query),
            _ => None,
        }
    }

    /// Returns all values that it finds or computes.
    ///
    /// # Errors
    /// [`EvalError::TooManyVisits`].
    pub fn read<'a>(&self, document: &'a Document) -> Result<Vec<Found<'a>>, EvalError> {
        let walk = Walk::new(document, &self.0.names);
        let mut found = Vec::new();
        match self.query() {
            Some(query) if query.is_static => {
                found.extend(walk.one(document.root(), &query.steps).map(Found::Node));
            }
            Some(query) => {
                walk.select(document.root(), &query.steps, &mut |value, _| {
                    found.push(Found::Node(value));
                    true
                });
            }
            None => found = walk.compute(&self.0.expression, document.root()).into_found(),
        }
        walk.finish(found)
    }

    /// Returns the first value that it finds or computes.
    ///
    /// # Errors
    /// [`EvalError::TooManyVisits`].
    pub fn first<'a>(&self, document: &'a Document) -> Result<Option<Found<'a>>, EvalError> {
        let Some(query) = self.query() else {
            return self.read(document).map(|found| found.into_iter().next());
        };
        let walk = Walk::new(document, &self.0.names);
        let first = walk.first(document.root(), query);
        walk.finish(first.map(Found::Node))
    }

    /// Returns the locations of all values that it finds, in the order in which it finds them.
    ///
    /// # Errors
    /// [`EvalError::TooManyVisits`]; [`EvalError::Projection`] if it computes.
    pub fn locations(&self, document: &Document) -> Result<Vec<Location>, EvalError> {
        let query = self.query().ok_or(EvalError::Projection)?;
        self.locations_of(document, &query.steps, query.is_static)
    }

    fn locations_of(
        &self,
        document: &Document,
        steps: &[ast::Step],
        is_static: bool,
    ) -> Result<Vec<Location>, EvalError> {
        let walk = Walk::new(document, &self.0.names);
        let mut locations = Vec::new();
        if is_static {
            let mut trail = Vec::with_capacity(steps.len());
            let found = walk.one_by(document.root(), steps, |at| trail.push(at as u32));
            locations.extend(found.map(|_| Location::new(trail)));
            return Ok(locations);
        }
        walk.select(document.root(), steps, &mut |_, trail| {
            locations.push(Location::new(trail.to_vec()));
            true
        });
        walk.finish(locations)
    }

    /// Returns what to replace, or where to make a new member.
    ///
    /// # Errors
    /// [`EvalError::TooManyVisits`]; [`EvalError::Projection`] if it computes.
    pub fn targets(&self, document: &Document) -> Result<Targets<'_>, EvalError> {
        let query = self.query().ok_or(EvalError::Projection)?;
        let existing = self.locations_of(document, &query.steps, query.is_static)?;
        if !existing.is_empty() {
            return Ok(Targets::Existing(existing));
        }
        if !query.is_static {
            return Ok(Targets::NotStatic);
        }
        let Some((last, parents)) = query.steps.split_last() else { return Ok(Targets::Missing) };
        let parents = self.locations_of(document, parents, true)?;
        let is = |test: fn(Value<'_>) -> bool| {
            parents.iter().any(|parent| document.at(parent).is_some_and(test))
        };
        Ok(match last.selector {
            Selector::Name(name) if is(|parent| parent.as_object().is_some()) => {
                Targets::New { objects: parents, name: &self.0.names[name as usize] }
            }
            Selector::Index(_) => Targets::OutOfBounds,
            _ => Targets::Missing,
        })
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests;
