//! The value of an expression, and whether a condition holds.
//!
//! What cannot be computed is *nothing*: a sum with a string, a division by zero, a call with too
//! many arguments. A condition with nothing in it does not hold, and a projection of nothing finds
//! no value; neither is an error. A path that finds several values is a list, and a comparison
//! holds if one of them makes it hold.

use super::ast::{Arithmetic, Comparison, Expression, Query};
use super::pattern::Pattern;
use super::result::Found;
use super::select::Walk;
use crate::document::Document;
use crate::number::Number;
use crate::value::{Kind, Value};
use std::cmp::Ordering;

/// The cost of compiling a pattern that is not written in the path, in visits.
const PATTERN_COST: u64 = 10_000;

/// The value of an expression.
pub(crate) enum Operand<'a> {
    /// It cannot be computed.
    Nothing,
    /// A path that finds no value.
    Absent,
    /// One value of the document.
    One(Value<'a>),
    /// A computed value.
    Computed(Document),
    /// A number that was computed.
    Number(Number),
    /// Several values of the document.
    Nodes(Vec<Value<'a>>),
    /// A list of values that is computed: they come one by one.
    List(Vec<Found<'a>>),
    /// Whether a condition holds.
    Truth(bool),
}

impl<'a> Operand<'a> {
    /// Returns the values that a projection replies with.
    pub(crate) fn into_found(self) -> Vec<Found<'a>> {
        match self {
            Operand::Nothing | Operand::Absent => Vec::new(),
            Operand::One(value) => vec![Found::Node(value)],
            Operand::Computed(document) => vec![Found::Computed(document)],
            Operand::Number(number) => vec![Found::Computed(Document::number(number))],
            Operand::Nodes(values) => values.into_iter().map(Found::Node).collect(),
            Operand::List(found) => found,
            Operand::Truth(truth) => vec![Found::Computed(Document::boolean(truth))],
        }
    }

    /// Turns scalars that are not of a document into documents, so that all values can be borrowed.
    fn settle(self) -> Operand<'a> {
        match self {
            Operand::Truth(truth) => Operand::Computed(Document::boolean(truth)),
            Operand::Number(number) => Operand::Computed(Document::number(number)),
            other => other,
        }
    }

    /// Returns the value if it is exactly one.
    pub(crate) fn single(&self) -> Option<Value<'_>> {
        match self {
            Operand::One(value) => Some(*value),
            Operand::Computed(document) => Some(document.root()),
            Operand::Nodes(values) if values.len() == 1 => values.first().copied(),
            Operand::List(found) if found.len() == 1 => found.first().map(Found::value),
            _ => None,
        }
    }

    /// Returns the number if it is exactly one.
    pub(crate) fn number(&self) -> Option<Number> {
        match self {
            Operand::Number(number) => Some(*number),
            other => other.single()?.as_number(),
        }
    }

    /// Returns the values, each of which may make a comparison hold.
    pub(crate) fn values(&self) -> Vec<Value<'_>> {
        match self {
            Operand::Nodes(values) => values.clone(),
            Operand::List(found) => found.iter().map(Found::value).collect(),
            other => other.single().into_iter().collect(),
        }
    }

    /// Returns the elements of an array, or the values of a list.
    pub(crate) fn elements(&self) -> Option<Vec<Value<'_>>> {
        match self {
            Operand::Nodes(_) | Operand::List(_) => Some(self.values()),
            other => Some(other.single()?.as_array()?.iter().collect()),
        }
    }
}

impl<'a> Walk<'a, '_> {
    /// Returns whether a condition holds for the current value.
    pub(crate) fn holds(&self, condition: &Expression, current: Value<'a>) -> bool {
        match condition {
            Expression::Or(conditions) => conditions.iter().any(|one| self.holds(one, current)),
            Expression::And(conditions) => conditions.iter().all(|one| self.holds(one, current)),
            Expression::Not(condition) => !self.holds(condition, current),
            Expression::Compare(operator, operands) => {
                let (left, right) = &**operands;
                self.compare(*operator, left, right, current)
            }
            Expression::Matches(text, pattern) => {
                let Some(pattern) = pattern else { return false };
                let matches =
                    |value: Value<'_>| value.as_str().is_some_and(|text| pattern.is_match(text));
                match self.compute(text, current) {
                    Operand::One(value) => matches(value),
                    other => other.values().into_iter().any(matches),
                }
            }
            Expression::Query(query) if query.is_static() => {
                self.one(self.origin(query, current), query).is_some()
            }
            Expression::Query(query) => {
                self.first(self.origin(query, current), &query.steps).is_some()
            }
            Expression::Literal(literal) => !matches!(literal.root().kind(), Kind::Bool(false)),
            other => match self.compute(other, current) {
                Operand::Nothing | Operand::Absent => false,
                Operand::Truth(truth) => truth,
                Operand::List(found) => !found.is_empty(),
                _ => true,
            },
        }
    }

    fn origin(&self, query: &Query, current: Value<'a>) -> Value<'a> {
        if query.absolute { self.document.root() } else { current }
    }

    /// Returns the value of an expression for the current value.
    pub(crate) fn compute(&self, expression: &Expression, current: Value<'a>) -> Operand<'a> {
        match expression {
            Expression::Query(query) => self.query(query, current),
            Expression::Literal(literal) => match literal.root().as_number() {
                Some(number) => Operand::Number(number),
                None => Operand::Computed(literal.clone()),
            },
            Expression::Call(function, arguments) => self.call(*function, arguments, current),
            Expression::Keys(object) => self.keys(self.compute(object, current)),
            Expression::Negative(operand) => {
                let number = self.compute(operand, current).number();
                computed(number.and_then(|number| Number::Int(0).subtract(number).ok()))
            }
            Expression::Positive(operand) => computed(self.compute(operand, current).number()),
            Expression::Arithmetic(operator, operands) => {
                let left = self.compute(&operands.0, current).number();
                let right = self.compute(&operands.1, current).number();
                computed(
                    left.zip(right).and_then(|(left, right)| calculate(*operator, left, right)),
                )
            }
            condition => Operand::Truth(self.holds(condition, current)),
        }
    }

    fn query(&self, query: &Query, current: Value<'a>) -> Operand<'a> {
        let from = self.origin(query, current);
        if query.is_static() {
            return self.one(from, query).map_or(Operand::Absent, Operand::One);
        }
        let mut values = Vec::new();
        self.select(from, &query.steps, &mut |value, _| {
            values.push(value);
            true
        });
        match values[..] {
            [] => Operand::Absent,
            [one] => Operand::One(one),
            _ => Operand::Nodes(values),
        }
    }

    fn compare(
        &self,
        operator: Comparison,
        left: &Expression,
        right: &Expression,
        current: Value<'a>,
    ) -> bool {
        let left = self.compute(left, current);
        // A literal need not be copied.
        if let Expression::Literal(literal) = right {
            let literal = Operand::One(literal.root());
            return self.compare_operands(operator, &left.settle(), &literal);
        }
        let right = self.compute(right, current);
        self.compare_operands(operator, &left.settle(), &right.settle())
    }

    pub(crate) fn compare_operands(
        &self,
        operator: Comparison,
        left: &Operand<'_>,
        right: &Operand<'_>,
    ) -> bool {
        if matches!(left, Operand::Nothing) || matches!(right, Operand::Nothing) {
            return false;
        }
        // A value that is not there differs from any that is.
        if let (Operand::Absent, other) | (other, Operand::Absent) = (left, right) {
            let both = matches!((left, right), (Operand::Absent, Operand::Absent));
            return match operator {
                Comparison::NotEqual => !both && !matches!(other, Operand::Nothing),
                Comparison::NotIn => !matches!(left, Operand::Absent),
                _ => false,
            };
        }
        match operator {
            Comparison::In => is_in(left, right),
            Comparison::NotIn => !is_in(left, right),
            Comparison::SubsetOf | Comparison::AnyOf | Comparison::NoneOf => {
                self.relation(operator, left, right).unwrap_or(false)
            }
            _ => match (left.single(), right.single()) {
                (Some(left), Some(right)) => self.compare_values(operator, left, right),
                _ => {
                    let right = right.values();
                    left.values().into_iter().any(|left| {
                        right.iter().any(|&right| self.compare_values(operator, left, right))
                    })
                }
            },
        }
    }

    fn compare_values(&self, operator: Comparison, left: Value<'_>, right: Value<'_>) -> bool {
        let ordered = |test: fn(Ordering) -> bool| order(left, right).is_some_and(test);
        match operator {
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
            Comparison::Less => ordered(Ordering::is_lt),
            Comparison::LessOrEqual => ordered(Ordering::is_le),
            Comparison::Greater => ordered(Ordering::is_gt),
            Comparison::GreaterOrEqual => ordered(Ordering::is_ge),
            Comparison::Matches => self.matches(left, right, false),
            Comparison::SizeOf => {
                let size = right.as_number().map(|number| number.as_f64().trunc());
                length(left).is_some_and(|len| size == Some(len as f64))
            }
            Comparison::Empty => match right.kind() {
                Kind::Bool(empty) => length(left).is_some_and(|len| (len == 0) == empty),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns whether a text matches a pattern that is not written in the path.
    pub(crate) fn matches(&self, text: Value<'_>, pattern: Value<'_>, whole: bool) -> bool {
        let (Some(text), Some(pattern)) = (text.as_str(), pattern.as_str()) else { return false };
        self.visit(PATTERN_COST)
            && Pattern::new(pattern, whole).is_some_and(|pattern| pattern.is_match(text))
    }

    /// Returns how two arrays are related. Nothing if one of them is none.
    pub(crate) fn relation(
        &self,
        operator: Comparison,
        left: &Operand<'_>,
        right: &Operand<'_>,
    ) -> Option<bool> {
        let (left, right) = (left.elements()?, right.elements()?);
        if !self.visit(left.len() as u64 * right.len() as u64) {
            return None;
        }
        let is_member = |value: &Value<'_>| right.contains(value);
        Some(match operator {
            Comparison::SubsetOf => left.iter().all(is_member),
            Comparison::AnyOf => left.iter().any(is_member),
            _ => !left.iter().any(is_member),
        })
    }
}

fn computed<'a>(number: Option<Number>) -> Operand<'a> {
    number.map_or(Operand::Nothing, Operand::Number)
}

fn calculate(operator: Arithmetic, left: Number, right: Number) -> Option<Number> {
    match operator {
        Arithmetic::Add => left.add(right).ok(),
        Arithmetic::Subtract => left.subtract(right).ok(),
        Arithmetic::Multiply => left.multiply(right).ok(),
        Arithmetic::Divide => finite(left.as_f64() / right.as_f64()),
        Arithmetic::Remainder => match (left, right) {
            (Number::Int(_), Number::Int(0)) => None,
            (Number::Int(left), Number::Int(right)) => Some(Number::Int(left.wrapping_rem(right))),
            _ => finite(left.as_f64() % right.as_f64()),
        },
    }
}

/// Returns a result that is a number of JSON.
pub(crate) fn finite(double: f64) -> Option<Number> {
    double.is_finite().then_some(Number::Double(double))
}

fn is_in(left: &Operand<'_>, right: &Operand<'_>) -> bool {
    match right {
        // The elements of one array need not be collected.
        Operand::One(value) => {
            let array = value.as_array();
            let contains = |left| array.is_some_and(|array| array.iter().any(|one| one == left));
            left.values().into_iter().any(contains)
        }
        _ => {
            let elements = right.elements().unwrap_or_default();
            left.values().iter().any(|left| elements.contains(left))
        }
    }
}

/// Returns the order of two numbers or two strings.
fn order(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    match (left.kind(), right.kind()) {
        (Kind::Str(left), Kind::Str(right)) => Some(left.cmp(right)),
        _ => Some(left.as_number()?.compare(right.as_number()?)),
    }
}

/// Returns the characters of a string, elements of an array or members of an object.
pub(crate) fn length(value: Value<'_>) -> Option<usize> {
    match value.kind() {
        Kind::Str(text) => Some(text.chars().count()),
        Kind::Array(array) => Some(array.len()),
        Kind::Object(object) => Some(object.len()),
        _ => None,
    }
}
