//! The elements of an array: nodes, or numbers of one type side by side.
//!
//! Integers take the smallest of four widths that all of them fit in, doubles four bytes if that loses
//! no bit of any of them, else eight. A number that does not fit widens the whole; anything that is no
//! such number turns the array into nodes. Both cost the length once, at most a few times in the life
//! of an array.
#![allow(unsafe_code)]

use crate::node::{Node, borrow};
use crate::thin::Thin;

/// An element on its way into an array.
pub(crate) enum Element {
    Int(i64),
    Double(f64),
    Node(Node),
}

impl Element {
    pub(crate) fn into_node(self) -> Node {
        match self {
            Element::Int(int) => Node::int(int),
            Element::Double(double) => Node::double(double),
            Element::Node(node) => node,
        }
    }
}

/// The elements of an array, owned.
pub(crate) enum ArrayParts {
    Nodes(Thin<Node>),
    Packed(PackedVec),
}

/// The elements of an array, borrowed.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    Nodes(&'a [Node]),
    Packed(Packed<'a>),
}

impl Elements<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Elements::Nodes(nodes) => nodes.len(),
            Elements::Packed(packed) => packed.len(),
        }
    }
}

macro_rules! packed {
    ($($kind:ident $type:ty = $number:literal),*) => {
        /// Numbers of one type, borrowed.
        #[derive(Clone, Copy)]
        pub(crate) enum Packed<'a> {
            $($kind(&'a [$type])),*
        }

        /// Numbers of one type, owned.
        pub(crate) enum PackedVec {
            $($kind(Thin<$type>)),*
        }

        impl<'a> Packed<'a> {
            /// Returns the numbers of a vector.
            ///
            /// # Safety
            /// The kind and the address came from [`PackedVec::into_address`]; nothing changes or
            /// frees the vector during `'a`.
            pub(crate) unsafe fn at(kind: u8, address: usize) -> Packed<'a> {
                // SAFETY: by contract.
                unsafe {
                    match kind {
                        $($number => Packed::$kind(borrow(address)),)*
                        _ => unreachable!("kinds come from into_address"),
                    }
                }
            }

            pub(crate) fn len(self) -> usize {
                match self { $(Packed::$kind(numbers) => numbers.len()),* }
            }

            pub(crate) fn get(self, at: usize) -> Option<Element> {
                match self { $(Packed::$kind(numbers) => numbers.get(at).map(|&number| number.into())),* }
            }
        }

        impl PackedVec {
            /// Gives the vector away: its kind and address.
            pub(crate) fn into_address(self) -> (u8, usize) {
                match self { $(PackedVec::$kind(numbers) => ($number, numbers.into_address())),* }
            }

            /// Returns the vector of an address.
            ///
            /// # Safety
            /// Both came from [`PackedVec::into_address`], and nothing else uses the vector.
            pub(crate) unsafe fn from_address(kind: u8, address: usize) -> PackedVec {
                // SAFETY: by contract.
                unsafe {
                    match kind {
                        $($number => PackedVec::$kind(Thin::from_address(address)),)*
                        _ => unreachable!("kinds come from into_address"),
                    }
                }
            }

            fn len(&self) -> usize {
                match self { $(PackedVec::$kind(numbers) => numbers.len()),* }
            }

            pub(crate) fn remove(&mut self, at: usize) {
                match self { $(PackedVec::$kind(numbers) => { numbers.remove(at); }),* }
            }

            pub(crate) fn keep(&mut self, from: usize, to: usize) {
                match self { $(PackedVec::$kind(numbers) => numbers.keep(from, to)),* }
            }

            fn as_packed(&self) -> Packed<'_> {
                match self { $(PackedVec::$kind(numbers) => Packed::$kind(numbers.as_slice())),* }
            }

            fn kind(&self) -> Kind {
                match self { $(PackedVec::$kind(_) => Kind::$kind),* }
            }

            fn of(kind: Kind, elements: impl ExactSizeIterator<Item = Element>) -> PackedVec {
                match kind { $(Kind::$kind => PackedVec::$kind(Thin::exact(elements.map(|element| <$type>::of(&element))))),* }
            }

            /// Puts numbers that fit before the one at `at`.
            fn insert_fitting(&mut self, at: usize, elements: &[Element]) {
                match self {
                    $(PackedVec::$kind(numbers) => {
                        let new = elements.iter().map(<$type>::of).collect();
                        numbers.insert_all(at, new);
                    }),*
                }
            }

            fn set_fitting(&mut self, at: usize, element: &Element) {
                match self { $(PackedVec::$kind(numbers) => numbers.as_mut_slice()[at] = <$type>::of(element)),* }
            }

            pub(crate) fn memory(&self) -> usize {
                match self { $(PackedVec::$kind(numbers) => numbers.memory()),* }
            }
        }

        /// The type of packed numbers. Of integers, and of doubles, the larger is the wider.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        enum Kind {
            $($kind = $number),*
        }
    };
}

packed!(I8 i8 = 0, I16 i16 = 1, I32 i32 = 2, I64 i64 = 3, F32 f32 = 4, F64 f64 = 5);

/// A type of packed numbers.
trait Fit: Copy {
    /// Returns the number of an element that fits.
    fn of(element: &Element) -> Self;
}

macro_rules! fit {
    ($($type:ty => $kind:ident),*) => {
        $(
            impl From<$type> for Element {
                fn from(number: $type) -> Element {
                    Element::$kind(number.into())
                }
            }

            impl Fit for $type {
                fn of(element: &Element) -> $type {
                    match element {
                        Element::$kind(number) => *number as $type,
                        _ => unreachable!("the kind was chosen by the elements"),
                    }
                }
            }
        )*
    };
}

fit!(i8 => Int, i16 => Int, i32 => Int, i64 => Int, f32 => Double, f64 => Double);

impl Kind {
    /// Returns the narrowest type that an element fits in.
    fn for_element(element: &Element) -> Option<Kind> {
        match *element {
            Element::Int(int) if i8::try_from(int).is_ok() => Some(Kind::I8),
            Element::Int(int) if i16::try_from(int).is_ok() => Some(Kind::I16),
            Element::Int(int) if i32::try_from(int).is_ok() => Some(Kind::I32),
            Element::Int(_) => Some(Kind::I64),
            Element::Double(double) if f64::from(double as f32).to_bits() == double.to_bits() => {
                Some(Kind::F32)
            }
            Element::Double(_) => Some(Kind::F64),
            Element::Node(_) => None,
        }
    }

    /// Returns the narrowest type that what fits in either fits in.
    fn common(self, other: Kind) -> Option<Kind> {
        let is_int = |kind: Kind| kind <= Kind::I64;
        (is_int(self) == is_int(other)).then(|| self.max(other))
    }

    fn for_elements(elements: &[Element]) -> Option<Kind> {
        let (first, rest) = elements.split_first()?;
        rest.iter().try_fold(Kind::for_element(first)?, |kind, element| {
            kind.common(Kind::for_element(element)?)
        })
    }
}

impl Packed<'_> {
    fn elements(self) -> impl ExactSizeIterator<Item = Element> {
        (0..self.len()).map(move |at| self.get(at).expect("the place is in the array"))
    }
}

impl ArrayParts {
    /// Makes an array of elements, in the form that suits them.
    pub(crate) fn new(elements: impl ExactSizeIterator<Item = Element> + AsElements) -> ArrayParts {
        match Kind::for_elements(elements.as_elements()) {
            Some(kind) => ArrayParts::Packed(PackedVec::of(kind, elements)),
            None => ArrayParts::Nodes(Thin::exact(elements.map(Element::into_node))),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            ArrayParts::Nodes(nodes) => nodes.len(),
            ArrayParts::Packed(packed) => packed.len(),
        }
    }

    pub(crate) fn into_node(self) -> Node {
        match self {
            ArrayParts::Nodes(nodes) => Node::nodes(nodes),
            ArrayParts::Packed(packed) => Node::packed(packed),
        }
    }

    /// Makes elements of these fit: widens the numbers, or turns them into nodes.
    fn fit(&mut self, elements: &[Element]) {
        let ArrayParts::Packed(packed) = self else { return };
        let kind = Kind::for_elements(elements).and_then(|kind| kind.common(packed.kind()));
        match kind {
            Some(kind) if kind == packed.kind() => {}
            Some(kind) => *packed = PackedVec::of(kind, packed.as_packed().elements()),
            None => {
                let nodes = packed.as_packed().elements().map(Element::into_node);
                *self = ArrayParts::Nodes(Thin::exact(nodes));
            }
        }
    }

    /// Puts elements before the one at `at`, or at the end.
    ///
    /// # Panics
    /// If there are fewer than `at`.
    pub(crate) fn insert(&mut self, at: usize, elements: Vec<Element>) {
        if elements.is_empty() {
            return;
        }
        if self.len() == 0 {
            *self = ArrayParts::new(elements.into_iter());
            return;
        }
        self.fit(&elements);
        match self {
            ArrayParts::Packed(packed) => packed.insert_fitting(at, &elements),
            ArrayParts::Nodes(nodes) => {
                nodes.insert_all(at, elements.into_iter().map(Element::into_node).collect());
            }
        }
    }

    /// Replaces the element at `at`, of a packed array.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn set(&mut self, at: usize, element: Element) {
        self.fit(std::slice::from_ref(&element));
        match self {
            ArrayParts::Packed(packed) => packed.set_fitting(at, &element),
            ArrayParts::Nodes(nodes) => nodes.as_mut_slice()[at] = element.into_node(),
        }
    }

    /// Removes the element at `at`. Returns it if it is a node.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn remove(&mut self, at: usize) -> Option<Node> {
        match self {
            ArrayParts::Nodes(nodes) => Some(nodes.remove(at)),
            ArrayParts::Packed(packed) => {
                packed.remove(at);
                None
            }
        }
    }

    /// Keeps the elements of a range only.
    ///
    /// # Panics
    /// If the range is not within the array.
    pub(crate) fn keep(&mut self, from: usize, to: usize) {
        match self {
            ArrayParts::Nodes(nodes) => nodes.keep(from, to),
            ArrayParts::Packed(packed) => packed.keep(from, to),
        }
    }
}

/// Elements that can be looked at before they are taken.
pub(crate) trait AsElements {
    fn as_elements(&self) -> &[Element];
}

impl AsElements for std::vec::IntoIter<Element> {
    fn as_elements(&self) -> &[Element] {
        self.as_slice()
    }
}

impl AsElements for std::vec::Drain<'_, Element> {
    fn as_elements(&self) -> &[Element] {
        self.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Shape;

    fn array(numbers: &[Element]) -> (Option<Kind>, usize) {
        let copies: Vec<Element> = numbers
            .iter()
            .map(|element| match element {
                Element::Int(int) => Element::Int(*int),
                Element::Double(double) => Element::Double(*double),
                Element::Node(_) => Element::Node(Node::NULL),
            })
            .collect();
        let parts = ArrayParts::new(copies.into_iter());
        let kind = match &parts {
            ArrayParts::Packed(packed) => Some(packed.kind()),
            ArrayParts::Nodes(_) => None,
        };
        (kind, parts.len())
    }

    #[test]
    fn the_narrowest_type_is_chosen() {
        use Element::{Double, Int};
        assert_eq!(array(&[Int(1), Int(-128)]), (Some(Kind::I8), 2));
        assert_eq!(array(&[Int(1), Int(128)]), (Some(Kind::I16), 2));
        assert_eq!(array(&[Int(40_000), Int(1)]), (Some(Kind::I32), 2));
        assert_eq!(array(&[Int(1), Int(i64::MAX)]), (Some(Kind::I64), 2));
        assert_eq!(array(&[Double(0.5), Double(-0.0)]), (Some(Kind::F32), 2));
        assert_eq!(array(&[Double(0.5), Double(0.1)]), (Some(Kind::F64), 2));
        assert_eq!(array(&[Double(0.5), Int(1)]), (None, 2));
        assert_eq!(array(&[Int(1), Element::Node(Node::NULL)]), (None, 2));
        assert_eq!(array(&[]), (None, 0));
    }

    #[test]
    fn numbers_that_do_not_fit_widen_the_array() {
        let mut parts = ArrayParts::new(vec![Element::Int(1), Element::Int(2)].into_iter());
        parts.insert(1, vec![Element::Int(100_000)]);
        parts.set(0, Element::Int(-3));
        parts.insert(3, vec![Element::Double(0.5)]);
        parts.remove(2);
        let node = parts.into_node();
        let Shape::Array(Elements::Nodes(nodes)) = node.shape() else { panic!("nodes") };
        assert!(matches!(nodes[0].shape(), Shape::Int(-3)));
        assert!(matches!(nodes[1].shape(), Shape::Int(100_000)));
        assert!(matches!(nodes[2].shape(), Shape::Double(0.5)));
    }
}
