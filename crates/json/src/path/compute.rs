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
use crate::value::{Equality, Kind, Value, equal};
use std::cmp::Ordering;

/// Bytes of text that a function or a pattern looks at, for one visit.
const TEXT_A_VISIT: usize = 16;
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

/// Values are compared by value, and what is compared is counted.
impl Equality for Walk<'_, '_> {
    fn enter(&self, children: usize) -> bool {
        self.visit(children as u64)
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
                let matches = |value: Value<'_>| {
                    value.as_str().is_some_and(|text| {
                        self.visit((text.len() / TEXT_A_VISIT) as u64) && pattern.is_match(text)
                    })
                };
                match self.compute(text, current) {
                    Operand::One(value) => matches(value),
                    other => other.values().into_iter().any(matches),
                }
            }
            Expression::Query(query) => self.first(self.origin(query, current), query).is_some(),
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
                computed(number.and_then(|number| Number::Int(0).minus(number).ok()))
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
        if query.is_static {
            return self.one(from, &query.steps).map_or(Operand::Absent, Operand::One);
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
        // The most frequent condition by far needs no operands: `@.a > 1`.
        if let (Expression::Query(query), Expression::Literal(literal)) = (left, right)
            && query.is_static
            && operator.is_of_values()
        {
            return match self.one(self.origin(query, current), &query.steps) {
                Some(value) => self.compare_values(operator, value, literal.root()),
                None => operator == Comparison::NotEqual,
            };
        }
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
            Comparison::In => self.is_in(left, right),
            Comparison::NotIn => !self.is_in(left, right),
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
        // Numbers are compared most.
        if let (Some(left), Some(right)) = (left.as_number(), right.as_number()) {
            let order = left.compare(right);
            match operator {
                Comparison::Equal => return order.is_eq(),
                Comparison::NotEqual => return order.is_ne(),
                Comparison::Less => return order.is_lt(),
                Comparison::LessOrEqual => return order.is_le(),
                Comparison::Greater => return order.is_gt(),
                Comparison::GreaterOrEqual => return order.is_ge(),
                _ => {}
            }
        }
        let ordered = |test: fn(Ordering) -> bool| order(left, right).is_some_and(test);
        match operator {
            Comparison::Equal => equal(left, right, self),
            Comparison::NotEqual => !equal(left, right, self),
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

    /// Returns whether one of the left values is an element on the right.
    fn is_in(&self, left: &Operand<'_>, right: &Operand<'_>) -> bool {
        let left = left.values();
        let is_left = |one: Value<'_>| left.iter().any(|left| equal(*left, one, self));
        // The elements of one array need not be collected.
        match right.single().and_then(Value::as_array) {
            Some(array) => {
                self.visit((left.len() * array.len()) as u64) && array.iter().any(is_left)
            }
            None => right.elements().is_some_and(|elements| {
                self.visit((left.len() * elements.len()) as u64)
                    && elements.into_iter().any(is_left)
            }),
        }
    }

    /// Counts what a function looks at. Returns whether there may be more.
    pub(crate) fn charge(&self, operand: &Operand<'_>) -> bool {
        let cost = match operand {
            Operand::Nodes(values) => values.len(),
            Operand::List(found) => found.len(),
            other => match other.single().map(Value::kind) {
                Some(Kind::Str(text)) => text.len() / TEXT_A_VISIT,
                Some(Kind::Array(array)) => array.len(),
                Some(Kind::Object(object)) => object.len(),
                _ => 0,
            },
        };
        self.visit(cost as u64)
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
        let is_member = |value: &Value<'_>| right.iter().any(|one| equal(*one, *value, self));
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
        Arithmetic::Add => left.plus(right).ok(),
        Arithmetic::Subtract => left.minus(right).ok(),
        Arithmetic::Multiply => left.times(right).ok(),
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

/// Returns the order of two strings.
fn order(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    Some(left.as_str()?.cmp(right.as_str()?))
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
