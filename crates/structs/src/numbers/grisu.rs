//! Doubles as short decimal text.
//!
//! The algorithm is Grisu2 (Florian Loitsch, "Printing floating-point numbers quickly and
//! accurately with integers", 2010): scale the value and the two boundaries of its rounding
//! interval by a cached power of ten, then generate digits until what is left fits in the interval.
//! Everything happens in 64-bit integers; there is no big-number path.
//!
//! Why not the standard library, which always finds the shortest text? Grisu2 gives up about one
//! time in a thousand and prints a digit more, or a last digit that is not the nearest. Valkey
//! prints that text, so do we: the choice of cached power, the rounding of the products and the
//! layout of the result (when to use an exponent) are all visible in the output and therefore fixed
//! here. Grisu2's output always reads back as the same double.

use super::{INT_MAX_LEN, f64_as_integer, format_i64};

/// Bytes of the longest text [`format_f64`] produces, rounded up.
pub const F64_MAX_LEN: usize = 32;

/// Most digits Grisu2 can generate for a double.
const MAX_DIGITS: usize = 18;

const HIDDEN_BIT: u64 = 1 << 52;

/// `significand * 2^exponent`
#[derive(Clone, Copy)]
struct Scaled {
    significand: u64,
    exponent: i32,
}

impl Scaled {
    fn normalized(self) -> Self {
        let shift = self.significand.leading_zeros();
        Self { significand: self.significand << shift, exponent: self.exponent - shift as i32 }
    }

    /// The upper half of the product, rounded half up.
    fn times(self, other: Self) -> Self {
        let product = u128::from(self.significand) * u128::from(other.significand);
        Self {
            significand: ((product + (1 << 63)) >> 64) as u64,
            exponent: self.exponent + other.exponent + 64,
        }
    }
}

/// Prints `value` at the front of `buf` and returns the part that was written: `inf`, `-inf`,
/// `nan`, an integer where the value is one up to 2^62, else the shortest digits (see the file's
/// head).
pub fn format_f64(buf: &mut [u8; F64_MAX_LEN], value: f64) -> &[u8] {
    match f64_as_integer(value) {
        // Which would lose the sign of zero.
        Some(int) if int != 0 => {
            let len = put(buf, format_i64(&mut [0; INT_MAX_LEN], int));
            &buf[..len]
        }
        _ => format_f64_digits(buf, value),
    }
}

/// The same without the exception for integers: five thousand million is `5e+9`.
pub fn format_f64_digits(buf: &mut [u8; F64_MAX_LEN], value: f64) -> &[u8] {
    let len = if value.is_nan() {
        put(buf, b"nan")
    } else if value.is_infinite() {
        put(buf, if value < 0.0 { b"-inf" } else { b"inf" })
    } else if value == 0.0 {
        put(buf, if value.is_sign_negative() { b"-0" } else { b"0" })
    } else {
        let mut digits = [0; MAX_DIGITS];
        let (count, power) = generate(value.abs(), &mut digits);
        let negative = value < 0.0;
        buf[0] = b'-';
        let start = usize::from(negative);
        start + lay_out(&digits[..count], power, negative, &mut buf[start..])
    };
    &buf[..len]
}

fn put(out: &mut [u8], text: &[u8]) -> usize {
    out[..text.len()].copy_from_slice(text);
    text.len()
}

/// The digits of `value` (positive and finite) and the power of ten of the last one.
fn generate(value: f64, digits: &mut [u8; MAX_DIGITS]) -> (usize, i32) {
    let bits = value.to_bits();
    let fraction = bits & (HIDDEN_BIT - 1);
    let biased = (bits >> 52) as i32;
    let exact = if biased == 0 {
        Scaled { significand: fraction, exponent: -1074 }
    } else {
        Scaled { significand: fraction | HIDDEN_BIT, exponent: biased - 1075 }
    };
    let upper = Scaled { significand: exact.significand * 2 + 1, exponent: exact.exponent - 1 };
    let upper = upper.normalized();
    // Below a power of two the next smaller double is only half as far away.
    let shift = if exact.significand == HIDDEN_BIT { 2 } else { 1 };
    let lower_exponent = exact.exponent - shift;
    let lower = Scaled {
        significand: ((exact.significand << shift) - 1) << (lower_exponent - upper.exponent),
        exponent: upper.exponent,
    };

    let (scale, ten_power) = cached_power(upper.exponent);
    let exact = exact.normalized().times(scale);
    let mut upper = upper.times(scale);
    let mut lower = lower.times(scale);
    // The products are off by at most one unit; stay inside the interval.
    upper.significand -= 1;
    lower.significand += 1;

    let (count, dropped) = digits_within(exact, upper, lower, digits);
    (count, dropped - ten_power)
}

/// Generates digits of `upper` until the rest is smaller than the interval, then lowers the last
/// digit towards `exact`. Returns the number of digits and the power of ten of the last.
fn digits_within(
    exact: Scaled,
    upper: Scaled,
    lower: Scaled,
    digits: &mut [u8; MAX_DIGITS],
) -> (usize, i32) {
    let mut distance = upper.significand - exact.significand;
    let mut width = upper.significand - lower.significand;
    let point = -upper.exponent as u32;
    let one = 1u64 << point;
    let mut integer = upper.significand >> point;
    let mut fraction = upper.significand & (one - 1);
    let mut count = 0;

    let mut unit = 1_000_000_000u64;
    for power in (0..10).rev() {
        let digit = integer / unit;
        if digit != 0 || count != 0 {
            digits[count] = b'0' + digit as u8;
            count += 1;
        }
        integer -= digit * unit;
        let rest = (integer << point) + fraction;
        if rest <= width {
            approach(&mut digits[..count], width, rest, unit << point, distance);
            return (count, power);
        }
        unit /= 10;
    }

    let mut power = 0;
    loop {
        fraction *= 10;
        width *= 10;
        distance = distance.wrapping_mul(10);
        power -= 1;
        let digit = fraction >> point;
        if digit != 0 || count != 0 {
            digits[count] = b'0' + digit as u8;
            count += 1;
        }
        fraction &= one - 1;
        if fraction < width {
            approach(&mut digits[..count], width, fraction, one, distance);
            return (count, power);
        }
    }
}

/// Lowers the last digit while that brings the text closer to the exact value and keeps it inside
/// the interval. `rest` is how far the text lies below the upper boundary, `distance` how far the
/// exact value does, `unit` what one step of the last digit is worth.
fn approach(digits: &mut [u8], width: u64, mut rest: u64, unit: u64, distance: u64) {
    let Some(last) = digits.last_mut() else { return };
    while rest < distance
        && width - rest >= unit
        && (rest + unit < distance || distance - rest > rest + unit - distance)
    {
        *last -= 1;
        rest += unit;
    }
}

/// Writes `digits * 10^power` as an integer, a fraction or with an exponent, whichever the
/// reference server uses for that magnitude. Returns the length.
fn lay_out(digits: &[u8], power: i32, negative: bool, out: &mut [u8]) -> usize {
    let count = digits.len();
    let exponent = power + count as i32 - 1;
    let magnitude = exponent.unsigned_abs() as usize;

    if power >= 0 && magnitude < count + 7 {
        let zeros = power as usize;
        put(out, digits);
        out[count..count + zeros].fill(b'0');
        return count + zeros;
    }

    if power < 0 && (power > -7 || magnitude < 4) {
        let decimals = power.unsigned_abs() as usize;
        return if decimals >= count {
            let zeros = decimals - count;
            put(out, b"0.");
            out[2..2 + zeros].fill(b'0');
            2 + zeros + put(&mut out[2 + zeros..], digits)
        } else {
            let (integer, fraction) = digits.split_at(count - decimals);
            put(out, integer);
            out[integer.len()] = b'.';
            put(&mut out[integer.len() + 1..], fraction);
            count + 1
        };
    }

    let count = count.min(18 - usize::from(negative));
    out[0] = digits[0];
    let mut len = 1;
    if count > 1 {
        out[1] = b'.';
        len = 2 + put(&mut out[2..], &digits[1..count]);
    }
    out[len] = b'e';
    out[len + 1] = if exponent < 0 { b'-' } else { b'+' };
    len += 2;
    len + put(&mut out[len..], format_i64(&mut [0; INT_MAX_LEN], magnitude as i64))
}

/// A cached power of ten that brings a value with this binary exponent into the range where its
/// integer part has at most 32 bits, and its decimal exponent.
fn cached_power(exponent: i32) -> (Scaled, i32) {
    const LOG10_2: f64 = 0.301_029_995_663_981_14;
    // Two neighbours can both fit; this estimate decides which of them is taken.
    let estimate = (f64::from(-(exponent + POWERS.len() as i32)) * LOG10_2) as i32;
    let mut idx = (estimate - FIRST_POWER) / POWER_STEP;
    loop {
        let (significand, power_exponent) = POWERS[idx as usize];
        match exponent + power_exponent + 64 {
            ..-60 => idx += 1,
            -60..=-32 => {
                let scale = Scaled { significand, exponent: power_exponent };
                return (scale, FIRST_POWER + idx * POWER_STEP);
            }
            _ => idx -= 1,
        }
    }
}

const FIRST_POWER: i32 = -348;
const POWER_STEP: i32 = 8;

/// 10^-348, 10^-340, … 10^340: the 64-bit significand rounded to nearest, and the binary exponent.
#[rustfmt::skip]
static POWERS: [(u64, i32); 87] = [
    (0xfa8fd5a0081c0288, -1220), (0xbaaee17fa23ebf76, -1193), (0x8b16fb203055ac76, -1166),
    (0xcf42894a5dce35ea, -1140), (0x9a6bb0aa55653b2d, -1113), (0xe61acf033d1a45df, -1087),
    (0xab70fe17c79ac6ca, -1060), (0xff77b1fcbebcdc4f, -1034), (0xbe5691ef416bd60c, -1007),
    (0x8dd01fad907ffc3c, -980), (0xd3515c2831559a83, -954), (0x9d71ac8fada6c9b5, -927),
    (0xea9c227723ee8bcb, -901), (0xaecc49914078536d, -874), (0x823c12795db6ce57, -847),
    (0xc21094364dfb5637, -821), (0x9096ea6f3848984f, -794), (0xd77485cb25823ac7, -768),
    (0xa086cfcd97bf97f4, -741), (0xef340a98172aace5, -715), (0xb23867fb2a35b28e, -688),
    (0x84c8d4dfd2c63f3b, -661), (0xc5dd44271ad3cdba, -635), (0x936b9fcebb25c996, -608),
    (0xdbac6c247d62a584, -582), (0xa3ab66580d5fdaf6, -555), (0xf3e2f893dec3f126, -529),
    (0xb5b5ada8aaff80b8, -502), (0x87625f056c7c4a8b, -475), (0xc9bcff6034c13053, -449),
    (0x964e858c91ba2655, -422), (0xdff9772470297ebd, -396), (0xa6dfbd9fb8e5b88f, -369),
    (0xf8a95fcf88747d94, -343), (0xb94470938fa89bcf, -316), (0x8a08f0f8bf0f156b, -289),
    (0xcdb02555653131b6, -263), (0x993fe2c6d07b7fac, -236), (0xe45c10c42a2b3b06, -210),
    (0xaa242499697392d3, -183), (0xfd87b5f28300ca0e, -157), (0xbce5086492111aeb, -130),
    (0x8cbccc096f5088cc, -103), (0xd1b71758e219652c, -77), (0x9c40000000000000, -50),
    (0xe8d4a51000000000, -24), (0xad78ebc5ac620000, 3), (0x813f3978f8940984, 30),
    (0xc097ce7bc90715b3, 56), (0x8f7e32ce7bea5c70, 83), (0xd5d238a4abe98068, 109),
    (0x9f4f2726179a2245, 136), (0xed63a231d4c4fb27, 162), (0xb0de65388cc8ada8, 189),
    (0x83c7088e1aab65db, 216), (0xc45d1df942711d9a, 242), (0x924d692ca61be758, 269),
    (0xda01ee641a708dea, 295), (0xa26da3999aef774a, 322), (0xf209787bb47d6b85, 348),
    (0xb454e4a179dd1877, 375), (0x865b86925b9bc5c2, 402), (0xc83553c5c8965d3d, 428),
    (0x952ab45cfa97a0b3, 455), (0xde469fbd99a05fe3, 481), (0xa59bc234db398c25, 508),
    (0xf6c69a72a3989f5c, 534), (0xb7dcbf5354e9bece, 561), (0x88fcf317f22241e2, 588),
    (0xcc20ce9bd35c78a5, 614), (0x98165af37b2153df, 641), (0xe2a0b5dc971f303a, 667),
    (0xa8d9d1535ce3b396, 694), (0xfb9b7cd9a4a7443c, 720), (0xbb764c4ca7a44410, 747),
    (0x8bab8eefb6409c1a, 774), (0xd01fef10a657842c, 800), (0x9b10a4e5e9913129, 827),
    (0xe7109bfba19c0c9d, 853), (0xac2820d9623bf429, 880), (0x80444b5e7aa7cf85, 907),
    (0xbf21e44003acdd2d, 933), (0x8e679c2f5e44ff8f, 960), (0xd433179d9c8cb841, 986),
    (0x9e19db92b4e31ba9, 1013), (0xeb96bf6ebadf77d9, 1039), (0xaf87023b9bf0ee6b, 1066),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        String::from_utf8_lossy(format_f64(&mut [0; F64_MAX_LEN], value)).into_owned()
    }

    /// Values and texts taken from the reference server.
    #[test]
    fn prints_what_the_reference_prints() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (3.0e-5, "0.00003"),
            (1e-7, "1e-7"),
            (1.5e-9, "1.5e-9"),
            (1e17, "100000000000000000"),
            (4611686018427387904.0, "4611686018427387904"),
            (256.35351, "256.35351000000003"),
            (1e19, "1e+19"),
            (1.234e300, "1.234e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn integers_have_exponents_where_the_reference_gives_them_some() {
        for (value, expected) in [
            (5e9, "5e+9"),
            (-5e9, "-5e+9"),
            (1e6, "1000000"),
            (1e9, "1e+9"),
            (4294967296.0, "4294967296"),
            (1e17, "1e+17"),
            (0.0, "0"),
            (-0.0, "-0"),
            (0.1, "0.1"),
        ] {
            assert_eq!(format_f64_digits(&mut [0; F64_MAX_LEN], value), expected.as_bytes());
        }
    }

    /// Recomputes the table: multiply or divide one by ten in 192 bits, which leaves far more than
    /// enough correct bits for a rounded 64-bit significand.
    #[test]
    fn cached_powers_are_powers_of_ten() {
        for (idx, &(significand, exponent)) in POWERS.iter().enumerate() {
            let power = FIRST_POWER + POWER_STEP * idx as i32;
            assert_eq!(significand >> 63, 1, "normalized");
            // log2(10^power) must lie in the binade the exponent says.
            let log = f64::from(power) * std::f64::consts::LOG2_10;
            let ours = (significand as f64).log2() + f64::from(exponent);
            assert!((log - ours).abs() < 1e-9, "10^{power}");
            // Each entry times 10^8 is the next, up to rounding of both.
            if let Some(&(next, next_exponent)) = POWERS.get(idx + 1) {
                let product = u128::from(significand) * 100_000_000;
                let shift = next_exponent - exponent;
                let error = (product >> shift).abs_diff(u128::from(next));
                assert!(error <= 1 + (100_000_000 >> shift), "10^{power} to the next: {error}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn reads_back_as_the_same_double(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(text(value).parse::<f64>().map(f64::to_bits), Ok(bits));
        }
    }
}
