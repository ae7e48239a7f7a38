//! The server's log: levels, where lines go, and the [`log!`](crate::log) macro.
//!
//! A line has Redis's form, `PID:ROLE DD Mon YYYY HH:MM:SS.mmm LEVEL message`, or one of Valkey's
//! structured ones (see [`super::log_line`]). It goes to standard output or to `logfile`, and to
//! syslog if that is enabled.
//!
//! Like Redis, the log file is opened for every line. That makes rotation by renaming or
//! truncating work without a signal, and costs a few microseconds on a path that is never hot.
//! A line is one `write`, so lines of several threads and processes do not mix. A line that
//! cannot be written is lost: logging must not stop the server.
//!
//! All state is atomic. A disabled level costs one relaxed load, no lock is ever taken, and signal
//! handlers may read the settings.
#![allow(unsafe_code)] // reads the leaked log file path behind an atomic pointer

use super::local_time::LocalTime;
pub use super::log_choices::{Format, Level, Role, TimestampFormat};
use super::log_line::{self, Line};
use super::{signal_safe, syslog};
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};

static LEVEL: AtomicU8 = AtomicU8::new(Level::Notice as u8);
static ROLE: AtomicU8 = AtomicU8::new(Role::Primary as u8);
static FORMAT: AtomicU8 = AtomicU8::new(Format::Legacy as u8);
static TIMESTAMP_FORMAT: AtomicU8 = AtomicU8::new(TimestampFormat::Legacy as u8);
static SYSLOG: AtomicBool = AtomicBool::new(false);
/// Null for standard output, else a leaked path: a handler may be reading an old one at any time.
static LOGFILE: AtomicPtr<CString> = AtomicPtr::new(std::ptr::null_mut());

/// Whether messages of this level are logged: one relaxed load.
#[inline]
pub fn enabled(level: Level) -> bool {
    level as u8 >= LEVEL.load(Relaxed)
}

/// Sets `loglevel`.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Relaxed);
}

/// `loglevel`.
pub fn level() -> Level {
    Level::from_index(LEVEL.load(Relaxed))
}

/// Sets the role shown in every line.
pub fn set_role(role: Role) {
    ROLE.store(role as u8, Relaxed);
}

/// Sets `log-format`.
pub fn set_format(format: Format) {
    FORMAT.store(format as u8, Relaxed);
}

/// Sets `log-timestamp-format`.
pub fn set_timestamp_format(format: TimestampFormat) {
    TIMESTAMP_FORMAT.store(format as u8, Relaxed);
}

/// The log file cannot be opened for appending.
#[derive(Debug)]
pub struct LogfileError {
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for LogfileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, source } = self;
        write!(out, "Can't open the log file: {} ({})", super::os_error(source), path.display())
    }
}

impl std::error::Error for LogfileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Sends lines to `logfile`, or to standard output if the path is empty. The file is created at
/// once, so that a path that cannot work stops the start rather than losing the log. A relative
/// path is relative to the working directory (`dir`) at the time of each line, as in Redis.
pub fn set_logfile(path: &Path) -> Result<(), LogfileError> {
    if path.as_os_str().is_empty() {
        LOGFILE.store(std::ptr::null_mut(), Relaxed);
        return Ok(());
    }
    let failed = |source| LogfileError { path: path.to_owned(), source };
    let c_path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| failed(io::Error::from(io::ErrorKind::InvalidInput)))?;
    open(path).map_err(failed)?;
    let leaked: *mut CString = Box::leak(Box::new(c_path));
    LOGFILE.store(leaked, Ordering::Release);
    Ok(())
}

/// The log file's path, `None` for standard output. Callable in a signal handler.
pub fn logfile_c_str() -> Option<&'static CStr> {
    // SAFETY: the pointer is null or comes from `Box::leak` in `set_logfile`, so what it points to
    // lives for ever and is never written again; Acquire pairs with the Release there.
    unsafe { LOGFILE.load(Ordering::Acquire).as_ref() }.map(CString::as_c_str)
}

/// Also sends every line to syslog (`syslog-enabled yes`), under this identity and facility.
pub fn enable_syslog(ident: &str, facility: syslog::Facility) {
    syslog::open(ident, facility);
    SYSLOG.store(true, Relaxed);
}

/// Whether lines also go to syslog.
pub fn syslog_enabled() -> bool {
    SYSLOG.load(Relaxed)
}

fn open(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().append(true).create(true).open(path)
}

/// Logs a message. Call it through [`log!`](crate::log), which checks the level before it formats.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    let owned;
    let message = match message.as_str() {
        Some(text) => text,
        None => {
            owned = message.to_string();
            &owned
        }
    };
    let line = Line {
        pid: std::process::id(),
        role: Role::from_index(ROLE.load(Relaxed)),
        time: LocalTime::now(),
        level,
        message,
    };
    let format = Format::from_index(FORMAT.load(Relaxed));
    let stamp = TimestampFormat::from_index(TIMESTAMP_FORMAT.load(Relaxed));
    emit(log_line::render(&line, format, stamp).as_bytes());
    if syslog_enabled() {
        syslog::send(level, message);
    }
}

/// Logs text as it is, without process, time and level: banners and reports. It should end with a
/// newline.
pub fn write_raw(level: Level, text: &str) {
    if enabled(level) {
        emit(text.as_bytes());
        if syslog_enabled() {
            syslog::send(level, text);
        }
    }
}

fn emit(bytes: &[u8]) {
    match logfile_c_str() {
        None => {
            signal_safe::write_all(libc::STDOUT_FILENO, bytes);
        }
        Some(path) => {
            if let Ok(mut file) = open(Path::new(OsStr::from_bytes(path.to_bytes()))) {
                let _ = io::Write::write_all(&mut file, bytes);
            }
        }
    }
}

/// Logs a formatted message at a level: `log!(Notice, "Listening on {address}")`. Nothing is
/// evaluated if the level is disabled.
#[macro_export]
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write(
                $crate::log::Level::$level,
                ::std::format_args!($($message)+),
            );
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn names_round_trip_in_any_case() {
        for level in Level::ALL {
            assert_eq!(Level::from_name(&level.name().to_uppercase()), Some(*level));
            assert_eq!(Level::from_index(*level as u8), *level);
        }
        assert_eq!(Format::from_name("xml"), None);
        assert_eq!(TimestampFormat::from_name("iso8601"), Some(TimestampFormat::Iso8601));
    }

    /// Levels and the log file are process-wide, so this runs in a process of its own.
    #[test]
    fn lines_reach_a_file_that_may_be_rotated_away() {
        const CASE: &str = "log_file";
        let Some(folder) = testing::child_argument(CASE) else {
            let folder = testing::Directory::new("log");
            let name = "log::tests::lines_reach_a_file_that_may_be_rotated_away";
            testing::child_passes(name, CASE, folder.path().to_str().unwrap(), &[]);
            return;
        };
        let path = Path::new(&folder).join("server.log");
        set_logfile(&path).unwrap();
        crate::log!(Notice, "first {}", 1);
        crate::log!(Verbose, "not at this level {}", unreachable_argument());
        std::fs::rename(&path, path.with_extension("1")).unwrap();
        set_level(Level::Debug);
        set_role(Role::Replica);
        crate::log!(Debug, "second");
        signal_safe::log_line(Level::Warning, "third");
        write_raw(Level::Notice, "raw\n");
        set_level(Level::Nothing);
        crate::log!(Warning, "silent");
        signal_safe::log_line(Level::Warning, "silent");

        let pid = std::process::id();
        let first = std::fs::read_to_string(path.with_extension("1")).unwrap();
        assert!(first.starts_with(&format!("{pid}:M ")), "{first}");
        assert!(first.ends_with(" * first 1\n"), "{first}");
        let rest = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = rest.lines().collect();
        assert!(lines[0].starts_with(&format!("{pid}:S ")) && lines[0].ends_with(" . second"));
        assert!(lines[1].starts_with(&format!("{pid}:signal-handler (")), "{}", lines[1]);
        assert!(lines[1].ends_with(") third"), "{}", lines[1]);
        assert_eq!(&lines[2..], ["raw"]);
    }

    fn unreachable_argument() -> u32 {
        panic!("arguments of a disabled level must not be evaluated")
    }

    #[test]
    fn a_log_file_that_cannot_be_opened_is_refused_with_its_path() {
        let error = set_logfile(Path::new("/nonexistent-folder/server.log")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Can't open the log file: No such file or directory (/nonexistent-folder/server.log)"
        );
        assert!(set_logfile(Path::new("a\0b")).is_err());
        assert!(logfile_c_str().is_none());
    }
}
