//! Waking a reactor from another thread, cheaply enough to be done for every message.
//!
//! A waker is a three-state flag beside an eventfd. Only the caller that finds the reactor asleep
//! pays for a system call; while it is awake, or has been woken and has not got round to looking,
//! waking is one atomic exchange:
//!
//! ```text
//!            about to sleep                 wake(): writes the eventfd
//!   AWAKE ──────────────────▶ ASLEEP ──────────────────────────────────┐
//!     ▲  ╲                                                             ▼
//!     │   ╲ wake(): nothing else to do                             NOTIFIED
//!     │    ╰──────────────────────────────────────────────────────────▶│
//!     └──────────────────────── the turn takes the notice ─────────────┘
//! ```
//!
//! A reactor that wants to be left alone by its sockets for a moment *rests*: it sleeps on the flag
//! itself (RESTING, a futex) instead of for events, so that a wake ends it and an arrival does not.
//!
//! Nothing is lost: a message is stored before `wake` exchanges the flag, and the reactor reads its
//! mail only after it has exchanged the flag back, so either the reactor sees the message in this
//! turn or it finds NOTIFIED when it wants to sleep and does not.
//!
//! Both back-ends watch the eventfd edge-triggered: each write is an event of its own, so the
//! counter is never read back.

use super::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

const AWAKE: u32 = 0;
/// Waits for events, a ring of the eventfd among them.
const ASLEEP: u32 = 1;
const NOTIFIED: u32 = 2;
/// Waits for nothing but a notice.
const RESTING: u32 = 3;

/// Rouses one reactor. Shared by reference; any thread may call it, as often as it likes.
// A line of its own: callers of one reactor must not slow down those of its neighbour.
#[repr(align(128))]
#[derive(Debug)]
pub struct Waker {
    state: AtomicU32,
    event: OwnedFd,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { state: AtomicU32::new(AWAKE), event: sys::eventfd()? })
    }

    /// Makes the reactor call [`Handler::woken`](super::Handler::woken) soon. What the caller
    /// stored before this call is visible there.
    #[inline]
    pub fn wake(&self) {
        // A reactor that is already notified needs no second exchange, which would take the cache
        // line away from it. The fence pairs with the one in `take_notice`: either we see that the
        // notice has been taken, or the thread that takes it sees what was stored before this call.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != NOTIFIED {
            match self.state.swap(NOTIFIED, Ordering::SeqCst) {
                ASLEEP => sys::ring_eventfd(self.event.as_raw_fd()),
                RESTING => sys::futex_wake(&self.state),
                _ => {}
            }
        }
    }

    /// The descriptor whose events end a sleep.
    pub fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Declares that the reactor is going to sleep. False when it has been notified meanwhile and
    /// must not.
    pub(super) fn fall_asleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Sleeps until notified, but no longer than `time`.
    pub(super) fn rest(&self, time: Duration) {
        let exchange = |from, to| {
            self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if exchange(AWAKE, RESTING) {
            sys::futex_wait(&self.state, RESTING, time);
            exchange(RESTING, AWAKE);
        }
    }

    /// Declares that the reactor is awake. True when it was notified since the last call.
    pub(super) fn take_notice(&self) -> bool {
        let noticed = self.state.swap(AWAKE, Ordering::SeqCst) == NOTIFIED;
        if noticed {
            fence(Ordering::SeqCst);
        }
        noticed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_ends_with_a_notice_or_in_time() {
        let waker = Waker::new().unwrap();
        waker.rest(Duration::from_micros(100));
        assert!(!waker.take_notice(), "nobody came");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while waker.state.load(Ordering::SeqCst) != RESTING {
                    std::hint::spin_loop();
                }
                waker.wake();
            });
            waker.rest(Duration::from_secs(3600));
        });
        assert!(waker.take_notice());
        waker.wake();
        waker.rest(Duration::from_secs(3600));
        assert!(!waker.fall_asleep(), "the notice that kept it from resting is still there");
    }

    #[test]
    fn only_a_sleeper_costs_a_system_call() {
        let waker = Waker::new().unwrap();
        let counter = || {
            let mut bytes = [0u8; 8];
            let file = std::fs::File::from(waker.event.try_clone().unwrap());
            use std::io::Read;
            match (&file).read(&mut bytes) {
                Ok(8) => u64::from_ne_bytes(bytes),
                _ => 0,
            }
        };
        waker.wake();
        waker.wake();
        assert_eq!(counter(), 0, "an awake reactor is only flagged");
        assert!(!waker.fall_asleep(), "a notified reactor must not sleep");
        assert!(waker.take_notice());
        assert!(waker.fall_asleep());
        waker.wake();
        waker.wake();
        assert_eq!(counter(), 1, "the second wake finds the notice and writes nothing");
        assert!(waker.take_notice());
        assert!(!waker.take_notice());
    }
}
