//! A document: a tree of nodes and the names of its members.

use crate::array::{ArrayParts, Element, Elements};
use crate::location::Location;
use crate::names::Names;
use crate::node::{Node, Shape};
use crate::object::{Member, Object};
use crate::value::{Array, Kind, Value};
use std::fmt;
use structs::size_class::block_size;

/// A value with everything in it. It owns its names, so it can be moved to any thread.
pub struct Document {
    pub(crate) root: Node,
    pub(crate) names: Names,
    /// The bytes of the heap of the root. Every change adds and subtracts.
    pub(crate) bytes: usize,
}

impl Document {
    /// Returns a document of one scalar or empty container.
    fn of_node(root: Node) -> Document {
        Document::new(root, Names::new())
    }

    /// Returns a document whose names are counted.
    pub(crate) fn new(root: Node, mut names: Names) -> Document {
        names.shrink();
        let bytes = root.memory();
        Document { root, names, bytes }
    }

    /// Returns `null`.
    pub fn null() -> Document {
        Document::of_node(Node::NULL)
    }

    /// Returns a number.
    pub fn number(number: crate::Number) -> Document {
        Document::of_node(Element::from(number).into_node())
    }

    /// Returns a boolean.
    pub fn boolean(value: bool) -> Document {
        Document::of_node(Node::bool(value))
    }

    /// Returns a string.
    pub fn string(text: &str) -> Document {
        Document::of_node(Node::string(text))
    }

    /// Returns an array of copies of values.
    pub fn array<'a>(values: impl Iterator<Item = Value<'a>>) -> Document {
        let mut names = Names::new();
        let elements: Vec<Element> = values.map(|value| copy_element(value, &mut names)).collect();
        let root = ArrayParts::new(elements.into_iter()).into_node();
        Document::new(root, names)
    }

    /// Returns a copy of a value, which stands for itself.
    pub fn copy_of(value: Value<'_>) -> Document {
        let mut names = Names::new();
        let root = copy(value, &mut names);
        Document::new(root, names)
    }

    /// Returns the whole.
    #[inline]
    pub fn root(&self) -> Value<'_> {
        Value::of_node(&self.names, &self.root)
    }

    /// Returns the value at a location, if it is there.
    pub fn at(&self, location: &Location) -> Option<Value<'_>> {
        location.steps().try_fold(self.root(), Value::child)
    }

    /// Returns the bytes that it takes, itself and its blocks. Costs nothing.
    pub fn memory_used(&self) -> usize {
        block_size(size_of::<Document>()) + self.bytes + self.names.memory()
    }

    /// Returns the bytes that the value at a location takes, without names, which are the
    /// document's.
    pub fn memory_of(&self, location: &Location) -> Option<usize> {
        if location.is_root() {
            return Some(self.memory_used());
        }
        Some(size_of::<Node>() + self.at(location)?.memory())
    }
}

impl Clone for Document {
    fn clone(&self) -> Document {
        Document::copy_of(self.root())
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.root(), f)
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Document) -> bool {
        self.root() == other.root()
    }
}

impl From<crate::Number> for Element {
    fn from(number: crate::Number) -> Element {
        match number {
            crate::Number::Int(int) => Element::Int(int),
            crate::Number::Uint(int) => Element::Node(Node::uint(int)),
            crate::Number::Double(double) => Element::Double(double),
        }
    }
}

/// Copies a value and counts its names.
pub(crate) fn copy(value: Value<'_>, names: &mut Names) -> Node {
    copy_element(value, names).into_node()
}

/// Copies a value as an element of an array, and counts its names.
pub(crate) fn copy_element(value: Value<'_>, names: &mut Names) -> Element {
    match value.kind() {
        Kind::Null => Element::Node(Node::NULL),
        Kind::Bool(bool) => Element::Node(Node::bool(bool)),
        Kind::Int(int) => Element::Int(int),
        Kind::Uint(int) => Element::Node(Node::uint(int)),
        Kind::Double(double) => Element::Double(double),
        Kind::Str(text) => Element::Node(Node::string(text)),
        Kind::Array(array) => Element::Node(copy_array(array, names)),
        Kind::Object(object) => {
            let members: Vec<Member> = object
                .iter()
                .map(|(name, value)| Member { name: names.intern(name), value: copy(value, names) })
                .collect();
            Element::Node(Node::object(Object::new(members.into_iter())))
        }
    }
}

fn copy_array(array: Array<'_>, names: &mut Names) -> Node {
    let elements: Vec<Element> = array.iter().map(|value| copy_element(value, names)).collect();
    ArrayParts::new(elements.into_iter()).into_node()
}

/// Counts the names of what is about to be dropped one member less.
pub(crate) fn release_names(node: &Node, names: &mut Names) {
    match node.shape() {
        Shape::Array(Elements::Nodes(nodes)) => {
            nodes.iter().for_each(|node| release_names(node, names));
        }
        Shape::Object(members) => {
            for member in members.as_slice() {
                names.release(member.name);
                release_names(&member.value, names);
            }
        }
        _ => {}
    }
}
