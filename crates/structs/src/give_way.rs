//! Giving way: background work leaves its core to others now and then, of its own accord.
//!
//! Where more threads want to run than there are cores, the kernel lets each run for some
//! milliseconds: so long would a reactor wait for a background thread, and everybody for a
//! background thread that lost its core while it held a lock. A thread that gives way every fraction
//! of a millisecond, where it holds nothing, does neither.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a thread works before it gives way. A change of threads costs a few microseconds.
const TURN: Duration = Duration::from_micros(200);

thread_local! {
    /// When the turn under way began; none on threads that give way to nobody.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Has the calling thread give way from now on, where it says that it can.
pub fn begin() {
    BEGAN.set(Some(Instant::now()));
}

/// Whether the calling thread has worked for long enough.
#[inline]
pub fn is_due() -> bool {
    BEGAN.get().is_some_and(|began| began.elapsed() >= TURN)
}

/// Gives way if that is due. To be called where nothing is held that others wait for.
#[inline]
pub fn give_way() {
    if is_due() {
        now();
    }
}

#[cold]
fn now() {
    std::thread::yield_now();
    begin();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_begun_gives_way_and_only_when_it_is_due() {
        std::thread::sleep(TURN);
        assert!(!is_due(), "this thread gives way to nobody");
        begin();
        std::thread::sleep(TURN);
        assert!(is_due());
        give_way();
        // A new turn, which a busy machine may have made long already.
        assert!(BEGAN.get().is_some_and(|began| began.elapsed() < Duration::from_secs(10)));
    }
}
