//! Numbers as text: what is patched into every request, so written without a loop over digits.

/// Digits of a padded number, as in redis-benchmark.
pub const DIGITS: usize = 12;

/// Fills a place of [`DIGITS`] bytes with the number's last digits, zeros in front.
#[inline]
pub fn write_digits(place: &mut [u8], number: u64) {
    let (high, low) = match u32::try_from(number) {
        Ok(low @ 0..100_000_000) => (0, low),
        _ => ((number / 100_000_000 % 10_000) as u32, (number % 100_000_000) as u32),
    };
    let (first, rest) = place.split_at_mut(DIGITS - 8);
    if high == 0 {
        first.fill(b'0');
    } else {
        first.copy_from_slice(&eight_digits(high)[4..]);
    }
    rest.copy_from_slice(&eight_digits(low));
}

/// The eight digits of a number below 10⁸. Nearly every request has one, so all digits are found
/// at once: halves of four in two lanes of a word, halves of these in four, digits in eight. The
/// multiplications with a shift are divisions by 100 and by 10, exact for what a lane can hold.
#[inline]
fn eight_digits(number: u32) -> [u8; 8] {
    let word = u64::from(number / 10_000) | u64::from(number % 10_000) << 32;
    let hundreds = ((word * 10_486) >> 20) & 0x7f_0000_007f;
    let word = hundreds | (word - hundreds * 100) << 16;
    let tens = ((word * 103) >> 10) & 0x000f_000f_000f_000f;
    let word = tens | (word - tens * 10) << 8;
    (word | 0x3030_3030_3030_3030).to_le_bytes()
}

/// The number's decimal digits, in a buffer that holds any.
pub fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

/// Appends the number's decimal digits.
pub fn append_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(decimal(number, &mut [0; 20]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use structs::random::Rng;

    #[test]
    fn digits_are_the_numbers() {
        let mut rng = Rng::seeded(1);
        for round in 0..200_000_u64 {
            let number = match round {
                0..=20_000 => round,
                20_001..=20_100 => 99_999_900 + round - 20_000,
                _ => rng.next_u64() >> (round % 64),
            };
            let mut place = *b"............";
            write_digits(&mut place, number);
            let expected = format!("{:012}", number % 1_000_000_000_000);
            assert_eq!(std::str::from_utf8(&place).unwrap(), expected);
        }
    }
}
