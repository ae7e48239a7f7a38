//! `daemonize yes`: go on in the background.
#![allow(unsafe_code)] // fork(2), setsid(2) and dup2(2) have no safe equivalent

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

/// Continues in a child process with a session of its own and standard input, output and error on
/// `/dev/null`; the calling process exits with status 0. Returns in the child only. As in Redis the
/// working directory and umask stay, and nothing is logged any more unless `logfile` or syslog is
/// set.
///
/// Fails, without having forked, if the process already has several threads: only the caller
/// would exist in the child, with every lock the others held locked for ever. So this comes before
/// the first reactor, signal or background thread.
pub fn daemonize() -> io::Result<()> {
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
    if threads > 1 {
        return Err(io::Error::other(format!("{threads} threads are already running")));
    }
    let null = fs::File::options().read(true).write(true).open("/dev/null");
    // SAFETY: the process has one thread (checked above), so the child may use everything.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: _exit always may be called. exit(3) would flush buffers the child still has.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: setsid takes no arguments; a forked child is never a group leader, so it succeeds.
    unsafe { libc::setsid() };
    if let Ok(null) = null {
        replace_standard(&null);
    }
    Ok(())
}

/// Opens `/dev/null` as standard input, output and error. A process that goes on in the background
/// calls it when it has said all: a reader of its output then sees the end.
///
/// # Errors
/// There is no `/dev/null`.
pub fn close_output() -> io::Result<()> {
    io::stdout().flush()?;
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    replace_standard(&null);
    Ok(())
}

fn replace_standard(null: &fs::File) {
    for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: `null` is open; the standard descriptors belong to no Rust owner.
        unsafe { libc::dup2(null.as_raw_fd(), standard) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_process_with_threads() {
        // The test harness itself has several.
        let waiting = std::sync::Arc::new(std::sync::Barrier::new(2));
        let other = std::sync::Arc::clone(&waiting);
        let thread = std::thread::spawn(move || other.wait());
        let error = daemonize().unwrap_err();
        assert!(error.to_string().ends_with("threads are already running"), "{error}");
        waiting.wait();
        thread.join().unwrap();
    }
}
