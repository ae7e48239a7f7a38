//! The members of an object, in the order of insertion.
//!
//! A member is the number of its name and a node: 12 bytes. Up to 64 members are searched one after the
//! other, which is a comparison of numbers; larger objects have an index of their places. Removing a
//! member moves those behind it up, and lowers their places in the index.

use crate::names::NameId;
use crate::node::Node;
use crate::thin::Thin;
use structs::size_class::block_size;

/// Objects of more members than this have an index.
const MAX_UNINDEXED: usize = 64;

/// A member of an object.
#[repr(C)]
pub(crate) struct Member {
    pub(crate) name: NameId,
    pub(crate) value: Node,
}

/// The members of an object, owned.
pub(crate) enum Object {
    Small(Thin<Member>),
    Large(Box<Large>),
}

/// An object with an index.
pub(crate) struct Large {
    members: Thin<Member>,
    /// Places + 1 of members, open addressing by the number of the name; 0 is free.
    slots: Thin<u32>,
}

/// The members of an object, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    members: &'a [Member],
    large: Option<&'a Large>,
}

impl<'a> Members<'a> {
    pub(crate) fn small(members: &'a [Member]) -> Members<'a> {
        Members { members, large: None }
    }

    pub(crate) fn large(large: &'a Large) -> Members<'a> {
        Members { members: large.members.as_slice(), large: Some(large) }
    }

    pub(crate) fn as_slice(self) -> &'a [Member] {
        self.members
    }

    /// Returns the place of the member with a name.
    pub(crate) fn position(self, name: NameId) -> Option<usize> {
        match self.large {
            Some(large) => large.position(name),
            None => self.members.iter().position(|member| member.name == name),
        }
    }

    /// Returns the bytes of the object's own blocks if it has an index.
    pub(crate) fn index_memory(self) -> Option<usize> {
        let large = self.large?;
        Some(block_size(size_of::<Large>()) + large.members.memory() + large.slots.memory())
    }
}

impl Object {
    /// Makes an object of members whose names differ.
    pub(crate) fn new(members: impl ExactSizeIterator<Item = Member>) -> Object {
        let members = Thin::exact(members);
        if members.len() <= MAX_UNINDEXED {
            Object::Small(members)
        } else {
            Object::Large(Box::new(Large::new(members)))
        }
    }

    fn as_members(&self) -> Members<'_> {
        match self {
            Object::Small(members) => Members::small(members.as_slice()),
            Object::Large(large) => Members::large(large),
        }
    }

    /// Returns the place of the member with a name.
    pub(crate) fn position(&self, name: NameId) -> Option<usize> {
        self.as_members().position(name)
    }

    /// Adds a member whose name no other has.
    pub(crate) fn push(&mut self, member: Member) {
        match self {
            Object::Small(members) if members.len() < MAX_UNINDEXED => members.push(member),
            Object::Small(members) => {
                let mut members = std::mem::take(members);
                members.push(member);
                *self = Object::Large(Box::new(Large::new(members)));
            }
            Object::Large(large) => large.push(member),
        }
    }

    /// Removes and returns the member at a place.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn remove(&mut self, at: usize) -> Member {
        match self {
            Object::Small(members) => members.remove(at),
            Object::Large(large) => large.remove(at),
        }
    }

    /// Returns the value at a place, to be changed.
    pub(crate) fn value_mut(&mut self, at: usize) -> Option<&mut Node> {
        match self {
            Object::Small(members) => {
                members.as_mut_slice().get_mut(at).map(|member| &mut member.value)
            }
            Object::Large(large) => large.value_mut(at),
        }
    }
}

impl Large {
    fn new(members: Thin<Member>) -> Large {
        let mut large = Large { members, slots: Thin::new() };
        large.index_all();
        large
    }

    /// Builds the index with place for a third more members.
    fn index_all(&mut self) {
        let slots = (self.members.len() * 4 / 3 + 1).next_power_of_two();
        self.slots = Thin::exact(vec![0; slots].into_iter());
        for at in 0..self.members.len() {
            self.add_to_index(at);
        }
    }

    fn home(&self, name: NameId) -> usize {
        // The upper bits of a product with 2^32 / golden ratio, which spreads numbers in a row evenly.
        let bits = self.slots.len().trailing_zeros();
        (u64::from(name.wrapping_mul(0x9e37_79b1)) >> (32 - bits.min(32))) as usize
    }

    fn add_to_index(&mut self, at: usize) {
        let mask = self.slots.len() - 1;
        let mut slot = self.home(self.members.as_slice()[at].name);
        while self.slots.as_slice()[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots.as_mut_slice()[slot] = at as u32 + 1;
    }

    fn slot_of(&self, name: NameId) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut slot = self.home(name);
        loop {
            let at = self.slots.as_slice()[slot].checked_sub(1)?;
            if self.members.as_slice()[at as usize].name == name {
                return Some(slot);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn position(&self, name: NameId) -> Option<usize> {
        self.slot_of(name).map(|slot| self.slots.as_slice()[slot] as usize - 1)
    }

    fn push(&mut self, member: Member) {
        self.members.push(member);
        if self.members.len() * 4 > self.slots.len() * 3 {
            self.index_all();
        } else {
            self.add_to_index(self.members.len() - 1);
        }
    }

    fn remove(&mut self, at: usize) -> Member {
        let name = self.members.as_slice()[at].name;
        let mut hole = self.slot_of(name).expect("every member is in the index");
        let mask = self.slots.len() - 1;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & mask;
            let Some(other) = self.slots.as_slice()[slot].checked_sub(1) else { break };
            let home = self.home(self.members.as_slice()[other as usize].name);
            if (slot.wrapping_sub(home) & mask) >= (slot.wrapping_sub(hole) & mask) {
                self.slots.as_mut_slice()[hole] = other + 1;
                hole = slot;
            }
        }
        self.slots.as_mut_slice()[hole] = 0;
        if at + 1 < self.members.len() {
            let place = at as u32 + 1;
            for slot in self.slots.as_mut_slice() {
                *slot -= u32::from(*slot > place);
            }
        }
        self.members.remove(at)
    }

    /// Returns the value at a place, to be changed.
    pub(crate) fn value_mut(&mut self, at: usize) -> Option<&mut Node> {
        self.members.as_mut_slice().get_mut(at).map(|member| &mut member.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Shape;
    use proptest::prelude::*;

    fn check(object: &Object, model: &[(NameId, i64)]) {
        let members = object.as_members().as_slice();
        let all: Vec<(NameId, i64)> = members
            .iter()
            .map(|member| match member.value.shape() {
                Shape::Int(int) => (member.name, int),
                _ => panic!("an integer"),
            })
            .collect();
        assert_eq!(all, model);
        for (at, (name, _)) in model.iter().enumerate() {
            assert_eq!(object.position(*name), Some(at));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 128 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn agrees_with_a_list(
            first in 0usize..100,
            spread in prop_oneof![Just(1u32), Just(7), Just(256), Just(0x0100_0001)],
            changes in proptest::collection::vec((any::<bool>(), any::<usize>()), 0..80),
        ) {
            let name = |number: usize| (number as u32).wrapping_mul(spread);
            let member = |number: usize| Member { name: name(number), value: Node::int(number as i64) };
            let mut model: Vec<(NameId, i64)> = (0..first).map(|number| (name(number), number as i64)).collect();
            let mut object = Object::new((0..first).map(member));
            let mut next = first;
            for (add, at) in changes {
                if add || model.is_empty() {
                    object.push(member(next));
                    model.push((name(next), next as i64));
                    next += 1;
                } else {
                    let at = at % model.len();
                    prop_assert_eq!(object.remove(at).name, model.remove(at).0);
                }
                check(&object, &model);
            }
            prop_assert_eq!(object.position(name(next)), None);
        }
    }
}
