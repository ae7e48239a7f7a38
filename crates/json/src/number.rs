//! Numbers: integers of 64 bits with or without a sign, and doubles for everything else. What is
//! computed of an integer above 2^63 - 1 is a double, as in Redis.

use std::cmp::Ordering;

/// A number of a document. A double is never infinite and never NaN.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// An integer above those.
    Uint(u64),
    /// Anything else.
    Double(f64),
}

/// A result that is no number of JSON: infinite or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite;

impl Number {
    /// Returns the number that a text in JSON's syntax is, or nothing.
    pub fn parse(text: &[u8]) -> Option<Number> {
        let number: serde_json::Number = serde_json::from_slice(text).ok()?;
        match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Some(Number::Int(int)),
            (None, Some(int)) => Some(Number::Uint(int)),
            (None, None) => number.as_f64().map(Number::Double),
        }
    }

    /// Returns whether it is an integer.
    pub fn is_integer(self) -> bool {
        !matches!(self, Number::Double(_))
    }

    /// Returns it as a double, rounded if it is a large integer.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Uint(int) => int as f64,
            Number::Double(double) => double,
        }
    }

    /// Returns the sum. Integers whose sum has more than 64 bits make a double.
    ///
    /// # Errors
    /// The sum is infinite.
    pub fn plus(self, other: Number) -> Result<Number, NotFinite> {
        self.combine(other, i64::checked_add, |a, b| a + b)
    }

    /// Returns the difference. Integers whose difference has more than 64 bits make a double.
    ///
    /// # Errors
    /// The difference is infinite.
    pub fn minus(self, other: Number) -> Result<Number, NotFinite> {
        self.combine(other, i64::checked_sub, |a, b| a - b)
    }

    /// Returns the product. Integers whose product has more than 64 bits make a double.
    ///
    /// # Errors
    /// The product is infinite.
    pub fn times(self, other: Number) -> Result<Number, NotFinite> {
        self.combine(other, i64::checked_mul, |a, b| a * b)
    }

    fn combine(
        self,
        other: Number,
        ints: fn(i64, i64) -> Option<i64>,
        doubles: fn(f64, f64) -> f64,
    ) -> Result<Number, NotFinite> {
        if let (Number::Int(a), Number::Int(b)) = (self, other)
            && let Some(int) = ints(a, b)
        {
            return Ok(Number::Int(int));
        }
        let double = doubles(self.as_f64(), other.as_f64());
        if double.is_finite() { Ok(Number::Double(double)) } else { Err(NotFinite) }
    }

    /// Compares two numbers by value. An integer and a double are compared exactly.
    pub fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(&b),
            (Number::Uint(a), Number::Uint(b)) => a.cmp(&b),
            (Number::Uint(_), Number::Int(_)) => Ordering::Greater,
            (Number::Int(_), Number::Uint(_)) => Ordering::Less,
            (Number::Double(a), Number::Double(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Number::Int(a), Number::Double(b)) => compare_mixed(a.into(), b),
            (Number::Uint(a), Number::Double(b)) => compare_mixed(a.into(), b),
            (Number::Double(a), Number::Int(b)) => compare_mixed(b.into(), a).reverse(),
            (Number::Double(a), Number::Uint(b)) => compare_mixed(b.into(), a).reverse(),
        }
    }

    /// Appends the text of the number: the shortest that reads back as the same.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Number::Int(int) => structs::numbers::push_i64(out, int),
            Number::Uint(int) => out.extend_from_slice(int.to_string().as_bytes()),
            Number::Double(double) => {
                out.extend_from_slice(ryu::Buffer::new().format_finite(double).as_bytes());
            }
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.compare(*other) == Ordering::Equal
    }
}

/// Compares an integer with a finite double, without rounding the integer.
fn compare_mixed(int: i128, double: f64) -> Ordering {
    const BEYOND: f64 = 18_446_744_073_709_551_616.0; // 2^64
    if double >= BEYOND {
        return Ordering::Less;
    }
    if double < -BEYOND {
        return Ordering::Greater;
    }
    let whole = double.trunc();
    int.cmp(&(whole as i128))
        .then_with(|| 0.0_f64.partial_cmp(&(double - whole)).unwrap_or(Ordering::Equal))
}

/// The type of floating-point numbers that FPHA asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatType {
    /// Half precision: 5 bits of exponent, 10 of mantissa.
    F16,
    /// 8 bits of exponent, 7 of mantissa.
    BF16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl FloatType {
    /// Returns the name in error texts.
    pub fn name(self) -> &'static str {
        match self {
            FloatType::F16 => "F16",
            FloatType::BF16 => "BF16",
            FloatType::F32 => "F32",
            FloatType::F64 => "F64",
        }
    }

    /// Rounds a number to the type, to even if it is half way. Nothing if the type has none so
    /// large.
    pub(crate) fn round(self, value: f64) -> Option<f64> {
        let (mantissa_bits, min_exponent, max) = match self {
            FloatType::F64 => return Some(value),
            FloatType::F32 => {
                let rounded = value as f32;
                return rounded.is_finite().then(|| f64::from(rounded));
            }
            FloatType::F16 => (10, -14, 65_504.0),
            FloatType::BF16 => (7, -126, f64::from(f32::from_bits(0x7f7f_0000))),
        };
        if value == 0.0 {
            return Some(value);
        }
        let biased = (value.to_bits() >> 52) as i32 & 0x7ff;
        let exponent = (biased - 1023).max(min_exponent);
        let unit = 2_f64.powi(exponent - mantissa_bits);
        let rounded = (value / unit).round_ties_even() * unit;
        (rounded.abs() <= max).then_some(rounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: Number) -> String {
        let mut out = Vec::new();
        number.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn parsed(input: &str) -> String {
        Number::parse(input.as_bytes()).map_or_else(|| "none".to_owned(), text)
    }

    #[test]
    fn numbers_are_written_as_they_are() {
        for (input, expected) in [
            ("1", "1"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9223372036854775808", "9223372036854775808"),
            ("18446744073709551616", "1.8446744073709552e19"),
            ("1.0", "1.0"),
            ("-0", "-0.0"),
            ("1e308", "1e308"),
            ("1e2", "100.0"),
            ("1e16", "1e16"),
            ("0.1", "0.1"),
            ("1e-7", "1e-7"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("5e-324", "5e-324"),
            ("1e400", "none"),
            ("01", "none"),
            ("+1", "none"),
            (".5", "none"),
            ("nan", "none"),
            ("1 2", "none"),
        ] {
            assert_eq!(parsed(input), expected, "{input}");
        }
    }

    #[test]
    fn sums_and_products() {
        let number = |text: &str| Number::parse(text.as_bytes()).unwrap();
        let shown = |result: Result<Number, NotFinite>| result.map_or("error".to_owned(), text);
        assert_eq!(shown(number("1").plus(number("2"))), "3");
        assert_eq!(shown(number("1").plus(number("0.5"))), "1.5");
        assert_eq!(shown(number("2.0").times(number("2"))), "4.0");
        assert_eq!(shown(number("9223372036854775807").plus(number("1"))), "9.223372036854776e18");
        assert_eq!(
            shown(number("18446744073709551615").plus(number("0"))),
            "1.8446744073709552e19"
        );
        assert_eq!(text(number("9223372036854775808")), "9223372036854775808");
        assert_eq!(shown(number("1e308").times(number("10"))), "error");
        assert_eq!(shown(number("5").minus(number("7"))), "-2");
    }

    #[test]
    fn comparisons_are_exact() {
        let int = 9_007_199_254_740_993; // 2^53 + 1
        let double = 9_007_199_254_740_992.0;
        assert_eq!(Number::Int(int).compare(Number::Double(double)), Ordering::Greater);
        assert_eq!(Number::Double(double).compare(Number::Int(int)), Ordering::Less);
        assert_eq!(Number::Int(1), Number::Double(1.0));
        assert_eq!(Number::Int(i64::MAX).compare(Number::Double(1e300)), Ordering::Less);
        assert_eq!(Number::Int(-1).compare(Number::Double(-1.5)), Ordering::Greater);
        assert_eq!(Number::Int(1).compare(Number::Double(1.5)), Ordering::Less);
        let large = Number::Uint(u64::MAX);
        assert_eq!(large.compare(Number::Double(18_446_744_073_709_551_616.0)), Ordering::Less);
        assert_eq!(Number::Double(9.3e18).compare(large), Ordering::Less);
        assert_eq!(large.compare(Number::Int(i64::MAX)), Ordering::Greater);
        assert_eq!(Number::Int(-1).compare(large), Ordering::Less);
        assert_ne!(large, Number::Uint(u64::MAX - 1));
    }
}
