//! The backlog of the disk. An append is refused while the backlog is too long. Its caller is
//! notified when to try again.
//!
//! A refusal sets a mark at half of the bytes that are being written at that moment. When no more
//! than that is left, all waiters are notified at once. So each wake-up is worth several pieces,
//! and the disk has work meanwhile. When a segment becomes free, waiters are notified at once.
//!
//! No wake-up is lost. A refused append sets the mark and then tries once more. A write that ends
//! returns its memory and then checks the mark.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

/// The value of the mark if nothing waits.
const NONE_WAITS: u64 = u64::MAX;

/// Called on any thread, while no lock of the tier is held.
pub type Told = Box<dyn Fn() + Send + Sync>;

/// The bytes being written, and the mark for waiters.
pub(crate) struct Backlog {
    /// Number of bytes being written.
    writing: AtomicU64,
    /// Number of bytes at which the waiters are notified.
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

    /// Sets the function that notifies waiters. Called once.
    pub fn set_told(&self, told: Told) {
        assert!(self.told.set(told).is_ok(), "it is set once");
    }

    pub fn begin_write(&self, bytes: usize) {
        self.writing.fetch_add(bytes as u64, Relaxed);
    }

    /// Records the end of a write whose memory has been returned.
    pub fn end_write(&self, bytes: usize) {
        let left = self.writing.fetch_sub(bytes as u64, SeqCst) - bytes as u64;
        fence(SeqCst);
        let mark = self.mark.load(Relaxed);
        if mark != NONE_WAITS && left <= mark {
            self.tell();
        }
    }

    /// Sets the mark after an append was refused, unless it is set already. The caller has to try
    /// the append once more. If it is refused again, waiters will be notified.
    pub fn set_mark(&self) {
        let half = self.writing.load(Relaxed) / 2;
        // A mark that is set already serves as well.
        let _ = self.mark.compare_exchange(NONE_WAITS, half, SeqCst, Relaxed);
        fence(SeqCst);
    }

    /// Notifies the waiters, if there are any.
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
