//! SIGTERM and SIGINT ask for a clean shutdown; a second SIGINT ends the process at once.
//!
//! The handler itself logs and decides, so an operator sees an answer, and a second Ctrl+C works,
//! even when every thread is stuck. It then writes a byte to a pipe; a thread reads the
//! pipe and calls back in ordinary context, where locks and allocation are allowed.
//!
//! Rejected: blocking the signals in all threads and waiting with sigwait(3). It depends on no
//! thread having been started earlier by anyone, and a stuck process would not answer.
#![allow(unsafe_code)] // sigaction(2) and pipe2(2)

use super::log::Level;
use super::{signal_safe, thread};
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// A signal that asks for a shutdown; `shutdown-on-sigterm` and `shutdown-on-sigint` say how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownSignal {
    /// SIGTERM
    Term,
    /// SIGINT
    Int,
}

impl ShutdownSignal {
    fn from_number(number: c_int) -> Option<Self> {
        match number {
            libc::SIGTERM => Some(Self::Term),
            libc::SIGINT => Some(Self::Int),
            _ => None,
        }
    }
}

/// The number of the signal that asked for the shutdown in progress, or 0.
static REQUESTED: AtomicI32 = AtomicI32::new(0);
static LOADING: AtomicBool = AtomicBool::new(false);
/// The name of a file that is deleted when a second SIGINT ends the process; null if there is none.
/// Never freed, the handler may run at any time.
static UNFINISHED: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
/// Where the handler writes; -1 before `install`. Never closed, the handler may run at any time.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// Installs the handlers, ignores SIGHUP, SIGPIPE and SIGXFSZ (to write past `ulimit -f` is an
/// error like any other), and starts the thread that calls `on_signal` after every SIGTERM and
/// SIGINT, one call after the other. By then the signal may have been forgotten, and another have
/// come: what is asked for is [`requested`]. Call it once, after going to the background.
pub fn install(on_signal: impl Fn() + Send + 'static) -> io::Result<()> {
    install_all(on_signal, None)
}

/// As [`install`], and calls `on_hang_up` on the same thread after every SIGHUP.
pub fn install_with_reload(
    on_signal: impl Fn() + Send + 'static,
    on_hang_up: impl Fn() + Send + 'static,
) -> io::Result<()> {
    install_all(on_signal, Some(Box::new(on_hang_up)))
}

/// What the handlers write: which callback to call.
const SHUTDOWN: u8 = 0;
const HANG_UP: u8 = 1;

fn install_all(
    on_signal: impl Fn() + Send + 'static,
    on_hang_up: Option<Box<dyn Fn() + Send>>,
) -> io::Result<()> {
    let reloads = on_hang_up.is_some();
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A handler must never wait, not even when the pipe is full because the callback hangs.
    // SAFETY: ends[1] is the open writing end.
    unsafe { libc::fcntl(ends[1], libc::F_SETFL, libc::O_NONBLOCK) };
    // SAFETY: pipe2 succeeded, so ends[0] is open and has no other owner.
    let mut requests = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(ends[0]) });
    thread::spawn("signals", move || {
        let mut byte = [0];
        while requests.read_exact(&mut byte).is_ok() {
            match &on_hang_up {
                Some(on_hang_up) if byte[0] == HANG_UP => on_hang_up(),
                _ => on_signal(),
            }
        }
    })?;
    WAKE.store(ends[1], Ordering::Release);
    for number in [libc::SIGPIPE, libc::SIGXFSZ] {
        set_action(number, libc::SIG_IGN)?;
    }
    let hang_up: extern "C" fn(c_int) = handle_hang_up;
    let reload = if reloads { hang_up as libc::sighandler_t } else { libc::SIG_IGN };
    set_action(libc::SIGHUP, reload)?;
    let handler: extern "C" fn(c_int) = handle;
    for number in [libc::SIGTERM, libc::SIGINT] {
        set_action(number, handler as libc::sighandler_t)?;
    }
    Ok(())
}

/// The signal that asked for a shutdown, until [`cancel`].
pub fn requested() -> Option<ShutdownSignal> {
    ShutdownSignal::from_number(REQUESTED.load(Ordering::Acquire))
}

/// Forgets the request (SHUTDOWN ABORT, or a shutdown that failed), so that the next signal counts
/// as the first again. True if there was one.
pub fn cancel() -> bool {
    REQUESTED.swap(0, Ordering::AcqRel) != 0
}

/// Says whether a data set is being loaded; the log line for a signal then says that, as Redis's
/// does.
pub fn set_loading(loading: bool) {
    LOADING.store(loading, Ordering::Relaxed);
}

/// Has a file deleted if a second SIGINT ends the process: one that would be left half-written. It
/// can be one name only, the first.
pub fn delete_when_killed(path: &Path) {
    if !UNFINISHED.load(Ordering::Acquire).is_null() {
        return;
    }
    // A name with a zero byte in it is no file's.
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return };
    let name = name.into_raw();
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    if UNFINISHED.compare_exchange(ptr::null_mut(), name, success, failure).is_err() {
        // SAFETY: it comes from `into_raw` above, and is not known elsewhere.
        drop(unsafe { CString::from_raw(name) });
    }
}

fn set_action(number: c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: sigaction is plain data for which all zeroes (no flags, empty mask) is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // A signal must not make other threads' system calls fail, nor run on a small stack.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `action` is initialised and the handler only does what signal handlers may.
    if unsafe { libc::sigaction(number, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handle_hang_up(_: c_int) {
    let errno = signal_safe::errno();
    signal_safe::log_line(Level::Warning, "Received SIGHUP, reading the configuration again...");
    signal_safe::write_all(WAKE.load(Ordering::Acquire), &[HANG_UP]);
    signal_safe::set_errno(errno);
}

extern "C" fn handle(number: c_int) {
    let errno = signal_safe::errno();
    let already = REQUESTED.swap(number, Ordering::AcqRel) != 0;
    if already && number == libc::SIGINT {
        signal_safe::log_line(Level::Warning, "You insist... exiting now.");
        let unfinished = UNFINISHED.load(Ordering::Acquire);
        if !unfinished.is_null() {
            // SAFETY: a C string that is never freed; unlink is async-signal-safe. There may be no
            // such file.
            unsafe { libc::unlink(unfinished) };
        }
        // SAFETY: _exit is async-signal-safe. Not a clean shutdown, hence the status.
        unsafe { libc::_exit(1) };
    }
    let message = if LOADING.load(Ordering::Relaxed) {
        "Received shutdown signal during loading, scheduling shutdown."
    } else if number == libc::SIGINT {
        "Received SIGINT scheduling shutdown..."
    } else {
        "Received SIGTERM scheduling shutdown..."
    };
    signal_safe::log_line(Level::Warning, message);
    signal_safe::write_all(WAKE.load(Ordering::Acquire), &[SHUTDOWN]);
    signal_safe::set_errno(errno);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Stdio};

    const CASE: &str = "signals";
    const NAME: &str = "signals::tests::the_child_waits_for_signals";

    /// Runs only as the child of the other tests: prints what it is called back with.
    #[test]
    fn the_child_waits_for_signals() {
        let Some(argument) = testing::child_argument(CASE) else { return };
        let on_signal = || {
            let signal = requested().unwrap();
            println!("callback {signal:?}");
            if signal == ShutdownSignal::Term {
                assert!(cancel() && !cancel() && requested().is_none());
                println!("cancelled");
            }
        };
        if argument == "reloading" {
            install_with_reload(on_signal, || println!("callback hang-up")).unwrap();
        } else {
            install(on_signal).unwrap();
        }
        set_loading(argument == "loading");
        println!("installed");
        loop {
            std::thread::park();
        }
    }

    fn start(argument: &str) -> (Child, impl FnMut(&str) -> String) {
        let mut command = testing::child(NAME, CASE, argument);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut until = move |wanted: &str| {
            lines.by_ref().map(Result::unwrap).find(|line| line.contains(wanted)).unwrap()
        };
        until("installed");
        (child, until)
    }

    fn kill(child: &Child, signal: c_int) {
        // SAFETY: the child is ours and has not been waited for, so its number is its own.
        assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
    }

    #[test]
    fn a_second_sigint_exits_at_once_with_status_1() {
        let (mut child, mut until) = start("running");
        kill(&child, libc::SIGHUP);
        kill(&child, libc::SIGPIPE);
        kill(&child, libc::SIGINT);
        let line = until("Received SIGINT scheduling shutdown...");
        assert!(line.starts_with(&format!("{}:signal-handler (", child.id())), "{line}");
        until("callback Int");
        kill(&child, libc::SIGINT);
        until("You insist... exiting now.");
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }

    #[test]
    fn sighup_calls_back_where_it_is_asked_for() {
        let (mut child, mut until) = start("reloading");
        for _ in 0..2 {
            kill(&child, libc::SIGHUP);
            until("Received SIGHUP");
            until("callback hang-up");
        }
        kill(&child, libc::SIGINT);
        until("callback Int");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn sigterm_repeats_and_a_cancelled_request_does_not_count() {
        let (mut child, mut until) = start("loading");
        for _ in 0..2 {
            kill(&child, libc::SIGTERM);
            until("Received shutdown signal during loading, scheduling shutdown.");
            until("callback Term");
            until("cancelled");
        }
        kill(&child, libc::SIGINT);
        until("callback Int");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
