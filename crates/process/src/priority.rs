//! How much of a busy machine's time a thread gets.
#![allow(unsafe_code)] // getpriority(2) and setpriority(2)

use super::sandbox;
use crate::log;
use std::io;

/// Steps of niceness between the reactors and the background threads: a background thread then
/// gets a third of what a reactor gets where both want the same core, and all of it where the
/// reactor has nothing to do. With ten steps it is a tenth, which makes long commands three times
/// slower on a busy server and others no faster that could be measured.
const BACKGROUND: i32 = 5;

/// Makes the calling thread, and no other, nicer by `steps`, as far as that goes.
fn lower_current_thread(steps: i32) -> io::Result<()> {
    // SAFETY: plain numbers; 0 means the calling thread on Linux. −1 may be a value as well as an
    // error, and there is no error for oneself.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: as above.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, (now + steps).min(19)) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Has the calling thread step back behind those that serve clients. `what` names it in the log if
/// that fails.
pub fn step_back(what: &str) {
    if !sandbox::allows_optional_calls() {
        return;
    }
    if let Err(error) = lower_current_thread(BACKGROUND) {
        log!(Warning, "Can't lower the priority of {what}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn niceness() -> i32 {
        // SAFETY: as above.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn only_the_calling_thread_gets_nicer() {
        let before = niceness();
        let lowered = std::thread::spawn(|| {
            lower_current_thread(3).expect("getting nicer is always allowed");
            niceness()
        });
        assert_eq!(lowered.join().expect("no panic"), (before + 3).min(19));
        assert_eq!(niceness(), before);
    }
}
