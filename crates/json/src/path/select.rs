//! Finding the values of a path: a walk down the tree, a step of the path at a time.

use super::ast::{Query, Selector, Step};
use super::limits::MAX_VISITS;
use super::result::EvalError;
use crate::document::Document;
use crate::names::NameId;
use crate::value::{Array, Kind, Object, Value};
use std::cell::Cell;

/// No member of the document has the name.
const ABSENT: NameId = NameId::MAX;
/// Names of a path that need no block.
const FEW_NAMES: usize = 8;

/// An evaluation of one path in one document.
pub(crate) struct Walk<'a, 'p> {
    pub(crate) document: &'a Document,
    path_names: &'p [Box<str>],
    few: [NameId; FEW_NAMES],
    /// The numbers that the path's names have in the document, if there are more than a few.
    many: Vec<NameId>,
    visits_left: Cell<u64>,
}

/// Takes a value and the positions of the children on the way to it. Returns whether to go on.
type Take<'t, 'a> = &'t mut dyn FnMut(Value<'a>, &[u32]) -> bool;

impl<'a, 'p> Walk<'a, 'p> {
    pub(crate) fn new(document: &'a Document, path_names: &'p [Box<str>]) -> Walk<'a, 'p> {
        let number = |name: &str| document.names.find(name).unwrap_or(ABSENT);
        let mut few = [ABSENT; FEW_NAMES];
        let mut many = Vec::new();
        if path_names.len() <= FEW_NAMES {
            few.iter_mut().zip(path_names).for_each(|(few, name)| *few = number(name));
        } else {
            many = path_names.iter().map(|name| number(name)).collect();
        }
        Walk { document, path_names, few, many, visits_left: Cell::new(MAX_VISITS) }
    }

    /// Returns the result, unless the walk was given up.
    pub(crate) fn finish<T>(&self, result: T) -> Result<T, EvalError> {
        if self.visits_left.get() == 0 { Err(EvalError::TooManyVisits) } else { Ok(result) }
    }

    /// Counts visits. Returns whether there may be more: at 0 everything ends.
    pub(crate) fn visit(&self, count: u64) -> bool {
        let left = self.visits_left.get().saturating_sub(count);
        self.visits_left.set(left);
        left > 0
    }

    fn number(&self, name: u32) -> NameId {
        if self.many.is_empty() { self.few[name as usize] } else { self.many[name as usize] }
    }

    fn position(&self, object: Object<'a>, name: u32) -> Option<usize> {
        debug_assert_eq!(
            self.document.names.find(&self.path_names[name as usize]).unwrap_or(ABSENT),
            self.number(name)
        );
        match self.number(name) {
            ABSENT => None,
            number => object.members().position(number),
        }
    }

    /// Hands all values that steps find, from a value on, to `take`.
    pub(crate) fn select(&self, from: Value<'a>, steps: &[Step], take: Take<'_, 'a>) {
        self.step(from, steps, &mut Vec::new(), take);
    }

    /// Returns the first value that a path finds.
    pub(crate) fn first(&self, from: Value<'a>, query: &Query) -> Option<Value<'a>> {
        if query.is_static {
            return self.one(from, &query.steps);
        }
        let mut first = None;
        self.select(from, &query.steps, &mut |value, _| {
            first = Some(value);
            false
        });
        first
    }

    /// Returns the value that static steps find. Cheaper than a walk.
    pub(crate) fn one(&self, from: Value<'a>, steps: &[Step]) -> Option<Value<'a>> {
        self.one_by(from, steps, |_| {})
    }

    /// Returns the value that static steps find, and hands out the positions on the way.
    pub(crate) fn one_by(
        &self,
        from: Value<'a>,
        steps: &[Step],
        mut pass: impl FnMut(usize),
    ) -> Option<Value<'a>> {
        steps.iter().try_fold(from, |value, step| {
            let (at, child) = match (&step.selector, value.kind()) {
                (Selector::Name(name), Kind::Object(object)) => {
                    let at = self.position(object, *name)?;
                    (at, object.at(at)?)
                }
                (Selector::Index(index), Kind::Array(array)) => {
                    let at = absolute(*index, array.len())?;
                    (at, array.get(at)?)
                }
                _ => return None,
            };
            pass(at);
            Some(child)
        })
    }

    /// Takes one step. Returns whether to go on.
    fn step(
        &self,
        value: Value<'a>,
        steps: &[Step],
        trail: &mut Vec<u32>,
        take: Take<'_, 'a>,
    ) -> bool {
        let Some((step, rest)) = steps.split_first() else { return take(value, trail) };
        if !self.children(value, &step.selector, rest, trail, take) {
            return false;
        }
        if !step.recursive {
            return true;
        }
        let mut at = 0;
        while let Some(child) = value.child(at) {
            // Scalars have no children: nothing is found at or below them.
            if matches!(child.kind(), Kind::Array(_) | Kind::Object(_)) {
                if !self.visit(1) {
                    return false;
                }
                trail.push(at as u32);
                let go_on = self.step(child, steps, trail, take);
                trail.pop();
                if !go_on {
                    return false;
                }
            }
            at += 1;
        }
        true
    }

    /// Takes the rest of the steps from each child that a selector takes.
    fn children(
        &self,
        value: Value<'a>,
        selector: &Selector,
        rest: &[Step],
        trail: &mut Vec<u32>,
        take: Take<'_, 'a>,
    ) -> bool {
        let mut go = |at: usize, child: Option<Value<'a>>| {
            let Some(child) = child else { return true };
            if !self.visit(1) {
                return false;
            }
            trail.push(at as u32);
            let go_on = self.step(child, rest, trail, take);
            trail.pop();
            go_on
        };
        match (selector, value.kind()) {
            (Selector::Name(name), Kind::Object(object)) => {
                self.position(object, *name).is_none_or(|at| go(at, object.at(at)))
            }
            (Selector::Index(index), Kind::Array(array)) => {
                absolute(*index, array.len()).is_none_or(|at| go(at, array.get(at)))
            }
            (Selector::Wildcard, Kind::Array(array)) => {
                (0..array.len()).all(|at| go(at, array.get(at)))
            }
            (Selector::Wildcard, Kind::Object(object)) => {
                (0..object.len()).all(|at| go(at, object.at(at)))
            }
            (Selector::Slice { start, end, step }, Kind::Array(array)) => {
                slice(array, *start, *end, *step).all(|at| go(at, array.get(at)))
            }
            (Selector::Filter(expression), kind @ (Kind::Array(_) | Kind::Object(_))) => {
                let mut at = 0;
                loop {
                    let child = match kind {
                        Kind::Array(array) => array.get(at),
                        Kind::Object(object) => object.at(at),
                        _ => None,
                    };
                    let Some(child) = child else { return true };
                    if !self.visit(1) || (self.holds(expression, child) && !go(at, Some(child))) {
                        return false;
                    }
                    at += 1;
                }
            }
            (Selector::Union(selectors), _) => {
                selectors.iter().all(|selector| self.children(value, selector, rest, trail, take))
            }
            _ => true,
        }
    }
}

/// Returns the position of an index that may count from the end.
pub(crate) fn absolute(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|&index| index < len)
}

/// Returns the positions of a slice: those of Python's.
fn slice(
    array: Array<'_>,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> impl Iterator<Item = usize> {
    let len = array.len() as i64;
    // Positions of a backward slice go down to -1, before the first.
    let (least, most) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |at: Option<i64>, default: i64| match at {
        None => default,
        Some(at) if at < 0 => at.saturating_add(len).max(least),
        Some(at) => at.min(most),
    };
    let (start, end) = if step > 0 {
        (bound(start, least), bound(end, most))
    } else {
        (bound(start, most), bound(end, least))
    };
    let in_range = move |at: &i64| if step > 0 { *at < end } else { *at > end };
    std::iter::successors(Some(start), move |at| at.checked_add(step))
        .take_while(in_range)
        .map(|at| at as usize)
}
