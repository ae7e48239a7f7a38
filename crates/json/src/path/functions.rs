//! The functions of expressions.

use super::ast::{Comparison, Expression, Function};
use super::compute::{Operand, finite, length};
use super::result::Found;
use super::select::{Walk, absolute};
use crate::document::Document;
use crate::number::Number;
use crate::value::Value;
use std::cmp::Ordering;

impl<'a> Walk<'a, '_> {
    pub(crate) fn call(
        &self,
        function: Function,
        arguments: &[Expression],
        current: Value<'a>,
    ) -> Operand<'a> {
        if !function.takes(arguments.len()) {
            return Operand::Nothing;
        }
        let mut operands = arguments.iter().map(|argument| {
            let operand = self.compute(argument, current);
            if self.charge(&operand) { operand } else { Operand::Nothing }
        });
        let first = operands.next().unwrap_or(Operand::Nothing);
        if matches!(first, Operand::Nothing) {
            return Operand::Nothing;
        }
        match function {
            Function::Count => Operand::Number(Number::Int(count(&first))),
            Function::Keys => self.keys(first),
            Function::Append => append(first, operands),
            Function::Value => match first {
                Operand::Nodes(_) | Operand::List(_) | Operand::Absent => Operand::Nothing,
                one => one,
            },
            Function::First => element(first, |_| Some(0)),
            Function::Last => element(first, |len| len.checked_sub(1)),
            Function::Index => {
                let at = operands.next().and_then(|at| at.number());
                let at = at.map(|at| at.as_f64().trunc() as i64);
                element(first, |len| absolute(at?, len))
            }
            Function::Length => {
                let len = match &first {
                    Operand::List(found) => Some(found.len()),
                    other => other.single().and_then(length),
                };
                number(len.map(|len| Number::Int(len as i64)))
            }
            Function::Abs | Function::Ceiling | Function::Floor => {
                number(first.number().and_then(|number| round(function, number)))
            }
            Function::Min | Function::Max | Function::Avg | Function::Sum | Function::StdDev => {
                number(numbers(&first).and_then(|numbers| aggregate(function, &numbers)))
            }
            Function::Concat => {
                let all: Option<String> = std::iter::once(first)
                    .chain(operands)
                    .map(|operand| text_of(&operand))
                    .collect();
                all.map_or(Operand::Nothing, |text| Operand::Computed(Document::string(&text)))
            }
            Function::Match | Function::Search => {
                let pattern = operands.next().unwrap_or(Operand::Nothing);
                match (first.single(), pattern.single()) {
                    (Some(text), Some(pattern)) => {
                        Operand::Truth(self.matches(text, pattern, function == Function::Match))
                    }
                    _ => Operand::Nothing,
                }
            }
            Function::SubsetOf | Function::AnyOf | Function::NoneOf => {
                let operator = match function {
                    Function::SubsetOf => Comparison::SubsetOf,
                    Function::AnyOf => Comparison::AnyOf,
                    _ => Comparison::NoneOf,
                };
                let second = operands.next().unwrap_or(Operand::Nothing);
                self.relation(operator, &first, &second).map_or(Operand::Nothing, Operand::Truth)
            }
        }
    }

    /// Returns the names of members, as a list.
    pub(crate) fn keys(&self, of: Operand<'a>) -> Operand<'a> {
        if matches!(of, Operand::Nothing) {
            return Operand::Nothing;
        }
        let objects = of.values().into_iter().filter_map(Value::as_object);
        let names = objects.flat_map(|object| object.names());
        Operand::List(names.map(|name| Found::Computed(Document::string(name))).collect())
    }
}

fn number<'a>(number: Option<Number>) -> Operand<'a> {
    number.map_or(Operand::Nothing, Operand::Number)
}

fn count(operand: &Operand<'_>) -> i64 {
    match operand {
        Operand::Nothing | Operand::Absent => 0,
        Operand::Nodes(values) => values.len() as i64,
        Operand::List(found) => found.len() as i64,
        _ => 1,
    }
}

fn text_of(operand: &Operand<'_>) -> Option<String> {
    operand.single()?.as_str().map(str::to_owned)
}

/// Returns an element of an array or list.
fn element<'a>(of: Operand<'a>, at: impl FnOnce(usize) -> Option<usize>) -> Operand<'a> {
    let found = match of {
        Operand::One(value) => {
            value.as_array().and_then(|array| array.get(at(array.len())?)).map(Operand::One)
        }
        Operand::Nodes(values) => {
            at(values.len()).and_then(|at| values.get(at).copied()).map(Operand::One)
        }
        other => other.elements().and_then(|elements| {
            let value = elements.get(at(elements.len())?)?;
            Some(Operand::Computed(Document::copy_of(*value)))
        }),
    };
    found.unwrap_or(Operand::Nothing)
}

/// Returns the numbers of an array that has numbers only, at least one.
fn numbers(of: &Operand<'_>) -> Option<Vec<Number>> {
    let numbers: Vec<Number> =
        of.elements()?.into_iter().map(Value::as_number).collect::<Option<_>>()?;
    (!numbers.is_empty()).then_some(numbers)
}

fn round(function: Function, number: Number) -> Option<Number> {
    match (number, function) {
        (Number::Int(int), Function::Abs) => int.checked_abs().map(Number::Int),
        (Number::Int(_) | Number::Uint(_), _) => Some(number),
        (Number::Double(double), Function::Abs) => Some(Number::Double(double.abs())),
        (Number::Double(double), Function::Ceiling) => Some(Number::Double(double.ceil())),
        (Number::Double(double), _) => Some(Number::Double(double.floor())),
    }
}

fn aggregate(function: Function, numbers: &[Number]) -> Option<Number> {
    let (first, rest) = numbers.split_first()?;
    let choose = |wanted: Ordering| {
        rest.iter().fold(*first, |best, &one| if one.compare(best) == wanted { one } else { best })
    };
    let mean = || numbers.iter().map(|number| number.as_f64()).sum::<f64>() / numbers.len() as f64;
    match function {
        Function::Min => Some(choose(Ordering::Less)),
        Function::Max => Some(choose(Ordering::Greater)),
        Function::Sum => rest.iter().try_fold(*first, |sum, &one| sum.plus(one).ok()),
        Function::Avg => finite(mean()),
        _ => {
            let mean = mean();
            let squares = numbers.iter().map(|number| (number.as_f64() - mean).powi(2));
            finite((squares.sum::<f64>() / numbers.len() as f64).sqrt())
        }
    }
}

/// Returns the elements of an array, or the values of a list, with more behind them.
fn append<'a>(to: Operand<'a>, more: impl Iterator<Item = Operand<'a>>) -> Operand<'a> {
    let mut list: Vec<Found<'a>> = match to {
        Operand::Absent | Operand::Nothing => return Operand::Nothing,
        Operand::One(value) => match value.as_array() {
            Some(array) => array.iter().map(Found::Node).collect(),
            None => vec![Found::Node(value)],
        },
        Operand::Computed(document) => match document.root().as_array() {
            Some(array) => {
                array.iter().map(|value| Found::Computed(Document::copy_of(value))).collect()
            }
            None => vec![Found::Computed(document)],
        },
        other => other.into_found(),
    };
    for operand in more {
        match operand {
            Operand::Absent | Operand::Nothing => return Operand::Nothing,
            // Several values are one element.
            several @ (Operand::Nodes(_) | Operand::List(_)) => {
                list.push(Found::Computed(Document::array(several.values().into_iter())));
            }
            one => list.extend(one.into_found()),
        }
    }
    Operand::List(list)
}
