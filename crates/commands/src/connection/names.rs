//! The rule for names that clients give themselves.

use engine::Error;

/// Refuses blanks, line breaks and special characters, which would break CLIENT LIST.
pub(crate) fn check_name<'a>(name: &'a [u8], what: &'static str) -> Result<&'a [u8], Error> {
    if name.iter().all(|b| (b'!'..=b'~').contains(b)) {
        return Ok(name);
    }
    Err(Error::format(format!("ERR {what} cannot contain spaces, newlines or special characters.")))
}
