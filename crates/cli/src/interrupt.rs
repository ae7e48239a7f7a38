//! Ctrl-C: ends what is running if that can be ended, the program otherwise.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C ends an operation rather than the program.
static CATCHING: AtomicBool = AtomicBool::new(false);
/// Whether it was pressed since.
static PRESSED: AtomicBool = AtomicBool::new(false);

extern "C" fn handle(_: libc::c_int) {
    if CATCHING.load(Ordering::Relaxed) {
        PRESSED.store(true, Ordering::Relaxed);
    } else {
        // SAFETY: _exit may be called in a signal handler.
        unsafe { libc::_exit(0) };
    }
}

/// Installs the handler. System calls that wait are interrupted.
pub fn install() {
    // SAFETY: the action is initialised in full, and the handler does only what a signal handler
    // may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as libc::sighandler_t;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}

/// Lets a closed pipe end the program, as other programs do: `dunlin cli --scan | head`.
pub fn end_on_closed_pipe() {
    // SAFETY: sets a default disposition; no handler is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// From here on, Ctrl-C is reported by [`pressed`]; or not any more.
pub fn catch(on: bool) {
    PRESSED.store(false, Ordering::Relaxed);
    CATCHING.store(on, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed while it was caught.
pub fn pressed() -> bool {
    PRESSED.load(Ordering::Relaxed)
}

/// Waits until one of these can be read, at most so many milliseconds (negative: without end).
/// Returns which can.
pub fn wait_readable(descriptors: [libc::c_int; 2], timeout_ms: i32) -> [bool; 2] {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: the array lives throughout the call, and its length is right.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout_ms) };
    polled.map(|entry| ready > 0 && entry.revents != 0)
}

/// Waits a while until bytes can be sent or have come.
pub fn wait_writable(descriptor: libc::c_int) {
    let events = libc::POLLIN | libc::POLLOUT;
    let mut polled = libc::pollfd { fd: descriptor, events, revents: 0 };
    // SAFETY: the structure lives throughout the call, which is told of one.
    unsafe { libc::poll(&mut polled, 1, 1000) };
}
