//! `syslog-enabled`: the same messages through the system's logger.
#![allow(unsafe_code)] // openlog(3) and syslog(3): the protocol and the socket's path belong to libc

use super::log_choices::Level;
use std::ffi::{CString, c_int};

/// `syslog-facility`: USER or LOCAL0 to LOCAL7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facility(c_int);

impl Facility {
    /// The facility of this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        if name == "user" {
            return Some(Self(libc::LOG_USER));
        }
        match name.strip_prefix("local")?.as_bytes() {
            [digit @ b'0'..=b'7'] => {
                Some(Self(libc::LOG_LOCAL0 + (c_int::from(digit - b'0') << 3)))
            }
            _ => None,
        }
    }
}

/// Connects to the system's logger under the name `ident`.
pub(super) fn open(ident: &str, facility: Facility) {
    let ident: &'static CString = Box::leak(Box::new(without_nul(ident)));
    let options = libc::LOG_PID | libc::LOG_NDELAY | libc::LOG_NOWAIT;
    // SAFETY: openlog keeps the pointer, which is why the identity is leaked and so lives for ever.
    unsafe { libc::openlog(ident.as_ptr(), options, facility.0) };
}

/// Sends one message.
pub(super) fn send(level: Level, message: &str) {
    let priority = match level {
        Level::Debug => libc::LOG_DEBUG,
        Level::Verbose => libc::LOG_INFO,
        Level::Notice => libc::LOG_NOTICE,
        Level::Warning | Level::Nothing => libc::LOG_WARNING,
    };
    let message = without_nul(message);
    // SAFETY: the format is a constant that takes exactly the one NUL-terminated string given.
    unsafe { libc::syslog(priority, c"%s".as_ptr(), message.as_ptr()) };
}

fn without_nul(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("every NUL was replaced")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facilities_are_user_and_local0_to_local7() {
        assert_eq!(Facility::from_name("USER"), Some(Facility(libc::LOG_USER)));
        assert_eq!(Facility::from_name("local0"), Some(Facility(libc::LOG_LOCAL0)));
        assert_eq!(Facility::from_name("Local7"), Some(Facility(libc::LOG_LOCAL7)));
        for wrong in ["", "local8", "local10", "mail", "local"] {
            assert_eq!(Facility::from_name(wrong), None, "{wrong}");
        }
    }
}
