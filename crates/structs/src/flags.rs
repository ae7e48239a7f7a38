//! One word of flags that many parts set and one hot path tests.
//!
//! ```text
//!   FlagWord   63 … 5 4 3 2 1 0   on cache lines of its own: it is read always, written rarely
//!                     │   │
//!   Flag              │   └─ owned by one part: the bit is that part's state, or follows it
//!   CountedFlag       └───── owned by one part: set while a count is above zero
//! ```
//!
//! A part owns its flag, so nothing else can change the bit. Three ways keep the bit right whatever
//! threads do at once: the bit is the only copy of the state ([`Flag::set`]); the bit is computed
//! anew from other state under the word's lock, after each change ([`Flag::follow`]); it belongs to
//! a count ([`CountedFlag`]), which does the latter.

use crate::sync::lock;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// The flags of up to 64 parts.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct FlagWord {
    bits: AtomicU64,
    /// Held while a bit is computed from other state.
    following: Mutex<()>,
}

impl FlagWord {
    /// Returns whether any flag of the mask is set. A thread that takes a lock sees the flags that
    /// were set before that lock was given back.
    #[inline(always)]
    pub fn any(&self, mask: u64) -> bool {
        self.bits.load(Relaxed) & mask != 0
    }

    /// Returns all flags.
    pub fn bits(&self) -> u64 {
        self.bits.load(SeqCst)
    }

    /// Returns the flag at this place, to be given to the part that owns it.
    pub fn flag(self: &Arc<FlagWord>, place: u32) -> Flag {
        assert!(place < u64::BITS, "a word has 64 flags");
        Flag { word: Arc::clone(self), mask: 1 << place }
    }
}

/// One flag of a word. The default one has a word of its own.
#[derive(Debug)]
pub struct Flag {
    word: Arc<FlagWord>,
    mask: u64,
}

impl Default for Flag {
    fn default() -> Flag {
        Arc::<FlagWord>::default().flag(0)
    }
}

impl Flag {
    /// Returns whether it is set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.word.bits.load(SeqCst) & self.mask != 0
    }

    /// Sets or clears it. Returns whether it was set. For a flag that is the only copy of a state.
    pub fn set(&self, is_set: bool) -> bool {
        let before = match is_set {
            true => self.word.bits.fetch_or(self.mask, SeqCst),
            false => self.word.bits.fetch_and(!self.mask, SeqCst),
        };
        before & self.mask != 0
    }

    /// Computes it anew from the state that it stands for. Every change of that state is followed
    /// by this call. The calls of several threads take turns, so the last one sees all changes.
    pub fn follow(&self, state: impl FnOnce() -> bool) {
        let _following = lock(&self.word.following);
        self.set(state());
    }
}

/// A count with a flag that is set while the count is above zero. A count that rises is seen in
/// the flag when [`CountedFlag::add`] returns.
#[derive(Default, Debug)]
pub struct CountedFlag {
    flag: Flag,
    count: AtomicUsize,
}

impl CountedFlag {
    /// Returns a count of zero that has this flag.
    pub fn new(flag: Flag) -> CountedFlag {
        CountedFlag { flag, count: AtomicUsize::new(0) }
    }

    /// Returns whether the count is above zero.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// Counts one more.
    pub fn add(&self) {
        self.count.fetch_add(1, SeqCst);
        self.flag.follow(|| self.any());
    }

    /// Counts one less.
    pub fn remove(&self) {
        let before = self.count.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "what is removed was added");
        self.flag.follow(|| self.any());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn flags_of_one_word_do_not_touch_each_other() {
        let word = Arc::<FlagWord>::default();
        let (first, last) = (word.flag(0), word.flag(63));
        assert!(!word.any(u64::MAX));
        assert!(!first.set(true) && first.set(true));
        assert!(first.is_set() && !last.is_set());
        assert!(word.any(1) && !word.any(1 << 63));
        assert!(!last.set(true) && first.set(false));
        assert_eq!(word.bits(), 1 << 63);
    }

    #[test]
    fn a_count_has_its_flag_while_it_is_above_zero() {
        let word = Arc::<FlagWord>::default();
        let count = CountedFlag::new(word.flag(5));
        count.add();
        count.add();
        count.remove();
        assert!(count.any() && word.any(1 << 5));
        count.remove();
        assert!(!count.any() && word.bits() == 0);
    }

    #[test]
    fn a_flag_is_right_whatever_threads_do_at_once() {
        let word = Arc::<FlagWord>::default();
        let count = CountedFlag::new(word.flag(1));
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        count.add();
                        assert!(word.any(2), "this thread has counted itself");
                        count.remove();
                    }
                });
            }
        });
        assert_eq!(word.bits(), 0);
    }
}
