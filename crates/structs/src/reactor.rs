//! The mark of the threads that serve clients, which must not wait for what others can hold for
//! long.
//!
//! A script may run for ever, and a long command or a background job for minutes. A reactor that
//! waits for a lock that one of them holds serves none of its clients meanwhile, and answers no
//! SCRIPT KILL. So every function that waits for such a thing calls [`check_wait`], which asserts
//! in debug builds that the caller is no reactor. What takes a moment only (a mutex around a few
//! fields) does not count.

use std::cell::Cell;

thread_local! {
    static IS_REACTOR: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as a reactor, for the rest of its life.
pub fn mark() {
    IS_REACTOR.set(true);
}

/// Asserts, in debug builds, that the calling thread may wait for this.
#[inline]
#[track_caller]
pub fn check_wait(what: &str) {
    debug_assert!(!IS_REACTOR.get(), "a reactor waits for {what}");
}

/// Runs `work` on a reactor that may wait meanwhile. `reason` says why its clients can bear that,
/// or why the wait is short.
pub fn waiting<R>(reason: &'static str, work: impl FnOnce() -> R) -> R {
    debug_assert!(!reason.is_empty(), "a wait of a reactor has a reason");
    let was = IS_REACTOR.replace(false);
    let result = work();
    IS_REACTOR.set(was);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits() -> bool {
        std::panic::catch_unwind(|| check_wait("a test")).is_ok()
    }

    #[test]
    fn a_reactor_waits_for_a_reason_only() {
        let reactor = std::thread::spawn(|| {
            assert!(waits());
            mark();
            assert!(!waits());
            assert!(waiting("the test says so", waits));
            assert!(!waits());
        });
        reactor.join().expect("it ends");
    }
}
