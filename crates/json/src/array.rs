//! The elements of an array: nodes, or numbers of one type side by side.
//!
//! Integers take the smallest of four widths that all of them fit in. Doubles take four bytes if
//! that loses no bit of any of them, as single precision or as integers of a decimal unit (prices,
//! coordinates), else eight. A number that does not fit changes the type of the whole; anything
//! that is no such number turns the array into nodes. Both cost the length once, a few times in the
//! life of an array at most: types only become wider.
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
                match self {
                    $(Packed::$kind(numbers) => numbers.get(at).map(|&number| number.into())),*
                }
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
                match kind {
                    $(Kind::$kind => {
                        let numbers = elements.map(|element| <$type>::of(&element));
                        PackedVec::$kind(Thin::exact(numbers))
                    }),*
                }
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
                match self {
                    $(PackedVec::$kind(numbers) => {
                        numbers.as_mut_slice()[at] = <$type>::of(element);
                    }),*
                }
            }

            pub(crate) fn memory(&self) -> usize {
                match self { $(PackedVec::$kind(numbers) => numbers.memory()),* }
            }
        }

        /// The type of packed numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Kind {
            $($kind = $number),*
        }

        impl Kind {
            /// From the one that is tried first. Wider ones are behind narrower ones.
            const ALL: [Kind; 12] = [$(Kind::$kind),*];

            /// Returns whether the type has the number of an element.
            fn has(self, element: &Element) -> bool {
                match self { $(Kind::$kind => <$type>::fit(element).is_some()),* }
            }
        }
    };
}

packed!(
    I8 i8 = 0, I16 i16 = 1, I32 i32 = 2, I64 i64 = 3, F32 f32 = 4,
    Tenths Fixed<1> = 5, Hundredths Fixed<2> = 6, Fixed3 Fixed<3> = 7, Fixed4 Fixed<4> = 8,
    Fixed5 Fixed<5> = 9, Fixed6 Fixed<6> = 10, F64 f64 = 11
);

/// A double that is an integer divided by a power of ten. The quotient is the double bit by bit.
#[derive(Clone, Copy)]
pub(crate) struct Fixed<const DIGITS: u32>(i32);

/// A type of packed numbers.
trait Fit: Copy {
    /// Returns the number of an element, if the type has it.
    fn fit(element: &Element) -> Option<Self>;

    /// Returns the number of an element that fits.
    fn of(element: &Element) -> Self {
        Self::fit(element).expect("the type was chosen by the elements")
    }
}

macro_rules! fit_integers {
    ($($type:ty),*) => {
        $(
            impl From<$type> for Element {
                fn from(number: $type) -> Element {
                    Element::Int(number.into())
                }
            }

            impl Fit for $type {
                fn fit(element: &Element) -> Option<$type> {
                    match element {
                        Element::Int(number) => (*number).try_into().ok(),
                        _ => None,
                    }
                }
            }
        )*
    };
}

fit_integers!(i8, i16, i32, i64);

impl From<f32> for Element {
    fn from(number: f32) -> Element {
        Element::Double(number.into())
    }
}

impl Fit for f32 {
    fn fit(element: &Element) -> Option<f32> {
        let Element::Double(double) = *element else { return None };
        let single = double as f32;
        (f64::from(single).to_bits() == double.to_bits()).then_some(single)
    }
}

impl From<f64> for Element {
    fn from(number: f64) -> Element {
        Element::Double(number)
    }
}

impl Fit for f64 {
    fn fit(element: &Element) -> Option<f64> {
        match element {
            Element::Double(double) => Some(*double),
            _ => None,
        }
    }
}

impl<const DIGITS: u32> Fixed<DIGITS> {
    const UNIT: f64 = 10_u32.pow(DIGITS) as f64;
}

impl<const DIGITS: u32> From<Fixed<DIGITS>> for Element {
    fn from(number: Fixed<DIGITS>) -> Element {
        Element::Double(f64::from(number.0) / Fixed::<DIGITS>::UNIT)
    }
}

impl<const DIGITS: u32> Fit for Fixed<DIGITS> {
    fn fit(element: &Element) -> Option<Self> {
        let Element::Double(double) = *element else { return None };
        // A conversion of what is out of range gives the nearest, which is not the same then.
        let integer = (double * Self::UNIT).round() as i32;
        let same = (f64::from(integer) / Self::UNIT).to_bits() == double.to_bits();
        same.then_some(Fixed(integer))
    }
}

impl Kind {
    /// Returns the first type that has all elements. Nothing if there is none, or no element.
    fn for_elements<'e>(elements: impl Iterator<Item = &'e Element> + Clone) -> Option<Kind> {
        if matches!(elements.clone().next()?, Element::Node(_)) {
            return None;
        }
        Kind::ALL.into_iter().find(|kind| elements.clone().all(|element| kind.has(element)))
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
        match Kind::for_elements(elements.as_elements().iter()) {
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
        if elements.iter().all(|element| packed.kind().has(element)) {
            return;
        }
        let old: Vec<Element> = packed.as_packed().elements().collect();
        *self = match Kind::for_elements(old.iter().chain(elements)) {
            Some(kind) => ArrayParts::Packed(PackedVec::of(kind, old.into_iter())),
            None => ArrayParts::Nodes(Thin::exact(old.into_iter().map(Element::into_node))),
        };
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
        assert_eq!(array(&[Double(0.5), Double(0.1)]), (Some(Kind::Tenths), 2));
        assert_eq!(array(&[Double(19.99), Double(-0.1)]), (Some(Kind::Hundredths), 2));
        assert_eq!(array(&[Double(-0.000_001), Double(2.5)]), (Some(Kind::Fixed6), 2));
        assert_eq!(array(&[Double(0.1), Double(1e10)]), (Some(Kind::F64), 2));
        assert_eq!(array(&[Double(0.1), Double(-0.0)]), (Some(Kind::F64), 2));
        assert_eq!(array(&[Double(0.1), Double(0.1 + 0.2)]), (Some(Kind::F64), 2));
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
