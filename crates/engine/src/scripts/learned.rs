//! What the runs of a script have shown.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

const UNKNOWN: u8 = 0;
const DECLARES: u8 = 1;
const DOES_NOT_DECLARE: u8 = 2;

/// See the module.
#[derive(Default, Debug)]
pub struct Learned {
    keys: AtomicU8,
    is_long: AtomicBool,
    has_ended_soon: AtomicBool,
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
    pub(crate) fn note_short(&self) {
        if !self.has_ended_soon.load(Relaxed) {
            self.has_ended_soon.store(true, Relaxed);
        }
        if self.is_long.load(Relaxed) {
            self.is_long.store(false, Relaxed);
        }
    }

    /// Whether it has ever come to its end soon. Until then it must not begin on a reactor what cannot be
    /// undone there.
    pub(crate) fn has_ended_soon(&self) -> bool {
        self.has_ended_soon.load(Relaxed)
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
}
