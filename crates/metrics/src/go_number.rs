//! Numbers as Go's libraries write them. Labels are compared as text, so `le` and `quantile` have
//! to be written as the exporter writes them.

/// The shortest text that reads as the same number, in scientific notation from a million on and
/// below a ten-thousandth.
pub fn shortest(number: f64) -> String {
    if !number.is_finite() {
        return special(number).to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// What is no finite number, as the text format has it.
pub fn special(number: f64) -> &'static str {
    match number {
        n if n.is_nan() => "NaN",
        n if n < 0.0 => "-Inf",
        _ => "+Inf",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (number, text) in [
            (0.0, "0"),
            (99.9, "99.9"),
            (123_456.0, "123456"),
            (1_048_576.0, "1.048576e+06"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(shortest(number), text);
        }
    }
}
