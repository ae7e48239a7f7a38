//! What happens when the server crashes: a report in the log, then death by the same signal.
//!
//! The handler runs on the crashed thread's signal stack (see [`super::thread`]) and at first does
//! only what a handler may: it writes the signal, the registers and the raw return addresses. Names
//! and line numbers need the allocator and a lot of stack, so a reporter thread that was started
//! beforehand adds them, while the crashed thread waits for a limited time:
//!
//! ```text
//! crashed thread: report starts → addresses → wake ···· wait ≤ 10 s ···· → report ends → die
//! reporter:       (asleep in read)             └→ symbols, sections ─┘
//! ```
//!
//! If the reporter hangs (the crashed thread holds a lock it needs) or crashes as well, the raw
//! part is in the log already and the process still dies by its signal, with a core dump where
//! those are enabled. A panic is a crash too: its hook writes the same report and aborts.
#![allow(unsafe_code)] // sigaction(2), siginfo and unwinding inside a signal handler

use super::crash_report::{self, Crash};
use super::signal_safe::LogDescriptor;
use super::{log, signal_safe, thread};
use std::ffi::{CString, c_int, c_void};
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::{io, ptr};

const SIGNALS: [c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// How long the crashed thread waits for symbols.
const SYMBOLS_TIMEOUT_MS: i32 = 10_000;

/// What the report says about the process; fixed when the handlers are installed.
static ABOUT: OnceLock<crash_report::About> = OnceLock::new();
/// The thread that reports, or 0.
static REPORTING: AtomicI32 = AtomicI32::new(0);
static REPORTED: AtomicBool = AtomicBool::new(false);
static REPORTER: AtomicI32 = AtomicI32::new(0);
static SYMBOLS_DONE: AtomicBool = AtomicBool::new(false);
static WAKE_REPORTER: AtomicI32 = AtomicI32::new(-1);
static ENABLED: AtomicBool = AtomicBool::new(true);
/// Removed when the process crashes; null or leaked.
static PIDFILE: AtomicPtr<CString> = AtomicPtr::new(ptr::null_mut());

/// Installs the panic hook, the reporter thread and, unless `crash-log-enabled` is off, the signal
/// handlers. Call it once, on the main thread, after going to the background. `version` appears in
/// the report.
pub fn install(version: &str, enabled: bool) -> io::Result<()> {
    // A second call keeps what the first one set.
    let _ = ABOUT.set(crash_report::About::new(version));
    // The main thread's signal stack, kept for the life of the process.
    std::mem::forget(super::alt_stack::AltStack::install()?);
    start_reporter()?;
    std::panic::set_hook(Box::new(on_panic));
    set_enabled(enabled)
}

/// Sets `crash-log-enabled`. Without it a crash leaves no report and the core dump is undisturbed;
/// a panic still says its message.
pub fn set_enabled(enabled: bool) -> io::Result<()> {
    ENABLED.store(enabled, Ordering::Relaxed);
    for number in SIGNALS {
        set_handler(number, enabled)?;
    }
    Ok(())
}

/// Has a crash remove this file: a background server's process-number file.
pub fn remove_at_crash(path: CString) {
    PIDFILE.store(Box::leak(Box::new(path)), Ordering::Release);
}

/// Writes to a read-only page: a real crash, for DEBUG SEGFAULT.
pub fn segfault() -> ! {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh anonymous page, written to on purpose though it is read-only: the kernel
    // answers with SIGSEGV, which is what was asked for.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0);
        page.cast::<u8>().write_volatile(b'x');
    }
    std::process::abort()
}

fn start_reporter() -> io::Result<()> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pipe2 succeeded, so ends[0] is open and has no other owner.
    let mut crashes = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(ends[0]) });
    thread::spawn("crash-report", move || {
        REPORTER.store(thread_id(), Ordering::Release);
        if crashes.read_exact(&mut [0]).is_ok() {
            if let Some(log) = LogDescriptor::open() {
                crash_report::write_symbols(&log);
                crash_report::write_sections(&log);
            }
            SYMBOLS_DONE.store(true, Ordering::Release);
        }
    })?;
    WAKE_REPORTER.store(ends[1], Ordering::Release);
    Ok(())
}

fn set_handler(number: c_int, report: bool) -> io::Result<()> {
    // SAFETY: sigaction is plain data for which all zeroes (no flags, empty mask) is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = libc::SIG_DFL;
    if report {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    }
    // SAFETY: `action` is initialised, and `on_signal` takes the arguments SA_SIGINFO promises.
    if unsafe { libc::sigaction(number, &action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_signal(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let me = thread_id();
    match REPORTING.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: the kernel passes a valid siginfo_t and ucontext_t, which live until the
            // handler returns.
            let crash = unsafe { Crash::from_signal(number, &*info, &*context.cast()) };
            report(&crash);
        }
        // abort() after a panic that was reported.
        Err(_) if REPORTED.load(Ordering::Acquire) => {}
        Err(first) if first == me || me == REPORTER.load(Ordering::Acquire) => {
            let message = "Crashed while writing the crash report: the report is incomplete.";
            signal_safe::log_line(log::Level::Warning, message);
        }
        // Another thread is at it and will end the process; do not cut its report short.
        Err(_) => wait_until(&REPORTED, 2 * SYMBOLS_TIMEOUT_MS),
    }
    die_by(number);
}

fn on_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("(no message)");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let me = thread_id();
    if !ENABLED.load(Ordering::Relaxed) {
        log!(Warning, "Panic: {message} ({place})");
    } else if REPORTING.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        report(&Crash::from_panic(message, &place));
    }
    // Also where panics would unwind: a broken invariant must not be carried on with.
    std::process::abort();
}

/// Writes the whole report. Called by at most one thread, ever.
fn report(crash: &Crash<'_>) {
    if log::enabled(log::Level::Warning)
        && let Some(log) = LogDescriptor::open()
    {
        crash_report::write_start(&log, crash, ABOUT.get());
        crash_report::write_addresses(&log, crash, ABOUT.get());
        if thread_id() != REPORTER.load(Ordering::Acquire)
            && signal_safe::write_all(WAKE_REPORTER.load(Ordering::Acquire), &[1])
        {
            wait_until(&SYMBOLS_DONE, SYMBOLS_TIMEOUT_MS);
        }
        crash_report::write_end(&log);
    }
    // SAFETY: null or leaked, see `remove_at_crash`.
    if let Some(path) = unsafe { PIDFILE.load(Ordering::Acquire).as_ref() } {
        // SAFETY: `path` is NUL-terminated; unlink is async-signal-safe.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    REPORTED.store(true, Ordering::Release);
}

fn wait_until(done: &AtomicBool, timeout_ms: i32) {
    const STEP_MS: i32 = 5;
    for _ in 0..timeout_ms / STEP_MS {
        if done.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: poll with no descriptors only sleeps, and is async-signal-safe.
        unsafe { libc::poll(ptr::null_mut(), 0, STEP_MS) };
    }
}

/// Makes the signal fatal and sends it again. It is blocked in its own handler, so it strikes when
/// that returns, with the state of the crash for the core dump.
fn die_by(number: c_int) {
    let _ = set_handler(number, false);
    // SAFETY: raise is async-signal-safe.
    unsafe { libc::raise(number) };
}

fn thread_id() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::os::unix::process::ExitStatusExt as _;

    const CASE: &str = "crash";
    const NAME: &str = "crash::tests::the_child_crashes";

    /// Runs only as the child of the other tests.
    #[test]
    fn the_child_crashes() {
        let Some(how) = testing::child_argument(CASE) else { return };
        install("9.8.7", how != "disabled").unwrap();
        let render = |write: &mut dyn FnMut(&str)| write("# Server\nmoon:full\n");
        crash_report::add_section("INFO OUTPUT", Box::new(render));
        thread::spawn("reactor-7", move || match how.as_str() {
            "segfault" | "disabled" => segfault(),
            "abort" => std::process::abort(),
            "overflow" => println!("{}", overflow(&[1; 64])),
            "section" => {
                crash_report::add_section("BAD", Box::new(|_| segfault()));
                segfault()
            }
            "several" => {
                for _ in 0..4 {
                    thread::spawn("another", || segfault()).unwrap();
                }
                segfault()
            }
            _ => panic!("the {how} is broken"),
        })
        .unwrap()
        .join()
        .unwrap();
    }

    #[allow(unconditional_recursion)] // on purpose
    fn overflow(data: &[u8]) -> u64 {
        let mut copy = [0; 1024];
        copy[..data.len().min(1024)].copy_from_slice(&data[..data.len().min(1024)]);
        overflow(std::hint::black_box(&copy)) + u64::from(copy[5])
    }

    fn crash(how: &str) -> (String, Option<i32>) {
        let output = testing::child(NAME, CASE, how).output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.signal())
    }

    fn assert_in_order(text: &str, wanted: &[&str]) {
        let mut rest = text;
        for part in wanted {
            let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} here in: {text}"));
            rest = &rest[at + part.len()..];
        }
    }

    #[test]
    fn a_segmentation_fault_is_reported_with_symbols() {
        let (text, signal) = crash("segfault");
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        assert_in_order(
            &text,
            &[
                "=== DUNLIN BUG REPORT START: Cut & paste starting from here ===",
                "Dunlin 9.8.7 crashed by signal: 11, si_code: 2",
                "Accessing address: 0x",
                "Crashed running the instruction at: 0x",
                "thread 'reactor-7'",
                "------ REGISTERS ------",
                "------ STACK TRACE ------",
                "------ STACK TRACE WITH SYMBOLS ------",
                "segfault at ",
                "the_child_crashes",
                "------ INFO OUTPUT ------",
                "moon:full",
                "=== DUNLIN BUG REPORT END",
            ],
        );
        assert_eq!(text.matches("BUG REPORT START").count(), 1);
    }

    #[test]
    fn an_abort_is_reported_and_stays_an_abort() {
        let (text, signal) = crash("abort");
        assert_eq!(signal, Some(libc::SIGABRT), "{text}");
        assert_in_order(
            &text,
            &["crashed by signal: 6", "Sent by process", "out of memory if", "STACK TRACE", "END"],
        );
    }

    #[test]
    fn a_panic_is_reported_once_and_aborts() {
        let (text, signal) = crash("flux capacitor");
        assert_eq!(signal, Some(libc::SIGABRT), "{text}");
        assert_in_order(
            &text,
            &["START", "Panic: the flux capacitor is broken", "crash.rs:", "SYMBOLS", "END"],
        );
        assert!(!text.contains("crashed by signal"), "{text}");
    }

    #[test]
    fn a_stack_overflow_is_reported_as_one() {
        let (text, signal) = crash("overflow");
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        assert_in_order(
            &text,
            &["overflow of the stack", "WITH SYMBOLS", "overflow", "crash.rs:", "END"],
        );
    }

    #[test]
    fn disabled_means_no_report() {
        let (text, signal) = crash("disabled");
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        assert!(!text.contains("BUG REPORT"), "{text}");
    }

    #[test]
    fn a_crash_during_the_report_still_ends_the_process() {
        let (text, signal) = crash("section");
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        assert_in_order(&text, &["the report is incomplete"]);
    }

    #[test]
    fn several_crashes_make_one_report() {
        let (text, signal) = crash("several");
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
        assert_eq!(text.matches("BUG REPORT START").count(), 1, "{text}");
        assert_eq!(text.matches("BUG REPORT END").count(), 1, "{text}");
    }
}
