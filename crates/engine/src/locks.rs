//! Which stripes a command holds.
//!
//! Stripes are always locked in ascending order, so two commands never wait for each other in a
//! circle. A lock that cannot be had soon makes the whole attempt fail with [`Busy`]: the reactor
//! then serves other connections and tries this one again, so that a long command on one stripe
//! never stands in the way of a thread.

use keyspace::keyspace::STRIPES;
use keyspace::{Keyspace, Stripe};

const WORDS: usize = STRIPES / 64;
/// Attempts before a lock counts as busy; about two microseconds, many times what a command
/// holds a stripe for.
const SPINS: u32 = 64;

/// A set of stripes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StripeSet {
    bits: [u64; WORDS],
}

impl StripeSet {
    /// Adds a stripe.
    pub fn insert(&mut self, stripe: usize) {
        self.bits[stripe / 64] |= 1 << (stripe % 64);
    }
    /// Whether a stripe is in the set.
    pub fn contains(&self, stripe: usize) -> bool {
        self.bits[stripe / 64] & 1 << (stripe % 64) != 0
    }
    /// The stripes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.iter().enumerate().flat_map(|(word, &bits)| {
            let mut bits = bits;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|&word| word == 0)
    }
}

/// What a command needs, and, once it has it, what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locked {
    /// Nothing.
    None,
    /// One stripe.
    One(usize),
    /// Several.
    Several(Box<StripeSet>),
    /// Everything: the world is stopped.
    World,
}

/// A stripe was held by somebody else for too long.
#[derive(Debug)]
pub struct Busy;

impl Locked {
    /// Adds a stripe to what is needed.
    pub fn add(&mut self, stripe: usize) {
        match self {
            Locked::None => *self = Locked::One(stripe),
            Locked::One(other) if *other == stripe => {}
            Locked::One(other) => {
                let mut set = StripeSet::default();
                set.insert(*other);
                set.insert(stripe);
                *self = Locked::Several(Box::new(set));
            }
            Locked::Several(set) => set.insert(stripe),
            Locked::World => {}
        }
    }

    /// Whether a stripe may be touched.
    #[inline]
    pub fn covers(&self, stripe: usize) -> bool {
        match self {
            Locked::None => false,
            Locked::One(one) => *one == stripe,
            Locked::Several(set) => set.contains(stripe),
            Locked::World => true,
        }
    }

    /// Takes the locks of these stripes; the world is stopped elsewhere.
    #[inline]
    pub(crate) fn acquire(&self, keyspace: &Keyspace) -> Result<(), Busy> {
        match self {
            Locked::None | Locked::World => Ok(()),
            Locked::One(stripe) => lock(keyspace, *stripe),
            Locked::Several(set) => lock_all(keyspace, set),
        }
    }

    /// Takes the locks of these stripes, however long that takes; for threads that nobody waits
    /// for.
    pub(crate) fn acquire_patiently(&self, keyspace: &Keyspace) {
        self.for_each(|stripe| keyspace.stripe(stripe).lock());
    }

    /// Takes the locks of further stripes beside those that are held. Whatever their order, nobody
    /// waits for them in a circle: they are only tried, and none is kept if one cannot be had.
    pub(crate) fn extend(&mut self, need: &Locked, keyspace: &Keyspace) -> Result<(), Busy> {
        let mut missing = Locked::None;
        need.for_each(|stripe| {
            if !self.covers(stripe) {
                missing.add(stripe);
            }
        });
        missing.acquire(keyspace)?;
        missing.for_each(|stripe| self.add(stripe));
        Ok(())
    }

    /// Visits the stripes in ascending order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize)) {
        match self {
            Locked::None | Locked::World => {}
            Locked::One(stripe) => visit(*stripe),
            Locked::Several(set) => set.iter().for_each(visit),
        }
    }

    /// Gives the locks back.
    #[inline]
    pub(crate) fn release(&self, keyspace: &Keyspace) {
        match self {
            Locked::None | Locked::World => {}
            Locked::One(stripe) => unlock(keyspace, *stripe),
            Locked::Several(set) => unlock_all(keyspace, set),
        }
    }
}

#[inline]
fn lock(keyspace: &Keyspace, stripe: usize) -> Result<(), Busy> {
    let stripe = keyspace.stripe(stripe);
    if stripe.try_lock() { Ok(()) } else { try_again(stripe) }
}

#[cold]
fn try_again(stripe: &Stripe) -> Result<(), Busy> {
    for _ in 0..SPINS {
        std::hint::spin_loop();
        if stripe.try_lock() {
            return Ok(());
        }
    }
    Err(Busy)
}

#[inline(never)]
fn lock_all(keyspace: &Keyspace, set: &StripeSet) -> Result<(), Busy> {
    for stripe in set.iter() {
        if lock(keyspace, stripe).is_err() {
            for held in set.iter().take_while(|&held| held != stripe) {
                unlock(keyspace, held);
            }
            return Err(Busy);
        }
    }
    Ok(())
}

#[inline(never)]
fn unlock_all(keyspace: &Keyspace, set: &StripeSet) {
    set.iter().for_each(|stripe| unlock(keyspace, stripe));
}

#[inline]
#[allow(unsafe_code)]
fn unlock(keyspace: &Keyspace, stripe: usize) {
    // SAFETY: only called for stripes that `acquire` has locked.
    unsafe { keyspace.stripe(stripe).unlock() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_iterate_in_ascending_order() {
        let mut locked = Locked::None;
        for stripe in [700, 3, 3, 64, 1023, 0] {
            locked.add(stripe);
        }
        let Locked::Several(set) = &locked else { panic!("{locked:?}") };
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 64, 700, 1023]);
        assert!(locked.covers(64) && !locked.covers(65));
    }
}
