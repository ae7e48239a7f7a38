//! Giving way: background work leaves its core to others now and then, of its own accord.
//!
//! Where more threads want to run than there are cores, the kernel lets each run until its timer
//! ticks, some milliseconds: so long would a reactor wait for a background thread, and all clients
//! for a background thread that lost its core while it held a lock. So a background thread offers
//! its core every fraction of a millisecond, where it holds nothing. If it was taken, cores are
//! scarce, and for a while the thread rests after each turn for twice as long: a thread that has
//! rested gets a core when it wants one, and is not put off it in the middle of its turn.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a thread works before it gives way. A change of threads costs a few microseconds.
const TURN: Duration = Duration::from_micros(200);
/// An offer of the core that takes longer than this was taken.
const TAKEN: Duration = Duration::from_micros(20);
/// For so long a thread rests after each turn, before it offers its core again.
const SCARCE: Duration = Duration::from_millis(20);
/// How many times as long as its turn a thread rests.
const REST: u32 = 2;

#[derive(Clone, Copy)]
struct Turn {
    began: Instant,
    /// Until then cores are taken to be scarce.
    rests_until: Instant,
}

thread_local! {
    /// The turn under way; none on threads that never yield.
    static TURN_UNDER_WAY: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// Has the calling thread give way from now on, where it says that it can.
pub fn begin() {
    let now = Instant::now();
    TURN_UNDER_WAY.set(Some(Turn { began: now, rests_until: now }));
}

/// Whether the calling thread has worked for long enough.
#[inline]
pub fn is_due() -> bool {
    TURN_UNDER_WAY.get().is_some_and(|turn| turn.began.elapsed() >= TURN)
}

/// Gives way if that is due. To be called where nothing is held that others wait for.
#[inline]
pub fn give_way() {
    if let Some(turn) = TURN_UNDER_WAY.get()
        && turn.began.elapsed() >= TURN
    {
        TURN_UNDER_WAY.set(Some(next(turn)));
    }
}

/// Offers the core to others; how long it was gone, if it was taken.
pub fn offer() -> Option<Duration> {
    let before = Instant::now();
    std::thread::yield_now();
    Some(before.elapsed()).filter(|away| *away > TAKEN)
}

#[cold]
fn next(Turn { began, mut rests_until }: Turn) -> Turn {
    let now = Instant::now();
    if now < rests_until {
        // A turn that took long because of others is no reason for a long rest.
        std::thread::sleep((now - began).min(TURN * 2) * REST);
    } else {
        if offer().is_some() {
            rests_until = Instant::now() + SCARCE;
        }
    }
    Turn { began: Instant::now(), rests_until }
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
        let before = TURN_UNDER_WAY.get().map(|turn| turn.began);
        give_way();
        assert!(TURN_UNDER_WAY.get().map(|turn| turn.began) > before);
    }

    #[test]
    fn who_is_short_of_cores_rests_for_longer_than_it_works() {
        let now = Instant::now();
        let began = now.checked_sub(TURN).expect("the machine has been up for a while");
        let turn = next(Turn { began, rests_until: now + Duration::from_secs(3600) });
        assert!(turn.began - now >= TURN * REST, "{:?}", turn.began - now);
    }
}
