//! Reading: a value of a document, borrowed from it.

use crate::array::{Element, Elements};
use crate::names::Names;
use crate::node::{Node, Shape};
use crate::number::Number;
use crate::object::{Member, Members};
use std::fmt;

/// A value of a document. It is copied freely and costs nothing to make.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    names: &'a Names,
    item: Item<'a>,
}

/// What a value is in the tree: elements of packed arrays are no nodes.
#[derive(Clone, Copy)]
enum Item<'a> {
    Node(&'a Node),
    Number(Number),
}

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent that 64 bits with a sign can hold.
    Int(i64),
    /// An integer above 2^63 - 1 that 64 bits can hold.
    Uint(u64),
    /// Any other number. It is finite.
    Double(f64),
    /// A string.
    Str(&'a str),
    /// An array.
    Array(Array<'a>),
    /// An object.
    Object(Object<'a>),
}

/// An array.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    names: &'a Names,
    elements: Elements<'a>,
}

/// An object.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    names: &'a Names,
    members: Members<'a>,
}

impl<'a> Value<'a> {
    pub(crate) fn of_node(names: &'a Names, node: &'a Node) -> Value<'a> {
        Value { names, item: Item::Node(node) }
    }

    pub(crate) fn of_number(names: &'a Names, number: Number) -> Value<'a> {
        Value { names, item: Item::Number(number) }
    }

    pub(crate) fn names(self) -> &'a Names {
        self.names
    }

    /// Returns the bytes of the heap that it takes: none for an element of a packed array.
    pub(crate) fn memory(self) -> usize {
        match self.item {
            Item::Node(node) => node.memory(),
            Item::Number(_) => 0,
        }
    }

    /// Returns what it is.
    #[inline]
    pub fn kind(self) -> Kind<'a> {
        let names = self.names;
        match self.item {
            Item::Number(Number::Int(int)) => Kind::Int(int),
            Item::Number(Number::Uint(int)) => Kind::Uint(int),
            Item::Number(Number::Double(double)) => Kind::Double(double),
            Item::Node(node) => match node.shape() {
                Shape::Null => Kind::Null,
                Shape::Bool(bool) => Kind::Bool(bool),
                Shape::Int(int) => Kind::Int(int),
                Shape::Uint(int) => Kind::Uint(int),
                Shape::Double(double) => Kind::Double(double),
                Shape::Str(text) => Kind::Str(text),
                Shape::Array(elements) => Kind::Array(Array { names, elements }),
                Shape::Object(members) => Kind::Object(Object { names, members }),
            },
        }
    }

    /// Returns the name of its type: null, boolean, integer, number, string, array or object.
    pub fn type_name(self) -> &'static str {
        match self.kind() {
            Kind::Null => "null",
            Kind::Bool(_) => "boolean",
            Kind::Int(_) | Kind::Uint(_) => "integer",
            Kind::Double(_) => "number",
            Kind::Str(_) => "string",
            Kind::Array(_) => "array",
            Kind::Object(_) => "object",
        }
    }

    /// Returns it as a number, if it is one.
    pub fn as_number(self) -> Option<Number> {
        match self.kind() {
            Kind::Int(int) => Some(Number::Int(int)),
            Kind::Uint(int) => Some(Number::Uint(int)),
            Kind::Double(double) => Some(Number::Double(double)),
            _ => None,
        }
    }

    /// Returns it as a string, if it is one.
    pub fn as_str(self) -> Option<&'a str> {
        match self.kind() {
            Kind::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns it as an array, if it is one.
    pub fn as_array(self) -> Option<Array<'a>> {
        match self.kind() {
            Kind::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns it as an object, if it is one.
    pub fn as_object(self) -> Option<Object<'a>> {
        match self.kind() {
            Kind::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the child at a position: an element, or the value of a member.
    pub(crate) fn child(self, at: usize) -> Option<Value<'a>> {
        match self.kind() {
            Kind::Array(array) => array.get(at),
            Kind::Object(object) => object.at(at),
            _ => None,
        }
    }

    /// Returns how many containers are inside each other: 0 for a scalar.
    pub fn depth(self) -> usize {
        match self.kind() {
            Kind::Array(Array { elements: Elements::Packed(_), .. }) => 1,
            Kind::Array(array) => 1 + array.iter().map(Value::depth).max().unwrap_or(0),
            Kind::Object(object) => {
                1 + object.iter().map(|(_, value)| value.depth()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

impl<'a> Array<'a> {
    /// Returns how many elements there are.
    pub fn len(self) -> usize {
        self.elements.len()
    }

    /// Returns whether there is no element.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the element at a position.
    #[inline]
    pub fn get(self, at: usize) -> Option<Value<'a>> {
        let names = self.names;
        match self.elements {
            Elements::Nodes(nodes) => nodes.get(at).map(|node| Value::of_node(names, node)),
            Elements::Packed(packed) => packed.get(at).map(|element| match element {
                Element::Int(int) => Value::of_number(names, Number::Int(int)),
                Element::Double(double) => Value::of_number(names, Number::Double(double)),
                Element::Node(_) => unreachable!("packed arrays have numbers"),
            }),
        }
    }

    /// Returns the elements in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Value<'a>> + DoubleEndedIterator + Clone {
        (0..self.len()).map(move |at| self.get(at).expect("the position is in the array"))
    }

    /// Returns the position of the first element that is a value, of those from `start` until
    /// before `stop`. Negative positions count from the end; a `stop` of 0 is the end. 3 is not
    /// 3.0.
    pub fn position(self, needle: Value<'_>, start: i64, stop: i64) -> Option<usize> {
        let len = self.len() as i64;
        let absolute = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at.min(len) };
        let (start, stop) = (absolute(start), if stop == 0 { len } else { absolute(stop) });
        (start..stop)
            .map(|at| at as usize)
            .find(|&at| self.get(at).is_some_and(|it| equal(it, needle, &ByType)))
    }
}

impl<'a> Object<'a> {
    /// Returns how many members there are.
    pub fn len(self) -> usize {
        self.members.as_slice().len()
    }

    /// Returns whether there is no member.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the value of the member with a name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.at(self.position(name)?)
    }

    pub(crate) fn position(self, name: &str) -> Option<usize> {
        self.members.position(self.names.find(name)?)
    }

    pub(crate) fn members(self) -> Members<'a> {
        self.members
    }

    pub(crate) fn at(self, at: usize) -> Option<Value<'a>> {
        let member = self.members.as_slice().get(at)?;
        Some(Value::of_node(self.names, &member.value))
    }

    /// Returns names and values in the order of insertion.
    pub fn iter(
        self,
    ) -> impl ExactSizeIterator<Item = (&'a str, Value<'a>)> + DoubleEndedIterator + Clone {
        let names = self.names;
        let pair = move |member: &'a Member| {
            (names.text(member.name), Value::of_node(names, &member.value))
        };
        self.members.as_slice().iter().map(pair)
    }

    /// Returns the names in the order of insertion.
    pub fn names(self) -> impl ExactSizeIterator<Item = &'a str> + Clone {
        self.iter().map(|(name, _)| name)
    }
}

/// Numbers are equal by value, objects whatever the order of their members.
impl PartialEq<Value<'_>> for Value<'_> {
    fn eq(&self, other: &Value<'_>) -> bool {
        equal(*self, *other, &ByValue)
    }
}

/// How values are compared.
pub(crate) trait Equality {
    /// Returns whether two numbers are equal.
    fn numbers(&self, a: Number, b: Number) -> bool {
        a == b
    }

    /// Returns whether containers with so many children are to be compared.
    fn enter(&self, _children: usize) -> bool {
        true
    }
}

struct ByValue;

impl Equality for ByValue {}

/// An integer is no float.
struct ByType;

impl Equality for ByType {
    fn numbers(&self, a: Number, b: Number) -> bool {
        a.is_integer() == b.is_integer() && a == b
    }
}

/// Compares two values with all that is in them.
pub(crate) fn equal(a: Value<'_>, b: Value<'_>, by: &impl Equality) -> bool {
    match (a.kind(), b.kind()) {
        (Kind::Null, Kind::Null) => true,
        (Kind::Bool(a), Kind::Bool(b)) => a == b,
        (Kind::Str(a), Kind::Str(b)) => a == b,
        (Kind::Array(a), Kind::Array(b)) => {
            a.len() == b.len()
                && by.enter(a.len())
                && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b, by))
        }
        (Kind::Object(a), Kind::Object(b)) => {
            a.len() == b.len() && by.enter(a.len()) && equal_members(a, b, by)
        }
        _ => match (a.as_number(), b.as_number()) {
            (Some(a), Some(b)) => by.numbers(a, b),
            _ => false,
        },
    }
}

/// Compares members by name. Most equal objects have one order, in which no name is searched.
fn equal_members(a: Object<'_>, b: Object<'_>, by: &impl Equality) -> bool {
    if a.names().eq(b.names()) {
        return a.iter().zip(b.iter()).all(|((_, a), (_, b))| equal(a, b, by));
    }
    a.iter().all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other, by)))
}

/// The text of the value.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Document, Limits};

    fn document(text: &str) -> Document {
        Document::parse(text.as_bytes(), &Limits::default()).unwrap()
    }

    #[test]
    fn values_are_equal_by_what_they_are() {
        let equal = |a: &str, b: &str| document(a) == document(b);
        assert!(equal("[1,2.0]", "[1.0,2]") && !equal("[1]", "[1,1]"));
        assert!(equal(r#"{"a":1,"b":[null]}"#, r#"{"b":[null],"a":1.0}"#));
        assert!(!equal(r#"{"a":1,"b":2}"#, r#"{"a":1,"c":2}"#));
        assert!(!equal("0", "false") && !equal("\"1\"", "1") && !equal("[]", "{}"));
    }

    #[test]
    fn positions_of_elements() {
        let document = |text: &str| document(text);
        let array = document(r#"[0,1,3.0,3,"x",[1],3,{"a":1,"b":2}]"#);
        let array = array.root().as_array().unwrap();
        let find = |needle: &str, start, stop| array.position(document(needle).root(), start, stop);
        assert_eq!(find("3", 0, 0), Some(3));
        assert_eq!(find("3.0", 0, 0), Some(2));
        assert_eq!(find("3", 4, 0), Some(6));
        assert_eq!(find("3", -2, 0), Some(6));
        assert_eq!(find("3", 0, 3), None);
        assert_eq!(find("3", 0, -4), Some(3));
        assert_eq!(find("3", 0, -5), None);
        assert_eq!(find("3", -100, 100), Some(3));
        assert_eq!(find("3", 100, 0), None);
        assert_eq!(find("[1]", 0, 0), Some(5));
        assert_eq!(find(r#"{"b":2,"a":1}"#, 0, 0), Some(7));
    }
}
