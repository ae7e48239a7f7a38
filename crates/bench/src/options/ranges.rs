//! Option values with a structure: ranges, ratios, lists, patterns.

use crate::workload::keys::{Pattern, Zipf};
use crate::workload::values::Sizes;

/// `10-20`; both ends are included.
pub fn range(option: &str, text: &str) -> Result<(u64, u64), String> {
    let ends = text.split_once('-').and_then(|(low, high)| {
        Some((low.trim().parse::<u64>().ok()?, high.trim().parse::<u64>().ok()?))
    });
    match ends {
        Some((low, high)) if low <= high => Ok((low, high)),
        Some(_) => Err(format!("{option} {text}: the first number must not be above the second")),
        None => Err(format!("{option} {text}: two numbers are needed, such as 10-20")),
    }
}

/// `1:10`, not both 0.
pub fn ratio(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once(':').and_then(|(sets, gets)| {
        Some((sets.trim().parse::<u64>().ok()?, gets.trim().parse::<u64>().ok()?))
    });
    match parts {
        Some((0, 0)) => Err("--ratio 0:0 sends nothing".into()),
        Some(parts) => Ok(parts),
        None => Err(format!("--ratio {text}: two numbers are needed, such as 1:10")),
    }
}

/// `100:8,4000:2`; a size without a weight weighs 1.
pub fn size_list(text: &str) -> Result<Sizes, String> {
    let refuse =
        || format!("--data-size-list {text}: sizes and weights are needed, such as 100:8,4000:2");
    let mut list = Vec::new();
    for item in text.split(',') {
        let (size, weight) = item.split_once(':').unwrap_or((item, "1"));
        let size = size.trim().parse().map_err(|_| refuse())?;
        let weight = weight.trim().parse().map_err(|_| refuse())?;
        list.push((size, weight));
    }
    if list.iter().map(|&(_, weight): &(u64, u64)| weight).sum::<u64>() == 0 {
        return Err(format!("--data-size-list {text}: the weights are all 0"));
    }
    Ok(Sizes::weighted(&list))
}

/// `50,99,99.9`.
pub fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(|item| item.trim().parse()).collect();
    match numbers {
        Ok(numbers) if numbers.iter().all(|number| (0.0..=100.0).contains(number)) => Ok(numbers),
        _ => Err(format!(
            "--print-percentiles {text}: numbers from 0 to 100 are needed, such as 50,99,99.9"
        )),
    }
}

/// What shapes the patterns that have a shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The lowest key.
    pub first: u64,
    /// The highest key.
    pub last: u64,
    /// Of a gaussian, in keys.
    pub deviation: Option<f64>,
    /// Of a gaussian.
    pub median: Option<f64>,
    /// Of a zipfian.
    pub exponent: Option<f64>,
}

/// A pattern from its letter.
pub fn pattern(option: &str, letter: &str, shape: &Shape) -> Result<Pattern, String> {
    let width = (shape.last - shape.first) as f64;
    Ok(match letter {
        "S" | "s" => Pattern::Sequential,
        "P" | "p" => Pattern::Parallel,
        "R" | "r" => Pattern::Uniform,
        "G" | "g" => {
            let median = shape.median.unwrap_or(shape.first as f64 + width / 2.0);
            let deviation = shape.deviation.unwrap_or(width / 6.0);
            if !(shape.first as f64..=shape.last as f64).contains(&median) {
                return Err(format!("--key-median {median} lies outside of the range of keys"));
            }
            if !deviation.is_finite() || deviation < 0.0 {
                return Err(format!("--key-stddev {deviation}: a number from 0 up is needed"));
            }
            Pattern::Gaussian { median, deviation }
        }
        "Z" | "z" => {
            let exponent = shape.exponent.unwrap_or(1.0);
            if !(exponent > 0.0 && exponent <= 5.0) {
                return Err(format!(
                    "--key-zipf-exp {exponent}: a number above 0 and up to 5 is needed"
                ));
            }
            Pattern::Zipf(Zipf::new(shape.last - shape.first + 1, exponent))
        }
        _ => return Err(format!("{option} {letter}: the patterns are S, R, P, G and Z")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_ones() {
        assert_eq!(range("--x", "5-9"), Ok((5, 9)));
        assert_eq!(ratio("1:10"), Ok((1, 10)));
        assert_eq!(size_list("10:1,20"), Ok(Sizes::weighted(&[(10, 1), (20, 1)])));
        assert_eq!(percentiles("50, 99.9"), Ok(vec![50.0, 99.9]));
    }

    #[test]
    fn bad_ones_are_named() {
        for error in [
            range("--x", "9-5").unwrap_err(),
            range("--x", "9").unwrap_err(),
            ratio("1").unwrap_err(),
            ratio("0:0").unwrap_err(),
            size_list("a:1").unwrap_err(),
            size_list("1:0").unwrap_err(),
            percentiles("101").unwrap_err(),
        ] {
            assert!(error.starts_with("--"), "{error}");
        }
        let shape =
            Shape { first: 1, last: 9, deviation: None, median: Some(50.0), exponent: Some(9.0) };
        assert!(pattern("--key-pattern", "X", &shape).is_err());
        assert!(pattern("--key-pattern", "G", &shape).is_err());
        assert!(pattern("--key-pattern", "Z", &shape).is_err());
    }
}
