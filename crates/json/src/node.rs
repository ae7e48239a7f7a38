//! A value of a document in 8 bytes.
//!
//! ```text
//!   63    60 59    56 55     48 47                                  0
//!  ┌────────┬────────┬─────────┬─────────────────────────────────────┐
//!  │  tag   │  sub   │         │                                     │
//!  ├────────┼────────┴─────────┴─────────────────────────────────────┤
//!  │ Null   │                                                        │
//!  │ Bool   │ 0, 1                                                   │
//!  │ Int    │        │ integer of 56 bits                            │
//!  │ Decimal│        │ digits  │ integer of 48 bits                  │  ÷ 10^digits: 19.99, 1.0
//!  │ Inline │ length │ up to 7 bytes of text, the first in bits 0-7  │
//!  │ Int64  │        │         │ address of an i64                   │
//!  │ Uint64 │        │         │ address of a u64 above 2^63 - 1     │
//!  │ Double │        │         │ address of an f64                   │
//!  │ Text   │ length, 12 bits  │ address of that many bytes          │
//!  │ Long   │        │         │ address of a vector of bytes        │  vectors: `thin.rs`,
//!  │ Nodes  │        │         │ address of a vector of nodes        │  0 is empty
//!  │ Packed │ type   │         │ address of a vector of numbers      │
//!  │ Object │        │         │ address of a vector of members      │
//!  │ Large  │        │         │ address of an object with its index │
//!  └────────┴──────────────────┴─────────────────────────────────────┘
//! ```
//!
//! Addresses of the heap have 47 bits on the machines that we run on; a larger one is refused, not
//! cut. A node is aligned to 4 bytes, so that a member (4 bytes of name, a node) has 12.
//!
//! Rejected: nodes of 16 bytes (the members of a small document alone would take 1.0 of its text),
//! one block for the whole document (a change in the middle would move the rest of it).
#![allow(unsafe_code)]

use crate::array::{ArrayParts, Elements, Packed, PackedVec};
use crate::object::{Large, Member, Members, Object};
use crate::thin::Thin;
use structs::size_class::block_size;

/// A value of a document. It owns what it points to, but not the names of its members.
#[repr(C, packed(4))]
pub(crate) struct Node(u64);

const _: () = assert!(size_of::<Node>() == 8 && size_of::<Member>() == 12);
const _: () = assert!(cfg!(target_endian = "little") && size_of::<usize>() == 8);

#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Null,
    Bool,
    Int,
    Decimal,
    Inline,
    Int64,
    Uint64,
    Double,
    Text,
    Long,
    Nodes,
    Packed,
    Object,
    Large,
}

const TAGS: [Tag; 14] = [
    Tag::Null,
    Tag::Bool,
    Tag::Int,
    Tag::Decimal,
    Tag::Inline,
    Tag::Int64,
    Tag::Uint64,
    Tag::Double,
    Tag::Text,
    Tag::Long,
    Tag::Nodes,
    Tag::Packed,
    Tag::Object,
    Tag::Large,
];

const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// The longest string inside a node.
const MAX_INLINE: usize = 7;
/// The longest string whose length is in the node.
const MAX_TEXT: usize = (1 << 12) - 1;
/// Integers in a node are in ±2^55.
const INT_BITS: u32 = 56;
/// Integers of decimals are in ±2^47.
const DECIMAL_BITS: u32 = 48;

/// Powers of ten that doubles have exactly.
const POWERS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// What a node is, borrowed.
pub(crate) enum Shape<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(&'a str),
    Array(Elements<'a>),
    Object(Members<'a>),
}

impl Node {
    pub(crate) const NULL: Node = Node::new(Tag::Null, 0, 0);

    const fn new(tag: Tag, sub: u8, payload: u64) -> Node {
        Node((tag as u64) << 60 | (sub as u64) << 56 | payload)
    }

    fn of_address(tag: Tag, sub: u8, address: usize) -> Node {
        assert!(address as u64 <= ADDRESS, "addresses of the heap have 48 bits");
        Node::new(tag, sub, address as u64)
    }

    fn tag(&self) -> Tag {
        TAGS[(self.0 >> 60) as usize]
    }

    fn sub(&self) -> u8 {
        (self.0 >> 56) as u8 & 15
    }

    fn address(&self) -> usize {
        (self.0 & ADDRESS) as usize
    }

    /// Returns a boolean.
    pub(crate) fn bool(value: bool) -> Node {
        Node::new(Tag::Bool, u8::from(value), 0)
    }

    /// Returns an integer.
    pub(crate) fn int(value: i64) -> Node {
        const UNUSED: u32 = 64 - INT_BITS;
        if value << UNUSED >> UNUSED == value {
            Node::new(Tag::Int, 0, value.cast_unsigned() & (u64::MAX >> UNUSED))
        } else {
            Node::boxed(Tag::Int64, value)
        }
    }

    /// Returns an integer that may be above those that have a sign.
    pub(crate) fn uint(value: u64) -> Node {
        i64::try_from(value).map_or_else(|_| Node::boxed(Tag::Uint64, value), Node::int)
    }

    /// Returns a double, which is finite.
    pub(crate) fn double(value: f64) -> Node {
        match decimal(value) {
            Some((integer, digits)) => {
                let payload = integer.cast_unsigned() & (u64::MAX >> (64 - DECIMAL_BITS));
                Node::new(Tag::Decimal, 0, u64::from(digits) << DECIMAL_BITS | payload)
            }
            None => Node::boxed(Tag::Double, value),
        }
    }

    fn boxed<T>(tag: Tag, value: T) -> Node {
        Node::of_address(tag, 0, Box::into_raw(Box::new(value)).expose_provenance())
    }

    /// Returns a string.
    pub(crate) fn string(text: &str) -> Node {
        let bytes = text.as_bytes();
        match bytes.len() {
            len @ ..=MAX_INLINE => {
                let mut word = [0; 8];
                word[..len].copy_from_slice(bytes);
                Node::new(Tag::Inline, len as u8, u64::from_le_bytes(word))
            }
            len @ ..=MAX_TEXT => {
                let block: Box<[u8]> = bytes.into();
                let address = Box::into_raw(block).cast::<u8>().expose_provenance();
                assert!(address as u64 <= ADDRESS, "addresses of the heap have 48 bits");
                let low_len = (len & 255) as u64;
                Node::new(Tag::Text, (len >> 8) as u8, low_len << ADDRESS_BITS | address as u64)
            }
            _ => {
                let mut text = Thin::new();
                text.extend(bytes);
                Node::of_address(Tag::Long, 0, text.into_address())
            }
        }
    }

    /// Returns an array of values.
    pub(crate) fn nodes(nodes: Thin<Node>) -> Node {
        Node::of_address(Tag::Nodes, 0, nodes.into_address())
    }

    /// Returns an array of numbers of one type.
    pub(crate) fn packed(numbers: PackedVec) -> Node {
        let (kind, address) = numbers.into_address();
        Node::of_address(Tag::Packed, kind, address)
    }

    /// Returns an object.
    pub(crate) fn object(object: Object) -> Node {
        match object {
            Object::Small(members) => Node::of_address(Tag::Object, 0, members.into_address()),
            Object::Large(large) => {
                Node::of_address(Tag::Large, 0, Box::into_raw(large).expose_provenance())
            }
        }
    }

    fn text_len(&self) -> usize {
        usize::from(self.sub()) << 8 | (self.0 >> ADDRESS_BITS) as usize & 255
    }

    /// Returns what it is.
    #[inline]
    pub(crate) fn shape(&self) -> Shape<'_> {
        match self.tag() {
            Tag::Null => Shape::Null,
            Tag::Bool => Shape::Bool(self.sub() == 1),
            Tag::Int => Shape::Int(sign_extended(self.0, INT_BITS)),
            Tag::Decimal => {
                let digits = (self.0 >> DECIMAL_BITS) as usize & 255;
                Shape::Double(sign_extended(self.0, DECIMAL_BITS) as f64 / POWERS[digits])
            }
            // SAFETY: the address is that of a boxed value of this type, which the node owns.
            Tag::Int64 => Shape::Int(unsafe { *std::ptr::with_exposed_provenance(self.address()) }),
            Tag::Uint64 => {
                // SAFETY: as above.
                Shape::Uint(unsafe { *std::ptr::with_exposed_provenance(self.address()) })
            }
            Tag::Double => {
                // SAFETY: the address is that of a boxed value of this type, which the node owns.
                Shape::Double(unsafe { *std::ptr::with_exposed_provenance(self.address()) })
            }
            Tag::Inline | Tag::Text | Tag::Long => Shape::Str(self.text()),
            // SAFETY: the address is that of a vector of this type, which the node owns and nothing
            // changes while the node is borrowed.
            Tag::Nodes => Shape::Array(Elements::Nodes(unsafe { borrow(self.address()) })),
            Tag::Packed => {
                // SAFETY: as above; the sub is the kind of the vector.
                Shape::Array(Elements::Packed(unsafe { Packed::at(self.sub(), self.address()) }))
            }
            Tag::Object => {
                // SAFETY: as above.
                Shape::Object(Members::small(unsafe { borrow(self.address()) }))
            }
            Tag::Large => {
                // SAFETY: the address is that of a boxed object, which the node owns.
                let large: &Large = unsafe { &*std::ptr::with_exposed_provenance(self.address()) };
                Shape::Object(Members::large(large))
            }
        }
    }

    fn text(&self) -> &str {
        let (first, len) = match self.tag() {
            Tag::Inline => (std::ptr::from_ref(self).cast::<u8>(), usize::from(self.sub())),
            Tag::Text => (std::ptr::with_exposed_provenance(self.address()), self.text_len()),
            _ => {
                // SAFETY: the address is that of a vector of bytes, which the node owns.
                let bytes: &[u8] = unsafe { borrow(self.address()) };
                (bytes.as_ptr(), bytes.len())
            }
        };
        // SAFETY: the bytes are those of a `str` as a whole: in the node, in a block of this
        // length, or in the vector; all live as long as the node.
        unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(first, len)) }
    }

    /// Returns whether it is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self.tag(), Tag::Object | Tag::Large)
    }

    /// Returns whether it is an array.
    pub(crate) fn is_array(&self) -> bool {
        matches!(self.tag(), Tag::Nodes | Tag::Packed)
    }

    /// Returns the child at a position, if it is a node: an element of an array that is not packed,
    /// or the value of a member.
    pub(crate) fn child_mut(&mut self, at: usize) -> Option<&mut Node> {
        match self.tag() {
            Tag::Nodes => {
                // SAFETY: the address is that of a vector of nodes, which the node owns; the borrow
                // of the node covers it.
                let nodes: &mut [Node] = unsafe { borrow_mut(self.address()) };
                nodes.get_mut(at)
            }
            Tag::Object => {
                // SAFETY: as above, of members.
                let members: &mut [Member] = unsafe { borrow_mut(self.address()) };
                members.get_mut(at).map(|member| &mut member.value)
            }
            Tag::Large => {
                // SAFETY: the address is that of a boxed object, which the node owns.
                let large: &mut Large =
                    unsafe { &mut *std::ptr::with_exposed_provenance_mut(self.address()) };
                large.value_mut(at)
            }
            _ => None,
        }
    }

    /// Takes the elements out of an array, which becomes null. Nothing of anything else.
    pub(crate) fn take_array(&mut self) -> Option<ArrayParts> {
        if !self.is_array() {
            return None;
        }
        let node = std::mem::ManuallyDrop::new(std::mem::replace(self, Node::NULL));
        // SAFETY: the address is that of a vector of this type; the node that owned it is
        // forgotten.
        Some(unsafe {
            match node.tag() {
                Tag::Nodes => ArrayParts::Nodes(Thin::from_address(node.address())),
                _ => ArrayParts::Packed(PackedVec::from_address(node.sub(), node.address())),
            }
        })
    }

    /// Takes the members out of an object, which becomes null. Nothing of anything else.
    pub(crate) fn take_object(&mut self) -> Option<Object> {
        if !self.is_object() {
            return None;
        }
        let node = std::mem::ManuallyDrop::new(std::mem::replace(self, Node::NULL));
        // SAFETY: the address is that of such an object; the node that owned it is forgotten.
        Some(unsafe {
            match node.tag() {
                Tag::Object => Object::Small(Thin::from_address(node.address())),
                _ => Object::Large(Box::from_raw(std::ptr::with_exposed_provenance_mut(
                    node.address(),
                ))),
            }
        })
    }

    /// Appends to a string. A long one grows in its block.
    pub(crate) fn append(&mut self, more: &str) {
        if self.tag() == Tag::Long {
            let node = std::mem::ManuallyDrop::new(std::mem::replace(self, Node::NULL));
            // SAFETY: the address is that of a vector of bytes; the node that owned it is
            // forgotten.
            let mut text: Thin<u8> = unsafe { Thin::from_address(node.address()) };
            text.extend(more.as_bytes());
            *self = Node::of_address(Tag::Long, 0, text.into_address());
        } else if let Shape::Str(text) = self.shape() {
            *self = Node::string(&[text, more].concat());
        }
    }

    /// Returns the bytes of the heap that it owns, without those of its children.
    pub(crate) fn own_memory(&self) -> usize {
        let address = self.address();
        // SAFETY: the address is that of what the tag says, which the node owns and goes on to own.
        unsafe {
            match self.tag() {
                Tag::Null | Tag::Bool | Tag::Int | Tag::Decimal | Tag::Inline => 0,
                Tag::Int64 | Tag::Uint64 | Tag::Double => block_size(8),
                Tag::Text => block_size(self.text_len()),
                Tag::Long => with_vector::<u8, _>(address, Thin::memory),
                Tag::Nodes => with_vector::<Node, _>(address, Thin::memory),
                Tag::Object => with_vector::<Member, _>(address, Thin::memory),
                Tag::Packed => {
                    let packed = PackedVec::from_address(self.sub(), address);
                    std::mem::ManuallyDrop::new(packed).memory()
                }
                Tag::Large => {
                    let large: &Large = &*std::ptr::with_exposed_provenance(address);
                    large.own_memory()
                }
            }
        }
    }

    /// Returns the bytes of the heap that it owns, with those of its children.
    pub(crate) fn memory(&self) -> usize {
        // Reading a scalar costs more than finding out that it has no children.
        if !matches!(self.tag(), Tag::Nodes | Tag::Object | Tag::Large) {
            return self.own_memory();
        }
        let children = match self.shape() {
            Shape::Array(Elements::Nodes(nodes)) => nodes.iter().map(Node::memory).sum(),
            Shape::Object(members) => {
                members.as_slice().iter().map(|member| member.value.memory()).sum()
            }
            _ => 0,
        };
        self.own_memory() + children
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let address = self.address();
        // SAFETY: the node owns what it points to, and is not used any more.
        unsafe {
            match self.tag() {
                Tag::Null | Tag::Bool | Tag::Int | Tag::Decimal | Tag::Inline => {}
                Tag::Int64 => {
                    drop(Box::<i64>::from_raw(std::ptr::with_exposed_provenance_mut(address)))
                }
                Tag::Uint64 => {
                    drop(Box::<u64>::from_raw(std::ptr::with_exposed_provenance_mut(address)));
                }
                Tag::Double => {
                    drop(Box::<f64>::from_raw(std::ptr::with_exposed_provenance_mut(address)));
                }
                Tag::Text => {
                    let first = std::ptr::with_exposed_provenance_mut::<u8>(address);
                    let block = std::ptr::slice_from_raw_parts_mut(first, self.text_len());
                    drop(Box::from_raw(block));
                }
                Tag::Long => drop(Thin::<u8>::from_address(address)),
                Tag::Nodes | Tag::Packed => drop(self.take_array()),
                Tag::Object | Tag::Large => drop(self.take_object()),
            }
        }
    }
}

/// Returns the items of a vector.
///
/// # Safety
/// The address is that of a vector of this type, which nothing changes or frees during `'a`.
pub(crate) unsafe fn borrow<'a, T>(address: usize) -> &'a [T] {
    // SAFETY: by contract.
    let vector = std::mem::ManuallyDrop::new(unsafe { Thin::<T>::from_address(address) });
    let items = std::ptr::from_ref(vector.as_slice());
    // SAFETY: the items are in the block, not in the handle, and stay there during `'a`.
    unsafe { &*items }
}

/// Returns the items of a vector, to be changed.
///
/// # Safety
/// The address is that of a vector of this type, which nothing else uses during `'a`.
unsafe fn borrow_mut<'a, T>(address: usize) -> &'a mut [T] {
    // SAFETY: by contract.
    let mut vector = std::mem::ManuallyDrop::new(unsafe { Thin::<T>::from_address(address) });
    let items = std::ptr::from_mut(vector.as_mut_slice());
    // SAFETY: the items are in the block, not in the handle, and stay there during `'a`.
    unsafe { &mut *items }
}

/// Looks at a vector.
///
/// # Safety
/// The address is that of a vector of this type, which nothing changes or frees meanwhile.
pub(crate) unsafe fn with_vector<T, R>(address: usize, look: impl FnOnce(&Thin<T>) -> R) -> R {
    // SAFETY: by contract.
    let vector = std::mem::ManuallyDrop::new(unsafe { Thin::<T>::from_address(address) });
    look(&vector)
}

fn sign_extended(word: u64, bits: u32) -> i64 {
    (word << (64 - bits)).cast_signed() >> (64 - bits)
}

/// Returns the integer and the number of decimal digits that make a double, if both are small: the
/// quotient is the double bit by bit, since a division of two exact doubles is rounded correctly.
fn decimal(value: f64) -> Option<(i64, u8)> {
    const LIMIT: f64 = (1_u64 << (DECIMAL_BITS - 1)) as f64;
    for (digits, power) in POWERS.iter().enumerate() {
        let integer = (value * power).round();
        // Not less: too large, or no number.
        if integer.abs() >= LIMIT {
            return None;
        }
        if (integer as i64 as f64 / power).to_bits() == value.to_bits() {
            return Some((integer as i64, digits as u8));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_bit_by_bit() {
        for value in [0, 1, -1, 1 << 54, (1 << 55) - 1, 1 << 55, -(1 << 55), i64::MIN, i64::MAX] {
            assert!(matches!(Node::int(value).shape(), Shape::Int(same) if same == value));
        }
        for value in [1 << 63, u64::MAX] {
            assert!(matches!(Node::uint(value).shape(), Shape::Uint(same) if same == value));
        }
        assert!(matches!(Node::uint(i64::MAX as u64).shape(), Shape::Int(i64::MAX)));
        for value in [
            0.0,
            -0.0,
            1.0,
            0.1,
            19.99,
            -273.15,
            1e15,
            1e16,
            1e308,
            5e-324,
            1e-300,
            0.1 + 0.2,
            std::f64::consts::PI,
            f64::MAX,
        ] {
            let Shape::Double(same) = Node::double(value).shape() else { panic!("a double") };
            assert_eq!(same.to_bits(), value.to_bits(), "{value}");
        }
        assert_eq!(Node::double(19.99).memory(), 0);
        assert_eq!(Node::double(0.1 + 0.2).memory(), 8);
    }

    #[test]
    fn strings_come_back() {
        for len in [0, 1, 6, 7, 8, 255, 256, 4095, 4096, 70_000] {
            let text = "é".repeat(len / 2) + &"x".repeat(len % 2);
            assert!(matches!(Node::string(&text).shape(), Shape::Str(same) if same == text));
        }
    }
}
