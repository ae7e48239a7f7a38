//! The members of an object, in the order of insertion until one is removed.
//!
//! A member is the number of its name and a node: 12 bytes. Up to 64 members are searched one after
//! the other, which is a comparison of numbers; larger objects have an index of their places.
//! The last member takes the place of a removed one, as it does in Redis; that costs the same
//! however many there are.

use crate::names::NameId;
use crate::node::Node;
use crate::slots::Slots;
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
    slots: Slots,
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

    /// Removes and returns the member at a place, which the last one takes over.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn remove(&mut self, at: usize) -> Member {
        match self {
            Object::Small(members) => members.swap_remove(at),
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
    /// Returns the bytes of its blocks, without those of values.
    pub(crate) fn own_memory(&self) -> usize {
        block_size(size_of::<Large>()) + self.members.memory() + self.slots.memory()
    }

    fn new(members: Thin<Member>) -> Large {
        let mut large = Large { members, slots: Slots::none() };
        large.index_all();
        large
    }

    /// Builds the index with place for a third more members.
    fn index_all(&mut self) {
        self.slots = Slots::free(self.members.len());
        for at in 0..self.members.len() {
            self.add_to_index(at);
        }
    }

    fn add_to_index(&mut self, at: usize) {
        let mask = self.slots.len() - 1;
        let mut slot = home(self.slots.len(), self.members.as_slice()[at].name);
        while self.slots.get(slot) != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots.set(slot, at as u32 + 1);
    }

    fn slot_of(&self, name: NameId) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut slot = home(self.slots.len(), name);
        loop {
            let at = self.slots.get(slot).checked_sub(1)?;
            if self.members.as_slice()[at as usize].name == name {
                return Some(slot);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn position(&self, name: NameId) -> Option<usize> {
        self.slot_of(name).map(|slot| self.slots.get(slot) as usize - 1)
    }

    fn push(&mut self, member: Member) {
        self.members.push(member);
        if self.slots.is_crowded(self.members.len()) {
            self.index_all();
        } else {
            self.add_to_index(self.members.len() - 1);
        }
    }

    fn remove(&mut self, at: usize) -> Member {
        let name = self.members.as_slice()[at].name;
        let hole = self.slot_of(name).expect("every member is in the index");
        let (slots, members) = (self.slots.len(), self.members.as_slice());
        self.slots.remove(hole, |place| home(slots, members[place as usize - 1].name));
        let last = members.len() - 1;
        if at < last {
            let slot = self.slot_of(members[last].name).expect("every member is in the index");
            self.slots.set(slot, at as u32 + 1);
        }
        self.members.swap_remove(at)
    }

    /// Returns the value at a place, to be changed.
    pub(crate) fn value_mut(&mut self, at: usize) -> Option<&mut Node> {
        self.members.as_mut_slice().get_mut(at).map(|member| &mut member.value)
    }
}

/// Returns the slot at which the search for a name begins: the upper bits of a product with 2^32 /
/// golden ratio, which spreads numbers in a row evenly.
fn home(slots: usize, name: NameId) -> usize {
    let bits = slots.trailing_zeros().min(32);
    (u64::from(name.wrapping_mul(0x9e37_79b1)) >> (32 - bits)) as usize
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
        #![proptest_config(crate::few_cases(128))]
        #[test]
        fn agrees_with_a_list(
            first in 0usize..100,
            spread in prop_oneof![Just(1u32), Just(7), Just(256), Just(0x0100_0001)],
            changes in proptest::collection::vec((any::<bool>(), any::<usize>()), 0..80),
        ) {
            let name = |number: usize| (number as u32).wrapping_mul(spread);
            let member =
                |number: usize| Member { name: name(number), value: Node::int(number as i64) };
            let mut model: Vec<(NameId, i64)> =
                (0..first).map(|number| (name(number), number as i64)).collect();
            let mut object = Object::new((0..first).map(member));
            let mut next = first;
            for (add, at) in changes {
                if add || model.is_empty() {
                    object.push(member(next));
                    model.push((name(next), next as i64));
                    next += 1;
                } else {
                    let at = at % model.len();
                    prop_assert_eq!(object.remove(at).name, model.swap_remove(at).0);
                }
                check(&object, &model);
            }
            prop_assert_eq!(object.position(name(next)), None);
        }
    }
}
