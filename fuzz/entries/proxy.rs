//! The configurations of the proxy, in both formats: reading one does not panic, and what is
//! accepted says the same the second time.

use proxy::config::{native, nutcracker};

/// The first byte says which format the rest is in.
pub fn check(data: &[u8]) {
    let Some((format, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let parse = if format & 1 == 0 { native::parse } else { nutcracker::parse };
    let Ok(config) = parse(text) else { return };
    assert_eq!(parse(text), Ok(config), "{text}");
}
