//! Whether two servers differ: ratios taken round by round, and how far rounds disagree.

/// One figure of one server over the rounds, against that of the first server.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The median over the rounds of this server's figure divided by the first server's.
    pub ratio: f64,
    /// The lowest and highest ratio of a round.
    pub range: (f64, f64),
    /// How far rounds of one and the same server lie apart, as a share: the noise.
    pub noise: f64,
    /// The difference may be the noise's.
    pub within_noise: bool,
}

/// The middle of the figures (the mean of the two middle ones). NaN of none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// How far figures lie apart, as a share of their median: the mean distance between neighbours in
/// time is blind to a slow drift of the machine, which the alternation cancels.
fn spread(figures: &[f64]) -> f64 {
    let distances: Vec<f64> = figures.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    if distances.is_empty() {
        0.0
    } else {
        distances.iter().sum::<f64>() / distances.len() as f64 / median(figures)
    }
}

/// Compares a server with the first one; round `i` of both ran one after the other.
pub fn compare(first: &[f64], other: &[f64]) -> Option<Comparison> {
    let ratios: Vec<f64> = first
        .iter()
        .zip(other)
        .filter(|(first, other)| **first > 0.0 && **other > 0.0)
        .map(|(first, other)| other / first)
        .collect();
    if ratios.is_empty() {
        return None;
    }
    let ratio = median(&ratios);
    let range = ratios
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), &ratio| (low.min(ratio), high.max(ratio)));
    let noise = spread(first).max(spread(other));
    // Rounds that do not agree which server is ahead prove nothing; one round alone neither.
    let disagree = range.0 <= 1.0 && range.1 >= 1.0;
    let within_noise = ratios.len() < 2 || disagree || (ratio - 1.0).abs() <= noise;
    Some(Comparison { ratio, range, noise, within_noise })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_difference_is_one() {
        let comparison = compare(&[100.0, 101.0, 99.0], &[150.0, 149.0, 151.0]).unwrap();
        assert!((comparison.ratio - 1.5).abs() < 0.03 && !comparison.within_noise);
    }

    #[test]
    fn rounds_that_disagree_prove_nothing() {
        assert!(compare(&[100.0, 100.0, 100.0], &[99.0, 101.0, 104.0]).unwrap().within_noise);
        assert!(compare(&[80.0, 120.0, 80.0], &[84.0, 126.0, 84.0]).unwrap().within_noise);
        assert!(compare(&[100.0], &[150.0]).unwrap().within_noise);
    }

    #[test]
    fn a_drift_that_both_share_is_no_noise_between_them() {
        let first = [100.0, 104.0, 108.0, 112.0, 116.0];
        let other: Vec<f64> = first.iter().map(|figure| figure * 1.2).collect();
        assert!(!compare(&first, &other).unwrap().within_noise);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(
            median(&[]).is_nan()
                && compare(&[], &[]).is_none()
                && compare(&[0.0], &[1.0]).is_none()
        );
    }
}
