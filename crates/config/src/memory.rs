//! Sizes as people write them in a configuration: `100`, `64mb`, `1gb`.
//!
//! The suffix rules are Redis's: `k`, `m` and `g` are powers of ten, `kb`, `mb` and `gb` powers of
//! two, `b` is a byte; case does not matter and nothing may stand between digits and suffix. A
//! suffix without digits counts as zero, because Redis reads it so.

/// Reads a size in bytes; `None` if the text is not a size or does not fit 64 bits.
///
/// Redis lets a product that does not fit wrap around silently; a limit that was not asked for is
/// worse than an error, so here it is refused.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, suffix) = text.split_at(digits);
    let unit: u64 = match suffix.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let mut value: u64 = 0;
    for digit in number {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    value.checked_mul(unit)
}

/// Writes a size the shortest way that reads back exactly: `67108864` becomes `64mb`.
pub fn format_memory(bytes: u64) -> String {
    for (unit, suffix) in [(1u64 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")] {
        if bytes != 0 && bytes.is_multiple_of(unit) {
            return format!("{}{suffix}", bytes / unit);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_every_suffix() {
        for (text, bytes) in [
            ("0", 0),
            ("010", 10),
            ("1b", 1),
            ("1k", 1000),
            ("1KB", 1024),
            ("3M", 3_000_000),
            ("64mb", 64 << 20),
            ("1G", 1_000_000_000),
            ("1Gb", 1 << 30),
            ("18446744073709551615", u64::MAX),
            ("", 0),
            ("mb", 0),
        ] {
            assert_eq!(parse_memory(text.as_bytes()), Some(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in
            ["1t", "1 gb", "-1", "+1", "0x10", "1%", "18446744073709551616", "99999999999gb"]
        {
            assert_eq!(parse_memory(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatting_reads_back(bytes in prop_oneof![any::<u64>(), (0u64..4096).prop_map(|n| n << 20)]) {
            prop_assert_eq!(parse_memory(format_memory(bytes).as_bytes()), Some(bytes));
        }
    }
}
