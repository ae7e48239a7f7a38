//! What the runs of a script have shown.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

const UNKNOWN: u8 = 0;
const DECLARES: u8 = 1;
const DOES_NOT_DECLARE: u8 = 2;

/// A script that held its reactor up with what could not be undone is trusted again after so many
/// short runs.
const RUNS_OF_DISTRUST: u32 = 1000;

/// How many keys and arguments a run has, as one of 64 bits; seven and more count as one. What a
/// script does depends on them, so each shape has to be seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Shape(u64);

impl Shape {
    /// That of a run.
    pub(crate) fn new(keys: usize, arguments: usize) -> Shape {
        Shape(1 << (keys.min(7) * 8 + arguments.min(7)))
    }
}

/// See the module.
#[derive(Default, Debug)]
pub struct Learned {
    keys: AtomicU8,
    is_long: AtomicBool,
    /// The [shapes](Shape) with which it has come to its end soon.
    ended_soon: AtomicU64,
    /// Short runs that it still owes.
    owes: AtomicU32,
}

impl Learned {
    /// Whether it runs under the locks of its declared keys.
    #[inline]
    pub fn declares_keys(&self) -> bool {
        self.keys.load(Relaxed) == DECLARES
    }

    /// Whether it takes so long that it begins on a background thread.
    pub fn is_long(&self) -> bool {
        self.is_long.load(Relaxed)
    }

    /// It has come to its end with the world stopped, and has touched other keys or has not.
    pub(crate) fn note_run(&self, touched_undeclared: bool) {
        if touched_undeclared {
            self.keys.store(DOES_NOT_DECLARE, Relaxed);
        } else {
            // Once it was seen to touch others it stays that way.
            let _ = self.keys.compare_exchange(UNKNOWN, DECLARES, Relaxed, Relaxed);
        }
    }

    pub(crate) fn note_long(&self) {
        self.is_long.store(true, Relaxed);
    }

    /// It has come to its end soon.
    pub(crate) fn note_short(&self, shape: Shape) {
        if self.ended_soon.load(Relaxed) & shape.0 != shape.0 {
            self.ended_soon.fetch_or(shape.0, Relaxed);
        }
        if self.is_long.load(Relaxed) {
            self.is_long.store(false, Relaxed);
        }
        if self.owes.load(Relaxed) > 0 {
            let _ = self.owes.fetch_update(Relaxed, Relaxed, |owed| owed.checked_sub(1));
        }
    }

    /// It holds its reactor up, and what it does cannot be undone: its next runs do that elsewhere.
    pub(crate) fn distrust(&self) {
        self.owes.store(RUNS_OF_DISTRUST, Relaxed);
    }

    /// Whether a run of this shape may do on a reactor what cannot be undone there: one like it has
    /// come to its end soon, and none has held a reactor up of late.
    pub(crate) fn is_trusted(&self, shape: Shape) -> bool {
        self.ended_soon.load(Relaxed) & shape.0 != 0 && self.owes.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_has_touched_other_keys_stays_that_way() {
        let learned = Learned::default();
        assert!(!learned.declares_keys(), "an unknown script stops the world");
        learned.note_run(false);
        assert!(learned.declares_keys());
        learned.note_run(true);
        learned.note_run(false);
        assert!(!learned.declares_keys());
    }

    #[test]
    fn each_shape_is_seen_before_it_is_trusted() {
        let learned = Learned::default();
        learned.note_short(Shape::new(1, 1));
        assert!(learned.is_trusted(Shape::new(1, 1)));
        for other in [Shape::new(1, 0), Shape::new(0, 1), Shape::new(1, 2), Shape::new(9, 9)] {
            assert!(!learned.is_trusted(other));
        }
        learned.note_short(Shape::new(7, 20));
        assert!(learned.is_trusted(Shape::new(9, 9)), "many are as many");
    }

    #[test]
    fn a_script_that_held_its_reactor_up_must_be_short_for_long() {
        let (learned, shape) = (Learned::default(), Shape::new(1, 0));
        learned.note_short(shape);
        learned.distrust();
        for _ in 0..RUNS_OF_DISTRUST {
            assert!(!learned.is_trusted(shape));
            learned.note_short(shape);
        }
        assert!(learned.is_trusted(shape));
    }
}
