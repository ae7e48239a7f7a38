//! Numbers as text, in C's ways.

/// `%.<precision>g`.
pub(crate) fn push_general(out: &mut Vec<u8>, number: f64, precision: usize) {
    if !number.is_finite() {
        let text = if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return out.extend_from_slice(text.as_bytes());
    }
    if number == 0.0 {
        let text: &[u8] = if number.is_sign_negative() { b"-0" } else { b"0" };
        return out.extend_from_slice(text);
    }
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(without_zeros(digits).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    } else {
        let places = (precision as i32 - 1 - exponent).max(0) as usize;
        out.extend_from_slice(without_zeros(&format!("{number:.places$}")).as_bytes());
    }
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// The number that a text begins with, and the bytes it takes; as `strtod` reads it.
pub(crate) fn parse_leading(text: &[u8]) -> (f64, usize) {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let factor = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = &text[sign..];
    let starts =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if starts(b"infinity") {
        return (factor * f64::INFINITY, sign + 8);
    }
    if starts(b"inf") {
        return (factor * f64::INFINITY, sign + 3);
    }
    if starts(b"nan") {
        return (f64::NAN, sign + 3);
    }
    if starts(b"0x") {
        let (number, len) = hexadecimal(&rest[2..]);
        if len > 0 {
            return (factor * number, sign + 2 + len);
        }
    }
    let len = decimal_len(rest);
    let number = std::str::from_utf8(&rest[..len]).ok().and_then(|text| text.parse().ok());
    (factor * number.unwrap_or(0.0), if len == 0 { 0 } else { sign + len })
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Bytes of a decimal number without a sign; 0 if there is none.
fn decimal_len(text: &[u8]) -> usize {
    let whole = digits(text);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let fraction = digits(&text[len + 1..]);
        if whole + fraction == 0 {
            return 0;
        }
        len += 1 + fraction;
    }
    if len == 0 {
        return 0;
    }
    if matches!(text.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(text.get(len + 1 + sign..).unwrap_or_default());
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    len
}

/// Hexadecimal digits with an optional fraction and binary exponent.
fn hexadecimal(text: &[u8]) -> (f64, usize) {
    let (mut number, mut scale, mut at, mut seen) = (0.0f64, 1.0f64, 0, 0);
    let mut is_fraction = false;
    while let Some(&byte) = text.get(at) {
        if byte == b'.' && !is_fraction {
            is_fraction = true;
        } else if let Some(digit) = char::from(byte).to_digit(16) {
            number = number * 16.0 + f64::from(digit);
            scale *= if is_fraction { 16.0 } else { 1.0 };
            seen += 1;
        } else {
            break;
        }
        at += 1;
    }
    if seen == 0 {
        return (0.0, 0);
    }
    let mut exponent = 0;
    if matches!(text.get(at), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let begin = at + 1 + sign;
        let len = digits(text.get(begin..).unwrap_or_default());
        if len > 0 {
            let word = std::str::from_utf8(&text[begin..begin + len]).unwrap_or_default();
            exponent = word.parse::<i32>().unwrap_or(i32::MAX).min(100_000);
            if text[at + 1] == b'-' {
                exponent = -exponent;
            }
            at = begin + len;
        }
    }
    (number / scale * 2f64.powi(exponent), at)
}
