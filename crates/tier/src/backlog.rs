//! The backlog of the disk: appends that were refused because it is too long are told when to try again.
//!
//! A refusal sets a mark: half of the bytes that were on their way to the disk then. When no more than that is
//! left, the waiters are told, all at once. So waking them is worth some pieces, and the disk has work
//! meanwhile. A segment that becomes free tells them at once.
//!
//! No wake-up is lost: a refused append sets the mark and then tries once more; a write that ends gives its
//! memory back and then looks at the mark.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

/// The mark of nothing that waits.
const NONE_WAITS: u64 = u64::MAX;

/// Called without locks of the tier's, on any thread.
pub type Told = Box<dyn Fn() + Send + Sync>;

/// What is on its way to the disk, and what waits for it.
pub(crate) struct Backlog {
    /// Bytes on their way to the disk.
    writing: AtomicU64,
    /// At so many bytes the waiters are told.
    mark: AtomicU64,
    told: OnceLock<Told>,
}

impl Backlog {
    pub fn new() -> Backlog {
        Backlog {
            writing: AtomicU64::new(0),
            mark: AtomicU64::new(NONE_WAITS),
            told: OnceLock::new(),
        }
    }

    /// Says what to call; once.
    pub fn set_told(&self, told: Told) {
        assert!(self.told.set(told).is_ok(), "it is set once");
    }

    pub fn begin_write(&self, bytes: usize) {
        self.writing.fetch_add(bytes as u64, Relaxed);
    }

    /// A write is over and its memory is given back.
    pub fn end_write(&self, bytes: usize) {
        let left = self.writing.fetch_sub(bytes as u64, SeqCst) - bytes as u64;
        fence(SeqCst);
        let mark = self.mark.load(Relaxed);
        if mark != NONE_WAITS && left <= mark {
            self.tell();
        }
    }

    /// An append was refused. It has to be tried once more after this; if it is refused again, there will be
    /// a call. A mark that is set stays where it is.
    pub fn set_mark(&self) {
        let half = self.writing.load(Relaxed) / 2;
        // Another mark does as well.
        let _ = self.mark.compare_exchange(NONE_WAITS, half, SeqCst, Relaxed);
        fence(SeqCst);
    }

    /// Tells those that wait, if any do.
    pub fn tell(&self) {
        if self.mark.swap(NONE_WAITS, SeqCst) != NONE_WAITS
            && let Some(told) = self.told.get()
        {
            told();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn the_waiters_are_told_once_at_half() {
        let (room, calls) = (Backlog::new(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&calls);
        room.set_told(Box::new(move || {
            counted.fetch_add(1, Relaxed);
        }));
        let after = |bytes: usize| {
            room.end_write(bytes);
            calls.load(Relaxed)
        };
        (0..10).for_each(|_| room.begin_write(1));
        assert_eq!(after(1), 0, "nothing waits");
        room.set_mark();
        assert_eq!(after(4), 0, "five are left, and four were half");
        room.set_mark();
        assert_eq!((after(1), after(1)), (1, 1));
        room.set_mark();
        room.tell();
        assert_eq!((after(3), calls.load(Relaxed)), (2, 2));
    }
}
