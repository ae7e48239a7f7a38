//! The little that may be done inside a signal handler: text on the stack, `write` to a
//! descriptor, a log line.
//!
//! A handler interrupts its thread anywhere, also inside the allocator or while a lock is held, so
//! nothing here allocates, locks or panics. `core::fmt` for integers and strings fulfils that when
//! it writes into [`Text`].
#![allow(unsafe_code)] // write(2), open(2) and close(2) are called directly: std's types may lock or allocate

use super::log::{self, Level};
use std::ffi::CStr;
use std::fmt::Write as _;

/// A text of at most `N` bytes on the stack; what does not fit is cut off.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// An empty text.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// What was written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> std::fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let take = text.len().min(N - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// Writes all of `bytes` to `fd`, going on after an interrupt; false when the descriptor refuses.
pub fn write_all(fd: libc::c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length describe the live slice `bytes`.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(0) => return false,
            Ok(count) => bytes = &bytes[count.min(bytes.len())..],
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return false,
        }
    }
    true
}

/// The calling thread's `errno`.
pub fn errno() -> libc::c_int {
    // SAFETY: __errno_location always returns the calling thread's own, valid errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`: a handler must leave it as it found it.
pub fn set_errno(value: libc::c_int) {
    // SAFETY: as above; the location is writable by this thread alone.
    unsafe { *libc::__errno_location() = value }
}

/// The log as a descriptor: standard output, or the log file opened for appending and closed on
/// drop.
pub struct LogDescriptor {
    fd: libc::c_int,
    owned: bool,
}

impl LogDescriptor {
    /// Opens the log; `None` if the log file cannot be opened.
    pub fn open() -> Option<Self> {
        match log::logfile_c_str() {
            None => Some(Self { fd: libc::STDOUT_FILENO, owned: false }),
            Some(path) => Self::append(path),
        }
    }

    fn append(path: &CStr) -> Option<Self> {
        let flags = libc::O_APPEND | libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
        // SAFETY: `path` is NUL-terminated; open(2) is async-signal-safe.
        let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644 as libc::c_uint) };
        (fd >= 0).then_some(Self { fd, owned: true })
    }

    /// Appends `bytes` to the log.
    pub fn write(&self, bytes: &[u8]) {
        write_all(self.fd, bytes);
    }
}

impl Drop for LogDescriptor {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the descriptor was opened by `append` and is closed once, here.
            unsafe { libc::close(self.fd) };
        }
    }
}

/// Seconds since the Unix epoch.
pub fn unix_time() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to; clock_gettime is async-signal-safe.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    now.tv_sec
}

/// Logs one line from within a signal handler, in the form Redis uses there:
/// `PID:signal-handler (UNIX-SECONDS) message`. Local time cannot be had safely in a handler.
pub fn log_line(level: Level, message: &str) {
    if !log::enabled(level) {
        return;
    }
    let mut line = Text::<512>::new();
    let _ = writeln!(line, "{}:signal-handler ({}) {message}", std::process::id(), unix_time());
    if let Some(log) = LogDescriptor::open() {
        log.write(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_its_capacity() {
        let mut text = Text::<8>::new();
        write!(text, "{}-{}", 12345, 6789).unwrap();
        assert_eq!(text.as_bytes(), b"12345-67");
    }

    #[test]
    fn a_closed_descriptor_is_reported_not_retried() {
        assert!(!write_all(-1, b"x"));
        assert!(write_all(-1, b""));
    }
}
