//! Numbers as text, exactly as Redis reads and prints them.
//!
//! Three kinds meet the protocol:
//!
//! - 64-bit integers ([`parse_i64`], [`format_i64`]). The strict grammar (no sign but `-`, no
//!   leading zero, no space) is what makes an integer encoding invisible: a text is stored as a
//!   number only when printing that number gives back the same bytes.
//! - doubles: sorted-set scores and RESP3 doubles ([`parse_f64`], [`format_f64`]). Printed by the
//!   same algorithm as the reference server (see [`grisu`]), because shortest-digits algorithms
//!   differ in about one value of a thousand.
//! - long doubles: INCRBYFLOAT and HINCRBYFLOAT ([`LongDouble`], see [`long_double`]), which the
//!   reference server computes in the x87 80-bit format.

mod big;
pub mod grisu;
pub mod long_double;

pub use grisu::{F64_MAX_LEN, format_f64, format_f64_digits};
pub use long_double::LongDouble;

/// Bytes of the longest `i64` or `u64` in decimal (`-9223372036854775808`).
pub const INT_MAX_LEN: usize = 20;

/// "00" to "99": two digits are printed per division.
const PAIRS: &[u8; 200] = &{
    let mut pairs = [0; 200];
    let mut i = 0;
    while i < 100 {
        pairs[2 * i] = b'0' + (i / 10) as u8;
        pairs[2 * i + 1] = b'0' + (i % 10) as u8;
        i += 1;
    }
    pairs
};

/// The integer that `text` is the canonical decimal form of, or `None`.
///
/// Canonical means that [`format_i64`] of the result gives back `text`: no leading zero, plus sign,
/// space or `-0`, and no overflow.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = parse_canonical(digits)?;
    if negative {
        // A lone zero has no sign; 2^63 is the one magnitude that only fits below zero.
        (magnitude != 0 && magnitude <= 1 << 63).then(|| magnitude.wrapping_neg() as i64)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Digits without leading zeros (but "0") that fit in a `u64`.
#[inline]
fn parse_canonical(digits: &[u8]) -> Option<u64> {
    let (&first, rest) = digits.split_first()?;
    let first = first.wrapping_sub(b'0');
    if first > 9 || digits.len() > INT_MAX_LEN || (first == 0 && !rest.is_empty()) {
        return None;
    }
    let mut value = u64::from(first);
    // 19 digits always fit; only a twentieth can overflow.
    let (safe, last) = rest.split_at(rest.len().min(18));
    for &byte in safe {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for &byte in last {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// An unsigned integer, in the looser grammar Redis uses for SCAN cursors and the like: leading
/// white space, one `+` and leading zeros are accepted, nothing after the digits is.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if let Some(value) = parse_canonical(text) {
        return Some(value);
    }
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A double, in the grammar of scores and score bounds: decimal with optional sign, fraction and
/// exponent, or `inf`/`infinity` in any case. Not accepted: NaN, hexadecimal, white space, a value
/// that overflows to infinity or a non-zero one that underflows to zero.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    // Most scores are small integers; those need no general conversion.
    if let Some(int) = parse_i64(text)
        && int.unsigned_abs() <= 1 << 53
    {
        return Some(int as f64);
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if value.is_nan() {
        return None;
    }
    if value.is_infinite() && text.iter().any(u8::is_ascii_digit) {
        return None;
    }
    if value == 0.0 {
        let mantissa = text.split(|byte| byte.eq_ignore_ascii_case(&b'e')).next()?;
        if mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte)) {
            return None;
        }
    }
    Some(value)
}

/// The integer equal to `value` when it is one and `|value| <= 2^62`: the range in which Redis
/// stores and prints a double as an integer. Negative zero counts as zero.
#[inline]
pub fn f64_as_integer(value: f64) -> Option<i64> {
    const LIMIT: f64 = (1u64 << 62) as f64;
    if !(-LIMIT..=LIMIT).contains(&value) {
        return None;
    }
    let int = value as i64;
    (int as f64 == value).then_some(int)
}

/// Number of decimal digits of `value` (1 for zero).
#[inline]
pub fn decimal_len(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Prints `value` in decimal into the end of `buf` and returns the part that was written.
#[inline]
pub fn format_u64(buf: &mut [u8; INT_MAX_LEN], value: u64) -> &[u8] {
    let start = write_digits(buf, value);
    &buf[start..]
}

/// Prints `value` in decimal into the end of `buf` and returns the part that was written.
#[inline]
pub fn format_i64(buf: &mut [u8; INT_MAX_LEN], value: i64) -> &[u8] {
    let mut start = write_digits(buf, value.unsigned_abs());
    if value < 0 {
        start -= 1;
        buf[start] = b'-';
    }
    &buf[start..]
}

/// Writes the digits right-aligned; returns the index of the first.
#[inline]
fn write_digits(buf: &mut [u8; INT_MAX_LEN], mut value: u64) -> usize {
    let mut at = INT_MAX_LEN;
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        buf[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        let pair = value as usize * 2;
        at -= 2;
        buf[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        buf[at] = b'0' + value as u8;
    }
    at
}

/// Appends `value` in decimal to `out`.
#[inline]
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(format_i64(&mut [0; INT_MAX_LEN], value));
}

/// Appends `value` to `out` as [`format_f64`] prints it.
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(format_f64(&mut [0; F64_MAX_LEN], value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strict_integers() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("10", Some(10)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("18446744073709551616", None),
            ("99999999999999999999", None),
            ("100000000000000000000", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            ("00", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("1a", None),
            ("--1", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn loose_unsigned() {
        for (text, value) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("007", Some(7)),
            (" +7", Some(7)),
            ("-7", None),
            ("7 ", None),
            ("", None),
            ("+", None),
            (" ", None),
        ] {
            assert_eq!(parse_u64(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn doubles_as_the_reference_reads_them() {
        for (text, value) in [
            ("1", Some(1.0)),
            ("+1", Some(1.0)),
            ("00012", Some(12.0)),
            ("1.", Some(1.0)),
            (".5", Some(0.5)),
            ("-.5e1", Some(-5.0)),
            ("1e5", Some(1e5)),
            ("inf", Some(f64::INFINITY)),
            ("+inf", Some(f64::INFINITY)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("Infinity", Some(f64::INFINITY)),
            ("4.9e-324", Some(5e-324)),
            ("0e9999999", Some(0.0)),
            ("9007199254740993", Some(9007199254740992.0)),
            ("nan", None),
            ("-nan", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("\t1", None),
            ("0x10", None),
            ("1e400", None),
            ("-1e400", None),
            ("1e-400", None),
            ("1e-330", None),
            (".", None),
            ("-", None),
            ("1e", None),
            ("1e+", None),
            ("1_0", None),
            ("infi", None),
            ("1\0", None),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), value, "{text:?}");
        }
        // The sign of zero survives reading; storing a score as an integer may lose it later.
        assert!(parse_f64(b"-0").is_some_and(|zero| zero == 0.0 && zero.is_sign_negative()));
        assert_eq!(parse_f64(b"\xff"), None);
    }

    proptest! {
        #[test]
        fn integers_round_trip(value: i64) {
            let mut buf = [0; INT_MAX_LEN];
            let text = format_i64(&mut buf, value);
            prop_assert_eq!(text.to_vec(), value.to_string().into_bytes());
            prop_assert_eq!(parse_i64(text), Some(value));
        }

        #[test]
        fn unsigned_round_trip(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut buf = [0; INT_MAX_LEN];
            let text = format_u64(&mut buf, value);
            prop_assert_eq!(text.to_vec(), value.to_string().into_bytes());
            prop_assert_eq!(parse_u64(text), Some(value));
            prop_assert_eq!(decimal_len(value), text.len());
        }

        #[test]
        fn an_accepted_integer_is_canonical(text in "[-+ 0-9]{0,21}") {
            if let Some(value) = parse_i64(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            } else {
                prop_assert_ne!(text.parse::<i64>().map(|value| value.to_string()).ok(), Some(text));
            }
        }
    }
}
