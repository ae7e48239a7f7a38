//! The 80-bit extended double of the x87, in integers.
//!
//! INCRBYFLOAT and HINCRBYFLOAT read both numbers as C `long double`, add them, and print the sum
//! with 17 decimals and without trailing zeros. With a 64-bit significand 3.0 + 1.1 prints as
//! `4.1`; with doubles it would print as `4.09999999999999964`. So the format is part of the
//! behaviour, and Rust has no such type. What is needed is little: correctly rounded parsing, one
//! addition, exact printing.
//!
//! A finite value is `significand * 2^exponent` with the top bit of the significand set, except for
//! zero and for denormals, whose exponent is the least one. Everyday numbers (up to 19 digits, at
//! most 18 of them decimals, below 2^64) are handled in `u128` arithmetic; the rest goes through
//! [`Big`], a big natural number that knows the few operations needed.
//!
//! Rejected: `libc::strtold` and `printf` by FFI (no stable Rust ABI for `long double`, and other
//! machines have another format under that name), double-double (other rounding).

use super::big::{Big, Exactness};
use super::{INT_MAX_LEN, format_u64};
use std::cmp::Ordering;

/// The binary exponent of a denormal's lowest bit.
const MIN_EXPONENT: i32 = -16445;
/// The largest binary exponent of a normalized 64-bit significand.
const MAX_EXPONENT: i32 = 16320;
/// A longer text is not a number (the reference server's buffer).
const MAX_TEXT_LEN: usize = 5 * 1024 - 1;
/// Digits after the point.
const DECIMALS: usize = 17;
const TEN_POW_DECIMALS: u128 = 10u128.pow(DECIMALS as u32);

/// An x87 extended-precision number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LongDouble {
    /// `±significand * 2^exponent`
    Finite {
        /// Sign bit; zero has one too.
        negative: bool,
        /// All 64 bits of precision.
        significand: u64,
        /// Power of two of the significand's lowest bit.
        exponent: i32,
    },
    /// Positive or negative infinity.
    Infinite {
        /// Sign bit.
        negative: bool,
    },
    /// Not a number: the sum of two opposite infinities.
    NotANumber,
}

use LongDouble::{Finite, Infinite, NotANumber};

impl From<i64> for LongDouble {
    fn from(value: i64) -> Self {
        let significand = value.unsigned_abs();
        Self::rounded(value < 0, u128::from(significand), 0, Exactness::Exact)
    }
}

impl From<f64> for LongDouble {
    fn from(value: f64) -> Self {
        if value.is_nan() {
            return NotANumber;
        }
        let negative = value.is_sign_negative();
        if value.is_infinite() {
            return Infinite { negative };
        }
        let bits = value.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        let (significand, exponent) = match (bits >> 52) as i32 & 0x7ff {
            0 => (fraction, -1074),
            biased => (fraction | 1 << 52, biased - 1075),
        };
        Self::rounded(negative, u128::from(significand), exponent, Exactness::Exact)
    }
}

impl std::ops::Add for LongDouble {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        match (self, other) {
            (NotANumber, _) | (_, NotANumber) => NotANumber,
            (Infinite { negative: a }, Infinite { negative: b }) if a != b => NotANumber,
            (Infinite { negative }, _) | (_, Infinite { negative }) => Infinite { negative },
            (Finite { .. }, Finite { .. }) => self.add_finite(other),
        }
    }
}

impl std::ops::Neg for LongDouble {
    type Output = Self;

    fn neg(self) -> Self {
        match self {
            Finite { negative, significand, exponent } => {
                Finite { negative: !negative, significand, exponent }
            }
            Infinite { negative } => Infinite { negative: !negative },
            NotANumber => NotANumber,
        }
    }
}

impl LongDouble {
    /// Whether the value is below another one.
    pub fn is_below(self, other: Self) -> bool {
        match self + -other {
            Finite { negative, significand, .. } => negative && significand != 0,
            Infinite { negative } => negative,
            NotANumber => false,
        }
    }

    /// Whether the value is neither infinite nor not-a-number.
    pub fn is_finite(self) -> bool {
        matches!(self, Finite { .. })
    }

    /// Reads what C's `strtold` reads, as long as it is the whole text: decimal or hexadecimal with
    /// optional sign, fraction and exponent, or `inf`/`infinity` in any case. `None` for anything
    /// else, NaN, leading white space, overflow, or underflow to zero.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_LEN {
            return None;
        }
        let (negative, magnitude) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if magnitude.eq_ignore_ascii_case(b"inf") || magnitude.eq_ignore_ascii_case(b"infinity") {
            return Some(Infinite { negative });
        }
        let value = match magnitude {
            [b'0', b'x' | b'X', rest @ ..] => parse_hexadecimal(negative, rest),
            rest => parse_decimal(negative, rest),
        }?;
        value.is_finite().then_some(value)
    }

    /// A double near the value. What is not zero does not become zero: it is then the smallest
    /// double of its sign.
    pub fn to_f64(self) -> f64 {
        let signed = |negative: bool, value: f64| if negative { -value } else { value };
        match self {
            NotANumber => f64::NAN,
            Infinite { negative } => signed(negative, f64::INFINITY),
            Finite { negative, significand, exponent } => {
                let value = significand as f64 * 2f64.powi(exponent);
                let is_lost = value == 0.0 && significand != 0;
                signed(negative, if is_lost { f64::MIN_POSITIVE } else { value })
            }
        }
    }

    /// Appends the value with at most 17 decimals and no trailing zeros, never with an exponent.
    pub fn push_human(self, out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            NotANumber => return out.extend_from_slice(b"nan"),
            Infinite { negative } => {
                return out.extend_from_slice(if negative { b"-inf" } else { b"inf" });
            }
            Finite { negative, significand, exponent } => {
                if negative {
                    out.push(b'-');
                }
                push_fixed(significand, exponent, out);
            }
        }
        if out[start..] == *b"-0" {
            out.remove(start);
        }
    }

    /// Builds a finite value, or infinity on overflow, from an exact or truncated significand;
    /// rounds to nearest, ties to even. `significand` must have at least two bits more than 64 when
    /// it is truncated and not zero.
    fn rounded(negative: bool, significand: u128, exponent: i32, exactness: Exactness) -> Self {
        if significand == 0 {
            return Finite { negative, significand: 0, exponent: MIN_EXPONENT };
        }
        let bits = (128 - significand.leading_zeros()) as i32;
        // Denormals keep fewer than 64 bits.
        let target = (exponent + bits - 64).max(MIN_EXPONENT);
        let shift = target - exponent;
        let (mut kept, mut target) = if shift <= 0 {
            (significand << -shift, target)
        } else if shift >= 128 {
            (0, target)
        } else {
            let kept = significand >> shift;
            let half = 1u128 << (shift - 1);
            let rest = significand & (half * 2 - 1);
            let up = match rest.cmp(&half) {
                Ordering::Less => false,
                Ordering::Greater => true,
                Ordering::Equal => exactness == Exactness::Truncated || kept & 1 == 1,
            };
            (kept + u128::from(up), target)
        };
        if kept >> 64 != 0 {
            kept >>= 1;
            target += 1;
        }
        if target > MAX_EXPONENT {
            return Infinite { negative };
        }
        Finite { negative, significand: kept as u64, exponent: target }
    }

    fn add_finite(self, other: Self) -> Self {
        let (
            Finite { negative: a_negative, significand: a, exponent: a_exponent },
            Finite { negative: b_negative, significand: b, exponent: b_exponent },
        ) = (self, other)
        else {
            return NotANumber;
        };
        // A zero must not decide the alignment. The sum of two zeros is negative only if both are.
        match (a, b) {
            (0, 0) => {
                let negative = a_negative && b_negative;
                return Finite { negative, significand: 0, exponent: MIN_EXPONENT };
            }
            (0, _) => return other,
            (_, 0) => return self,
            _ => {}
        }
        if a_exponent < b_exponent {
            return other.add_finite(self);
        }
        // 62 guard bits below the larger number; what falls off those is remembered.
        let exponent = a_exponent - 62;
        let a = u128::from(a) << 62;
        let distance = (a_exponent - b_exponent) as u32;
        let wide = u128::from(b) << 62;
        let b = wide.checked_shr(distance).unwrap_or(0);
        let truncated = b.checked_shl(distance) != Some(wide);
        let exactness = if truncated { Exactness::Truncated } else { Exactness::Exact };
        if a_negative == b_negative {
            return Self::rounded(a_negative, a + b, exponent, exactness);
        }
        match a.cmp(&b) {
            Ordering::Equal => Finite { negative: false, significand: 0, exponent: MIN_EXPONENT },
            // Taking the truncated `b` leaves too much, by less than one unit: take one unit off
            // and the difference is truncated as it should be.
            Ordering::Greater => {
                Self::rounded(a_negative, a - b - u128::from(truncated), exponent, exactness)
            }
            Ordering::Less => Self::rounded(b_negative, b - a, exponent, exactness),
        }
    }
}

/// The exponent after `e` or `p`: sign and digits, saturating far beyond any meaning.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = (value * 10 + i64::from(byte - b'0')).min(1 << 40);
    }
    Some(if negative { -value } else { value })
}

fn parse_hexadecimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let mut significand = 0u128;
    let mut exponent = exponent;
    let mut exactness = Exactness::Exact;
    let mut any = false;
    let mut point = false;
    for &byte in mantissa {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = (byte as char).to_digit(16)?;
        any = true;
        if significand >> 120 == 0 {
            significand = significand << 4 | u128::from(digit);
            exponent -= if point { 4 } else { 0 };
        } else {
            if digit != 0 {
                exactness = Exactness::Truncated;
            }
            exponent += if point { 0 } else { 4 };
        }
    }
    if !any {
        return None;
    }
    let exponent = exponent.clamp(-1 << 20, 1 << 20) as i32;
    let value = LongDouble::rounded(negative, significand, exponent, exactness);
    not_underflown(value, significand != 0)
}

fn parse_decimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (integer, fraction) = match mantissa.iter().position(|&byte| byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    let digits = || integer.iter().chain(fraction).map(|byte| byte.wrapping_sub(b'0'));
    if integer.len() + fraction.len() == 0 || digits().any(|digit| digit > 9) {
        return None;
    }
    let significant = digits().skip_while(|&digit| digit == 0).count();
    if significant == 0 {
        return Some(LongDouble::rounded(negative, 0, 0, Exactness::Exact));
    }
    let power = exponent - fraction.len() as i64;
    // The value lies in [10^magnitude, 10^(magnitude + 1)).
    let magnitude = significant as i64 - 1 + power;
    if !(-5000..5000).contains(&magnitude) {
        return None;
    }
    if significant <= 19 && (-18..=19).contains(&power) {
        let number = digits().fold(0u64, |number, digit| number * 10 + u64::from(digit));
        return Some(parse_short(negative, number, power as i32));
    }
    let mut number = Big::default();
    for digit in digits() {
        number.multiply_add(10, u32::from(digit));
    }
    let value = if power >= 0 {
        number.multiply_by_power_of_ten(power as u32);
        let (significand, exponent, exactness) = number.leading_bits();
        LongDouble::rounded(negative, significand, exponent, exactness)
    } else {
        let mut divisor = Big::from(1);
        divisor.multiply_by_power_of_ten(power.unsigned_abs() as u32);
        // The quotient carries its remainder as a low bit: nothing is hidden from the rounding.
        let (significand, exponent) = number.divide(&divisor);
        LongDouble::rounded(negative, significand, exponent, Exactness::Exact)
    };
    not_underflown(value, true)
}

/// `number * 10^power` for up to 19 digits and a power from -18 to 19.
fn parse_short(negative: bool, number: u64, power: i32) -> LongDouble {
    let ten_power = 10u128.pow(power.unsigned_abs());
    if power >= 0 {
        let product = u128::from(number) * ten_power;
        return LongDouble::rounded(negative, product, 0, Exactness::Exact);
    }
    // A 128-bit dividend by at most 60 bits leaves at least 68 bits of quotient.
    let shift = u128::from(number).leading_zeros();
    let dividend = u128::from(number) << shift;
    let exactness = if dividend % ten_power == 0 { Exactness::Exact } else { Exactness::Truncated };
    LongDouble::rounded(negative, dividend / ten_power, -(shift as i32), exactness)
}

fn not_underflown(value: LongDouble, nonzero: bool) -> Option<LongDouble> {
    match value {
        Finite { significand: 0, .. } if nonzero => None,
        value => Some(value),
    }
}

/// Appends `significand * 2^exponent`, rounded half to even at [`DECIMALS`] decimals, trimmed.
fn push_fixed(significand: u64, exponent: i32, out: &mut Vec<u8>) {
    if exponent >= 0 {
        if significand.leading_zeros() as i32 >= exponent {
            out.extend_from_slice(format_u64(&mut [0; INT_MAX_LEN], significand << exponent));
        } else {
            let mut number = Big::from(significand);
            number.shift_left(exponent as u32);
            number.push_decimal(out);
        }
        return;
    }
    let shift = exponent.unsigned_abs();
    let (mut integer, fraction) = match significand.checked_shr(shift) {
        Some(integer) => (integer, significand & ((1 << shift) - 1)),
        None => (0, significand),
    };
    // 64 bits of fraction times 57 bits of 10^17 fit. Below 2^-128 nothing of it is left.
    let scaled = u128::from(fraction) * TEN_POW_DECIMALS;
    let mut decimals = 0;
    if shift < 128 {
        let half = 1u128 << (shift - 1);
        decimals = scaled >> shift;
        let rest = scaled & (half * 2 - 1);
        if rest > half || (rest == half && decimals & 1 == 1) {
            decimals += 1;
        }
    }
    if decimals == TEN_POW_DECIMALS {
        integer += 1;
        decimals = 0;
    }
    out.extend_from_slice(format_u64(&mut [0; INT_MAX_LEN], integer));
    if decimals != 0 {
        out.push(b'.');
        let mut buf = [0; INT_MAX_LEN];
        let digits = format_u64(&mut buf, decimals as u64);
        out.resize(out.len() + DECIMALS - digits.len(), b'0');
        out.extend_from_slice(digits);
        let zeros = out.iter().rev().take_while(|&&byte| byte == b'0').count();
        out.truncate(out.len() - zeros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> LongDouble {
        LongDouble::parse(text.as_bytes()).expect("a number")
    }

    fn human(value: LongDouble) -> String {
        let mut out = Vec::new();
        value.push_human(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    fn sum(a: &str, b: &str) -> String {
        human(number(a) + number(b))
    }

    /// Sums taken from the reference server.
    #[test]
    fn doubles_near_the_value() {
        for (text, expected) in [
            ("0.5", 0.5),
            ("-0x1.8p3", -12.0),
            ("0x10", 16.0),
            ("0", 0.0),
            ("inf", f64::INFINITY),
            ("1e-4000", f64::MIN_POSITIVE),
            ("-1e-4000", -f64::MIN_POSITIVE),
            ("1e4000", f64::INFINITY),
        ] {
            let value = LongDouble::parse(text.as_bytes()).map(LongDouble::to_f64);
            assert_eq!(value, Some(expected), "{text}");
        }
    }

    #[test]
    fn sums_print_as_the_reference_prints_them() {
        for (a, b, expected) in [
            ("3", "1.1", "4.1"),
            ("5.0e3", "200", "5200"),
            ("10.50", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1", "0"),
            ("-0", "-0", "0"),
            ("1e-5", "0", "0.00001"),
            ("-1.5", "0.25", "-1.25"),
            ("0x1p3", "0x.8", "8.5"),
            ("17179869184", "1.5", "17179869185.5"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("-9223372036854775808", "-1", "-9223372036854775809"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("1e30", "0", "1000000000000000000024696061952"),
            ("99999999999999999", "0.99999999999999999", "100000000000000000"),
            ("0.99999999999999999999", "0", "1"),
            ("1e-400", "0", "0"),
            ("-1e-400", "0", "0"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
        assert!(sum("1e400", "0").starts_with("10000000000000000000281880683947586514586"));
        assert_eq!(sum("1e4932", "0").len(), 4933);
    }

    #[test]
    fn refuses_what_strtold_would_not_read_to_the_end() {
        for text in [
            "",
            " 1",
            "1 ",
            "\t1",
            ".",
            "-",
            "+",
            "+-1",
            "1e",
            "1e+",
            "e5",
            "0x",
            "0x.",
            "0x1p",
            "1_0",
            "1d",
            "nan",
            "-nan",
            "nan(1)",
            "infi",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "1e999999999999999",
            "0x1p99999",
            "0x1p-99999",
            "1,5",
            "1..2",
            "\u{ff11}",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(LongDouble::parse(&[b'1'; 5 * 1024]), None);
        assert!(LongDouble::parse(&[b'0'; 5 * 1024 - 1]).is_some());
        assert_eq!(human(number("+infinity")), "inf");
        assert_eq!(human(number("-INF")), "-inf");
    }

    #[test]
    fn infinities_do_not_cancel() {
        assert_eq!(number("inf") + number("-inf"), NotANumber);
        assert_eq!(number("inf") + number("1"), Infinite { negative: false });
        assert_eq!(number("1.1e4932") + number("1e4932"), Infinite { negative: false });
    }

    #[test]
    fn rounds_ties_to_even_and_sticky_bits_up() {
        // 2^64 + 1 lies half-way between two neighbours.
        assert_eq!(human(number("18446744073709551617")), "18446744073709551616");
        assert_eq!(human(number("18446744073709551619")), "18446744073709551620");
        assert_eq!(
            human(number("18446744073709551617.0000000000000000001")),
            "18446744073709551618"
        );
        assert_eq!(human(number("0x10000000000000001")), "18446744073709551616");
        assert_eq!(
            human(number("0x100000000000000010000000000000001p-64")),
            "18446744073709551618"
        );
    }

    #[test]
    fn least_denormal() {
        let least = number("0x1p-16445");
        assert_eq!(least, Finite { negative: false, significand: 1, exponent: MIN_EXPONENT });
        assert_eq!(number("3.6451995318824746025e-4951"), least);
        assert_eq!(number("2e-4951"), least);
        assert_eq!(LongDouble::parse(b"1e-4951"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// The quick ways and the big-number ways agree.
        #[test]
        fn short_and_long_parsing_agree(digits in 1u64.., decimals in 0usize..18, zeros in 2usize..40) {
            let digits = digits / 10;
            let padded = format!("{:0width$}", digits, width = decimals + 1);
            let (integer, fraction) = padded.split_at(padded.len() - decimals);
            let short = format!("{integer}.{fraction}");
            let long = format!("{short}{}", "0".repeat(zeros));
            prop_assert_eq!(number(&short), number(&long));
            let scaled = format!("{digits}{}e-{}", "0".repeat(zeros), zeros + decimals);
            prop_assert_eq!(number(&short), number(&scaled));
        }

        #[test]
        fn integers_are_exact(a: i64, b: i64) {
            let wide = i128::from(a) + i128::from(b);
            prop_assert_eq!(human(LongDouble::from(a) + LongDouble::from(b)), wide.to_string());
        }

        #[test]
        fn doubles_are_exact(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite() && value.abs() > 1e-290);
            // Every double has a decimal form of at most ~770 digits.
            let text = format!("{value:.1100}");
            prop_assert_eq!(LongDouble::from(value), number(&text));
        }

        #[test]
        fn addition_commutes_and_subtraction_undoes(a: f64, b: f64) {
            let (a, b) = (LongDouble::from(a), LongDouble::from(b));
            prop_assert_eq!(a + b, b + a);
            if let (Finite { negative, significand, exponent }, true) = (a, a.is_finite()) {
                let minus = Finite { negative: !negative, significand, exponent };
                prop_assert_eq!(human(a + minus), "0");
            }
        }
    }
}
