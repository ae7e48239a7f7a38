//! Numbers as they stand in a configuration file.

/// Reads a number as C's `strtoll` does, but for blanks in front: a plus sign and leading zeros
/// pass, and what does not fit is clamped.
pub(crate) fn parse_lenient_i64(word: &[u8]) -> Option<i64> {
    let (sign, digits) = match word {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let step = |number: i64, digit: &u8| {
        number.saturating_mul(10).saturating_add(sign * i64::from(digit - b'0'))
    };
    Some(digits.iter().fold(0, step))
}
