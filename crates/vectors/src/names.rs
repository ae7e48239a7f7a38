//! The places of elements by name: a table of 4 bytes a slot, with linear probing.
//!
//! Names are in the nodes. The table has places plus one; 0 is free.

/// A table.
#[derive(Clone, Default, Debug)]
pub(crate) struct Names {
    slots: Box<[u32]>,
    used: usize,
}

/// Returns the hash of a name.
pub(crate) fn hash(name: &[u8]) -> u64 {
    structs::hashing::hash(name)
}

impl Names {
    /// Returns the place whose name has this hash and is the one that `is` accepts.
    pub fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.slot(hash, is).map(|slot| self.slots[slot] - 1)
    }

    fn slot(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != 0 {
            if is(self.slots[slot] - 1) {
                return Some(slot);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// Adds a place whose name is not there.
    pub fn insert(&mut self, hash: u64, place: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let len = (self.slots.len() * 2).max(4);
            let old = std::mem::replace(&mut self.slots, vec![0; len].into());
            for &taken in old.iter().filter(|slot| **slot != 0) {
                self.put(hash_of(taken - 1), taken);
            }
        }
        self.put(hash, place + 1);
        self.used += 1;
    }

    fn put(&mut self, hash: u64, value: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = value;
    }

    /// Changes the place of a name.
    pub fn move_to(&mut self, hash: u64, from: u32, to: u32) {
        if let Some(slot) = self.slot(hash, |place| place == from) {
            self.slots[slot] = to + 1;
        }
    }

    /// Removes a place. Those behind it in the same run move up.
    pub fn remove(&mut self, hash: u64, place: u32, hash_of: impl Fn(u32) -> u64) {
        let Some(mut hole) = self.slot(hash, |other| other == place) else { return };
        let mask = self.slots.len() - 1;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & mask;
            if self.slots[slot] == 0 {
                break;
            }
            let home = hash_of(self.slots[slot] - 1) as usize & mask;
            // It may fill the hole unless its home is behind the hole.
            if (slot.wrapping_sub(home) & mask) >= (slot.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
        }
        self.slots[hole] = 0;
        self.used -= 1;
    }

    /// Returns the bytes of its block.
    pub fn allocated_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
