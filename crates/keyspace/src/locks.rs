//! Locks of stripes, and the access that they give.
//!
//! [`Locks`] is the token for the stripes that one command holds. A shared reference to it can read
//! their contents, and an exclusive reference can change them. It asserts, in release builds too,
//! that the stripe is among those it holds. For a single stripe this is one comparison, which costs
//! less than half a percent of a pipelined GET or SET.
//!
//! Stripes are always locked in ascending order, so two commands cannot deadlock. If a lock is not
//! available soon, the whole attempt fails with [`Busy`]. The reactor then serves other connections
//! and tries again, so a long command on one stripe never blocks a thread.
#![allow(unsafe_code)]

use crate::keyspace::{Keyspace, STRIPES};
use crate::stripe::{Stripe, StripeData};
use crate::world::{Reader, Stopped};

const WORDS: usize = STRIPES / 64;
/// Number of attempts before a lock counts as busy. They take about two microseconds, many times
/// longer than a command holds a stripe.
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
    /// Returns whether a stripe is in the set.
    pub fn contains(&self, stripe: usize) -> bool {
        self.bits[stripe / 64] & 1 << (stripe % 64) != 0
    }
    /// Returns the stripes in ascending order.
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
    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|&word| word == 0)
    }
}

/// The stripes that a command needs and, after locking, the stripes that it holds.
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

/// Another thread held a stripe for too long.
#[derive(Debug)]
pub struct Busy;

impl Locked {
    /// Adds a stripe to those needed.
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

    /// Returns whether a stripe may be accessed.
    #[inline]
    pub fn covers(&self, stripe: usize) -> bool {
        match self {
            Locked::None => false,
            Locked::One(one) => *one == stripe,
            Locked::Several(set) => set.contains(stripe),
            Locked::World => true,
        }
    }

    /// Visits the stripes in ascending order, or none if the world is stopped.
    pub fn for_each(&self, mut visit: impl FnMut(usize)) {
        match self {
            Locked::None | Locked::World => {}
            Locked::One(stripe) => visit(*stripe),
            Locked::Several(set) => set.iter().for_each(visit),
        }
    }
}

/// The stripes that are locked for one command, or the stopped world. Dropping it unlocks them.
pub struct Locks<'k> {
    keyspace: &'k Keyspace,
    held: Locked,
    /// The stripe that is held if it is the only one, else [`NOT_ONE`]. Most commands have one key,
    /// and for them the check of an access is one comparison.
    one: usize,
    /// `Some` exactly if `held` is `World`.
    world: Option<Stopped<'k>>,
}

/// No stripe has this number.
const NOT_ONE: usize = usize::MAX;

impl<'k> Locks<'k> {
    /// Creates a token that holds nothing.
    pub fn new(keyspace: &'k Keyspace) -> Locks<'k> {
        Locks { keyspace, held: Locked::None, one: NOT_ONE, world: None }
    }

    /// Returns the stripes that are held.
    #[inline]
    pub fn held(&self) -> &Locked {
        &self.held
    }

    /// Returns whether nothing is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.held, Locked::None)
    }

    /// Locks these stripes. The token holds nothing before. On [`Busy`] it holds nothing after.
    #[inline]
    pub fn acquire(&mut self, need: Locked) -> Result<(), Busy> {
        self.assert_empty();
        lock_set(self.keyspace, &need)?;
        self.hold(need);
        Ok(())
    }

    /// Locks these stripes, and waits as long as necessary. Only for threads that no client waits
    /// for.
    pub fn acquire_patiently(&mut self, need: Locked) {
        self.assert_empty();
        need.for_each(|stripe| self.keyspace.stripe(stripe).acquire());
        self.hold(need);
    }

    /// Records the stripes that are held from now on. Nothing was held before.
    #[inline]
    fn hold(&mut self, held: Locked) {
        self.one = if let Locked::One(stripe) = held { stripe } else { NOT_ONE };
        // `None` has nothing to drop, which the compiler cannot know.
        std::mem::forget(std::mem::replace(&mut self.held, held));
    }

    /// Locks one stripe if it is free. Returns whether it did.
    #[inline]
    pub fn try_acquire(&mut self, stripe: usize) -> bool {
        self.assert_empty();
        let is_free = self.keyspace.stripe(stripe).try_acquire();
        if is_free {
            self.hold(Locked::One(stripe));
        }
        is_free
    }

    /// Locks more stripes in addition to those held. This cannot deadlock in any order: the locks
    /// are only tried, and none is kept if one is not available.
    pub fn extend(&mut self, need: &Locked) -> Result<(), Busy> {
        let mut missing = Locked::None;
        need.for_each(|stripe| {
            if !self.held.covers(stripe) {
                missing.add(stripe);
            }
        });
        lock_set(self.keyspace, &missing)?;
        let mut held = std::mem::replace(&mut self.held, Locked::None);
        missing.for_each(|stripe| held.add(stripe));
        self.hold(held);
        Ok(())
    }

    /// Holds all stripes, because the world is stopped.
    ///
    /// # Safety
    /// `stopped` belongs to this keyspace's world. Until [`Locks::release`], other threads lock
    /// stripes only inside the world, that is, not at all, or on behalf of this token's owner,
    /// which borrows no stripe meanwhile (a load or a save that a command waits for).
    pub unsafe fn hold_world(&mut self, stopped: Stopped<'k>) {
        self.assert_empty();
        self.hold(Locked::World);
        self.world = Some(stopped);
    }

    /// Unlocks everything. Resumes the world if it is stopped.
    #[inline]
    pub fn release(&mut self) {
        if self.one == NOT_ONE {
            if !self.is_empty() {
                self.release_others();
            }
            return;
        }
        let stripe = std::mem::replace(&mut self.one, NOT_ONE);
        // `One` has nothing to drop.
        std::mem::forget(std::mem::replace(&mut self.held, Locked::None));
        // SAFETY: the stripe was held by this token, which no longer says so.
        unsafe { self.keyspace.stripe(stripe).release() }
    }

    /// Unlocks everything. If the thread had stopped the world, it is inside afterwards.
    pub fn release_inside(&mut self, reader: &Reader<'_>) {
        let stopped = self.world.take();
        self.release();
        match stopped {
            Some(stopped) => stopped.resume(reader),
            None => reader.enter(),
        }
    }

    #[inline(never)]
    fn release_others(&mut self) {
        match std::mem::replace(&mut self.held, Locked::None) {
            Locked::None | Locked::One(_) => {}
            Locked::Several(set) => unlock_all(self.keyspace, &set),
            Locked::World => self.world = None,
        }
    }

    /// Moves the held stripes into a token of their own.
    #[must_use]
    pub fn take(&mut self) -> Locks<'k> {
        let held = std::mem::replace(&mut self.held, Locked::None);
        let one = std::mem::replace(&mut self.one, NOT_ONE);
        Locks { keyspace: self.keyspace, held, one, world: self.world.take() }
    }

    /// Returns the contents of a held stripe for reading.
    ///
    /// # Panics
    /// If the stripe is not held.
    #[inline]
    pub fn data(&self, stripe: usize) -> &StripeData {
        self.assert_held(stripe);
        // SAFETY: this token holds the stripe, and gives exclusive access only through `&mut self`.
        unsafe { self.keyspace.stripe(stripe).data() }
    }

    /// Returns the contents of a held stripe for changes.
    ///
    /// # Panics
    /// If the stripe is not held.
    #[inline]
    pub fn data_mut(&mut self, stripe: usize) -> &mut StripeData {
        self.assert_held(stripe);
        // SAFETY: this token holds the stripe, and is borrowed exclusively.
        unsafe { self.keyspace.stripe(stripe).data_mut() }
    }

    /// Leaves a mark on a held stripe, for the [settler](crate::Keyspace::set_settler).
    ///
    /// # Panics
    /// If the stripe is not held.
    #[inline]
    pub fn mark(&self, stripe: usize, mark: u32) {
        self.assert_held(stripe);
        self.keyspace.stripe(stripe).set_mark(mark);
    }

    /// Visits the held stripes in ascending order, for reading.
    pub fn for_each(&self, mut visit: impl FnMut(&StripeData)) {
        self.held.for_each(|stripe| visit(self.data(stripe)));
    }

    /// Visits the held stripes in ascending order, for changes.
    pub fn for_each_mut(&mut self, mut visit: impl FnMut(&mut StripeData)) {
        self.held.for_each(|stripe| {
            // SAFETY: this token holds the stripe, and is borrowed exclusively.
            visit(unsafe { self.keyspace.stripe(stripe).data_mut() });
        });
    }

    #[inline]
    fn assert_held(&self, stripe: usize) {
        if self.one != stripe {
            self.assert_among_held(stripe);
        }
    }

    #[cold]
    fn assert_among_held(&self, stripe: usize) {
        assert!(
            self.held.covers(stripe),
            "a command touched a key that its key specification does not name"
        );
    }

    #[inline]
    fn assert_empty(&self) {
        assert!(self.is_empty(), "locks were taken beside others");
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

#[inline]
fn lock_set(keyspace: &Keyspace, need: &Locked) -> Result<(), Busy> {
    match need {
        Locked::None => Ok(()),
        Locked::One(stripe) => lock(keyspace, *stripe),
        Locked::Several(set) => lock_all(keyspace, set),
        Locked::World => panic!("the world is held by stopping it"),
    }
}

#[inline]
fn lock(keyspace: &Keyspace, stripe: usize) -> Result<(), Busy> {
    if try_soon(keyspace.stripe(stripe)) { Ok(()) } else { Err(Busy) }
}

/// Locks a stripe if that is possible within a few attempts. Returns whether it did.
#[inline]
pub(crate) fn try_soon(stripe: &Stripe) -> bool {
    stripe.try_acquire() || try_again(stripe)
}

#[cold]
fn try_again(stripe: &Stripe) -> bool {
    for _ in 0..SPINS {
        std::hint::spin_loop();
        if stripe.try_acquire() {
            return true;
        }
    }
    false
}

#[inline(never)]
fn lock_all(keyspace: &Keyspace, set: &StripeSet) -> Result<(), Busy> {
    for stripe in set.iter() {
        if lock(keyspace, stripe).is_err() {
            for held in set.iter().take_while(|&held| held != stripe) {
                // SAFETY: locked in this loop before.
                unsafe { keyspace.stripe(held).release() }
            }
            return Err(Busy);
        }
    }
    Ok(())
}

#[inline(never)]
fn unlock_all(keyspace: &Keyspace, set: &StripeSet) {
    // SAFETY: only called by `Locks::release`, for the stripes that the token held.
    set.iter().for_each(|stripe| unsafe { keyspace.stripe(stripe).release() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Assignment;
    use std::sync::{Arc, Mutex};

    #[test]
    fn sets_iterate_in_ascending_order() {
        let mut locked = Locked::None;
        let (middle, last) = (STRIPES / 2, STRIPES - 1);
        for stripe in [middle, 3, 3, 9, last, 0] {
            locked.add(stripe);
        }
        let Locked::Several(set) = &locked else { panic!("{locked:?}") };
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 9, middle, last]);
        assert!(locked.covers(9) && !locked.covers(10));
    }

    fn keyspace() -> Keyspace {
        Keyspace::new(1, Assignment::ByHash)
    }

    fn two(a: usize, b: usize) -> Locked {
        let mut need = Locked::One(a);
        need.add(b);
        need
    }

    #[test]
    fn a_busy_stripe_leaves_none_locked() {
        let keyspace = keyspace();
        let other = keyspace.stripe(7).lock();
        let mut locks = Locks::new(&keyspace);
        assert!(locks.acquire(two(3, 7)).is_err() && locks.is_empty());
        assert!(keyspace.stripe(3).try_lock().is_some());
        drop(other);
        assert!(locks.acquire(two(3, 7)).is_ok());
        assert!(keyspace.stripe(3).try_lock().is_none() && keyspace.stripe(7).try_lock().is_none());
        assert!(locks.extend(&two(2, 3)).is_ok() && locks.held().covers(2));
        let taken = locks.take();
        assert!(locks.is_empty() && keyspace.stripe(2).try_lock().is_none());
        drop(taken);
        assert!([2, 3, 7].into_iter().all(|index| keyspace.stripe(index).try_lock().is_some()));
    }

    #[test]
    fn a_mark_is_settled_before_the_next_thread_uses_the_stripe() {
        let keyspace = keyspace();
        let settled = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&settled);
        // The mark 5 is still needed the first time.
        keyspace.set_settler(Box::new(move |mark| {
            let mut seen = seen.lock().expect("no thread panics");
            seen.push(mark);
            mark != 5 || seen.len() > 1
        }));
        let mut locks = Locks::new(&keyspace);
        assert!(locks.acquire(two(3, 7)).is_ok());
        locks.mark(3, 5);
        locks.mark(7, 6);
        locks.release();
        assert!(locks.acquire(two(3, 7)).is_ok());
        locks.release();
        assert!(locks.try_acquire(3));
        locks.mark(3, 8);
        locks.release();
        keyspace.stripe(3).clear_mark(|mark| mark == 9);
        drop(keyspace.stripe(3).lock());
        assert!(locks.try_acquire(3));
        locks.mark(3, 9);
        locks.release();
        keyspace.stripe(3).clear_mark(|mark| mark == 9);
        assert!(locks.try_acquire(3));
        assert_eq!(*settled.lock().expect("no thread panics"), [5, 6, 5, 8]);
    }

    #[test]
    #[should_panic(expected = "does not name")]
    fn a_stripe_that_is_not_held_cannot_be_read() {
        let keyspace = keyspace();
        let mut locks = Locks::new(&keyspace);
        assert!(locks.try_acquire(1));
        locks.data(2);
    }

    #[test]
    #[should_panic(expected = "does not name")]
    fn a_stripe_that_is_not_held_cannot_be_changed() {
        let keyspace = keyspace();
        Locks::new(&keyspace).data_mut(0);
    }
}
